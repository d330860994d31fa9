"""Two-stage ranking against a brute force over every kernel and launch."""

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from cutlass_ranker.features import get_hardware
from cutlass_ranker.generator import (
    Columns,
    Decomposition,
    Epilogue,
    KernelConfig,
    Launch,
    Problem,
    Raster,
    Schedule,
    Scheduler,
    candidates_for,
    enumerate_configs,
    enumerate_launches,
    shared_memory_bytes,
)
from cutlass_ranker.generator import columns as col
from cutlass_ranker.selector import rank_candidates
from cutlass_ranker.selector.pool import shipped_pool

H200 = get_hardware("h200")
PROBLEM = Problem(4096, 4096, 4096)


class Formula:
    """A ranker made of a function of columns."""

    name = "formula"
    feature_set = "none"

    def __init__(self, formula: Callable[[Columns], NDArray[np.floating]]) -> None:
        self.formula = formula
        self.rows: list[int] = []

    def score(self, columns: Columns, problem: Problem, hardware: object) -> NDArray[np.float64]:
        self.rows.append(col.size(columns))
        return np.asarray(self.formula(columns), dtype=np.float64)


def hashed(columns: Columns) -> NDArray[np.float64]:
    """Scores without any structure, the same for the same candidate."""
    total = np.zeros(col.size(columns))
    for place, name in enumerate(sorted(columns)):
        total += np.sin((columns[name] + 1.0) * (place + 1.3))
    return total


def sample(rows: int) -> Columns:
    """Draw kernels that have a launch on ``PROBLEM``, whose K is too short to be split over slices."""
    space = enumerate_configs("TNT", "bf16", "extended", PROBLEM)
    space = col.take(space, space["scheduler"] != Scheduler.SPLIT_K)
    return col.take(space, np.random.default_rng(5).choice(col.size(space), rows, replace=False))


def test_the_launch_equals_brute_force_when_every_kernel_reaches_stage_two() -> None:
    configs = sample(40)
    ranking = rank_candidates(Formula(hashed), configs, PROBLEM, H200, top=40)
    assert sorted(ranking.row.tolist()) == list(range(40))
    changed = 0
    for place, row in enumerate(ranking.row):
        one = col.take(configs, np.array([row]))
        launches, _ = enumerate_launches(one, PROBLEM)
        chosen = col.take(ranking.candidates, np.array([place]))
        assert {name: chosen[name][0] for name in one} == {name: one[name][0] for name in one}
        assert hashed(chosen)[0] == hashed(launches).max()
        changed += hashed(chosen)[0] > ranking.score[place]
    assert changed > 20


def test_scores_are_those_of_the_default_launch() -> None:
    configs = sample(60)
    default, rows = candidates_for(configs, PROBLEM)
    ranking = rank_candidates(Formula(hashed), configs, PROBLEM, H200)
    np.testing.assert_array_equal(ranking.row, rows)
    np.testing.assert_array_equal(ranking.score, hashed(default))


def test_only_the_best_of_stage_one_get_other_launches() -> None:
    configs = sample(200)
    default, _ = candidates_for(configs, PROBLEM)
    ranking = rank_candidates(Formula(hashed), configs, PROBLEM, H200, top=20)
    changed = np.flatnonzero(np.any([ranking.candidates[name] != default[name] for name in default], axis=0))
    assert len(changed) > 5
    assert set(changed) <= set(np.argsort(-ranking.score)[:20])


def test_without_launches_everything_is_scored_once() -> None:
    ranker = Formula(hashed)
    ranking = rank_candidates(ranker, sample(30), PROBLEM, H200, launches=False)
    assert ranker.rows == [30]
    assert (ranking.candidates["raster"] == Raster.HEURISTIC).all()


def test_a_ranker_that_ignores_launches_keeps_the_default() -> None:
    ranking = rank_candidates(Formula(lambda c: c["stages"]), sample(30), PROBLEM, H200)
    for row in range(30):
        assert col.candidate_at(ranking.candidates, row, PROBLEM.dtype).launch == Launch()


def test_ties_at_the_cut_all_reach_stage_two() -> None:
    # Swizzle 8 is worth 1, everything else nothing: all kernels tie in stage 1, so the order of the input is no matter.
    configs = sample(30)
    scheduled = configs["schedule"] != Schedule.WARPSPECIALIZED
    ranking = rank_candidates(Formula(lambda c: c["swizzle"] == 8), configs, PROBLEM, H200, top=1)
    launches, origin = enumerate_launches(configs, PROBLEM)
    can = np.isin(np.arange(30), origin[launches["swizzle"] == 8])
    assert can.any()
    assert not can[~scheduled].any()
    np.testing.assert_array_equal(ranking.candidates["swizzle"], np.where(can, 8, 1))


