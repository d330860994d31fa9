"""Work decomposition: tiles, waves, splits and the fraction of the GPU that does useful work."""

from __future__ import annotations

from typing import Final

import numpy as np

from ..generator import Decomposition
from .decomposition import Work
from .schema import OWN, PAPER, SCHEDULER, Feature
from .terms import Terms, Value

_MOST_WAVES: Final = 64.0
_MOST_STEPS: Final = 64.0

FEATURES: Final = (
    Feature("log2_tiles", "tiles", "work", f"ceil(M/tile_m) · ceil(N/tile_n); {PAPER}"),
    Feature("log2_tiles_m", "tiles", "work", f"ceil(M/tile_m); {OWN}"),
    Feature("log2_tiles_n", "tiles", "work", f"ceil(N/tile_n); {OWN}"),
    Feature("log2_m_per_tile", "ratio", "work", f"M / tile_m; {OWN}"),
    Feature("log2_n_per_tile", "ratio", "work", f"N / tile_n; {OWN}"),
    Feature("log2_alignment_m", "elements", "work", f"largest power of two up to 128 that divides M; {OWN}"),
    Feature("log2_alignment_n", "elements", "work", f"largest power of two up to 128 that divides N; {OWN}"),
    Feature("log2_alignment_k", "elements", "work", f"largest power of two up to 128 that divides K; {OWN}"),
    Feature("log2_waves", "waves", "work", f"tiles that run · splits / CTA slots, not rounded; {OWN}"),
    Feature("log2_k_tiles", "k-tiles", "work", f"ceil(K/tile_k); {PAPER}"),
    Feature("log2_k_tiles_per_unit", "k-tiles", "work", f"k-tiles of the longest work unit; {SCHEDULER}"),
    Feature("log2_critical_k_tiles", "k-tiles", "work", f"k-tiles that the busiest SM runs in all; {SCHEDULER}"),
    Feature("log2_effective_splits", "slices", "work", f"CTAs per tile along K after CUTLASS's clamping; {SCHEDULER}"),
    Feature("atomic_reduction", "0/1", "work", f"partial sums of split-K are added in any order; {SCHEDULER}"),
    Feature("parallel_reduction", "0/1", "work", f"partial sums of split-K are stored apart and added last; {OWN}"),
    Feature("separate_reduction", "0/1", "work", f"a second kernel adds the partial sums of split-K; {OWN}"),
    Feature(
        "fixup_steps", "steps", "work",
        f"L2 round trips in series of a tile's partial sums, at most {_MOST_STEPS:.0f}; {OWN}",
    ),
    Feature(
        "log2_fixup_bytes", "bytes", "work",
        f"partial sums that a tile's CTAs write or read in series, plus one float32 tile; {OWN}",
    ),
    Feature("efficiency_m", "fraction", "work", f"M / (ceil(M/tile_m) · tile_m); {OWN}"),
    Feature("efficiency_n", "fraction", "work", f"N / (ceil(N/tile_n) · tile_n); {OWN}"),
    Feature("efficiency_k", "fraction", "work", f"K / (ceil(K/tile_k) · tile_k); {OWN}"),
    Feature(
        "padding_efficiency", "fraction", "work",
        f"tiles / tiles that run once rounded up to clusters and swizzle; {SCHEDULER}",
    ),
    Feature("wave_efficiency", "fraction", "work", f"tiles / (ceil(tiles/S) · S), S = SMs · resident CTAs; {PAPER}"),
    Feature("stream_k_applicability", "fraction", "work", f"1 − wave_efficiency; {PAPER}"),
    Feature(
        "active_wave_efficiency", "fraction", "work",
        f"k-tiles that run / (critical k-tiles · SMs that clusters can keep busy); {OWN}",
    ),
    Feature("waves", "waves", "work", f"rounds of the busiest CTA slot, at most {_MOST_WAVES:.0f}; {SCHEDULER}"),
    Feature("busy_sms", "fraction", "work", f"SMs that get a CTA in the fullest wave / SMs; {OWN}"),
    Feature("stream_tile_fraction", "fraction", "work", f"tiles cut by Stream-K units / tiles that run; {SCHEDULER}"),
    Feature(
        "useful_fraction", "fraction", "work",
        f"MNK / (critical k-tiles · tile volume · SMs): all quantisation losses together; {OWN}",
    ),
)  # fmt: skip


def _alignment(size: int) -> float:
    """Return the largest power of two, at most 128, that divides a size."""
    return float(min(size & -size, 128))


def compute(terms: Terms, work: Work) -> dict[str, Value]:
    """Compute the features of :data:`FEATURES`."""
    problem, columns, sms = terms.problem, terms.columns, float(terms.hardware.sm_count)
    tiles = terms.tiles_m * terms.tiles_n
    share_m, share_n = terms.m / terms.tile_m, terms.n / terms.tile_n
    efficiency_m, efficiency_n = share_m / terms.tiles_m, share_n / terms.tiles_n
    efficiency_k = problem.k / (terms.tile_k * terms.k_tiles)
    nominal = sms * terms.resident
    wave_efficiency = tiles / (np.ceil(tiles / nominal) * nominal)
    padding = tiles / terms.blocks
    active = terms.blocks * terms.k_tiles / (work.critical_k_tiles * terms.active)
    align_m, align_n = _alignment(problem.m), _alignment(problem.n)
    return {
        "log2_tiles": tiles,
        "log2_tiles_m": terms.tiles_m,
        "log2_tiles_n": terms.tiles_n,
        "log2_m_per_tile": share_m,
        "log2_n_per_tile": share_n,
        "log2_alignment_m": np.where(terms.swapped, align_n, align_m),
        "log2_alignment_n": np.where(terms.swapped, align_m, align_n),
        "log2_alignment_k": _alignment(problem.k),
        "log2_waves": terms.blocks * work.splits / terms.slots,
        "log2_k_tiles": terms.k_tiles,
        "log2_k_tiles_per_unit": work.k_tiles_per_unit,
        "log2_critical_k_tiles": work.critical_k_tiles,
        "log2_effective_splits": work.splits,
        "atomic_reduction": columns.get("decomposition", np.zeros(1)) == Decomposition.SPLIT_K_ATOMIC,
        "parallel_reduction": work.parallel,
        "separate_reduction": work.separate,
        "fixup_steps": np.minimum(work.fixup_steps, _MOST_STEPS),
        "log2_fixup_bytes": (1.0 + work.fixup_tiles) * terms.tile_m * terms.tile_n * 4.0,
        "efficiency_m": efficiency_m,
        "efficiency_n": efficiency_n,
        "efficiency_k": efficiency_k,
        "padding_efficiency": padding,
        "wave_efficiency": wave_efficiency,
        "stream_k_applicability": 1.0 - wave_efficiency,
        "active_wave_efficiency": active,
        "waves": np.minimum(work.waves, _MOST_WAVES),
        "busy_sms": np.minimum(work.units, terms.active) / sms,
        "stream_tile_fraction": work.stream_tiles / terms.blocks,
        "useful_fraction": efficiency_m * efficiency_n * efficiency_k * padding * active * (terms.active / sms),
    }
