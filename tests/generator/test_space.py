"""Search spaces against the paper's published counts and against brute force."""

from __future__ import annotations

import csv
from itertools import product
from math import ceil, gcd
from pathlib import Path

import numpy as np
import pytest

from cutlass_ranker.generator import (
    CONFIG_COLUMNS,
    DTYPES,
    LAUNCH_COLUMNS,
    Decomposition,
    Epilogue,
    InvalidConfig,
    KernelConfig,
    Problem,
    Schedule,
    Scheduler,
    UnsupportedProblem,
    candidates_for,
    effective_launch,
    enumerate_configs,
    enumerate_launches,
    ranked_candidates,
    valid_mask,
)
from cutlass_ranker.generator import columns as col

BF16 = DTYPES["bf16"]


def table_9() -> list[tuple[int, int, int, str, int]]:
    path = Path(__file__).parent / "fixtures" / "paper_eval_shapes.csv"
    with path.open() as file:
        rows = list(csv.DictReader(line for line in file if not line.startswith("#")))
    return [
        (int(row["M"]), int(row["N"]), int(row["K"]), layout, int(row[layout]))
        for row in rows
        for layout in ("TN", "TT", "NN", "NT")
    ]


@pytest.mark.parametrize(("m", "n", "k", "layout", "count"), table_9())
def test_table_9_of_the_paper(m: int, n: int, k: int, layout: str, count: int) -> None:
    assert col.size(enumerate_configs(space="paper", problem=Problem(m, n, k, layout))) == count


def test_table_9_is_whole() -> None:
    assert len(table_9()) == 68


def test_paper_space_against_plain_loops() -> None:
    # The paper's Tables 1 and 2 written out once more, with scalars, for one tile_m.
    expected = set()
    for tile_n, tile_k, stages in product(
        (16, 32, 48, 64, 80, 96, 128, 192, 256), (32, 64, 128, 256, 512), range(2, 13)
    ):
        for schedule, tma in product(range(3), (0, 1)):
            rows = 128 if schedule == 2 else 64
            width = gcd(32, tile_n)
            subtiles = ceil(128 / rows) * ceil(tile_n / width)
            staging = rows * width * 2 * max(min(subtiles, 4), min(subtiles, 2) + 1) if tma else 0
            main = stages * (128 + tile_n) * tile_k * 2
            total = max(main, staging) if schedule == 0 else main + staging
            if total + 2048 <= 232448:
                for scheduler in (0, 1) if schedule == 2 else (0,):
                    expected.add((tile_n, tile_k, stages, schedule, tma, scheduler))
    columns = enumerate_configs("TN")
    chosen = col.take(columns, (columns["tile_m"] == 128) & (columns["cluster_m"] == 4) & (columns["cluster_n"] == 2))
    keys = ("tile_n", "tile_k", "stages", "schedule", "epilogue", "scheduler")
    assert set(zip(*(chosen[key].tolist() for key in keys), strict=True)) == expected


@pytest.mark.parametrize("space", ["paper", "extended"])
def test_rows_are_valid_and_distinct(space: str) -> None:
    columns = enumerate_configs("NT", space=space)
    assert valid_mask(columns, BF16).all()
    table = np.stack([columns[name] for name in CONFIG_COLUMNS], axis=1)
    assert len(np.unique(table, axis=0)) == len(table)


def test_extended_holds_the_paper_space_and_the_swapped_family() -> None:
    extended, paper = enumerate_configs("TN", space="extended"), enumerate_configs("TN")
    kept = (
        (extended["family"] == paper["family"][0])
        & (extended["void_c"] == 0)
        & (extended["epilogue"] != Epilogue.TMA_64)
        & np.isin(extended["tile_n"], np.unique(paper["tile_n"]))
    )
    assert kept.sum() == col.size(paper)
    assert set(extended["tile_n"].tolist()) == set(range(16, 257, 16))
    assert len(np.unique(extended["family"])) == 2


def test_problem_guards() -> None:
    columns = enumerate_configs(problem=Problem(64, 32, 512))
    assert columns["tile_m"].max() == 128 and columns["tile_n"].max() == 64
    # Below M = 64 and N = 16 the guard does not apply.
    columns = enumerate_configs(problem=Problem(32, 8, 512))
    assert columns["tile_m"].max() == 256 and columns["tile_n"].max() == 256


def test_unknown_space_and_unsupported_problem() -> None:
    with pytest.raises(InvalidConfig, match="paper, extended"):
        enumerate_configs(space="everything")
    with pytest.raises(UnsupportedProblem, match="16 bytes"):
        enumerate_configs(problem=Problem(64, 64, 63))


