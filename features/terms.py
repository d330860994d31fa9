"""Quantities that several feature groups share, computed once per call.

All arrays have one entry per candidate row and are float64; every count stays below 2**53, so integer arithmetic on
them is exact.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..generator import (
    Columns,
    Problem,
    Schedule,
    Scheduler,
    accumulator_registers,
    shared_memory_bytes,
)
from ..generator.estimates import launch_grid
from .hardware import Hardware
from .occupancy import OTHER_REGISTERS, estimated_registers, register_budget, resident_ctas

FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]
Value = FloatArray | BoolArray | NDArray[np.int32] | float
"""One feature: an array of shape (rows,), or a number that is the same for all rows. ``log2_x`` is given as x."""


@dataclass(frozen=True, slots=True)
class Terms:
    """Shared intermediates of one (columns, problem, hardware)."""

    columns: Columns
    problem: Problem
    hardware: Hardware

    swapped: BoolArray
    """The kernel runs the transposed problem."""
    m: FloatArray
    """M as the kernel sees it (elements): N where swapped."""
    n: FloatArray
    """N as the kernel sees it (elements): M where swapped."""
    tile_m: FloatArray
    tile_n: FloatArray
    tile_k: FloatArray
    cluster_m: FloatArray
    cluster_n: FloatArray
    cluster: FloatArray
    """CTAs per cluster."""
    stages: FloatArray
    plain: BoolArray
    """Plain warpspecialized: one CTA per tile, not persistent."""
    pingpong: BoolArray
    """Two consumer warpgroups, each on a tile of its own."""
    cooperative: BoolArray
    """Two consumer warpgroups on one tile."""
    splitting: BoolArray
    """Kernels whose scheduler can split K: Stream-K's, and the one over slices of K."""

    accumulators: FloatArray
    """Float32 accumulator registers per consumer thread."""
    register_budget: FloatArray
    """Registers a consumer thread may use."""
    spilled: FloatArray
    """Registers a consumer thread needs beyond that."""
    stage_bytes: FloatArray
    """Bytes of one mainloop stage: an A tile and a B tile."""
    shared_memory: FloatArray
    """Bytes of shared memory per CTA."""
    resident: FloatArray
    """CTAs that fit on one SM at a time."""
    active: FloatArray
    """SMs busy at the same time with clusters of this size, and the persistent grid."""
    slots: FloatArray
    """CTAs running at the same time: ``active * resident``."""

    along_m: BoolArray
    """Consecutive CTAs walk along M."""
    swizzle: FloatArray
    """Swizzle the scheduler really uses."""
    tiles_m: FloatArray
    """Tiles that hold part of D, along M."""
    tiles_n: FloatArray
    padded_m: FloatArray
    """Tiles along M that run: rounded up to whole clusters and swizzle groups."""
    padded_n: FloatArray
    blocks: FloatArray
    """Tiles that run: ``padded_m * padded_n``."""
    k_tiles: FloatArray
    """Mainloop iterations over all of K."""


def build_terms(columns: Columns, problem: Problem, hardware: Hardware) -> Terms:
    """Compute the shared intermediates.

    Parameters
    ----------
    columns
        Candidate rows; without launch columns the default launch, unswapped, is meant.
    problem
        The problem, as the caller states it (unswapped).
    hardware
        The GPU.

    Raises
    ------
    UnknownHardware
        If the GPU's description has no peak for the problem's element type.
    """
    rows = len(columns["tile_m"])
    tile_m, tile_n, tile_k, cluster_m, cluster_n, stages = (
        columns[name].astype(np.float64) for name in ("tile_m", "tile_n", "tile_k", "cluster_m", "cluster_n", "stages")
    )
    swapped = columns["swapped"] == 1 if "swapped" in columns else np.zeros(rows, dtype=np.bool_)
    m = np.where(swapped, float(problem.n), float(problem.m))
    n = np.where(swapped, float(problem.m), float(problem.n))
    plain = columns["schedule"] == int(Schedule.WARPSPECIALIZED)
    accumulators = accumulator_registers(columns).astype(np.float64)
    budget = register_budget(plain, accumulators)
    shared_memory = shared_memory_bytes(columns, problem.dtype).astype(np.float64)
    resident = resident_ctas(plain, estimated_registers(plain, accumulators), shared_memory, hardware)
    cluster = columns["cluster_m"] * columns["cluster_n"]
    active = hardware.active_ctas[cluster]  # also the persistent grid: launches are told the active clusters

    tiles_m, tiles_n = np.ceil(m / tile_m), np.ceil(n / tile_n)
    grid = launch_grid(columns, tiles_m, tiles_n)  # padding tiles run their whole mainloop
    return Terms(
        columns=columns, problem=problem, hardware=hardware,
        swapped=swapped, m=m, n=n, tile_m=tile_m, tile_n=tile_n, tile_k=tile_k,
        cluster_m=cluster_m, cluster_n=cluster_n, cluster=cluster_m * cluster_n, stages=stages,
        plain=plain,
        pingpong=columns["schedule"] == int(Schedule.PINGPONG),
        cooperative=columns["schedule"] == int(Schedule.COOPERATIVE),
        splitting=columns["scheduler"] != int(Scheduler.PERSISTENT),
        accumulators=accumulators, register_budget=budget,
        spilled=np.maximum(accumulators + OTHER_REGISTERS - budget, 0.0),
        stage_bytes=(tile_m + tile_n) * tile_k * float(problem.dtype.bytes),
        shared_memory=shared_memory, resident=resident, active=active, slots=active * resident,
        # A plain kernel's grid is (tiles along M, tiles along N): the hardware starts blocks with x fastest.
        along_m=grid.along_m | plain, swizzle=grid.swizzle, tiles_m=tiles_m, tiles_n=tiles_n,
        padded_m=grid.padded_m, padded_n=grid.padded_n, blocks=grid.padded_m * grid.padded_n,
        k_tiles=np.ceil(problem.k / tile_k),
    )  # fmt: skip
