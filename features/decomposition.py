"""How a kernel cuts its work over CTAs: waves, split-K and Stream-K, as CUTLASS 4.2 decides it.

The rules follow ``PersistentTileSchedulerSm90StreamKParams`` in ``tile_scheduler_params.h``, and those of parallel
split-K ``generator/templates/split_k_parallel.h``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ..generator import SPLIT_K_DECOMPOSITIONS, Decomposition
from .terms import BoolArray, FloatArray, Terms

_HEURISTIC: Final = int(Decomposition.HEURISTIC)
_DATA_PARALLEL: Final = int(Decomposition.DATA_PARALLEL)
_SPLIT_K_ATOMIC: Final = int(Decomposition.SPLIT_K_ATOMIC)
_SPLIT_K_PARALLEL: Final = int(Decomposition.SPLIT_K_PARALLEL)
_SPLIT_K_SEPARATE: Final = int(Decomposition.SPLIT_K_SEPARATE)

SPLITS_K: Final = np.array([kind in SPLIT_K_DECOMPOSITIONS for kind in Decomposition])
"""True for the decompositions that cut K into slices, by code."""
MIN_K_TILES: Final = 8.0
"""Fewest k-tiles of a Stream-K unit (``min_iters_per_sk_unit_``)."""
_BARRIER_BYTES: Final = 8.0
"""Bytes of barriers per split tile: one 32-bit counter for each of two consumer warpgroups."""
_HAND_OVER_BYTES: Final = 2.0**17
"""Bytes of partial sums from which parallel split-K adds them up in two steps (``kHandOverBytes``)."""


@dataclass(frozen=True, slots=True)
class Work:
    """How the tiles of one candidate are spread over the GPU; arrays of one float64 (or bool) per row."""

    splits: FloatArray
    """CTAs that share each output tile along K (1 unless split-K)."""
    stream: BoolArray
    """Stream-K units really cut tiles."""
    stream_tiles: FloatArray
    """Tiles that Stream-K units work on."""
    units: FloatArray
    """Work units: tiles times splits, or whole tiles plus Stream-K units."""
    waves: FloatArray
    """Rounds that the busiest CTA slot runs (a fraction of a tile in Stream-K counts as one)."""
    k_tiles_per_unit: FloatArray
    """k-tiles of the longest unit."""
    critical_k_tiles: FloatArray
    """k-tiles that the busiest SM runs in all."""
    partial_tiles: FloatArray
    """Float32 tiles of partial sums written to the workspace."""
    atomic: BoolArray
    """Partial sums are added in any order, not each after the one before."""
    parallel: BoolArray
    """Partial sums are stored apart, without waiting, and added at the end."""
    separate: BoolArray
    """They are added by a second kernel."""
    fixup_steps: FloatArray
    """L2 round trips in series that the partial sums of a tile take; 0 if no tile is split, 1 with Stream-K."""
    fixup_tiles: FloatArray
    """Float32 tiles that a tile's CTAs write, add or read in series in those round trips."""
    barrier_bytes: FloatArray
    """Bytes of workspace that must be zeroed before each launch."""


