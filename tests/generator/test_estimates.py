"""Static estimates against the compiler's own figures and hand calculations."""

from __future__ import annotations

import csv
import importlib.util
import shutil
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from cutlass_ranker.generator import (
    DTYPES,
    Candidate,
    Epilogue,
    KernelConfig,
    Launch,
    Problem,
    Raster,
    Schedule,
    Scheduler,
    accumulator_registers,
    effective_launch,
    epilogue_bytes,
    mainloop_bytes,
    parse_name,
    shared_memory_bytes,
    tensor_bytes,
    threads_per_cta,
    tile_counts,
)
from cutlass_ranker.generator import columns as col
from cutlass_ranker.generator.estimates import launch_grid, with_shared_memory

FIXTURE = Path(__file__).parent / "fixtures" / "shared_storage.csv"
BF16 = DTYPES["bf16"]


def measured() -> list[tuple[KernelConfig, int]]:
    with FIXTURE.open() as file:
        return [(parse_name(row["name"]), int(row["shared_storage_bytes"])) for row in csv.DictReader(file)]


def test_shared_memory_equals_what_nvcc_says() -> None:
    configs, sizes = zip(*measured(), strict=True)
    assert shared_memory_bytes(col.from_configs(configs), BF16).tolist() == list(sizes)


def test_fixture_covers_what_it_must() -> None:
    configs = [config for config, _ in measured()]
    assert len(configs) >= 24
    assert {(c.schedule, c.epilogue, c.scheduler) for c in configs} == {
        *((s, e, Scheduler.PERSISTENT) for s in Schedule for e in Epilogue),
        *((Schedule.COOPERATIVE, e, Scheduler.STREAM_K) for e in Epilogue),
        *((s, e, Scheduler.SPLIT_K) for s in Schedule for e in (Epilogue.NOSMEM, Epilogue.TMA)),
    }
    assert {c.family[2] for c in configs} == {"T", "N"}
    assert {16, 32, 48, 64, 80, 96, 128, 192, 256} <= {c.tile_n for c in configs}
    assert {c.void_c for c in configs} == {False, True}


@pytest.mark.slow
@pytest.mark.skipif(
    shutil.which("nvcc") is None or importlib.util.find_spec("cutlass_library") is None,
    reason="needs nvcc and the CUTLASS headers (extra gpu)",
)
def test_three_sizes_recompiled(script: Callable[[str], ModuleType]) -> None:
    chosen = measured()[1::70][:3]
    assert script("shared_storage").sizes([config for config, _ in chosen]) == [size for _, size in chosen]


def test_hand_worked_tma_epilogue() -> None:
    # 128x128x64, 4 stages: main = 4*(128+128)*64*2 = 131072. Pingpong subtile 64x32 = 4096 B; 2*4 = 8 subtiles,
    # so 2 stages of D, max(4, 3) = 4 of C, shared: 16384. Cooperative subtile 128x32 = 8192 B, 4 subtiles: 32768.
    pingpong = KernelConfig(128, 128, 64, 1, 1, 4, Schedule.PINGPONG, Epilogue.TMA)
    cooperative = KernelConfig(128, 128, 64, 1, 1, 4, Schedule.COOPERATIVE, Epilogue.TMA)
    columns = col.from_configs([pingpong, cooperative])
    assert mainloop_bytes(columns, BF16).tolist() == [131072, 131072]
    assert epilogue_bytes(columns, BF16).tolist() == [16384, 32768]
    assert tensor_bytes(columns, BF16).tolist() == [147456, 163840]


def test_plain_warpspecialized_is_a_union() -> None:
    # 256x256x32, 2 stages: main = 2*512*32*2 = 65536; the epilogue, 4 stages of 64x32*2 = 4096 B, is smaller: 16384.
    config = KernelConfig(256, 256, 32, 1, 1, 2, Schedule.WARPSPECIALIZED, Epilogue.TMA)
    assert tensor_bytes(col.from_configs([config]), BF16).tolist() == [65536]


