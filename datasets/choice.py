"""Which kernels to compile, from what is already measured: covers, neighbours, transfers and uniform samples.

A catalogue takes the measured kernels that leave the least regret, carried over to other operand layouts, looks one
step around them, and adds an even draw from the whole space, so that bad kernels are seen too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ..generator import columns as col
from ..generator.columns import Columns
from ..generator.errors import DataError
from ..generator.estimates import SHARED_MEMORY_LIMIT, SHARED_MEMORY_RESERVE, tensor_bytes
from ..generator.rules import CLUSTER, TILE_K, valid_mask
from ..generator.space import EXTENDED_TILE_N, STAGES, TILE_M, enumerate_configs
from ..generator.types import DTYPES, FAMILIES, Epilogue, Schedule, Scheduler, parse_layout
from .grouping import Group

_BF16 = DTYPES["bf16"]
DIRECT_FAMILIES: Final = ("TTT", "NNT", "NTT")
"""Families that get the cover's TNT kernels, besides TNT itself."""
SWAPPED_FAMILIES: Final = ("NNN", "TTN", "NTN")
"""Families that get the cover's TNN kernels, besides TNN itself: they run swapped for row-major outputs."""
NOTHING: Final = 1e-9
"""A gain in summed relative speed below this is rounding."""
UNIFORM_SHARE: Final = 0.25
"""Least share of a catalogue that is drawn uniformly from the paper's space."""


def relative_speeds(groups: Sequence[Group]) -> pd.DataFrame:
    """Oracle time over each kernel's best time on each problem.

    Returns
    -------
    pandas.DataFrame
        One row a group, one column a kernel (kernel_id, ascending); values up to 1, 0 where a kernel was not measured.
    """
    best = {
        number: pd.Series(group.oracle_us / group.time_us).groupby(group.kernel_id).max().clip(upper=1.0)
        for number, group in enumerate(groups)
    }
    return pd.DataFrame(best).T.fillna(0.0).sort_index(axis=1)


def cover(groups: Sequence[Group], counts: Mapping[str, int]) -> list[int]:
    """Choose measured kernels greedily so that the best chosen one leaves the least regret, averaged over problems.

    Each step takes the kernel that raises the mean of (oracle / best chosen time) most, of the families that have not
    had their count yet. That mean is submodular in the chosen set, so a single family's greedy choice reaches at
    least 1 - 1/e of the best possible. Once nothing more can be gained, a second cover begins with the kernels that
    are left, and so on.

    Parameters
    ----------
    groups
        Measured problems; usually the training ones.
    counts
        Kernels to choose by family, e.g. ``{"TNT": 190, "TNN": 190}``.

    Returns
    -------
    list of int
        kernel_id in the order of choice.

    Raises
    ------
    DataError
        If a family has fewer measured kernels than asked for.
    """
    speeds = relative_speeds(groups)
    family = _measured(groups)["family"].reindex(speeds.columns).to_numpy()
    value, kernels = speeds.to_numpy(), speeds.columns.to_numpy()
    left = {FAMILIES.index(parse_layout(name)): count for name, count in counts.items()}
    for code, count in left.items():
        if count > (family == code).sum():
            raise DataError(f"{count} kernels of {FAMILIES[code]} are wanted, {(family == code).sum()} are measured")
    reached = np.zeros(len(value))
    open_ = np.isin(family, [code for code, count in left.items() if count > 0])
    chosen: list[int] = []
    while open_.any():
        gain = np.where(open_, np.maximum(value - reached[:, None], 0.0).sum(axis=0), -1.0)
        if gain.max() < NOTHING:
            reached[:] = 0.0
            gain = np.where(open_, value.sum(axis=0), -1.0)
        best = int(gain.argmax())
        chosen.append(int(kernels[best]))
        reached = np.maximum(reached, value[:, best])
        open_[best] = False
        left[family[best]] -= 1
        if left[family[best]] == 0:
            open_ &= family != family[best]
    return chosen


def neighbours(configs: Columns) -> Columns:
    """List every valid kernel that differs from one of ``configs`` in one knob.

    Knobs: tile_m and tile_n one step along the extended grid (64 and 16), tile_k halved or doubled, the cluster (one
    side halved or doubled, or the sides exchanged), one stage more or fewer, and the mainloop schedule, the epilogue
    schedule or the tile scheduler replaced. Where a larger tile leaves no room for the stages, they are lowered to
    the most that fit.

    Returns
    -------
    Columns
        ``CONFIG_COLUMNS``, unique, without ``configs`` themselves.
    """
    base = {name: configs[name] for name in col.CONFIG_COLUMNS}
    parts = []
    for name, steps in (("tile_m", TILE_M), ("tile_n", EXTENDED_TILE_N), ("tile_k", TILE_K), ("stages", STAGES),
                        ("cluster_m", CLUSTER), ("cluster_n", CLUSTER)):  # fmt: skip
        parts += [_stepped(base, name, steps, step) for step in (-1, 1)]
    parts.append(base | {"cluster_m": base["cluster_n"], "cluster_n": base["cluster_m"]})
    for name, values in (("schedule", Schedule), ("epilogue", Epilogue), ("scheduler", Scheduler)):
        parts += [base | {name: np.full_like(base[name], value)} for value in values]
    pool = unique(col.concat(parts))
    pool["stages"] = np.minimum(pool["stages"], np.where(deepest(pool) > 0, deepest(pool), pool["stages"]))
    pool = unique(col.take(pool, valid_mask(pool, _BF16)))
    return without(pool, base)


