"""Which kernels to compile: nvMMH's picks, known winners, and the alpha sampling of arXiv 2609.35587 over a tile grid.

Compile time decides the shape of the list: kernels of one tile share a translation unit, so the list is spread over few
tiles, each with few stage counts, rather than over the whole space.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ..generator import columns as col
from ..generator.columns import Columns
from ..generator.estimates import (
    SHARED_MEMORY_LIMIT,
    SHARED_MEMORY_RESERVE,
    accumulator_registers,
    ceil_div,
    effective_sizes,
    tensor_bytes,
    tile_counts,
)
from ..generator.rules import valid_mask
from ..generator.types import DTYPES, FAMILIES, Problem
from .nvmmh import SCHEDULE_VARIANTS, schedule_variants

_BF16 = DTYPES["bf16"]
MAX_STAGES: Final = 12
SPILL_REGISTERS: Final = 256
"""Accumulator registers per consumer thread from which a kernel spills; such kernels enter only as required ones."""


@dataclass(frozen=True)
class Tile:
    """One tile of the catalogue and how many kernels it gets."""

    family: str
    m: int
    n: int
    k: int
    kernels: int
    """Kernels to choose in all, unless the required ones are already more."""


TILES: Final = tuple(
    Tile(family, *numbers)
    for family, rows in (
        ("TNT", (
            (64, 16, 64, 8), (64, 16, 128, 26), (64, 32, 64, 8), (64, 32, 128, 20), (64, 64, 64, 12), (64, 64, 128, 22),
            (64, 80, 64, 8), (64, 128, 64, 14), (64, 128, 128, 18), (64, 192, 128, 16), (64, 256, 64, 14),
            (64, 256, 128, 10), (128, 32, 128, 10), (128, 64, 64, 14), (128, 64, 128, 20), (128, 96, 64, 10),
            (128, 128, 64, 26), (128, 128, 128, 28), (128, 192, 64, 20), (128, 192, 128, 26), (128, 256, 64, 24),
            (128, 256, 128, 8), (192, 128, 64, 12), (256, 64, 64, 10), (256, 128, 64, 30), (256, 192, 64, 18),
        )),
        ("TNN", (
            (64, 16, 128, 22), (64, 16, 256, 18), (64, 32, 128, 24), (64, 32, 256, 14), (64, 48, 128, 12),
            (64, 64, 64, 10), (64, 64, 128, 22), (64, 128, 64, 10), (128, 16, 128, 16), (128, 32, 128, 18),
            (128, 64, 64, 12), (128, 64, 128, 16), (128, 128, 64, 14),
        )),
    )
    for numbers in rows
)  # fmt: skip
"""Tiles of the first campaign. TNT kernels run TNT problems as they are, TNN kernels run them with operands swapped."""

WINNERS: Final = (
    ("TNT", 256, 192, 64, 1, 2), ("TNT", 256, 128, 64, 1, 1), ("TNT", 128, 256, 64, 2, 1), ("TNT", 128, 128, 64, 1, 1),
    ("TNT", 64, 128, 128, 2, 1), ("TNT", 128, 192, 64, 1, 1), ("TNT", 64, 64, 128, 1, 1), ("TNN", 64, 32, 128, 1, 1),
    ("TNN", 64, 16, 256, 1, 1), ("TNN", 64, 16, 128, 2, 1), ("TNN", 128, 16, 128, 1, 1),
)  # fmt: skip
"""Tile and cluster of kernels that won in a first hand-chosen measurement; all their schedule neighbours are taken."""

_CLUSTERS: Final = ((1, 1), (2, 1), (1, 2), (2, 2), (4, 1), (1, 4))
_RARE_CLUSTERS: Final = ((2, 4), (4, 2), (8, 1), (1, 8), (4, 4), (16, 1))


def choose_kernels(picks: pd.DataFrame, problems: pd.DataFrame, seed: int = 0, alpha: float = 0.75) -> Columns:
    """Choose the BF16 kernels of the first catalogue.

    Required first: every valid schedule variant of nvMMH's first picks on the evaluation problems (and of the pick that
    it predicts to be fastest), its most frequent first picks on the training problems, the neighbours of known
    winners, and every schedule of the TNN tiles, which small M lives on. Then each tile of ``TILES`` is filled up: a
    share ``alpha`` by static score, the rest at random, stratified over schedules, clusters and stages.

    Parameters
    ----------
    picks
        :func:`nvmmh.query` over ``problems``.
    problems
        Columns M, N, K, split.
    seed
        Seed of ties and of the stratified draw.
    alpha
        Share taken by score.

    Returns
    -------
    Columns
        ``CONFIG_COLUMNS``, unique rows, grouped by family and tile.
    """
    rng = np.random.default_rng(seed)
    required = _required(picks, problems)
    shapes = problems.loc[problems["split"] == "train", ["M", "N", "K"]].drop_duplicates()
    parts: list[Columns] = []
    for number, tile in enumerate(TILES):
        mine = col.take(required, _of_tile(required, tile))
        room = max(tile.kernels - col.size(mine), 0)
        pool = _without(_pool(tile, mine, _CLUSTERS), mine)
        order = np.lexsort((rng.random(col.size(pool)), -static_score(pool, _problems(shapes, tile))))
        top = col.take(pool, order[: round(alpha * room)])
        rare = _pool(tile, mine, (*_CLUSTERS, _RARE_CLUSTERS[number % len(_RARE_CLUSTERS)]))
        rest = _stratified(_without(rare, col.concat([mine, top])), room - col.size(top), rng)
        parts += [mine, top, rest]
    return col.concat(parts)


def static_score(configs: Columns, problems: list[Problem], sm_count: int = 132) -> NDArray[np.float64]:
    """Mean over problems of wave efficiency x stages x sqrt(tile_m tile_n tile_k) (arXiv 2609.35587).

    Tiles that only fill up a cluster take up their wave but do not count as useful.

    Parameters
    ----------
    configs
        Kernels; those of family TNN are taken to run swapped.
    problems
        Problems to average over.
    sm_count
        Multiprocessors; one resident CTA on each.
    """
    swapped = (configs["family"] == FAMILIES.index("TNN")).astype(np.int32)
    launched = col.with_launch(configs, swapped=swapped)
    waves = np.zeros(col.size(configs))
    for problem in problems:
        padded_m, padded_n = tile_counts(launched, problem)
        size_m, size_n = effective_sizes(launched, problem)
        tiles = ceil_div(size_m, configs["tile_m"]) * ceil_div(size_n, configs["tile_n"])
        waves += tiles / (ceil_div(padded_m * padded_n, sm_count) * sm_count)
    volume = configs["tile_m"].astype(np.float64) * configs["tile_n"] * configs["tile_k"]
    return np.asarray(waves / max(len(problems), 1) * configs["stages"] * np.sqrt(volume))


def deepest(configs: Columns) -> NDArray[np.int32]:
    """Most mainloop stages (at most 12) that fit each row's shared memory, whatever its ``stages`` says; 0 if not 2."""
    best = np.zeros(col.size(configs), dtype=np.int32)
    for stages in range(2, MAX_STAGES + 1):
        trial = configs | {"stages": np.full(col.size(configs), stages, dtype=np.int32)}
        fits = tensor_bytes(trial, _BF16) + SHARED_MEMORY_RESERVE <= SHARED_MEMORY_LIMIT
        best[fits] = stages
    return best