def test_threads_and_accumulators() -> None:
    kinds = [Schedule.WARPSPECIALIZED, Schedule.PINGPONG, Schedule.COOPERATIVE]
    columns = col.from_configs(KernelConfig(128, 256, 64, 1, 1, 3, kind, Epilogue.NOSMEM) for kind in kinds)
    assert threads_per_cta(columns).tolist() == [256, 384, 384]
    # 128*256 = 32768 accumulators over 128, 128 (a tile per warpgroup) and 256 threads.
    assert accumulator_registers(columns).tolist() == [256, 256, 128]


def launched(problem: Problem, raster: Raster, swizzle: int, swapped: bool = False) -> tuple[bool, int]:
    family = "TNN" if swapped else "TNT"
    config = KernelConfig(128, 128, 64, 2, 1, 4, Schedule.COOPERATIVE, Epilogue.TMA, family=family)
    columns = col.from_candidates([Candidate(config, Launch(raster, swizzle), swapped)])
    along_m, log_swizzle = effective_launch(columns, problem)
    return bool(along_m[0]), int(log_swizzle[0])


def test_tile_counts_round_up_to_clusters() -> None:
    config = KernelConfig(128, 128, 64, 4, 2, 4, Schedule.PINGPONG, Epilogue.TMA)
    tiles_m, tiles_n = tile_counts(col.from_configs([config]), Problem(640, 300, 64))
    # ceil(640/128) = 5 -> 8; ceil(300/128) = 3 -> 4
    assert (tiles_m[0], tiles_n[0]) == (8, 4)


@pytest.mark.parametrize(
    ("side", "wanted", "log"),
    # The smaller side has side/128 tiles: swizzle 2 needs 2 of them, 4 needs 3, 8 needs 6 (tile_scheduler_params.h).
    [(128, 8, 0), (256, 8, 1), (384, 4, 2), (640, 8, 2), (768, 8, 3), (768, 2, 1), (768, 1, 0)],
)
def test_swizzle_is_lowered_on_small_grids(side: int, wanted: int, log: int) -> None:
    assert launched(Problem(4096, side, 64), Raster.HEURISTIC, wanted)[1] == log


def test_the_grid_is_padded_to_clusters_times_swizzle() -> None:
    config = KernelConfig(128, 128, 64, 2, 1, 4, Schedule.COOPERATIVE, Epilogue.TMA)
    plain = KernelConfig(128, 128, 64, 2, 1, 4, Schedule.WARPSPECIALIZED, Epilogue.TMA)
    launches = [Launch(Raster.ALONG_M, 8), Launch(Raster.ALONG_M, 2), Launch()]
    columns = col.from_candidates([*(Candidate(config, launch) for launch in launches), Candidate(plain)])
    # 5 x 9 tiles, 6 x 9 once rounded up to clusters of two rows: 6 on the smaller side allow a swizzle of 8.
    grid = launch_grid(columns, np.full(4, 5.0), np.full(4, 9.0))
    assert grid.swizzle.tolist() == [8, 2, 1, 1]
    assert grid.padded_m.tolist() == [16, 8, 6, 6]
    assert grid.padded_n.tolist() == [16, 10, 9, 9]
    assert grid.along_m.tolist() == [True, True, True, False]


def test_shared_memory_is_noted_once_and_stays_with_its_kernel() -> None:
    columns = with_shared_memory(col.from_configs(config for config, _ in measured()), BF16)
    sizes = [size for _, size in measured()]
    assert columns["shared_memory"].tolist() == sizes
    backwards = col.with_launch(col.take(columns, slice(None, None, -1)))
    assert shared_memory_bytes(backwards, BF16).tolist() == sizes[::-1]
    # What was noted is what is read.
    assert shared_memory_bytes({**columns, "shared_memory": columns["shared_memory"] + 1}, BF16)[0] == sizes[0] + 1


def test_heuristic_rasters_along_m_when_there_are_more_tiles_along_n() -> None:
    assert launched(Problem(1024, 4096, 64), Raster.HEURISTIC, 1)[0] is True
    assert launched(Problem(4096, 1024, 64), Raster.HEURISTIC, 1)[0] is False
    assert launched(Problem(4096, 4096, 64), Raster.HEURISTIC, 1)[0] is False
    assert launched(Problem(4096, 1024, 64), Raster.ALONG_M, 1)[0] is True
    assert launched(Problem(1024, 4096, 64), Raster.HEURISTIC, 1, swapped=True)[0] is False
