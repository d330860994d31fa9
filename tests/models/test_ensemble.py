"""Ensembles: the mean of scores in units, saved and loaded, trained from a configuration."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from cutlass_ranker.datasets import Group
from cutlass_ranker.features import Hardware
from cutlass_ranker.generator.columns import take
from cutlass_ranker.generator.errors import ModelMismatch
from cutlass_ranker.models import InvalidTraining, TrainingConfig, load_model, train
from cutlass_ranker.models.base import Standardizer
from cutlass_ranker.models.card import render_card
from cutlass_ranker.models.ensemble import Ensemble, combine, score_unit
from cutlass_ranker.models.network import Network
from cutlass_ranker.models.validation import regret, regrets

RIDGES = {
    "kind": "ensemble",
    "feature_set": "structural",
    "folds": 3,
    "threads": 1,
    "members": [{"kind": "ridge", "ridge_penalty": 0.01}, {"kind": "ridge", "ridge_penalty": 30.0}],
}


def linear(*weights: float) -> Network:
    """A network that multiplies two features by each of the weights, one member for each."""
    plain = Standardizer(np.zeros(2, np.float32), np.ones(2, np.float32), np.zeros(2, bool))
    return Network(plain, [[(np.array([[weight, weight]], np.float32), np.zeros(1, np.float32))] for weight in weights])


def test_scores_are_the_mean_in_units() -> None:
    ensemble = Ensemble([linear(1.0, 3.0), linear(10.0)], [2.0, 5.0])
    rows = np.array([[1.0, 0.0], [2.0, 1.0]], np.float32)
    # Means 2 and 6 in units of 2, and 10 and 30 in units of 5.
    assert ensemble.scores(rows).tolist() == [(1 + 2) / 2, (3 + 6) / 2]
    assert ensemble.member_scores(rows).tolist() == [[0.5, 1.5], [1.5, 4.5], [2.0, 6.0]]


def test_the_first_member_shortlists_and_the_others_decide() -> None:
    first = np.array([5.0, 9.0, 7.0, 8.0])
    second, third = np.array([99.0, 1.0, 99.0, 4.0]), np.array([0.0, 3.0, 0.0, 6.0])
    # Rows 1 and 3 get the means 2 and 5 of the others; the best of the rest, 7, moves down to 2, and row 0 with it.
    assert combine([first, second, third], 2).tolist() == [0.0, 2.0, 2.0, 5.0]
    # A short list is not shortened: the others decide everything.
    assert combine([first, second], 4).tolist() == combine([first, second], 9).tolist() == second.tolist()
    assert combine([first, second], 0).tolist() == [52.0, 5.0, 53.0, 6.0]
    # Nothing moves that is below already.
    assert combine([first, np.full(4, 20.0)], 1).tolist() == [5.0, 20.0, 7.0, 8.0]


def test_rows_that_are_not_shortlisted_never_meet_the_second_member() -> None:
    rows = np.array([[0.0, 0.0], [3.0, 0.0], [1.0, 0.0], [2.0, 0.0]], np.float32)

    class Heavy(Network):
        def member_scores(self, features: np.ndarray) -> np.ndarray:
            assert features[:, 0].tolist() == [3.0, 2.0]
            return np.array([[1.0, 5.0], [3.0, 5.0]])

    heavy = Heavy(linear(1.0).standardizer, linear(1.0).members)
    scores, known, members = Ensemble([linear(1.0), heavy], [1.0, 2.0], 2).detailed(rows)
    # Row 3 has 2.5 and row 1 has 1.0, where the best of the rest is already.
    assert scores.tolist() == [0.0, 1.0, 1.0, 2.5]
    assert known.tolist() == [1, 3]
    assert members.tolist() == [[0.5, 2.5], [1.5, 2.5]]


def test_unit_by_hand(make_group: Callable[..., Group]) -> None:
    many = make_group([(kernel, True, 10.0) for kernel in range(20)])
    few = make_group([(0, True, 10.0), (1, True, 10.0), (1, False, 10.0)])
    # 16th of 20 scores 0, 1, ..., 19 is 4; of the two kernels the second counts, other launches do not.
    assert score_unit([many, few], [np.arange(20.0), np.array([3.0, 2.0, 99.0])]) == pytest.approx((15 + 1) / 2)
    assert score_unit([few], [np.zeros(3)]) == 1e-6


@pytest.mark.parametrize("units", [[1.0], [1.0, 0.0], [1.0, -1.0]])
def test_units_that_do_not_fit_are_refused(units: list[float]) -> None:
    with pytest.raises(ModelMismatch, match="positive unit for each"):
        Ensemble([linear(1.0), linear(2.0)], units)


def test_members_share_what_the_ensemble_says() -> None:
    config = TrainingConfig.from_json({**RIDGES, "seed": 5})
    assert [member.feature_set for member in config.members] == ["structural"] * 2
    assert [(member.seed, member.folds, member.threads) for member in config.members] == [(5, 3, 1)] * 2
    value = json.loads(json.dumps(config.to_json()))
    assert TrainingConfig.from_json(value) == config
    assert not {"xgboost", "mlp", "samples", "objective"} & set(value)
    assert "xgboost" not in value["members"][0]


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ({"kind": "ensemble"}, "at least two members"),
        ({"kind": "ensemble", "members": [{}]}, "at least two members"),
        ({"kind": "ensemble", "members": [RIDGES, RIDGES]}, "none of them an ensemble"),
        ({"kind": "mlp", "members": [{}, {}]}, "only an ensemble has members"),
        ({"kind": "ensemble", "members": 3}, "members must be a list of objects"),
        ({"kind": "ensemble", "members": [{"kind": "mlp", "mlp": {"depth": 1}}, {}]}, "members.mlp.depth"),
    ],
)
def test_mistakes_are_named(value: dict, words: str) -> None:
    with pytest.raises(InvalidTraining, match=words):
        TrainingConfig.from_json(value)


def test_train_save_and_load(
    training_groups: list[Group], held_out_groups: list[Group], hardware: Hardware, tmp_path: Path
) -> None:
    config = TrainingConfig.from_json(RIDGES)
    model = train(training_groups, hardware, config, evaluation=held_out_groups, name="both")
    alone = [train(training_groups, hardware, member) for member in config.members]
    units = [member["unit"] for member in model.manifest["members"]]
    group = held_out_groups[0]
    parts = [each.score(group.columns, group.problem, hardware) / unit for each, unit in zip(alone, units, strict=True)]
    scores = model.score(group.columns, group.problem, hardware)
    np.testing.assert_allclose(scores, np.mean(parts, axis=0), rtol=1e-6)
    assert units[0] != units[1]

    folder = model.save(tmp_path / "both")
    assert {path.name for path in folder.iterdir()} == {"manifest.json", "member0.safetensors", "member1.safetensors"}
    loaded = load_model(folder)
    assert np.array_equal(loaded.score(group.columns, group.problem, hardware), scores)
    mine = regrets([model.score(g.columns, g.problem, hardware) for g in held_out_groups], held_out_groups).mean()
    assert loaded.manifest["metrics"]["evaluation"]["mean_regret"] == pytest.approx(mine)
    card = render_card(model.manifest)
    assert "mean of several rankers" in card
    assert "a first stage" not in card
    staged = render_card({**model.manifest, "rescore": 16})
    assert "a first stage (ridge regression, trained with least squares on log relative speed) orders all" in staged
    assert "again" in staged
    assert "(ridge regression, trained with least squares on log relative speed; ridge regression, " in card

    # Saving another kind there leaves none of the members' files.
    alone[0].save(folder)
    assert {path.name for path in folder.iterdir()} == {"manifest.json", "model.safetensors"}


def test_two_stages_are_saved_and_evaluated_as_deployed(
    training_groups: list[Group], held_out_groups: list[Group], hardware: Hardware, tmp_path: Path
) -> None:
    config = TrainingConfig.from_json({**RIDGES, "rescore": 4})
    model = train(training_groups, hardware, config, evaluation=held_out_groups)
    second = train(training_groups, hardware, config.members[1])
    loaded = load_model(model.save(tmp_path / "stages"))
    unit = loaded.manifest["members"][1]["unit"]
    found = []
    for group in held_out_groups:
        # The second model alone decides, but only about the first one's four best kernels.
        kernels = np.flatnonzero(group.ranked_first)
        scores = loaded.score(take(group.columns, kernels), group.problem, hardware)
        best = int(kernels[scores.argmax()])
        alone = second.score(group.columns, group.problem, hardware) / unit
        assert scores.max() == pytest.approx(alone[best], rel=1e-6)
        launches = np.flatnonzero(group.variant == group.variant[best])
        found.append(regret(group, int(launches[alone[launches].argmax()])))
    assert loaded.manifest["metrics"]["evaluation"]["mean_regret"] == pytest.approx(np.mean(found), abs=0.01)


def test_a_forest_and_a_network_together(training_groups: list[Group], hardware: Hardware, tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="training needs torch")
    pytest.importorskip("xgboost", reason="training needs xgboost")
    members = [
        {"kind": "mlp", "mlp": {"hidden": [8], "epochs": 1, "members": 2}},
        {"kind": "xgboost", "xgboost": {"rounds": 8}},
    ]
    config = TrainingConfig.from_json({**RIDGES, "folds": 2, "members": members})
    model = train(training_groups[:8], hardware, config)
    assert model.manifest["objective"] == "lambdarank"
    assert model.manifest["members"][1]["rounds"] in range(1, 9)
    group = training_groups[20]
    scores = model.score(group.columns, group.problem, hardware)
    loaded = load_model(model.save(tmp_path / "mixed"))
    assert np.array_equal(loaded.score(group.columns, group.problem, hardware), scores)
    assert loaded.scorer.member_scores(np.zeros((5, loaded.scorer.features), np.float32)).shape == (3, 5)
    with pytest.raises(ValueError, match="copy its folder"):
        loaded.save(tmp_path / "again")


def test_damaged_members_are_refused(training_groups: list[Group], hardware: Hardware, tmp_path: Path) -> None:
    config = replace(TrainingConfig.from_json(RIDGES), folds=2)
    folder = train(training_groups[:8], hardware, config).save(tmp_path / "both")
    manifest = json.loads((folder / "manifest.json").read_text())
    for members, words in (
        ([{"kind": "ridge"}] * 2, "members of model .* cannot be read"),
        (manifest["members"][:1], "at least two members"),
        ([*manifest["members"], manifest["members"][0]], "weights of model .* cannot be read"),
    ):
        (folder / "manifest.json").write_text(json.dumps({**manifest, "members": members}))
        with pytest.raises(ModelMismatch, match=words):
            load_model(folder)
