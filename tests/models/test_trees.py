"""NumPy evaluation of forests against XGBoost and against trees worked out by hand."""

import copy
import json

import numpy as np
import pytest

from cutlass_ranker.generator.errors import ModelMismatch
from cutlass_ranker.models.trees import Forest, slim


def stump(feature: int, threshold: float, left: float, right: float, default_left: int = 0) -> dict:
    """One split: feature < threshold goes left."""
    return {
        "left_children": [1, -1, -1],
        "right_children": [2, -1, -1],
        "split_indices": [feature, 0, 0],
        "split_conditions": [threshold, left, right],
        "default_left": [default_left, 0, 0],
        "split_type": [0, 0, 0],
        "categories_nodes": [],
    }


LEAF = {
    "left_children": [-1],
    "right_children": [-1],
    "split_indices": [0],
    "split_conditions": [0.125],
    "default_left": [0],
}
LOPSIDED = {  # x0 < 1 ? 1 : (x1 < 0 ? 2 : (x0 < 4 ? 4 : 8))
    "left_children": [1, -1, 3, -1, 5, -1, -1],
    "right_children": [2, -1, 4, -1, 6, -1, -1],
    "split_indices": [0, 0, 1, 0, 0, 0, 0],
    "split_conditions": [1.0, 1.0, 0.0, 2.0, 4.0, 4.0, 8.0],
    "default_left": [0] * 7,
}


def document(*trees: dict, base: str = "[5E-1]", features: int = 2) -> dict:
    """A model.json with the fields that are read."""
    return {
        "learner": {
            "gradient_booster": {"name": "gbtree", "model": {"trees": list(trees)}},
            "learner_model_param": {
                "base_score": base,
                "num_class": "0",
                "num_feature": str(features),
                "num_target": "1",
            },
            "objective": {"name": "rank:ndcg"},
        },
        "version": [3, 2, 0],
    }


def test_by_hand() -> None:
    forest = Forest.from_xgboost(document(stump(1, 0.5, -16.0, 16.0), LOPSIDED, LEAF))
    x = np.array([[0.5, 9], [1, -1], [2, 0], [3.999, 0.5], [4, 0.25], [1, 0.49]], dtype=np.float32)
    stumps = np.array([16, -16, -16, 16, -16, -16])
    lopsided = np.array([1, 2, 4, 4, 8, 4])
    assert forest.scores(x).tolist() == (0.5 + stumps + lopsided + 0.125).tolist()


def test_a_value_equal_to_the_threshold_goes_right_and_the_next_smaller_float_left() -> None:
    forest = Forest.from_xgboost(document(stump(0, 0.1, -1.0, 1.0), base="0"))
    below = np.nextafter(np.float32(0.1), np.float32(0))
    assert forest.scores(np.array([[0.1, 0], [below, 0]], dtype=np.float32)).tolist() == [1.0, -1.0]


def test_nan_takes_the_default_side() -> None:
    x = np.array([[np.nan, 0], [3, np.nan]], dtype=np.float32)
    to_left = Forest.from_xgboost(document(stump(0, 1.0, -1.0, 1.0, default_left=1), base="0"))
    to_right = Forest.from_xgboost(document(stump(0, 1.0, -1.0, 1.0, default_left=0), base="0"))
    assert to_left.scores(x).tolist() == [-1.0, 1.0]
    assert to_right.scores(x).tolist() == [1.0, 1.0]


def test_infinite_values_do_not_leave_a_path_that_has_ended() -> None:
    forest = Forest.from_xgboost(document(stump(1, 0.5, -16.0, 16.0), LOPSIDED, LEAF))
    x = np.array([[np.inf, np.inf], [-np.inf, np.inf], [np.inf, -np.inf]], dtype=np.float32)
    expected = [0.5 + 16 + 8 + 0.125, 0.5 + 16 + 1 + 0.125, 0.5 - 16 + 2 + 0.125]
    assert forest.scores(x).tolist() == expected
    assert forest.scores(np.tile(x, (50, 1))).tolist() == expected * 50


def test_head_stops_boosting_early() -> None:
    forest = Forest.from_xgboost(document(stump(0, 0.0, 1.0, 2.0), stump(0, 0.0, 10.0, 20.0), base="[1E0]"))
    x = np.array([[-1, 0], [1, 0]], dtype=np.float32)
    assert forest.head(1).scores(x).tolist() == [2.0, 3.0]
    assert forest.scores(x).tolist() == [12.0, 23.0]


def test_no_rows_and_no_trees() -> None:
    assert Forest.from_xgboost(document(LEAF)).scores(np.empty((0, 2), np.float32)).shape == (0,)
    assert Forest([], 0.25, 2).scores(np.zeros((3, 2), np.float32)).tolist() == [0.25] * 3