def test_splits_are_ranked_with_the_default_launches() -> None:
    # 256x256 on 128x128 is 4 tiles, and K = 16384 is 256 k-tiles of 64: splits of 2 to 16 are all worth a look.
    stream_k = KernelConfig(128, 128, 64, 1, 1, 4, Schedule.COOPERATIVE, Epilogue.TMA, Scheduler.STREAM_K)
    pingpong = KernelConfig(128, 128, 64, 1, 1, 4, Schedule.PINGPONG, Epilogue.TMA)
    configs, long_k = col.from_configs([stream_k, pingpong]), Problem(256, 256, 16384)
    ranking = rank_candidates(Formula(lambda c: c["splits"] * (c["splits"] < 10)), configs, long_k, H200)
    assert ranking.row.tolist() == [0, 1]
    assert ranking.score.tolist() == [8, 1]
    assert ranking.candidates["splits"].tolist() == [8, 1]
    assert ranking.candidates["decomposition"].tolist() == [Decomposition.SPLIT_K, Decomposition.HEURISTIC]
    # 64 slices of 4 tiles are 256 units, 264 the most: parallel ones, or with atomic adds if those are allowed.
    by_splits = Formula(lambda c: c["splits"] + (c["decomposition"] == Decomposition.SPLIT_K_ATOMIC))
    parallel = rank_candidates(by_splits, configs, long_k, H200)
    assert parallel.candidates["splits"].tolist() == [64, 1]
    assert parallel.candidates["decomposition"].tolist() == [Decomposition.SPLIT_K_PARALLEL, Decomposition.HEURISTIC]
    by_kind = Formula(lambda c: c["splits"] + (c["decomposition"] == Decomposition.SPLIT_K_SEPARATE))
    separate = rank_candidates(by_kind, configs, long_k, H200)
    assert separate.score.tolist() == [65, 1]
    assert separate.candidates["decomposition"].tolist() == [Decomposition.SPLIT_K_SEPARATE, Decomposition.HEURISTIC]
    atomic = rank_candidates(by_splits, configs, long_k, H200, deterministic=False)
    assert atomic.candidates["splits"].tolist() == [64, 1]
    assert atomic.candidates["decomposition"].tolist() == [Decomposition.SPLIT_K_ATOMIC, Decomposition.HEURISTIC]
    # With many tiles no split is worth a look.
    wide = rank_candidates(Formula(lambda c: c["splits"]), configs, PROBLEM, H200, launches=False)
    assert wide.score.tolist() == [1, 1]


def test_kernels_that_cannot_serve_are_left_out_and_rows_point_back() -> None:
    tnt = KernelConfig(128, 128, 64, 1, 1, 4, Schedule.PINGPONG, Epilogue.TMA)
    tnn = KernelConfig(64, 16, 128, 1, 1, 4, Schedule.WARPSPECIALIZED, Epilogue.NOSMEM, family="TNN")
    nnt = KernelConfig(64, 16, 128, 1, 1, 4, Schedule.WARPSPECIALIZED, Epilogue.NOSMEM, family="NNT")
    small = Problem(16, 4096, 4096)  # tile_n 128 > 2N is refused for the swapped side only
    ranking = rank_candidates(Formula(hashed), col.from_configs([nnt, tnt, tnn]), small, H200)
    assert ranking.row.tolist() == [1, 2]
    assert ranking.candidates["swapped"].tolist() == [0, 1]
    none = rank_candidates(Formula(hashed), col.from_configs([nnt]), small, H200)
    assert none.row.size == 0
    assert none.score.size == 0


@pytest.mark.parametrize("scheduler", list(Scheduler))
def test_the_input_is_not_changed(scheduler: Scheduler) -> None:
    configs = col.from_configs([KernelConfig(128, 128, 64, 1, 1, 4, Schedule.COOPERATIVE, Epilogue.TMA, scheduler)])
    before = {name: values.copy() for name, values in configs.items()}
    rank_candidates(Formula(hashed), configs, PROBLEM, H200)
    for name, values in before.items():
        np.testing.assert_array_equal(configs[name], values)


def test_the_shipped_kernels_know_their_shared_memory() -> None:
    configs = dict(shipped_pool(PROBLEM).configs)
    noted = configs.pop("shared_memory")
    np.testing.assert_array_equal(noted, shared_memory_bytes(configs, PROBLEM.dtype))
    ranking = rank_candidates(Formula(hashed), configs | {"shared_memory": noted}, PROBLEM, H200)
    np.testing.assert_array_equal(ranking.candidates["shared_memory"], noted[ranking.row])


def test_a_kernel_over_slices_of_k_is_ranked_with_its_best_split() -> None:
    kinds = (Epilogue.NOSMEM, Epilogue.TMA)
    slices = [
        KernelConfig(64, 32, 128, 1, 1, 6, Schedule.WARPSPECIALIZED, kind, Scheduler.SPLIT_K, void_c=True)
        for kind in kinds
    ]
    whole = KernelConfig(64, 32, 128, 1, 1, 6, Schedule.WARPSPECIALIZED, Epilogue.TMA)
    configs = col.from_configs([slices[0], whole, slices[1]])
    # 8192 / 8 = 1024 is divided by 2, 4, 8 and 16 of the proposed counts; 64 k-tiles allow 16 slices.
    ranking = rank_candidates(Formula(lambda c: c["splits"] % 16), configs, Problem(64, 32, 8192), H200)
    assert ranking.row.tolist() == [0, 1, 2]
    assert ranking.candidates["splits"].tolist() == [8, 1, 8]
    # What cannot be split evenly has no launch.
    assert rank_candidates(Formula(hashed), configs, Problem(64, 32, 8200), H200).row.tolist() == [1]
