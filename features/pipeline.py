"""Pipeline behaviour: how a CTA's loads, matrix instructions and epilogue overlap."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from ..generator import Epilogue
from ..generator.types import FAMILIES
from .decomposition import Work
from .memory import Traffic
from .schema import OWN, PAPER, Feature
from .terms import FloatArray, Terms, Value

SHARED_BYTES_PER_CLOCK: Final = 128.0
"""Bytes per clock that one SM's shared memory delivers."""
FILL_BYTES_PER_CLOCK: Final = 64.0
"""Bytes per clock that one SM can receive from L2."""
STORE_BYTES_PER_CLOCK: Final = 32.0
"""Bytes per clock of D that one SM's epilogue stores through TMA."""
DIRECT_STORE_BYTES_PER_CLOCK: Final = 16.0
"""The same straight from registers, in partly filled sectors."""
L2_LATENCY: Final = 0.3e-6
"""Seconds from issuing a TMA load to its arrival from L2."""
DRAM_LATENCY: Final = 0.8e-6
"""The same from DRAM, under load."""
WGMMA_ROWS: Final = 64.0
"""Rows of one WGMMA."""
WIDEST_SWIZZLE: Final = 128
"""Bytes of the widest swizzle that TMA and WGMMA know."""
SELECTOR: Final = "CUTLASS 4.2, ss_smem_selector in builders/sm90_common.inl"
_A_ALONG_M: Final = np.array([family[0] == "N" for family in FAMILIES])
_B_ALONG_N: Final = np.array([family[1] == "T" for family in FAMILIES])