def test_candidates_are_direct_or_swapped() -> None:
    configs = col.concat([enumerate_configs(layout) for layout in ("TNT", "TNN", "NNT")])
    columns, rows = candidates_for(configs, Problem(16, 4096, 4096))
    families = columns["family"][columns["swapped"] == 0], columns["family"][columns["swapped"] == 1]
    assert set(families[0].tolist()) == {0} and set(families[1].tolist()) == {1}
    for name in CONFIG_COLUMNS:
        assert (configs[name][rows] == columns[name]).all()
    # A swapped kernel sees N = 16, so tiles wider than 32 are refused; a direct one sees M = 16, below the guard.
    assert columns["tile_n"][columns["swapped"] == 1].max() == 32
    assert columns["tile_m"][columns["swapped"] == 0].max() == 256


def test_launches_are_distinct_and_complete() -> None:
    problem = Problem(2048, 1024, 4096)
    configs = enumerate_configs("TN")
    picked = col.take(configs, np.random.default_rng(0).choice(col.size(configs), 300, replace=False))
    columns, rows = enumerate_launches(picked, problem)
    along_m, log_swizzle = effective_launch(columns, problem)
    key = np.stack([rows, along_m, log_swizzle, columns["decomposition"], columns["splits"]], axis=1)
    assert len(np.unique(key, axis=0)) == len(key)
    for row in range(300):
        mine = rows == row
        first = int(np.flatnonzero(mine)[0])
        assert columns["raster"][first] == 0 and columns["swizzle"][first] == 1
        if picked["schedule"][row] == 0:
            assert mine.sum() == 1
        # Every effective (raster, swizzle) that any request can reach is there once.
        small = min(-(-2048 // picked["tile_m"][row]), -(-1024 // picked["tile_n"][row]))
        if picked["schedule"][row] != 0 and picked["cluster_m"][row] * picked["cluster_n"][row] == 1:
            reachable = 1 + (small >= 2) + (small >= 3) + (small >= 6)
            plain = mine & (columns["decomposition"] == 0)
            assert plain.sum() == 2 * reachable


def test_other_columns_stay_with_their_kernels() -> None:
    configs = enumerate_configs("TN")
    configs = col.take(configs, np.random.default_rng(1).choice(col.size(configs), 400, replace=False))
    marked = {**configs, "mark": np.arange(400, dtype=np.int32)}
    for enumerate_some in (candidates_for, ranked_candidates, enumerate_launches):
        columns, rows = enumerate_some(marked, Problem(256, 256, 8192))
        assert len(rows) > 100
        assert np.array_equal(columns["mark"], rows)


def test_launches_come_kernel_by_kernel_in_one_order() -> None:
    configs = [stream_k(128, 64), KernelConfig(128, 128, 64, 1, 1, 4, Schedule.WARPSPECIALIZED, Epilogue.TMA)]
    columns, rows = enumerate_launches(col.from_configs(configs), Problem(256, 512, 1024))
    # 2 x 4 tiles: the heuristic rasters along M, so that asking for it is new only with a swizzle of 2, the most that
    # 2 tiles allow. 16 k-tiles leave two to each of 8 slices, and 4 to each of 4 where others than the serial ones pay.
    expected = [
        (0, 1, 0, 1), (1, 2, 0, 1), (2, 1, 0, 1), (2, 2, 0, 1), (0, 1, 1, 1), (0, 1, 3, 1),
        *((0, 1, 2, splits) for splits in (2, 4, 8)),
        *((0, 1, kind, splits) for kind in (5, 6) for splits in (2, 3, 4)),
        (0, 1, 0, 1),
    ]  # fmt: skip
    asked = zip(*(columns[name].tolist() for name in LAUNCH_COLUMNS), strict=True)
    assert list(asked) == expected
    assert rows.tolist() == [0] * (len(expected) - 1) + [1]


def test_splits_keep_two_k_tiles() -> None:
    configs = enumerate_configs("TN")
    columns, _ = enumerate_launches(col.take(configs, configs["scheduler"] == 1), Problem(256, 256, 1024))
    split = columns["decomposition"] == Decomposition.SPLIT_K
    assert (-(-1024 // columns["tile_k"][split]) >= 2 * columns["splits"][split]).all()
    assert set(columns["splits"][split].tolist()) == {2, 4, 8, 16}


def stream_k(tile_n: int, tile_k: int, cluster_n: int = 1, family: str = "TNT") -> KernelConfig:
    return KernelConfig(
        128, tile_n, tile_k, 1, cluster_n, 4, Schedule.COOPERATIVE, Epilogue.TMA, Scheduler.STREAM_K, family
    )


@pytest.mark.parametrize(
    ("shape", "kernel", "serial", "parallel", "atomic"),
    [
        # One tile of ceil(24896/128) = 195 k-tiles: 4 k-tiles a slice leave at most 48 slices.
        (
            (16, 48, 24896), stream_k(16, 128, family="TNN"),
            [2, 4, 8, 16], [2, 3, 4, 6, 8, 12, 16, 24, 32, 48], [4, 8, 16, 24, 32, 48],
        ),
        # The same of 389 k-tiles; a cluster of four N-tiles makes 4 tiles of it, 66 slices at most.
        (
            (16, 48, 24896), stream_k(16, 64, 4, "TNN"),
            [2, 4, 8, 16], [2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64], [4, 8, 16, 24, 32, 48, 64],
        ),
        # 8 x 4 = 32 tiles: 8 slices are 256 units, 264 the most.
        ((1024, 512, 65536), stream_k(128, 64), [2, 4, 8], [2, 3, 4, 6, 8], [4, 8]),
        # 10 x 9 = 90 tiles are too many, 16 k-tiles too few for more than 4 slices.
        ((1280, 1152, 65536), stream_k(128, 64), [], [], []),
        ((128, 128, 1024), stream_k(128, 64), [2, 4], [2, 3, 4], [4]),
    ],
)  # fmt: skip
def test_splits_worth_a_look_by_hand(
    shape: tuple[int, int, int], kernel: KernelConfig, serial: list[int], parallel: list[int], atomic: list[int]
) -> None:
    configs, problem = col.from_configs([kernel]), Problem(*shape)
    asked, _ = ranked_candidates(configs, problem)
    # What is worth a look with one kernel is with two.
    assert asked["splits"].tolist() == [1, *serial, *parallel, *parallel]
    assert asked["decomposition"].tolist() == [0, *[2] * len(serial), *[5] * len(parallel), *[6] * len(parallel)]
    every, rows = ranked_candidates(configs, problem, deterministic=False)
    assert every["splits"].tolist() == [1, *serial, *parallel, *parallel, *atomic]
    assert every["decomposition"].tolist() == [*asked["decomposition"].tolist(), *[4] * len(atomic)]
    assert not rows.any()
    launches, _ = enumerate_launches(configs, problem)
    for kind in (Decomposition.SPLIT_K_PARALLEL, Decomposition.SPLIT_K_SEPARATE):
        assert launches["splits"][launches["decomposition"] == kind].tolist() == parallel
    assert Decomposition.SPLIT_K_ATOMIC not in launches["decomposition"]
    launches, _ = enumerate_launches(configs, problem, deterministic=False)
    assert launches["splits"][launches["decomposition"] == Decomposition.SPLIT_K_ATOMIC].tolist() == atomic


def test_atomic_adds_add_no_candidates_where_no_split_is_worth_a_look() -> None:
    configs = enumerate_configs("TN")
    for shape in ((4096, 4096, 4096), (64, 4096, 256)):
        without, _ = ranked_candidates(configs, Problem(*shape))
        with_atomic, _ = ranked_candidates(configs, Problem(*shape), deterministic=False)
        assert col.size(with_atomic) == col.size(without), shape


def test_slices_of_k_are_equal_and_aligned() -> None:
    config = KernelConfig(
        64, 32, 128, 1, 1, 6, Schedule.WARPSPECIALIZED, Epilogue.NOSMEM, Scheduler.SPLIT_K, "TNN", True
    )
    configs = col.from_configs([config])
    # 17024 / 8 = 2128 = 2^4 x 7 x 19: of the proposed counts 2, 4, 8 and 16 divide it. ceil(17024/128) = 133 k-tiles
    # and 1 tile of D would allow 33 slices.
    problem = Problem(32, 64, 17024)
    ranked, rows = ranked_candidates(configs, problem)
    launches, origin = enumerate_launches(configs, problem)
    for listed in (ranked, launches):
        assert listed["splits"].tolist() == [2, 4, 8, 16]
        assert set(listed["decomposition"].tolist()) == {Decomposition.SPLIT_K_SEPARATE}
        assert set(listed["swapped"].tolist()) == {1}
    assert not rows.any() and not origin.any()
    # No launch leaves K whole, and 17032 / 8 = 2129 is prime.
    assert not col.size(candidates_for(configs, problem)[0])
    assert not col.size(ranked_candidates(configs, Problem(32, 64, 17032))[0])
    assert not col.size(enumerate_launches(configs, Problem(32, 64, 17032))[0])
