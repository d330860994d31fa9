"""Reasons: Shapley values against their definition, and what is said about hand-made groups."""

from collections.abc import Callable
from dataclasses import replace
from itertools import permutations

import numpy as np
import pytest

from cutlass_ranker.datasets import Group
from cutlass_ranker.eval import RankerMethod
from cutlass_ranker.eval.describe import describe, knob_differences
from cutlass_ranker.eval.explain import explain, shapley
from cutlass_ranker.features import feature_names, featurize, get_hardware
from cutlass_ranker.generator import (
    Candidate,
    Columns,
    Decomposition,
    Epilogue,
    KernelConfig,
    Launch,
    Problem,
    Raster,
    Schedule,
    Scheduler,
    columns,
)

H200 = get_hardware("h200")
PINGPONG = KernelConfig(128, 128, 64, 1, 1, 4, Schedule.PINGPONG, Epilogue.TMA)
COOPERATIVE = KernelConfig(128, 256, 64, 2, 1, 3, Schedule.COOPERATIVE, Epilogue.TMA)
PLAIN = KernelConfig(64, 64, 128, 1, 1, 4, Schedule.WARPSPECIALIZED, Epilogue.NOSMEM)
MakeGroup = Callable[..., Group]


class Weighted:
    """A linear ranker on the full features."""

    name = "weighted"
    feature_set = "full"

    def __init__(self, **weights: float) -> None:
        self.weight = np.array([weights.get(name, 0.0) for name in feature_names("full")])

    def score(self, columns: Columns, problem: Problem, hardware: object) -> np.ndarray:
        return self.score_matrix(featurize(columns, problem, H200, "full"))

    def score_matrix(self, features: np.ndarray) -> np.ndarray:
        return features.astype(np.float64) @ self.weight


def test_shapley_values_are_mean_effects_over_all_orders():
    rng = np.random.default_rng(3)
    first, second = rng.normal(size=(2, 7)).astype(np.float32)
    players = [np.array([0, 1]), np.array([2]), np.array([3, 5]), np.array([4, 6])]

    def score(rows: np.ndarray) -> np.ndarray:
        rows = rows.astype(np.float64)
        return rows[:, 0] * rows[:, 2] + np.sin(rows[:, 3] * rows[:, 4]) + np.maximum(rows[:, 5], rows[:, 1])

    expected = np.zeros(4)
    orders = list(permutations(range(4)))
    for order in orders:
        row = second.copy()
        for player in order:
            before = score(row[None, :])[0]
            row[players[player]] = first[players[player]]
            expected[player] += (score(row[None, :])[0] - before) / len(orders)
    found = shapley(score, first, second, players)
    assert found == pytest.approx(expected)
    assert found.sum() == pytest.approx(float(score(first[None, :])[0] - score(second[None, :])[0]))


def test_a_linear_score_is_split_exactly(make_group: MakeGroup):
    # M = N = K = 1024. Pick 128x256x64: 8 · 4 = 32 tiles, accumulators 128 · 256 / 256 threads = 128.
    # Oracle 128x128x64: 64 tiles; each of two pingpong groups has a tile to itself: 128 · 128 / 128 = 128.
    group = make_group([(PINGPONG, Launch(), False, 10.0), (COOPERATIVE, Launch(), False, 20.0)])
    method = RankerMethod(Weighted(log2_tile_n=3.0, log2_tiles=1.0, stages=-0.5, log2_cluster_m=-0.25), H200)
    reason = explain(method, group)
    # Knobs: 3 · (8 − 7) − 0.5 · (3 − 4) − 0.25 · (1 − 0) = 3.25; work: log2(32) − log2(64) = −1; lead 2.25.
    assert reason.lead == pytest.approx(2.25)
    effects = {influence.group: influence.effect for influence in reason.influences}
    assert effects["structural"] == pytest.approx(3.25)
    assert effects["work"] == pytest.approx(-1.0)
    assert all(abs(effects[name]) < 1e-9 for name in effects if name not in ("structural", "work"))
    leading = reason.influences[0]
    assert (leading.group, leading.feature, leading.values) == ("structural", "tile_n", (256.0, 128.0))
    against = reason.influences[-1]
    assert (against.group, against.feature, against.values) == ("work", "tiles", (32.0, 64.0))
    assert (reason.oracle_rank, reason.kernels) == (2, 2)
    assert reason.knobs == {
        "tile": ("128x256x64", "128x128x64"),
        "cluster": ("2x1", "1x1"),
        "stages": ("3", "4"),
        "schedule": ("cooperative", "pingpong"),
    }
    assert reason.sentence == (
        "Picked 128x256x64, cluster 2x1, 3 stages, cooperative over 128x128x64, cluster 1x1, 4 stages, pingpong "
        "(ranked 2 of 2). For the pick spoke knobs and sizes (3.2: tile n 256 against 128). "
        "For the oracle spoke work decomposition (1: tiles 32 against 64)."
    )