FEATURES: Final = (
    Feature("log2_stage_amortisation", "ratio", "pipeline", f"k-tiles per work unit / stages; {PAPER}"),
    Feature(
        "log2_producer_consumer", "ratio", "pipeline",
        "time of one stage's MMAs, 2·tile_m·tile_n·tile_k / (consumer warpgroups · peak/SMs), over that of its bytes "
        f"at full DRAM bandwidth (2 warpgroups if cooperative, else 1); {PAPER}",
    ),
    Feature("log2_stage_bytes", "bytes", "pipeline", f"(tile_m + tile_n)·tile_k·bytes; {OWN}"),
    Feature("log2_k_in_flight", "elements", "pipeline", f"stages · tile_k; {OWN}"),
    Feature("log2_bytes_in_flight", "bytes", "pipeline", f"stages · stage bytes · resident CTAs, per SM; {OWN}"),
    Feature(
        "log2_latency_cover", "ratio", "pipeline",
        f"bytes in flight on all busy SMs / (DRAM bandwidth · latency): Little's law; {OWN}",
    ),
    Feature("log2_mma_time", "s", "pipeline", f"a k-tile's MMAs at the SM's peak or its shared-memory reads; {OWN}"),
    Feature(
        "log2_fill_ratio", "ratio", "pipeline",
        f"time to receive a k-tile at {FILL_BYTES_PER_CLOCK:.0f} B/clock / its MMA time; {OWN}",
    ),
    Feature("log2_latency_ratio", "ratio", "pipeline", f"load latency / (stages · MMA time of a k-tile); {OWN}"),
    Feature("log2_unit_time", "s", "pipeline", f"mainloop of the longest work unit; {OWN}"),
    Feature("log2_epilogue_ratio", "ratio", "pipeline", f"epilogue time of a tile / mainloop time of a unit; {OWN}"),
    Feature("pipeline_fill", "fraction", "pipeline", f"min(stages, k-tiles)/stages, per work unit; {PAPER}"),
    Feature(
        "wgmma_efficiency", "fraction", "pipeline",
        f"MMA time / max(MMA time, shared-memory reads of 64×tile_k and tile_n×tile_k per 64 rows); {OWN}",
    ),
    Feature("log2_a_swizzle_bytes", "bytes", "pipeline", f"shared-memory swizzle of A's tiles; {SELECTOR}"),
    Feature("log2_b_swizzle_bytes", "bytes", "pipeline", f"the same of B's; {SELECTOR}"),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Pace:
    """Seconds of the steps of one CTA; float64 arrays of shape (rows,)."""

    mma: FloatArray
    """MMAs of one k-tile with the SM to itself, shared-memory reads included."""
    peak_mma: FloatArray
    """The same at the tensor peak."""
    fill: FloatArray
    """Receiving one k-tile."""
    latency: FloatArray
    """A load's latency, from L2 and DRAM in the estimated mix."""
    sharing: FloatArray
    """CTAs that really share an SM."""
    step: FloatArray
    """Between k-tiles of an SM in steady state, all its CTAs together."""
    epilogue: FloatArray
    """Writing one tile of D."""


def estimate_pace(terms: Terms, work: Work, traffic: Traffic) -> Pace:
    """Estimate the steps of a CTA.

    A k-tile takes the longest of: its MMAs at the tensor peak; the shared-memory reads they make (each WGMMA of 64 rows
    reads 64 rows of A and all of B's tile); receiving its bytes; and a load's latency over the stages, of all CTAs that
    share the SM, that hide it.
    """
    hardware, size = terms.hardware, float(terms.problem.dtype.bytes)
    clock, rate = hardware.clock_hz, hardware.peak(terms.problem.dtype.name) / hardware.sm_count
    peak_mma = terms.tile_m * terms.tile_n * terms.tile_k * (2.0 / rate)
    reads = terms.tile_m * (1.0 + terms.tile_n / WGMMA_ROWS) * terms.tile_k * (size / (SHARED_BYTES_PER_CLOCK * clock))
    mma = np.maximum(peak_mma, reads)
    fill = (terms.tile_m + terms.tile_n) * terms.tile_k * (size / (FILL_BYTES_PER_CLOCK * clock))
    missed = traffic.dram_reads / traffic.l2_bytes
    latency = L2_LATENCY + (DRAM_LATENCY - L2_LATENCY) * missed
    sharing = np.clip(np.ceil(work.units / terms.active), 1.0, terms.resident)
    step = np.maximum(np.maximum(mma, fill), latency / (terms.stages * sharing))
    tma = terms.columns["epilogue"] != int(Epilogue.NOSMEM)
    per_clock = np.where(tma, STORE_BYTES_PER_CLOCK, DIRECT_STORE_BYTES_PER_CLOCK)
    epilogue = terms.tile_m * terms.tile_n * (size / clock) / per_clock
    return Pace(mma, peak_mma, fill, latency, sharing, step, epilogue)


def compute(terms: Terms, work: Work, pace: Pace) -> dict[str, Value]:
    """Compute the features of :data:`FEATURES`."""
    hardware = terms.hardware
    held = terms.stages * terms.stage_bytes * terms.resident
    busy = np.minimum(work.units / terms.resident, terms.active)
    per_stage = work.k_tiles_per_unit / terms.stages
    unit_time = pace.step * pace.sharing * work.k_tiles_per_unit
    warpgroups = np.where(terms.cooperative, 2.0, 1.0)
    family = terms.columns["family"]
    return {
        "log2_stage_amortisation": per_stage,
        "log2_producer_consumer": pace.peak_mma * hardware.dram_bandwidth / (warpgroups * terms.stage_bytes),
        "log2_stage_bytes": terms.stage_bytes,
        "log2_k_in_flight": terms.stages * terms.tile_k,
        "log2_bytes_in_flight": held,
        "log2_latency_cover": held * busy / (hardware.dram_bandwidth * DRAM_LATENCY),
        "log2_mma_time": pace.mma,
        "log2_fill_ratio": pace.fill / pace.mma,
        "log2_latency_ratio": pace.latency / (terms.stages * pace.mma),
        "log2_unit_time": unit_time,
        "log2_epilogue_ratio": pace.epilogue / unit_time,
        "pipeline_fill": np.minimum(per_stage, 1.0),
        "wgmma_efficiency": pace.peak_mma / pace.mma,
        "log2_a_swizzle_bytes": _swizzle_bytes(terms, np.where(_A_ALONG_M[family], terms.tile_m, terms.tile_k)),
        "log2_b_swizzle_bytes": _swizzle_bytes(terms, np.where(_B_ALONG_N[family], terms.tile_n, terms.tile_k)),
    }


def _swizzle_bytes(terms: Terms, extent: FloatArray) -> FloatArray:
    """Bytes of the shared-memory swizzle of tiles whose contiguous side has ``extent`` elements: as wide as divides it.

    A narrow one takes more TMA instructions a tile, and its reads meet more bank conflicts.
    """
    side = (extent * terms.problem.dtype.bytes).astype(np.int64)
    widest: FloatArray = np.minimum(side & -side, WIDEST_SWIZZLE).astype(np.float64)
    return widest
