"""Training cells: what is trained on, how it is scored, importance."""

from dataclasses import replace

import numpy as np
import pytest

from cutlass_ranker.eval import propose
from cutlass_ranker.eval.study.importance import feature_groups, permutation_importance
from cutlass_ranker.eval.study.training import (
    FeatureRows,
    StudiedRanker,
    TrainingCell,
    parameters,
)
from cutlass_ranker.features import describe_features, feature_names, featurize
from cutlass_ranker.models.heldout import fit_one
from cutlass_ranker.models.samples import build_samples, feature_matrices
from cutlass_ranker.models.train import train

NAMES = feature_names("full")


def kept_without(group: str) -> tuple[str, ...]:
    return tuple(feature.name for feature in describe_features("full") if feature.group != group)


@pytest.mark.parametrize("group", ["memory", "structural"])
def test_a_left_out_group_is_really_gone(study_data, group):
    """The matrix has exactly the other columns, with their own values, and so has what a ranker is fitted to."""
    kept = kept_without(group)
    assert 0 < len(kept) < len(NAMES)
    rows = FeatureRows(study_data.training, study_data.hardware, "full", kept)
    full = feature_matrices(study_data.training, study_data.hardware, "full")
    for part, whole in zip(rows, full, strict=True):
        np.testing.assert_array_equal(part, np.stack([whole[:, NAMES.index(name)] for name in kept], axis=1))


def test_a_ranker_without_a_group_cannot_feel_it(study_data, tiny_options):
    """Scores of the deployed ranker stay the same whatever the left-out features say."""
    kept = kept_without("structural")
    config = tiny_options.training("xgboost", 0)
    rows = FeatureRows(study_data.training, study_data.hardware, "full", kept)
    scorer = fit_one(build_samples(study_data.training, rows, config), config)
    assert scorer.features == len(kept)
    group = study_data.evaluation[0]
    ranker = StudiedRanker(scorer, "full", rows.columns)
    matrix = featurize(group.columns, group.problem, study_data.hardware, "full")
    noise = matrix.copy()
    noise[:, [NAMES.index(name) for name in NAMES if name not in kept]] = np.nan
    expected = scorer.scores(noise[:, rows.columns])
    np.testing.assert_array_equal(ranker.score(group.columns, group.problem, study_data.hardware), expected)


def test_feature_rows_are_a_sequence_of_matrices(study_data):
    rows = FeatureRows(study_data.training, study_data.hardware, "structural", feature_names("structural"))
    whole = feature_matrices(study_data.training, study_data.hardware, "structural")
    assert len(rows) == len(whole)
    for index in (2, 0, 0, 3):
        np.testing.assert_array_equal(rows[index], whole[index])
    assert [len(part) for part in rows[1:3]] == [len(part) for part in whole[1:3]]


def test_the_result_is_that_of_training_for_release(study_data, tiny_options):
    """Same folds, rounds, final fit and cross-validated regret as ``models.train``, and the regret of its picks."""
    config = tiny_options.training("xgboost", 1)
    model = train(study_data.training, study_data.hardware, config)
    found = TrainingCell(config, NAMES).run(study_data)
    trained = model.manifest["training"]
    assert (found["model"]["rounds"], found["training"]["rows"]) == (trained["rounds"], trained["rows"])
    assert found["training"]["groups"] == found["training"]["shapes"] == 4
    cross = model.manifest["metrics"]["cross_validation"]["mean_regret"]
    assert found["cross_validation"]["mean_regret"] == pytest.approx(cross, abs=1e-6)
    regrets = [
        1 - group.oracle_us / group.time_us[propose(model, group, study_data.hardware)[0]]
        for group in study_data.evaluation
    ]
    assert found["regrets"] == pytest.approx(regrets, abs=1e-6)
    assert found["evaluation"]["mean_regret"] == pytest.approx(np.mean(regrets), abs=1e-6)
    assert found["evaluation"]["top1"] == pytest.approx(np.mean(np.array(regrets) <= 1e-9), abs=1e-6)
    assert found["best_of"]["1"] == found["evaluation"]["mean_regret"]
    assert found["best_of"]["8"] <= found["best_of"]["4"] <= found["best_of"]["2"] <= found["best_of"]["1"]
    assert found["clusters"] == list(range(8))


@pytest.mark.parametrize("kind", ["xgboost", "mlp"])
def test_the_same_cell_gives_the_same_result(study_data, tiny_options, kind):
    cell = TrainingCell(tiny_options.training(kind, 0), feature_names("structural")[:8])
    cell = replace(cell, training=replace(cell.training, feature_set="structural"))
    assert cell.run(study_data) == cell.run(study_data)