def test_a_wrong_launch_of_the_right_kernel(make_group: MakeGroup):
    group = make_group(
        [
            (PINGPONG, Launch(), False, 10.0),
            (PINGPONG, Launch(Raster.ALONG_M, 4), False, 9.0),
            (PLAIN, Launch(), False, 30.0),
        ]
    )
    reason = explain(RankerMethod(Weighted(log2_tile_n=1.0, log2_max_swizzle=-1.0), H200), group)
    assert reason.knobs == {"raster": ("heuristic", "along m"), "swizzle": ("1", "4")}
    # log2 of swizzle 1 is 0, of 4 is 2.
    assert reason.lead == pytest.approx(2.0)
    assert reason.sentence.startswith(
        "Picked raster heuristic, swizzle 1 over raster along m, swizzle 4 (the same kernel). For the pick spoke knobs"
    )


def test_an_oracle_that_was_never_ranked(make_group: MakeGroup):
    group = make_group([(PINGPONG, Launch(Raster.ALONG_M, 4), False, 9.0), (PLAIN, Launch(), False, 30.0)])
    reason = explain(RankerMethod(Weighted(), H200), group)
    assert reason.oracle_rank == 0
    assert "which it could not pick" in reason.sentence
    assert np.isnan(reason.lead)


def test_a_ranker_without_features_is_explained_by_knobs(make_group: MakeGroup):
    class Narrow:
        name = "narrow"
        feature_set = "none"

        def score(self, columns: Columns, problem: Problem, hardware: object) -> np.ndarray:
            return -columns["tile_n"].astype(float)

    group = make_group([(PINGPONG, Launch(), False, 10.0), (replace(PINGPONG, tile_n=64), Launch(), False, 12.0)])
    reason = explain(RankerMethod(Narrow(), H200), group)
    assert reason.influences == ()
    assert reason.lead == 64.0
    assert reason.sentence == "Picked 128x64x64 over 128x128x64 (ranked 2 of 2)."


def test_the_oracle_needs_no_excuse(make_group: MakeGroup):
    group = make_group([(PINGPONG, Launch(), False, 10.0)])
    assert explain(RankerMethod(Weighted(), H200), group).sentence == "The pick is the oracle."


def test_descriptions_and_differences():
    table = columns.from_candidates(
        [Candidate(PLAIN, Launch(Raster.ALONG_N, 8), True), Candidate(PLAIN, Launch(), False)]
    )
    assert describe(table, 0) == "64x64x128 1x1, 4 stages, warpspecialized/nosmem, along n, swizzle 8, swapped"
    assert knob_differences(table, 0, 1) == {
        "swap": ("swapped", "unswapped"),
        "raster": ("along n", "heuristic"),
        "swizzle": ("8", "1"),
    }
    assert knob_differences(table, 1, 1) == {}


def test_descriptions_of_decompositions():
    words = {
        Decomposition.HEURISTIC: "",
        Decomposition.DATA_PARALLEL: ", data parallel",
        Decomposition.SPLIT_K: ", 12 splits",
        Decomposition.STREAM_K: ", stream k",
        Decomposition.SPLIT_K_ATOMIC: ", 12 atomic splits",
        Decomposition.SPLIT_K_PARALLEL: ", 12 parallel splits",
        Decomposition.SPLIT_K_SEPARATE: ", 12 separate splits",
    }
    kernel = replace(COOPERATIVE, scheduler=Scheduler.STREAM_K)
    launches = [Launch(decomposition=kind, splits=12 if "splits" in text else 1) for kind, text in words.items()]
    table = columns.from_candidates([Candidate(kernel, launch) for launch in launches])
    start = "128x256x64 2x1, 3 stages, cooperative/tma, stream_k"
    assert [describe(table, row) for row in range(7)] == [start + text for text in words.values()]
