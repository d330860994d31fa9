"""Memory behaviour: what crosses DRAM, L2 and the SMs' inputs, and how much of it L2 absorbs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from ..generator.estimates import ACCUMULATOR_BYTES
from .decomposition import Work
from .schema import OWN, PAPER, SCHEDULER, Feature
from .terms import FloatArray, Terms, Value

L2_USABLE: Final = 0.5
"""Share of L2 that distinct operand lines can fill: a line read from both halves of the GPU is kept in both."""
_MOST_PARTIALS: Final = 16.0

FEATURES: Final = (
    Feature("log2_min_bytes", "bytes", "memory", f"A and B read once, D written once; {PAPER}"),
    Feature("log2_intensity", "FLOP/byte", "memory", f"2MNK / minimum bytes; {PAPER}"),
    Feature("log2_tile_intensity", "FLOP/byte", "memory", f"2·tile_m·tile_n / (bytes·(tile_m + tile_n)); {OWN}"),
    Feature(
        "log2_cluster_intensity", "FLOP/byte", "memory",
        f"the same with multicast: A shared along cluster_n, B along cluster_m; {OWN}",
    ),
    Feature("log2_compute_time", "s", "memory", f"2MNK / tensor peak; {OWN}"),
    Feature("log2_memory_time", "s", "memory", f"minimum bytes / DRAM bandwidth; {OWN}"),
    Feature("log2_balance", "ratio", "memory", f"compute time / memory time; {OWN}"),
    Feature(
        "log2_restreaming", "ratio", "memory",
        f"(tiles_n·bytes(A) + tiles_m·bytes(B)) / (bytes(A) + bytes(B)); {PAPER}",
    ),
    Feature("log2_resident_panel", "ratio", "memory", f"min(tile_m, tile_n)·K·bytes / L2; {PAPER}"),
    Feature("log2_operands_per_l2", "ratio", "memory", f"bytes of A and B / L2; {OWN}"),
    Feature("log2_wave_panels_per_l2", "ratio", "memory", f"operand bytes of one wave of CTAs, all of K / L2; {OWN}"),
    Feature("log2_sm_bytes", "bytes", "memory", f"operand bytes written into shared memories; {OWN}"),
    Feature("log2_l2_bytes", "bytes", "memory", f"operand bytes read from L2, once per cluster; {OWN}"),
    Feature("log2_multicast", "ratio", "memory", f"operand bytes into shared memories / read from L2; {OWN}"),
    Feature(
        "log2_dram_ratio", "ratio", "memory",
        f"estimated DRAM reads of A and B / their size, from raster, swizzle and L2 size; {OWN}",
    ),
    Feature("log2_passes", "passes", "memory", f"times the operand along the raster is walked through; {OWN}"),
    Feature("log2_swizzle", "clusters", "memory", f"swizzle really used; {SCHEDULER}"),
    Feature("log2_wave_aspect", "ratio", "memory", f"rows / columns of D covered by one wave; {OWN}"),
    Feature("l2_hit", "fraction", "memory", f"1 − estimated DRAM reads / L2 reads; {OWN}"),
    Feature("along_m", "0/1", "memory", f"consecutive tiles really walk along M; {SCHEDULER}"),
    Feature(
        "partial_ratio", "ratio", "memory",
        f"bytes of partial sums written and read back / minimum bytes, at most {_MOST_PARTIALS:.0f}; {SCHEDULER}",
    ),
    Feature("workspace_memset", "0/1", "memory", f"barriers must be zeroed before the launch; {SCHEDULER}"),
    Feature("output_share", "fraction", "memory", f"bytes of D / minimum bytes; {OWN}"),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Traffic:
    """Bytes moved by the whole launch; float64 arrays of shape (rows,)."""

    a_bytes: FloatArray
    """Size of the kernel's A operand."""
    b_bytes: FloatArray
    sm_bytes: FloatArray
    """Operand bytes written into shared memories."""
    l2_bytes: FloatArray
    """Operand bytes read from L2."""
    dram_reads: FloatArray
    """Estimated operand bytes read from DRAM."""
    wave_panels: FloatArray
    """Operand bytes, over all of K, that the CTAs of one wave touch."""
    wave_rows: FloatArray
    """Rows of D that one wave covers."""
    wave_columns: FloatArray
    passes: FloatArray
    """Times the operand along the raster is walked through."""
    partial_bytes: FloatArray
    """Partial sums written to the workspace and read back."""