def decompose(terms: Terms) -> Work:
    """Work out waves and splits of every row.

    Data-parallel kernels run ``ceil(blocks / slots)`` waves of whole tiles. Stream-K kernels do the same unless the
    last wave is not full and a tile has more than 8 k-tiles: then the last one or two waves are cut evenly over all
    CTAs, by the heuristic only if the last wave is less than half full. Split-K cuts every tile.

    The slices of a tile pass on one sum after the other, a round trip through L2 each. Added in any order, three are
    enough: the first slice's store, the adds of those between, and the last one's load. Parallel split-K:
    :func:`_parallel_fixup`. With a second kernel each slice stores a tile, then the SMs share the loads of all.
    Kernels of ``Scheduler.SPLIT_K`` are those with a second kernel, without the Stream-K scheduler.
    """
    blocks, slots, k_tiles = terms.blocks, terms.slots, terms.k_tiles
    waves = np.ceil(blocks / slots)
    rows = np.flatnonzero(terms.splitting)
    splits = np.ones_like(blocks)
    stream, atomic, parallel, separate = np.zeros((4, blocks.size), dtype=np.bool_)
    stream_tiles, partial, barriers, steps, moved = np.zeros((5, blocks.size))
    units, per_unit, critical = blocks.copy(), k_tiles.copy(), np.ceil(blocks / terms.active) * k_tiles
    if rows.size:
        mode, wanted = _requested(terms, rows)
        tiles, wave, length = blocks[rows], slots[rows], k_tiles[rows]
        sk_tiles, sk_units = _stream_work(tiles, wave, length, terms.cluster[rows], mode == _HEURISTIC)
        split = SPLITS_K[mode]
        # With one unit count a multiple of the tiles, the heuristic turns Stream-K into plain split-K.
        ratio = sk_units / np.maximum(sk_tiles, 1.0)
        even = (mode == _HEURISTIC) & (sk_tiles < sk_units) & (ratio == np.floor(ratio)) & (sk_tiles > 0)
        asked = np.minimum(np.minimum(wanted, float(terms.hardware.sm_count)), length)
        count = np.where(split, asked, np.where(even, ratio, 1.0))
        separate[rows] = (mode == _SPLIT_K_SEPARATE) & (count > 1.0)
        atomic[rows] = mode == _SPLIT_K_ATOMIC
        parallel[rows] = (mode == _SPLIT_K_PARALLEL) | (mode == _SPLIT_K_SEPARATE)
        cut = (sk_units > 0) & (mode != _DATA_PARALLEL) & ~split & ~even

        sliced = np.ceil(length / count)
        rounds = np.ceil(tiles * count / wave)
        whole = (tiles - sk_tiles) / wave
        share = np.ceil(sk_tiles * length / np.maximum(sk_units, 1.0))
        splits[rows], stream[rows] = count, cut
        stream_tiles[rows] = np.where(cut, sk_tiles, 0.0)
        units[rows] = np.where(cut, tiles - sk_tiles + sk_units, tiles * count)
        waves[rows] = np.where(cut, np.ceil(whole) + 1.0, rounds)
        per_unit[rows] = np.where(cut, np.maximum(share, np.where(whole > 0, length, 0.0)), sliced)
        per_sm = np.ceil(tiles * count / terms.active[rows])
        critical[rows] = np.where(cut, np.ceil(whole) * length + share, per_sm * sliced)
        # Each unit but a tile's last writes its partial sums; Stream-K units end inside a tile once each at most. For a
        # second kernel the last one of each tile that is not padding writes its own too.
        apart, second = parallel[rows], separate[rows]
        real = terms.tiles_m[rows] * terms.tiles_n[rows] * count
        stored = np.where(second, real, tiles * (count - 1.0))
        partial[rows] = np.where(cut, np.minimum(sk_units, sk_tiles * (length - 1.0)), stored)
        # Parallel split-K leaves its flags zero for the next launch.
        counters = np.where((count > 1.0) & ~apart, tiles, 0.0)
        barriers[rows] = np.where(cut, sk_tiles, counters) * _BARRIER_BYTES
        turns = np.where(atomic[rows], np.minimum(count, 3.0), count)
        apart_steps, apart_tiles = _parallel_fixup(count, terms.tile_m[rows] * terms.tile_n[rows])
        apart_steps = np.where(second, 2.0, apart_steps)
        apart_tiles = np.where(second, 1.0 + real / float(terms.hardware.sm_count), apart_tiles)
        shared = partial[rows] > 0
        steps[rows] = np.where(shared, np.where(apart, apart_steps, turns), 0.0)
        moved[rows] = np.where(shared, np.where(apart, apart_tiles, turns), 0.0)
    return Work(
        splits=splits, stream=stream, stream_tiles=stream_tiles, units=units, waves=waves, k_tiles_per_unit=per_unit,
        critical_k_tiles=critical, partial_tiles=partial, atomic=atomic, parallel=parallel, separate=separate,
        fixup_steps=steps, fixup_tiles=moved, barrier_bytes=barriers,
    )  # fmt: skip


def _parallel_fixup(splits: FloatArray, tile: FloatArray) -> tuple[FloatArray, FloatArray]:
    """L2 round trips of parallel split-K in series, and tiles written or read in them; ``tile`` is a tile's elements.

    The last slice of a tile reads what all others have stored: a store and a load, ``splits`` tiles. If that many bytes
    take longer than one more hand-over, groups of about √splits slices are added up first (``choose_fan_in`` and
    ``combine_slices``).
    """
    group = np.ceil(np.sqrt(splits))
    grouped = (splits + 1.0 - 2.0 * group) * tile * 4.0 > _HAND_OVER_BYTES
    two_steps = (group - 1.0) + np.floor((splits - 1.0) / group) + 2.0
    return np.where(grouped, 3.0, 2.0), np.where(grouped, two_steps, splits)


def _requested(terms: Terms, rows: NDArray[np.intp]) -> tuple[NDArray[np.int32], FloatArray]:
    """Decomposition and splits asked for, of some rows; the defaults if columns carry no launch."""
    if "decomposition" not in terms.columns:
        return np.zeros(rows.size, dtype=np.int32), np.ones(rows.size)
    return terms.columns["decomposition"][rows], terms.columns["splits"][rows].astype(np.float64)


def _stream_work(
    tiles: FloatArray, wave: FloatArray, k_tiles: FloatArray, cluster: FloatArray, heuristic: BoolArray
) -> tuple[FloatArray, FloatArray]:
    """Tiles that Stream-K would cut, and the units it would cut them into.

    ``get_num_sk_tiles`` and ``get_num_sk_units`` of ``tile_scheduler_params.h``.
    """
    full = np.floor(tiles / wave)
    tail = tiles - full * wave
    nothing = (tail == 0) | (k_tiles <= MIN_K_TILES) | (heuristic & (2.0 * tail >= wave))
    cut = tiles - np.maximum(full - 1.0, 0.0) * wave
    sk_tiles = np.where(nothing, 0.0, np.floor(cut / cluster) * cluster)
    most = np.floor(np.floor(k_tiles * sk_tiles / MIN_K_TILES) / cluster) * cluster
    return sk_tiles, np.minimum(wave, most)