def _stepped(configs: Columns, name: str, grid: Sequence[int], step: int) -> Columns:
    """Move one column by ``step`` along its grid; rows that would leave the grid are left out."""
    steps = np.array(grid, dtype=np.int32)
    position = np.searchsorted(steps, configs[name]) + step
    inside = (position >= 0) & (position < len(steps))
    moved = col.take(configs, inside)
    return moved | {name: steps[position[inside]]}


def uniform_sample(layout: str, count: int, seed: int, exclude: Columns | None = None) -> Columns:
    """Draw ``count`` different kernels, every one equally likely, from the paper's space of a family.

    Parameters
    ----------
    layout
        Family to draw from, e.g. ``"TTT"``.
    count
        How many kernels.
    seed
        Seed of the draw.
    exclude
        Kernels that are not drawn, because they are there already.
    """
    space = enumerate_configs(layout, space="paper")
    if exclude is not None:
        space = without(space, exclude)
    chosen = np.random.default_rng(seed).choice(col.size(space), count, replace=False)
    return col.take(space, np.sort(chosen))


def transfer(configs: Columns, family: str) -> Columns:
    """Return the same kernels in another family, without those that are not valid there."""
    code = np.full(col.size(configs), FAMILIES.index(parse_layout(family)), dtype=np.int32)
    moved = {name: configs[name] for name in col.CONFIG_COLUMNS} | {"family": code}
    return col.take(moved, valid_mask(moved, _BF16))


def family_catalogue(groups: Sequence[Group], per_family: int = 250, seed: int = 0) -> Columns:
    """Choose kernels for the six families other than TNT and TNN from measurements of those two.

    Three quarters of each family are a cover, transferred: the direct families TTT, NNT and NTT take TNT kernels, the
    families that serve the same layouts swapped, NNN, TTN and NTN, take TNN kernels. The cover is chosen for both
    together. At least ``UNIFORM_SHARE`` is drawn uniformly from the family's own part of the paper's space.

    Parameters
    ----------
    groups
        Measured TNT problems; usually the training ones.
    per_family
        Kernels of each family.
    seed
        Seed of the uniform draws.

    Returns
    -------
    Columns
        ``CONFIG_COLUMNS``, family by family, the cover first and in its order.
    """
    covering = per_family - int(np.ceil(UNIFORM_SHARE * per_family))
    chosen = cover(groups, {"TNT": covering, "TNN": covering})
    configs = _measured(groups).loc[chosen]
    parts = []
    for source, families in (("TNT", DIRECT_FAMILIES), ("TNN", SWAPPED_FAMILIES)):
        rows = configs[configs["family"] == FAMILIES.index(source)]
        columns = {name: rows[name].to_numpy(dtype=np.int32) for name in col.CONFIG_COLUMNS}
        for family in families:
            moved = transfer(columns, family)
            rest = per_family - col.size(moved)
            parts += [moved, uniform_sample(family, rest, seed * len(FAMILIES) + FAMILIES.index(family), moved)]
    return col.concat(parts)


def _measured(groups: Sequence[Group]) -> pd.DataFrame:
    """Configuration of every measured kernel, by kernel_id."""
    parts = [
        pd.DataFrame({name: group.columns[name] for name in col.CONFIG_COLUMNS}, index=group.kernel_id)
        for group in groups
    ]
    listed = pd.concat(parts)
    return listed[~listed.index.duplicated()]


def deepest(configs: Columns) -> NDArray[np.int32]:
    """Most mainloop stages (at most 12) that fit each row's shared memory, whatever its ``stages`` says; 0 if not 2."""
    best = np.zeros(col.size(configs), dtype=np.int32)
    for stages in range(2, STAGES[-1] + 1):
        trial = configs | {"stages": np.full(col.size(configs), stages, dtype=np.int32)}
        fits = tensor_bytes(trial, _BF16) + SHARED_MEMORY_RESERVE <= SHARED_MEMORY_LIMIT
        best[fits] = stages
    return best


def unique(configs: Columns) -> Columns:
    """Keep the first of equal kernels."""
    frame = pd.DataFrame(configs)[list(col.CONFIG_COLUMNS)]
    return col.take(configs, ~frame.duplicated().to_numpy())


def without(pool: Columns, taken: Columns) -> Columns:
    """Keep the rows of ``pool`` that are not in ``taken``."""
    names = list(col.CONFIG_COLUMNS)
    joined = pd.concat([pd.DataFrame(taken)[names], pd.DataFrame(pool)[names]])
    return col.take(pool, ~joined.duplicated().to_numpy()[col.size(taken) :])
