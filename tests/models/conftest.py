"""Synthetic measurements: real candidates of the generator, timed by a made-up model of the hardware."""

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from cutlass_ranker.datasets import Group
from cutlass_ranker.features import HARDWARE, Hardware
from cutlass_ranker.generator import (
    LAUNCH_COLUMNS,
    Columns,
    Epilogue,
    Launch,
    Problem,
    Scheduler,
    candidates_for,
    enumerate_configs,
    enumerate_launches,
)
from cutlass_ranker.generator import columns as col

SIZES = (8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192)


def draw_kernels(count: int, seed: int = 0) -> Columns:
    """Random kernels of the extended space, both families of a TNT problem; small clusters only, as a catalogue has.

    Only such as have a default launch.
    """
    rng = np.random.default_rng(seed)
    space = enumerate_configs("TNT", "bf16", "extended")
    small = (space["cluster_m"] * space["cluster_n"] <= 4) & (space["tile_k"] <= 128)
    usable = np.flatnonzero(small & (space["scheduler"] != Scheduler.SPLIT_K))
    return col.take(space, np.sort(rng.choice(usable, count, replace=False)))


def draw_problems(count: int, seed: int = 0) -> list[Problem]:
    """Random problems: M from tiny to large, N and K at least 128."""
    rng = np.random.default_rng(seed)
    sizes = {
        (int(rng.choice(SIZES)), int(rng.choice(SIZES[4:])), int(rng.choice(SIZES[4:]))) for _ in range(20 * count)
    }
    return [Problem(*size) for size in rng.permutation(sorted(sizes))[:count].tolist()]


def true_time(columns: Columns, problem: Problem, hardware: Hardware) -> np.ndarray:
    """Made-up time of candidates, µs: waves of tiles, each bound by the tensor cores or by memory, plus start-up."""
    swapped = columns["swapped"] != 0
    m, n = np.where(swapped, problem.n, problem.m), np.where(swapped, problem.m, problem.n)
    tile_m, tile_n = columns["tile_m"], columns["tile_n"]
    tiles = -(-m // tile_m) * -(-n // tile_n)
    stream_k = columns["scheduler"] == 1
    waves = np.where(stream_k, np.maximum(tiles / hardware.sm_count, 1.0) * 1.04, -(-tiles // hardware.sm_count))
    steps = -(-problem.k // columns["tile_k"])
    rate = hardware.peak_flops["bf16"] / hardware.sm_count * tile_n / (tile_n + 40) * tile_m / (tile_m + 20)
    rate = rate * np.choose(columns["schedule"], [0.8, 1.0, 0.97]) * (1 - 0.4 * (tile_m * tile_n > 128 * 256))
    compute = 2 * tile_m * tile_n * columns["tile_k"] / rate
    load = 2 * (tile_m + tile_n) * columns["tile_k"] / (hardware.dram_bandwidth / hardware.sm_count) * 0.6
    step = np.maximum(compute, load) + 6e-7 / np.minimum(columns["stages"], steps)
    along = np.where((columns["raster"] == 1) == (m > n), 0.99, 1.01) * (1 + 0.01 * (columns["swizzle"] == 8) * (m < n))
    tail = 1e-6 + tile_m * tile_n * 2e-11 * np.where(columns["epilogue"] != Epilogue.NOSMEM, 1.0, 1.6)
    return 1e6 * (waves * (steps * step + tail) * along + 2e-6)


def draw_group(
    kernels: Columns, problem: Problem, number: int, hardware: Hardware, noise: float = 0.01, split: str = "train"
) -> Group:
    """Measure every kernel that fits with its default launch, and all launches of the 8 truly fastest."""
    rng = np.random.default_rng([7, number])
    candidates, row = candidates_for(kernels, problem)
    best = np.argsort(true_time(candidates, problem, hardware))[:8]
    launches, origin = enumerate_launches(col.take(candidates, best), problem)
    columns = col.concat([candidates, launches])
    default = np.logical_and.reduce([columns[name] == getattr(Launch(), name) for name in LAUNCH_COLUMNS])
    keep = np.ones(len(default), dtype=bool)
    keep[len(row) :] = ~default[len(row) :]
    columns, kernel = col.take(columns, keep), np.concatenate([row, row[best][origin]])[keep]
    time = true_time(columns, problem, hardware) * np.exp(noise * rng.standard_normal(len(kernel)))
    return Group(
        problem_id=number,
        problem=problem,
        split=split,
        sources=("synthetic",),
        columns=columns,
        kernel_id=kernel.astype(np.int32),
        time_us=time,
        spread=np.full(len(kernel), 1.349 * noise),
        coarse=time > 3 * time.min(),
        default_launch=default[keep],
    )


@pytest.fixture(scope="session")
def time_model() -> Callable[[Columns, Problem, Hardware], np.ndarray]:
    """The noise-free time behind the synthetic groups, µs."""
    return true_time


@pytest.fixture(scope="session")
def hardware() -> Hardware:
    return HARDWARE["h200"]


@pytest.fixture(scope="session")
def kernels() -> Columns:
    """The kernels of the synthetic groups; their positions are the kernel ids."""
    return draw_kernels(100)


@pytest.fixture(scope="session")
def training_groups(kernels: Columns, hardware: Hardware) -> list[Group]:
    """48 problems."""
    return [draw_group(kernels, problem, i, hardware) for i, problem in enumerate(draw_problems(72)[:48])]


@pytest.fixture(scope="session")
def held_out_groups(kernels: Columns, hardware: Hardware) -> list[Group]:
    """24 other problems on the same kernels."""
    return [
        draw_group(kernels, problem, 48 + i, hardware, split="eval") for i, problem in enumerate(draw_problems(72)[48:])
    ]


@pytest.fixture
def make_group() -> Callable[..., Group]:
    """A factory of hand-made groups: rows of (kernel id, default launch, time in µs)."""

    def make(
        rows: Sequence[tuple[int, bool, float]], problem: Problem | None = None, coarse: Sequence[bool] | None = None
    ) -> Group:
        config = draw_kernels(1)
        columns = col.with_launch(col.take(config, np.zeros(len(rows), dtype=np.intp)))
        return Group(
            problem_id=0,
            problem=problem or Problem(1024, 1024, 1024),
            split="train",
            sources=("made",),
            columns=columns,
            kernel_id=np.array([kernel for kernel, _, _ in rows], dtype=np.int32),
            time_us=np.array([time for _, _, time in rows], dtype=np.float64),
            spread=np.full(len(rows), 0.001),
            coarse=np.zeros(len(rows), dtype=bool) if coarse is None else np.array(coarse),
            default_launch=np.array([default for _, default, _ in rows], dtype=bool),
        )

    return make