def estimate_traffic(terms: Terms, work: Work) -> Traffic:
    """Estimate what each level of the memory hierarchy moves.

    Shared memories take A once per column of tiles and B once per row of tiles; TMA multicast fetches both once per
    cluster from L2. Padding tiles fetch the operand that exists for them.

    DRAM: clusters start in raster order, ``swizzle`` of them side by side, so one wave covers a rectangle of D. The
    operand indexed across the raster is needed for one strip at a time, the one along the raster again for every strip.
    A second read is served by L2 as far as what was touched since (panels of strip and wave) leaves room in
    :data:`L2_USABLE` of it.
    """
    problem, size = terms.problem, float(terms.problem.dtype.bytes)
    a_bytes, b_bytes = terms.m * (problem.k * size), terms.n * (problem.k * size)
    sm_bytes = terms.padded_n * a_bytes + terms.padded_m * b_bytes
    columns, rows = terms.padded_n / terms.cluster_n, terms.padded_m / terms.cluster_m
    l2_bytes = columns * a_bytes + rows * b_bytes

    along = terms.along_m
    major, minor = np.where(along, rows, columns), np.where(along, columns, rows)
    clusters = terms.slots / terms.cluster
    strip = np.minimum(minor, terms.swizzle * np.maximum(1.0, np.floor(clusters / (terms.swizzle * major))))
    reach = np.clip(clusters / strip, 1.0, major)
    passes = np.ceil(minor / strip)
    along_bytes, across_bytes = np.where(along, a_bytes, b_bytes), np.where(along, b_bytes, a_bytes)
    strip_panel, reach_panel = across_bytes * (strip / minor), along_bytes * (reach / major)
    usable = L2_USABLE * terms.hardware.l2_bytes
    wave_panels = strip_panel + reach_panel
    kept_along = np.clip((usable - strip_panel) / along_bytes, 0.0, 1.0)
    kept_across = np.clip(usable / wave_panels, 0.0, 1.0)
    again_along = (passes - 1.0) * (1.0 - kept_along)
    again_across = (np.ceil(major / reach) - 1.0) * (1.0 - kept_across)
    dram_reads = along_bytes * (1.0 + again_along) + across_bytes * (1.0 + again_across)
    height, width = np.where(along, reach, strip), np.where(along, strip, reach)
    return Traffic(
        a_bytes=a_bytes, b_bytes=b_bytes, sm_bytes=sm_bytes, l2_bytes=l2_bytes,
        dram_reads=np.minimum(dram_reads, l2_bytes), wave_panels=wave_panels,
        wave_rows=height * terms.cluster_m * terms.tile_m, wave_columns=width * terms.cluster_n * terms.tile_n,
        passes=passes,
        partial_bytes=work.partial_tiles * terms.tile_m * terms.tile_n * (2.0 * ACCUMULATOR_BYTES),
    )  # fmt: skip


def compute(terms: Terms, work: Work, traffic: Traffic) -> dict[str, Value]:
    """Compute the features of :data:`FEATURES`."""
    problem, hardware = terms.problem, terms.hardware
    size = problem.dtype.bytes
    area = terms.tile_m * terms.tile_n * (2.0 / size)
    compute_time = problem.flops / hardware.peak(problem.dtype.name)
    memory_time = problem.min_bytes / hardware.dram_bandwidth
    operands = float(size * problem.k * (problem.m + problem.n))
    return {
        "log2_min_bytes": float(problem.min_bytes),
        "log2_intensity": problem.flops / problem.min_bytes,
        "log2_tile_intensity": area / (terms.tile_m + terms.tile_n),
        "log2_cluster_intensity": area / (terms.tile_m / terms.cluster_n + terms.tile_n / terms.cluster_m),
        "log2_compute_time": compute_time,
        "log2_memory_time": memory_time,
        "log2_balance": compute_time / memory_time,
        "log2_restreaming": (terms.tiles_n * traffic.a_bytes + terms.tiles_m * traffic.b_bytes) / operands,
        "log2_resident_panel": np.minimum(terms.tile_m, terms.tile_n) * (size * problem.k / hardware.l2_bytes),
        "log2_operands_per_l2": operands / hardware.l2_bytes,
        "log2_wave_panels_per_l2": traffic.wave_panels / hardware.l2_bytes,
        "log2_sm_bytes": traffic.sm_bytes,
        "log2_l2_bytes": traffic.l2_bytes,
        "log2_multicast": traffic.sm_bytes / traffic.l2_bytes,
        "log2_dram_ratio": traffic.dram_reads / operands,
        "log2_passes": traffic.passes,
        "log2_swizzle": terms.swizzle,
        "log2_wave_aspect": traffic.wave_rows / traffic.wave_columns,
        "l2_hit": 1.0 - traffic.dram_reads / traffic.l2_bytes,
        "along_m": terms.along_m,
        "partial_ratio": np.minimum(traffic.partial_bytes / problem.min_bytes, _MOST_PARTIALS),
        "workspace_memset": work.barrier_bytes > 0,
        "output_share": size * problem.m * problem.n / problem.min_bytes,
    }