def _required(picks: pd.DataFrame, problems: pd.DataFrame) -> Columns:
    """Kernels that must be in: valid variants of nvMMH's picks and neighbours of winners, on tiles of ``TILES``."""
    splits = picks.merge(problems[["M", "N", "K", "split"]].drop_duplicates(), on=["M", "N", "K"])
    evaluation, training = splits[splits["split"] == "eval"], splits[splits["split"] == "train"]
    fastest = evaluation.loc[evaluation.groupby(["M", "N", "K"])["predicted_us"].idxmin()]
    kernel = ["tile_m", "tile_n", "tile_k", "cluster_m", "cluster_n", "stages", "splits"]
    uses = training[training["rank"] == 0].groupby(kernel).size()
    frequent = uses[uses >= 5].reset_index()
    wanted = pd.concat([evaluation[evaluation["rank"] == 0], fastest, frequent])[kernel].drop_duplicates()
    variants = schedule_variants(wanted.assign(swizzle=1, raster=0))
    parts = [{name: variants[name] for name in col.CONFIG_COLUMNS}]
    for family, m, n, k, cluster_m, cluster_n in WINNERS:
        parts.append(_grid(family, (m, n, k), ((cluster_m, cluster_n),)))
    parts += [_grid(t.family, (t.m, t.n, t.k), ((1, 1),)) for t in TILES if t.family == "TNN"]
    configs = col.concat(parts)
    configs["stages"] = np.where(configs["stages"] == 0, deepest(configs), configs["stages"]).astype(np.int32)
    configs = col.take(configs, valid_mask(configs, _BF16))
    on_grid = np.logical_or.reduce([_of_tile(configs, tile) for tile in TILES])
    return _unique(col.take(configs, on_grid))


