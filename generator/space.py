"""Search spaces: rules that enumerate every valid configuration, and the launches of each."""

from __future__ import annotations

from itertools import product
from typing import Final

import numpy as np
from numpy.typing import NDArray

from .columns import CANDIDATE_COLUMNS, Columns, concat, size, take, with_launch
from .errors import InvalidConfig
from .estimates import ceil_div, effective_launch, tile_counts
from .rules import (
    CLUSTER,
    MAX_CLUSTER_SIZE,
    TILE_K,
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
        multiple of 16 to 256, kernels with and without C, and besides the family itself the swapped one, whose kernels
        compute the transposed problem.
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
        columns = _grid(family, kind, PAPER_TILE_N, (0,))
        return columns if problem is None else take(columns, problem_mask(columns, problem))
    parts = []
    for swapped, member in ((False, family), (True, swap_family(family))):
        part = _grid(member, kind, EXTENDED_TILE_N, (0, 1))
        if problem is not None:
            part = take(part, problem_mask(part, problem.transposed() if swapped else problem))
        parts.append(part)
    return concat(parts)


def _grid(family: str, dtype: DType, tile_n: tuple[int, ...], void_c: tuple[int, ...]) -> Columns:
    """Valid rows of the full product of one family's choices."""
    shapes = np.array([(m, n, k) for m, n, k in product(TILE_M, tile_n, TILE_K)], dtype=np.int32)
    clusters = np.array(CLUSTERS, dtype=np.int32)
    schedules = np.array(SCHEDULES, dtype=np.int32)
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
    whose multicast faults (:func:`~.rules.multicast_mask`) are left out.

    Returns
    -------
    tuple
        Candidate columns and, for each, the row of ``configs`` that it came from.
    """
    swapped = (configs["family"] == FAMILIES.index(swap_family(problem.layout))).astype(np.int32)
    columns = with_launch(configs, swapped=swapped)
    rows = np.flatnonzero(problem_mask(columns, problem) & multicast_mask(columns, problem.dtype))
    return take(columns, rows), rows


def splits_worth_a_look(columns: Columns, problem: Problem) -> NDArray[np.bool_]:
    """Mark the split-K launches that are ranked beside the default ones; shape (rows,).

    A Stream-K kernel that cuts K into slices behaves like another kernel. It pays where there are too few tiles to
    fill the GPU and K is long; raster and swizzle are then the default ones.
    """
    tiles_m, tiles_n = tile_counts(columns, problem)
    tiles, splits = tiles_m * tiles_n, columns["splits"]
    plain = (columns["raster"] == Raster.HEURISTIC) & (columns["swizzle"] == 1)
    few = (tiles <= SPLIT_TILES) & (tiles * splits <= SPLIT_UNITS)
    long = ceil_div(problem.k, columns["tile_k"]) >= SPLIT_K_TILES * splits
    stream_k = columns["scheduler"] == Scheduler.STREAM_K
    return np.asarray((splits > 1) & plain & stream_k & few & long)


def _splits(deterministic: bool) -> list[Launch]:
    """Split-K launches that are proposed for a Stream-K kernel, those with atomic adds only if wanted."""
    proposed: list[tuple[Decomposition, tuple[int, ...]]] = [
        (Decomposition.SPLIT_K, SPLITS),
        (Decomposition.SPLIT_K_PARALLEL, PARALLEL_SPLITS),
        (Decomposition.SPLIT_K_SEPARATE, PARALLEL_SPLITS),
    ]
    if not deterministic:
        proposed.append((Decomposition.SPLIT_K_ATOMIC, ATOMIC_SPLITS))
    return [Launch(decomposition=kind, splits=count) for kind, counts in proposed for count in counts]


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
    default, rows = candidates_for(configs, problem)
    halved = {**default, "splits": np.full_like(default["splits"], 2)}  # fewer slices than any other split has
    stream_k = np.flatnonzero(splits_worth_a_look(halved, problem))
    if not len(stream_k):
        return default, rows
    launches = _splits(deterministic)
    index = np.tile(stream_k, len(launches))
    split = take(default, index)
    for name in ("decomposition", "splits"):
        values = np.array([getattr(launch, name) for launch in launches], dtype=np.int32)
        split[name] = np.repeat(values, len(stream_k))
    kept = splits_worth_a_look(split, problem)
    return concat([default, take(split, kept)]), np.concatenate([rows, rows[index[kept]]])


def enumerate_launches(
    configs: Columns, problem: Problem, deterministic: bool = True
) -> tuple[Columns, NDArray[np.intp]]:
    """List every distinct launch of each kernel on a problem.

    Raster orders and swizzles that CUTLASS reduces to the same schedule count once. Stream-K kernels get CUTLASS's four
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
    choices = [(Raster.HEURISTIC, 1), *product((Raster.ALONG_M, Raster.ALONG_N), SWIZZLES)]
    index = np.tile(np.arange(size(configs)), len(choices))
    scheduled = with_launch(take(configs, index), swapped=swapped[index])
    for name, values in zip(("raster", "swizzle"), zip(*choices, strict=True), strict=True):
        scheduled[name] = np.repeat(np.array(values, dtype=np.int32), size(configs))
    # One row a choice: what each raster and swizzle comes to; a choice is new if no earlier one comes to the same.
    along_m, log_swizzle = effective_launch(scheduled, problem)
    key = (2 * log_swizzle + along_m).reshape(len(choices), size(configs))
    earlier = np.tri(len(choices), k=-1, dtype=bool)[:, :, None]
    new = ~((key[:, None] == key[None]) & earlier).any(axis=1)
    new[1:] &= configs["schedule"] != Schedule.WARPSPECIALIZED
    parts, rows = [take(scheduled, new.ravel())], [index[new.ravel()]]
    stream_k = configs["scheduler"] == Scheduler.STREAM_K
    k_tiles = ceil_div(problem.k, configs["tile_k"])
    whole = [Launch(decomposition=Decomposition.DATA_PARALLEL), Launch(decomposition=Decomposition.STREAM_K)]
    for launch in [*whole, *_splits(deterministic)] if stream_k.any() else []:
        chosen = np.flatnonzero(stream_k & (k_tiles >= 2 * launch.splits))
        part = with_launch(take(configs, chosen), launch, swapped[chosen])
        if launch.decomposition in SPLIT_K_DECOMPOSITIONS[1:]:
            kept = splits_worth_a_look(part, problem)
            part, chosen = take(part, kept), chosen[kept]
        parts.append(part)
        rows.append(chosen)
    columns, origin = concat(parts), np.concatenate(rows)
    order = np.argsort(origin, kind="stable")
    return {name: columns[name][order] for name in CANDIDATE_COLUMNS}, origin[order]
