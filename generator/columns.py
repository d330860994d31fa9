"""Candidates as struct-of-arrays: how they travel from enumeration to score.

A ``Columns`` is a dict of equally long one-dimensional int32 arrays. Every ``Columns`` has ``CONFIG_COLUMNS``; one that
has been given launches has ``LAUNCH_COLUMNS`` and ``swapped`` too. Any other column stays with its rows. Enumerations
are stored by their integer value, ``family`` by its position in ``FAMILIES``. The element type is not a column: one
``Columns`` serves one type.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from .types import (
    FAMILIES,
    Candidate,
    Decomposition,
    DType,
    Epilogue,
    KernelConfig,
    Launch,
    Raster,
    Schedule,
    Scheduler,
)

Columns = dict[str, NDArray[np.int32]]

CONFIG_COLUMNS: Final = (
    "tile_m", "tile_n", "tile_k", "cluster_m", "cluster_n", "stages",
    "schedule", "epilogue", "scheduler", "family", "void_c",
)  # fmt: skip
LAUNCH_COLUMNS: Final = ("raster", "swizzle", "decomposition", "splits")
CANDIDATE_COLUMNS: Final = (*CONFIG_COLUMNS, *LAUNCH_COLUMNS, "swapped")


def size(columns: Columns) -> int:
    """Number of rows."""
    return len(columns["tile_m"])


def take(columns: Columns, index: NDArray[np.bool_] | NDArray[np.intp] | slice) -> Columns:
    """Return the rows selected by a mask, an index array or a slice."""
    return {name: values[index] for name, values in columns.items()}


def concat(parts: Sequence[Columns]) -> Columns:
    """Stack several ``Columns`` with the same keys."""
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def from_configs(configs: Iterable[KernelConfig]) -> Columns:
    """Turn configs into columns."""
    rows = [
        (c.tile_m, c.tile_n, c.tile_k, c.cluster_m, c.cluster_n, c.stages,
         c.schedule, c.epilogue, c.scheduler, FAMILIES.index(c.family), c.void_c)
        for c in configs
    ]  # fmt: skip
    table = np.array(rows, dtype=np.int32).reshape(len(rows), len(CONFIG_COLUMNS))
    return {name: table[:, i].copy() for i, name in enumerate(CONFIG_COLUMNS)}


def from_launches(launches: Iterable[Launch]) -> Columns:
    """Turn launches into ``LAUNCH_COLUMNS``."""
    rows = [(launch.raster, launch.swizzle, launch.decomposition, launch.splits) for launch in launches]
    table = np.array(rows, dtype=np.int32).reshape(len(rows), len(LAUNCH_COLUMNS))
    return {name: table[:, i].copy() for i, name in enumerate(LAUNCH_COLUMNS)}


def from_candidates(candidates: Iterable[Candidate]) -> Columns:
    """Turn candidates into columns."""
    listed = list(candidates)
    swapped = np.array([candidate.swapped for candidate in listed], dtype=np.int32)
    launches = from_launches(candidate.launch for candidate in listed)
    return {**from_configs(candidate.config for candidate in listed), **launches, "swapped": swapped}


def with_launch(columns: Columns, launch: Launch | None = None, swapped: bool | NDArray[np.int32] = False) -> Columns:
    """Give every row the same launch (the default one unless said) and the swap flag."""
    launch = launch or Launch()
    rows = size(columns)
    result = dict(columns)
    for name in LAUNCH_COLUMNS:
        result[name] = np.full(rows, int(getattr(launch, name)), dtype=np.int32)
    result["swapped"] = np.broadcast_to(np.asarray(swapped, dtype=np.int32), (rows,)).copy()
    return result


def config_at(columns: Columns, row: int, dtype: DType) -> KernelConfig:
    """Build the config of one row."""
    value = {name: int(columns[name][row]) for name in CONFIG_COLUMNS}
    return KernelConfig(
        value["tile_m"], value["tile_n"], value["tile_k"], value["cluster_m"], value["cluster_n"], value["stages"],
        Schedule(value["schedule"]), Epilogue(value["epilogue"]), Scheduler(value["scheduler"]),
        FAMILIES[value["family"]], bool(value["void_c"]), dtype,
    )  # fmt: skip


def candidate_at(columns: Columns, row: int, dtype: DType) -> Candidate:
    """Build the candidate of one row; columns without launches give the default launch."""
    config = config_at(columns, row, dtype)
    if "raster" not in columns:
        return Candidate(config)
    launch = Launch(
        Raster(int(columns["raster"][row])), int(columns["swizzle"][row]),
        Decomposition(int(columns["decomposition"][row])), int(columns["splits"][row]),
    )  # fmt: skip
    return Candidate(config, launch, bool(columns["swapped"][row]))
