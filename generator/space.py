"""Search spaces: rules that enumerate every valid configuration, and the launches of each."""

from __future__ import annotations

from functools import cache
from itertools import product
from typing import Final

import numpy as np
from numpy.typing import NDArray

from .columns import Columns, concat, from_launches, take, with_launch
from .errors import InvalidConfig
from .estimates import ceil_div, effective_launch, tile_counts
from .rules import (
    CLUSTER,
    MAX_CLUSTER_SIZE,
    TILE_K,
    TMA_ALIGNMENT_BYTES,
    multicast_mask,
    problem_mask,
    require_supported,
    serves,
    valid_mask,
)
from .types import (
    FAMILIES,
    SPLIT_K_DECOMPOSITIONS,
    SWIZZLES,
    Decomposition,
    DType,
    Epilogue,
    Launch,
    Problem,
    Raster,
    Schedule,
    Scheduler,
    parse_dtype,
    parse_layout,
    swap_family,
)

SPACES: Final = ("paper", "extended")
TILE_M: Final = (64, 128, 192, 256)
PAPER_TILE_N: Final = (16, 32, 48, 64, 80, 96, 128, 192, 256)
EXTENDED_TILE_N: Final = tuple(range(16, 257, 16))
STAGES: Final = tuple(range(2, 13))
CLUSTERS: Final = tuple((m, n) for m, n in product(CLUSTER, CLUSTER) if m * n <= MAX_CLUSTER_SIZE)
SCHEDULES: Final = (
    (Schedule.WARPSPECIALIZED, Epilogue.NOSMEM, Scheduler.PERSISTENT),
    (Schedule.WARPSPECIALIZED, Epilogue.TMA, Scheduler.PERSISTENT),
    (Schedule.PINGPONG, Epilogue.NOSMEM, Scheduler.PERSISTENT),
    (Schedule.PINGPONG, Epilogue.TMA, Scheduler.PERSISTENT),
    (Schedule.COOPERATIVE, Epilogue.NOSMEM, Scheduler.PERSISTENT),
    (Schedule.COOPERATIVE, Epilogue.TMA, Scheduler.PERSISTENT),
    (Schedule.COOPERATIVE, Epilogue.NOSMEM, Scheduler.STREAM_K),
    (Schedule.COOPERATIVE, Epilogue.TMA, Scheduler.STREAM_K),
)
"""The eight combinations of mainloop schedule, epilogue schedule and tile scheduler."""
EXTENDED_SCHEDULES: Final = (
    *SCHEDULES,
    *(
        (schedule, Epilogue.TMA_64, scheduler)
        for schedule, epilogue, scheduler in SCHEDULES
        if epilogue is Epilogue.TMA
    ),
    *(
        (schedule, epilogue, Scheduler.SPLIT_K)
        for schedule, epilogue in product(Schedule, (Epilogue.NOSMEM, Epilogue.TMA))
    ),
)
"""Those, the four with an epilogue tile of 64 columns, and the six that split K without the Stream-K scheduler."""
SPLITS: Final = (2, 4, 8, 16)
"""Split counts that are proposed for Stream-K kernels; each slice more waits for one more to add its partial sums."""
ATOMIC_SPLITS: Final = (4, 8, 16, 24, 32, 48, 64)
"""The same where slices add theirs in any order; two slices have nothing to add in between."""
PARALLEL_SPLITS: Final = (2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
"""The same where slices store theirs apart and the last one, or a second kernel, adds them."""
SPLIT_TILES: Final = 88
"""Most output tiles with which splitting K is worth a look: two thirds of a 132-SM GPU."""
SPLIT_UNITS: Final = 264
"""Most slices of tiles, two waves of such a GPU."""
SPLIT_K_TILES: Final = 4
"""Fewest k-tiles of a slice."""

_ORDERS: Final = from_launches(
    [Launch(), *(Launch(raster, swizzle) for raster, swizzle in product((Raster.ALONG_M, Raster.ALONG_N), SWIZZLES))]
)
"""Every raster and swizzle that can be asked for, the default ones first."""
_ONLY_IF_WORTH: Final = np.array([kind in SPLIT_K_DECOMPOSITIONS[1:] for kind in Decomposition])
"""True for the decompositions, by code, that are proposed only where splitting K is worth a look."""


def enumerate_configs(
    layout: str = "TNT", dtype: object = "bf16", space: str = "paper", problem: Problem | None = None
) -> Columns:
    """Enumerate every valid configuration of a space.

    Parameters
    ----------
    layout
        ``"TN"``, ``"TNT"`` ...; the family of the kernels.
    dtype
        Element type of A, B and D.
    space
        ``"paper"``: exactly the space of arXiv 2609.35587 (60,795 kernels for BF16 TN). ``"extended"``: tile_n every
        multiple of 16 to 256, ``EXTENDED_SCHEDULES``, kernels with and without C, and besides the family itself the
        swapped one, whose kernels compute the transposed problem.
    problem
        If given, its layout and type replace ``layout`` and ``dtype``, and kernels whose tile is more than twice as
        long as the problem's side are left out.

    Returns
    -------
    Columns
        ``CONFIG_COLUMNS``, one row per kernel.

    Raises
    ------
    InvalidConfig
        If the space is unknown.
    InvalidProblem
        If the layout or type is unknown.
    UnsupportedProblem
        If TMA cannot take the problem.
    """
    if space not in SPACES:
        raise InvalidConfig(f"space {space!r} is unknown; use one of {', '.join(SPACES)}")
    family, kind = parse_layout(layout), parse_dtype(dtype)
    if problem is not None:
        require_supported(problem)
        family, kind = problem.layout, problem.dtype
    if space == "paper":
        columns = _grid(family, kind, PAPER_TILE_N, (0,), SCHEDULES)
        return columns if problem is None else take(columns, problem_mask(columns, problem))
    parts = []
    for swapped, member in ((False, family), (True, swap_family(family))):
        part = _grid(member, kind, EXTENDED_TILE_N, (0, 1), EXTENDED_SCHEDULES)
        if problem is not None:
            part = take(part, problem_mask(part, problem.transposed() if swapped else problem))
        parts.append(part)
    return concat(parts)


def _grid(
    family: str,
    dtype: DType,
    tile_n: tuple[int, ...],
    void_c: tuple[int, ...],
    kinds: tuple[tuple[Schedule, Epilogue, Scheduler], ...],
) -> Columns:
    """Valid rows of the full product of one family's choices."""
    shapes = np.array([(m, n, k) for m, n, k in product(TILE_M, tile_n, TILE_K)], dtype=np.int32)
    clusters = np.array(CLUSTERS, dtype=np.int32)
    schedules = np.array(kinds, dtype=np.int32)
    index = np.indices((len(shapes), len(clusters), len(STAGES), len(schedules), len(void_c))).reshape(5, -1)
    columns: Columns = {
        "tile_m": shapes[index[0], 0],
        "tile_n": shapes[index[0], 1],
        "tile_k": shapes[index[0], 2],
        "cluster_m": clusters[index[1], 0],
        "cluster_n": clusters[index[1], 1],
        "stages": np.array(STAGES, dtype=np.int32)[index[2]],
        "schedule": schedules[index[3], 0],
        "epilogue": schedules[index[3], 1],
        "scheduler": schedules[index[3], 2],
        "family": np.full(index.shape[1], FAMILIES.index(family), dtype=np.int32),
        "void_c": np.array(void_c, dtype=np.int32)[index[4]],
    }
    return take(columns, valid_mask(columns, dtype))


def candidates_for(configs: Columns, problem: Problem) -> tuple[Columns, NDArray[np.intp]]:
    """Pick the kernels that can serve a problem, directly or swapped, with the default launch.

    The configs themselves must be valid (:func:`~.rules.valid_mask`), as those of catalogues and spaces are. Those
    whose multicast faults (:func:`~.rules.multicast_mask`) are left out, and those of ``Scheduler.SPLIT_K``, which have
    no launch that leaves K whole.

    Returns
    -------
    tuple
        Candidate columns and, for each, the row of ``configs`` that it came from.
    """
    columns, rows = _fitting(configs, problem)
    whole = columns["scheduler"] != int(Scheduler.SPLIT_K)
    return take(columns, whole), rows[whole]


def _fitting(configs: Columns, problem: Problem) -> tuple[Columns, NDArray[np.intp]]:
    """Pick the kernels that can serve a problem, with the default launch whether they have it or not."""
    swapped = (configs["family"] == FAMILIES.index(swap_family(problem.layout))).astype(np.int32)
    columns = {**configs, "swapped": swapped}
    rows = np.flatnonzero(problem_mask(columns, problem) & multicast_mask(columns, problem.dtype))
    return with_launch(take(configs, rows), swapped=swapped[rows]), rows


def splits_worth_a_look(columns: Columns, problem: Problem) -> NDArray[np.bool_]:
    """Mark the split-K launches that are ranked beside the default ones; shape (rows,).

    A kernel that cuts K into slices behaves like another kernel. It pays where there are too few tiles to
    fill the GPU and K is long; raster and swizzle are then the default ones.
    """
    splits = columns["splits"]
    plain = (columns["raster"] == int(Raster.HEURISTIC)) & (columns["swizzle"] == 1)
    return np.asarray((splits > 1) & plain & (splits <= _most_splits(columns, problem)))


def _most_splits(columns: Columns, problem: Problem) -> NDArray[np.int64]:
    """Most slices of K with which each kernel is worth a look, 0 or 1 if K is better left whole; shape (rows,)."""
    splitting = columns["scheduler"] != int(Scheduler.PERSISTENT)
    if not splitting.any():
        return np.zeros(len(splitting), dtype=np.int64)
    tiles_m, tiles_n = tile_counts(columns, problem)
    tiles, k_tiles = tiles_m * tiles_n, ceil_div(problem.k, columns["tile_k"])
    most = np.minimum(SPLIT_UNITS // tiles, k_tiles // SPLIT_K_TILES)
    return np.where(splitting & (tiles <= SPLIT_TILES), most, 0)


@cache
def _splits(deterministic: bool) -> Columns:
    """Split-K launches that are proposed for a kernel, those with atomic adds only if wanted."""
    proposed: list[tuple[Decomposition, tuple[int, ...]]] = [
        (Decomposition.SPLIT_K, SPLITS),
        (Decomposition.SPLIT_K_PARALLEL, PARALLEL_SPLITS),
        (Decomposition.SPLIT_K_SEPARATE, PARALLEL_SPLITS),
    ]
    if not deterministic:
        proposed.append((Decomposition.SPLIT_K_ATOMIC, ATOMIC_SPLITS))
    return from_launches(Launch(decomposition=kind, splits=count) for kind, counts in proposed for count in counts)


@cache
def _stream_k_launches(deterministic: bool) -> Columns:
    """Launches that only Stream-K kernels have: two that leave K whole, and those that split it."""
    whole = (Decomposition.DATA_PARALLEL, Decomposition.STREAM_K)
    return concat([from_launches(Launch(decomposition=kind) for kind in whole), _splits(deterministic)])


def ranked_candidates(
    configs: Columns, problem: Problem, deterministic: bool = True
) -> tuple[Columns, NDArray[np.intp]]:
    """List what is ranked first: every kernel that fits with its default launch, and its splits worth a look.

    Parameters
    ----------
    configs
        Kernels, ``CONFIG_COLUMNS``.
    problem
        The problem.
    deterministic
        False also lists split-K with atomic adds, whose results differ in their last bits from run to run.

    Returns
    -------
    tuple
        Candidate columns, the default launches first, and the row of ``configs`` of each.
    """
    fitting, rows = _fitting(configs, problem)
    whole = np.flatnonzero(fitting["scheduler"] != int(Scheduler.SPLIT_K))
    default = take(fitting, whole)
    most = _most_splits(fitting, problem)
    some = np.flatnonzero(most > 1)
    if not len(some):
        return default, rows[whole]
    splits = _splits(deterministic)
    worth = splits["splits"][:, None] <= most[some]
    launch, place = np.nonzero(worth & _has_split(take(fitting, some), splits, problem))
    kernel = some[place]
    split = {**take(fitting, kernel), **take(splits, launch)}
    return concat([default, split]), np.concatenate([rows[whole], rows[kernel]])


def _has_split(kernels: Columns, splits: Columns, problem: Problem) -> NDArray[np.bool_]:
    """Which launches that split K each kernel has; shape (launches, kernels).

    Kernels of ``Scheduler.SPLIT_K`` have those with a second kernel, in slices of equal length that begin at multiples
    of 16 bytes, as TMA needs them to.
    """
    unit = TMA_ALIGNMENT_BYTES // problem.dtype.bytes
    even = (splits["decomposition"] == Decomposition.SPLIT_K_SEPARATE) & (problem.k % (splits["splits"] * unit) == 0)
    return np.where(kernels["scheduler"] == int(Scheduler.SPLIT_K), even[:, None], True)


def enumerate_launches(
    configs: Columns, problem: Problem, deterministic: bool = True
) -> tuple[Columns, NDArray[np.intp]]:
    """List every distinct launch of each kernel on a problem.

    Raster orders and swizzles that CUTLASS reduces to the same schedule count once; kernels of ``Scheduler.SPLIT_K``
    have the default ones only, and no launch that leaves K whole. Stream-K kernels get CUTLASS's four
    reproducible decompositions, split-K in 2, 4, 8 and 16 slices as far as each slice keeps two k-tiles, and the other
    ways of split-K where they are worth a look (:func:`splits_worth_a_look`). The first launch of a kernel is the
    default one.

    Parameters
    ----------
    configs
        Kernels, with or without ``swapped``.
    problem
        The problem.
    deterministic
        False also lists split-K with atomic adds, where it is worth a look.

    Returns
    -------
    tuple
        Candidate columns (``swapped`` is kept, or follows from the family) and the row of ``configs`` of each.
    """
    swapped = configs["swapped"] if "swapped" in configs else (~serves(configs, problem)).astype(np.int32)
    kernels = {**configs, "swapped": swapped}
    # One row a launch, one column a kernel. A bit for what a raster and swizzle come to; one that sets none is not new.
    orders = {name: _ORDERS[name][:, None] for name in ("raster", "swizzle")}
    along_m, log_swizzle = effective_launch({**kernels, **orders}, problem)
    seen = np.bitwise_or.accumulate(1 << (2 * log_swizzle + along_m))
    new = np.ones(seen.shape, dtype=np.bool_)
    new[1:] = seen[1:] != seen[:-1]
    stream_k = _stream_k_launches(deterministic)
    slices = configs["scheduler"] == int(Scheduler.SPLIT_K)
    new &= ~slices
    only_if_worth = _ONLY_IF_WORTH[stream_k["decomposition"]][:, None]
    most = np.where(only_if_worth, _most_splits(kernels, problem), ceil_div(problem.k, configs["tile_k"]) // 2)
    fits = (configs["scheduler"] == int(Scheduler.STREAM_K)) | slices & _has_split(configs, stream_k, problem)
    fits &= stream_k["splits"][:, None] <= most
    origin, launch = np.nonzero(np.concatenate([new, fits]).T)
    return {**take(kernels, origin), **take(concat([_ORDERS, stream_k]), launch)}, origin
