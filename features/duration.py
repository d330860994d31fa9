"""A mechanistic estimate of a candidate's run time, from which a model can learn the residual."""

from __future__ import annotations

from typing import Final

import numpy as np

from .decomposition import Work
from .memory import Traffic
from .pipeline import Pace
from .schema import OWN, Feature
from .terms import Terms, Value

LAUNCH: Final = 2.5e-6
"""Seconds of every kernel: launch, descriptor fetch, drain."""
MEMSET: Final = 2.0e-6
"""Seconds that zeroing the workspace adds in front of a Stream-K kernel."""
REDUCTION: Final = 1.5e-6
"""Seconds that the launch of a second kernel adds, which waits for the first one's end; assumed."""
L2_BYTES_PER_CLOCK: Final = 56.0
"""Bytes per clock and SM that L2 sustains with all SMs reading tiles that their neighbours read too."""
ATOMIC_BYTES_PER_CLOCK: Final = 16.0
"""Bytes of float32 atomic adds per clock and SM that L2 sustains; assumed."""
SPILL_COST: Final = 0.02
"""Relative slowdown of the mainloop per spilled register."""

FEATURES: Final = (
    Feature("log2_sm_time", "s", "time", f"busiest SM: waves of mainloops, fills and epilogues; {OWN}"),
    Feature("log2_dram_time", "s", "time", f"estimated DRAM traffic / bandwidth; {OWN}"),
    Feature("log2_l2_time", "s", "time", f"operands, partial sums at {L2_BYTES_PER_CLOCK:.0f} B/clock and SM; {OWN}"),
    Feature("log2_time", "s", "time", f"longest of the three, plus launches, first load, partial sums, memset; {OWN}"),
    Feature("log2_over_roofline", "ratio", "time", f"estimated time / roofline time of the problem; {OWN}"),
)  # fmt: skip


def compute(terms: Terms, work: Work, traffic: Traffic, pace: Pace) -> dict[str, Value]:
    """Compute the features of :data:`FEATURES`.

    The busiest SM runs ``critical k-tiles`` steps. A cooperative CTA stops its MMAs for each epilogue; a pingpong CTA's
    two warpgroups take turns, so that a tile costs the longer of its mainloop and half of mainloop plus epilogue; a
    plain CTA also waits for its first load each time, and CTAs that share the SM hide each other's waits.
    """
    hardware, problem = terms.hardware, terms.problem
    step = pace.step * (1.0 + SPILL_COST * terms.spilled)
    exposed = np.where(
        terms.pingpong,
        np.maximum(0.5 * (pace.epilogue - work.k_tiles_per_unit * step), 0.0),
        np.where(terms.plain, (pace.latency + pace.epilogue) / pace.sharing, pace.epilogue),
    )
    sm_time = work.critical_k_tiles * step + (work.waves - 1.0) * exposed + pace.epilogue

    output = float(problem.dtype.bytes) * problem.m * problem.n
    dram_time = (traffic.dram_reads + output) / hardware.dram_bandwidth
    l2_rate = L2_BYTES_PER_CLOCK * hardware.clock_hz * hardware.sm_count
    l2_time = (traffic.l2_bytes + traffic.partial_bytes) / l2_rate
    # A split tile's last CTA waits for the partial sums. Tiles beyond one a round trip come as fast as one SM reads.
    added = np.where(work.atomic, traffic.partial_bytes * (0.5 - 0.5 / np.maximum(work.splits - 1.0, 1.0)), 0.0)
    atomic_time = added / (ATOMIC_BYTES_PER_CLOCK * hardware.clock_hz * hardware.sm_count)
    extra = np.maximum(work.fixup_tiles - work.fixup_steps, 0.0) * terms.tile_m * terms.tile_n * 4.0
    read_time = extra / (L2_BYTES_PER_CLOCK * hardware.clock_hz)
    waiting = work.fixup_steps * pace.latency + 2.0 * pace.epilogue + atomic_time + read_time
    fixup = np.where(work.partial_tiles > 0, waiting, 0.0)
    total = np.maximum(np.maximum(sm_time, dram_time), l2_time)
    total += pace.latency + fixup + LAUNCH + MEMSET * (work.barrier_bytes > 0) + REDUCTION * work.separate
    roofline = max(problem.flops / hardware.peak(problem.dtype.name), problem.min_bytes / hardware.dram_bandwidth)
    return {
        "log2_sm_time": sm_time,
        "log2_dram_time": dram_time,
        "log2_l2_time": l2_time,
        "log2_time": total,
        "log2_over_roofline": total / roofline,
    }