def test_a_part_of_the_shapes(study_data, tiny_options):
    found = TrainingCell(tiny_options.training("xgboost", 0), NAMES, shapes=2, draw=1).run(study_data)
    assert (found["training"]["groups"], found["training"]["shapes"]) == (2, 2)


def test_parameters_by_hand(study_data, tiny_options):
    config = tiny_options.training("mlp", 0, hidden=(8, 4))
    rows = FeatureRows(study_data.training, study_data.hardware, "full", NAMES[:10])
    samples = build_samples(study_data.training, rows, config)
    assert parameters(fit_one(samples, config)) == 10 * 8 + 8 + 8 * 4 + 4 + 4 + 1
    # Two trees of depth 1: a root and two leaves each.
    stumps = tiny_options.training("xgboost", 0, objective="mse", depth=1)
    assert parameters(fit_one(samples, stumps)) == 6


def test_work_grows_with_what_there_is_to_do(study_data, tiny_options):
    small = TrainingCell(tiny_options.training("mlp", 0, hidden=(16, 8)), NAMES)
    rows = sum(float((~g.coarse).sum() + 0.15 * g.coarse.sum()) for g in study_data.training)
    weights = len(NAMES) * 16 + 16 * 8 + 8
    # One epoch, one member; two folds of half the rows and one fit of all come to twice the rows.
    assert small.work(study_data) == ("mlp", pytest.approx(rows * 2 * (weights + 100_000)))
    assert replace(small, shapes=2).work(study_data).units < small.work(study_data).units
    trees = [TrainingCell(tiny_options.training("xgboost", 0, depth=depth), NAMES) for depth in (2, 4)]
    assert trees[1].work(study_data).units == pytest.approx(2 * trees[0].work(study_data).units)


class First:
    """Scores a candidate by one feature."""

    def __init__(self, column: int) -> None:
        self.column = column

    def scores(self, features: np.ndarray) -> np.ndarray:
        return features[:, self.column].astype(np.float64)


def test_importance_by_hand(toy_group):
    """A ranker of one feature that orders by speed: without it, its pick is any candidate."""
    group = toy_group([(0, 128, 4, 10.0), (1, 128, 3, 20.0), (2, 128, 2, 40.0), (3, 128, 5, 5.0)])
    names = ["stages", "log2_tile_n"]
    matrix = np.column_stack([group.columns["stages"], np.full(4, 7.0)]).astype(np.float32)
    found = permutation_importance(First(0), [group], [matrix], names, repeats=400, seed=1)
    assert found["baseline"] == 0.0
    # A permuted order makes every candidate equally likely: regrets 0.5, 0.75, 0.875 and 0.
    assert np.mean(found["features"]["stages"]) == pytest.approx((0.5 + 0.75 + 0.875) / 4, abs=0.04)
    assert set(found["features"]["stages"]) == {0.0, 0.5, 0.75, 0.875}
    assert set(found["features"]["log2_tile_n"]) == {0.0}
    assert found["groups"] == {"structural": found["features"]["stages"]}


def test_importance_keeps_other_launches_apart(toy_group):
    """The second row is another launch of kernel 0: its feature value never reaches the first stage."""
    group = toy_group([(0, 128, 4, 10.0), (0, 128, 9, 8.0), (1, 128, 3, 20.0)])
    group = replace(group, default_launch=np.array([True, False, True]))
    matrix = group.columns["stages"].astype(np.float32)[:, None]
    found = permutation_importance(First(0), [group], [matrix], ["stages"], repeats=200, seed=0)
    # Intact, kernel 0 wins and its better launch is taken; permuted, kernel 1 wins half of the time.
    assert set(found["features"]["stages"]) == {0.0, round(1 - 8 / 20, 6)}
    assert np.mean(found["features"]["stages"]) == pytest.approx(0.3, abs=0.08)


def test_feature_groups_are_those_of_the_schema():
    groups = feature_groups(NAMES)
    assert set(groups) == {feature.group for feature in describe_features("full")}
    assert [name for members in groups.values() for name in members] == list(NAMES)
    assert groups["structural"] == list(feature_names("structural"))
    assert feature_groups(["stages", "log2_m"]) == {"structural": ["log2_m", "stages"]}


def test_a_cell_with_permutations_reports_them(study_data, tiny_options):
    cell = TrainingCell(tiny_options.training("xgboost", 0), NAMES, permutations=2)
    found = cell.run(study_data)["importance"]
    assert set(found["groups"]) == set(feature_groups(NAMES))
    assert set(found["features"]) == set(NAMES)
    assert all(len(values) == 2 for values in found["features"].values())
    assert found["baseline"] == pytest.approx(np.mean(cell.run(study_data)["regrets"]), abs=1e-5)
    assert found["features"]["log2_k"] == [0.0, 0.0]  # equal for all candidates of a problem