def _grid(family: str, tile: tuple[int, int, int], clusters: tuple[tuple[int, int], ...]) -> Columns:
    """Every schedule variant x cluster of one tile, with ``stages`` 0."""
    rows = [
        (*tile, cluster_m, cluster_n, 0, *variant, FAMILIES.index(family), 0)
        for variant in SCHEDULE_VARIANTS
        for cluster_m, cluster_n in clusters
    ]
    table = np.array(rows, dtype=np.int32)
    return {name: table[:, i].copy() for i, name in enumerate(col.CONFIG_COLUMNS)}


def _pool(tile: Tile, required: Columns, clusters: tuple[tuple[int, int], ...]) -> Columns:
    """Kernels a tile may be filled with: the given clusters, the deepest and one shallow stage count."""
    grid = _grid(tile.family, (tile.m, tile.n, tile.k), clusters)
    depth = deepest(grid)
    # Few distinct counts keep the unit cheap to compile, so the shallow one is a required kernel's where there is one.
    shallow = int(np.bincount(required["stages"]).argmax()) if col.size(required) else 0
    if not 2 <= shallow < depth.max():
        shallow = max(2, int(depth.max()) // 2)
    parts = [grid | {"stages": depth}, grid | {"stages": np.minimum(depth, shallow)}]
    pool = _unique(col.concat(parts))
    keep = valid_mask(pool, _BF16) & (accumulator_registers(pool) < SPILL_REGISTERS)
    return col.take(pool, keep)


def _stratified(pool: Columns, count: int, rng: np.random.Generator) -> Columns:
    """Draw ``count`` rows one by one, each time from the rows whose schedule, cluster and stages were drawn least."""
    rows = col.size(pool)
    keys = (
        pool["schedule"] * 4 + pool["epilogue"] * 2 + pool["scheduler"],
        pool["cluster_m"] * 32 + pool["cluster_n"],
        pool["stages"],
    )
    taken = np.zeros(rows, dtype=np.bool_)
    uses = np.zeros((len(keys), rows))
    for _ in range(min(count, rows)):
        cost = uses.sum(axis=0) + rng.random(rows) * 0.5 + np.where(taken, np.inf, 0.0)
        row = int(cost.argmin())
        taken[row] = True
        for use, key in zip(uses, keys, strict=True):
            use[key == key[row]] += 1
    return col.take(pool, taken)


def _problems(shapes: pd.DataFrame, tile: Tile) -> list[Problem]:
    """Training problems that a tile is meant for: TNN kernels (swapped) serve M up to 128."""
    if tile.family == "TNN":
        shapes = shapes[shapes["M"] <= 128]
    return [Problem(int(m), int(n), int(k)) for m, n, k in shapes[["M", "N", "K"]].itertuples(index=False)]


def _of_tile(configs: Columns, tile: Tile) -> NDArray[np.bool_]:
    return np.asarray(
        (configs["family"] == FAMILIES.index(tile.family))
        & (configs["tile_m"] == tile.m)
        & (configs["tile_n"] == tile.n)
        & (configs["tile_k"] == tile.k)
    )


def _unique(configs: Columns) -> Columns:
    frame = pd.DataFrame(configs)[list(col.CONFIG_COLUMNS)]
    return col.take(configs, ~frame.duplicated().to_numpy())


def _without(pool: Columns, taken: Columns) -> Columns:
    """Rows of ``pool`` that are not in ``taken``."""
    names = list(col.CONFIG_COLUMNS)
    joined = pd.concat([pd.DataFrame(taken)[names], pd.DataFrame(pool)[names]])
    return col.take(pool, ~joined.duplicated().to_numpy()[col.size(taken) :])