def change(path: list, value: object) -> dict:
    """A valid document with one field replaced."""
    result = copy.deepcopy(document(stump(0, 1.0, -1.0, 1.0)))
    at = result
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = value
    return result


@pytest.mark.parametrize(
    ("damaged", "words"),
    [
        (change(["learner", "gradient_booster", "name"], "dart"), "dart"),
        (change(["learner", "objective", "name"], "binary:logistic"), "binary:logistic"),
        (change(["learner", "learner_model_param", "num_class"], "3"), "several outputs"),
        (change(["learner", "learner_model_param", "base_score"], "[1E0,2E0]"), "several outputs"),
        (change(["learner", "gradient_booster", "model", "trees", 0, "split_type"], [1, 0, 0]), "categorical"),
        (
            change(["learner", "gradient_booster", "model", "trees", 0, "split_conditions"], ["x", 0, 0]),
            "not a readable",
        ),
        ({"learner": {}}, "not a readable"),
    ],
)
def test_what_is_not_evaluated_is_refused(damaged: dict, words: str) -> None:
    with pytest.raises(ModelMismatch, match=words):
        Forest.from_xgboost(damaged)


def test_too_deep_a_tree_is_refused() -> None:
    inner = 17
    chain = {
        "left_children": [*range(1, inner + 1), -1, *[-1] * inner],
        "right_children": [*range(inner + 1, 2 * inner + 1), -1, *[-1] * inner],
        "split_indices": [0] * (2 * inner + 1),
        "split_conditions": [1.0] * (2 * inner + 1),
        "default_left": [0] * (2 * inner + 1),
    }
    with pytest.raises(ModelMismatch, match="deeper than 16"):
        Forest.from_xgboost(document(chain))


@pytest.fixture(scope="module")
def ranking_data() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """3,000 rows of mixed features in 30 queries."""
    rng = np.random.default_rng(5)
    x = rng.standard_normal((3000, 12)).astype(np.float32)
    x[:, 3] *= 1e9
    x[:, 4:8] = np.round(x[:, 4:8])
    x[:, 8:] = x[:, 8:] > 0
    y = x[:, 0] * x[:, 4] + 2 * x[:, 8] * (x[:, 1] > 0) + 1e-9 * x[:, 3] + 0.1 * rng.standard_normal(3000)
    return x, np.clip(y - y.min(), 0, 31), np.repeat(np.arange(30), 100)


@pytest.mark.parametrize("objective", ["rank:ndcg", "rank:pairwise", "reg:squarederror"])
@pytest.mark.parametrize(("depth", "rounds"), [(1, 7), (3, 40), (6, 60), (10, 12)])
def test_equals_xgboost(
    ranking_data: tuple[np.ndarray, np.ndarray, np.ndarray], objective: str, depth: int, rounds: int
) -> None:
    xgboost = pytest.importorskip("xgboost", reason="compares with XGBoost itself")
    x, y, qid = ranking_data
    parameters = {"objective": objective, "max_depth": depth, "eta": 0.2, "nthread": 1, "max_bin": 64}
    if objective == "rank:ndcg":
        parameters |= {"ndcg_exp_gain": False, "lambdarank_pair_method": "topk", "lambdarank_num_pair_per_sample": 8}
    data = xgboost.DMatrix(x, label=y, qid=None if objective.startswith("reg") else qid)
    booster = xgboost.train(parameters, data, rounds)
    document = json.loads(json.dumps(slim(json.loads(bytes(booster.save_raw("json"))))))
    forest = Forest.from_xgboost(document)

    new = np.random.default_rng(6).permuted(x, axis=0)[:1337]
    new[::7, 0] = np.nan
    expected = booster.predict(xgboost.DMatrix(new), output_margin=True)
    assert expected.std() > 0.1
    np.testing.assert_allclose(forest.scores(new), expected, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(forest.scores(np.asfortranarray(new[:1])), expected[:1], rtol=1e-6, atol=1e-6)
    # A few rows take another way to the same bits.
    few = new[1:7]
    assert np.array_equal(forest.scores(few), forest.scores(new)[1:7])
    few = np.concatenate([new[:1], few])
    assert np.array_equal(forest.scores(few), forest.scores(new)[:7])
    known = new[~np.isnan(new[:, 0])]
    for rows in (known, new):
        for count in (40, 41, 128, 129):
            assert np.array_equal(forest.scores(rows[:count]), forest.scores(rows)[:count])
    early = booster.predict(xgboost.DMatrix(new), output_margin=True, iteration_range=(0, 5))
    np.testing.assert_allclose(forest.head(5).scores(new), early, rtol=1e-6, atol=1e-6)

    slimmed = xgboost.Booster()
    slimmed.load_model(bytearray(json.dumps(document).encode()))
    np.testing.assert_array_equal(slimmed.predict(xgboost.DMatrix(new), output_margin=True), expected)
