"""The measurement tables: their columns and types, reading and writing them.

The shipped tables lie in ``datasets/data/`` as Zstandard-compressed Parquet, one file a table.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any, Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ..generator import CONFIG_COLUMNS, LAUNCH_COLUMNS, DataError

STATUSES: Final = ("ok", "coarse", "wrong", "refused", "launch_failed", "hang", "crash", "below_floor")
"""What became of a measured candidate; only ``ok`` and ``coarse`` rows have times."""
TIMED: Final = ("ok", "coarse")
PURPOSES: Final = ("main", "repeat", "study", "gap")
"""What a campaign is for. Only rows of ``main`` make up groups: ``repeat`` measures some of them again, ``study`` under
other conditions, ``gap`` measures kernels outside the catalogue beside them."""
PROBLEM_KEY: Final = ("M", "N", "K", "layout", "dtype")
"""Columns that identify a problem."""
CANDIDATE_KEY: Final = ("problem_id", "kernel_id", *LAUNCH_COLUMNS, "swapped")
"""Columns that identify a candidate on a problem."""

_PICK: Final = {
    "tile_m": "int16", "tile_n": "int16", "tile_k": "int16", "cluster_m": "int8", "cluster_n": "int8", "stages": "int8",
    "splits": "int16", "swizzle": "int8", "raster": "int8",
}  # fmt: skip
_LAUNCH: Final = {"raster": "int8", "swizzle": "int8", "decomposition": "int8", "splits": "int16"}

SCHEMA: Final[dict[str, dict[str, str]]] = {
    "kernels": {
        "kernel_id": "int32", "name": "str",
        **{name: "int16" if name.startswith("tile") else "int8" for name in CONFIG_COLUMNS},
        "registers": "int16", "spill_bytes": "int32", "shared_memory_bytes": "int32", "build_status": "str",
        "build_seconds": "float32",
    },
    "problems": {
        "problem_id": "int32", "M": "int32", "N": "int32", "K": "int32", "layout": "str", "dtype": "str",
        "sources": "str", "split": "str",
    },
    "measurements": {
        "problem_id": "int32", "kernel_id": "int32", **_LAUNCH, "swapped": "int8", "status": "category",
        "time_us": "float32", "spread": "float32", "launches": "int16", "retake_us": "float32", "graph_us": "float32",
        "probe_ratio": "float32", "campaign_id": "int16",
    },
    "baselines": {
        "problem_id": "int32", "method": "str", "time_us": "float32", "spread": "float32", "launches": "int16",
        "status": "str", "algo": "str", "campaign_id": "int16",
    },
    "nvmmh": {"problem_id": "int32", "rank": "int16", **_PICK, "predicted_us": "float32"},
    "nvmmh_variants": {"problem_id": "int32", "kernel_id": "int32", **_LAUNCH},
    "campaigns": {
        "campaign_id": "int16", "name": "str", "purpose": "str", "gpu": "str", "driver": "str", "cuda": "str",
        "cutlass": "str", "protocol_version": "int16", "commit": "str", "started": "str", "seconds": "float32",
        "workers": "int16", "operands": "str", "mode": "str", "timer_resolution_us": "float32",
        "probe_us": "float32", "graph_overhead_us": "float32",
    },
}  # fmt: skip
"""Columns and types of every table. Times are microseconds, ``spread`` the relative interquartile range of a row's
launches, ``registers`` registers per thread, ``spill_bytes`` spill stores plus loads, ``build_seconds`` seconds of one
core."""

MANTISSA_BITS: Final = {"time_us": 14, "retake_us": 14, "graph_us": 14, "spread": 6, "probe_ratio": 10}
"""Bits of the mantissa that measurements are written with: times to 1 part in 32,768, far below their noise."""
_SPLIT: Final = ("time_us", "retake_us", "graph_us", "spread")
"""Columns of measurements whose bytes are stored by significance; the others have few values and get a dictionary."""
COMPRESSION_LEVEL: Final = 9


ROW_GROUP: Final = 1 << 16
"""Rows that are stored together; reading the rows of one problem touches few such groups."""


def empty(table: str) -> pd.DataFrame:
    """Return a table of the schema without rows."""
    return conform(table, pd.DataFrame({column: [] for column in SCHEMA[table]}))


def conform(table: str, frame: pd.DataFrame) -> pd.DataFrame:
    """Give ``frame`` exactly the columns, order and types of a table.

    Whole numbers that are missing become -1, missing texts the empty text.

    Raises
    ------
    DataError
        If a column is missing or a value does not fit its type.
    """
    schema = SCHEMA[table]
    absent = [column for column in schema if column not in frame]
    if absent:
        raise DataError(f"table {table} lacks the columns {', '.join(absent)}")
    result: dict[str, pd.Series[Any]] = {}
    for column, kind in schema.items():
        values: pd.Series[Any] = frame[column].reset_index(drop=True)
        if kind == "category":
            if not values.isin(STATUSES).all():
                raise DataError(f"table {table}: {column} holds values other than {', '.join(STATUSES)}")
            values = values.astype(pd.CategoricalDtype(list(STATUSES)))
        elif kind == "str":
            values = values.astype(object).where(values.notna(), "").astype(str)
        elif kind.startswith("int"):
            whole = pd.to_numeric(values).fillna(-1)
            limits = np.iinfo(kind)
            if len(whole) and (whole.min() < limits.min or whole.max() > limits.max or (whole % 1 != 0).any()):
                raise DataError(f"table {table}: {column} holds values that are no {kind}")
            values = whole.astype(np.dtype(kind))
        else:
            values = pd.to_numeric(values).astype(np.dtype(kind))
        result[column] = values
    return pd.DataFrame(result)


@dataclass(frozen=True)
class Tables:
    """The measurement tables as pandas frames, with the columns of ``SCHEMA``."""

    kernels: pd.DataFrame = field(default_factory=lambda: empty("kernels"))
    problems: pd.DataFrame = field(default_factory=lambda: empty("problems"))
    measurements: pd.DataFrame = field(default_factory=lambda: empty("measurements"))
    baselines: pd.DataFrame = field(default_factory=lambda: empty("baselines"))
    nvmmh: pd.DataFrame = field(default_factory=lambda: empty("nvmmh"))
    nvmmh_variants: pd.DataFrame = field(default_factory=lambda: empty("nvmmh_variants"))
    campaigns: pd.DataFrame = field(default_factory=lambda: empty("campaigns"))

    def write(self, path: str | Path) -> Path:
        """Write every table to ``path`` (a directory, made if missing), each file replaced in one step.

        Measurements are rounded to ``MANTISSA_BITS``.
        """
        folder = Path(path)
        folder.mkdir(parents=True, exist_ok=True)
        for table in SCHEMA:
            part = folder / f".{table}.parquet.part"
            _write(table, conform(table, getattr(self, table)), part)
            part.replace(folder / f"{table}.parquet")
        return folder


def _write(table: str, frame: pd.DataFrame, path: Path) -> None:
    options: dict[str, Any] = {"row_group_size": ROW_GROUP}
    if table == "measurements":
        rounded = {column: round_mantissa(frame[column].to_numpy(), bits) for column, bits in MANTISSA_BITS.items()}
        frame = frame.assign(**rounded)
        options["use_dictionary"] = [column for column in frame if column not in _SPLIT]
        options["column_encoding"] = dict.fromkeys(_SPLIT, "BYTE_STREAM_SPLIT")
    frame.to_parquet(path, index=False, compression="zstd", compression_level=COMPRESSION_LEVEL, **options)


def round_mantissa(values: NDArray[np.float32], bits: int) -> NDArray[np.float32]:
    """Round float32 values to the nearest with ``bits`` explicit bits of mantissa, ties to even; NaN stays NaN."""
    dropped = 23 - bits
    whole = values.view(np.uint32).astype(np.int64)
    half = (1 << (dropped - 1)) - 1 + (whole >> dropped & 1)
    rounded = (whole + half >> dropped << dropped).astype(np.uint32).view(np.float32)
    return np.where(np.isfinite(values), rounded, values)


def load(tables: Iterable[str] | None = None, path: str | Path | None = None) -> Tables:
    """Read the tables.

    Parameters
    ----------
    tables
        Names of the tables to read, all unless given; the others stay empty.
    path
        Directory of the Parquet files; the data shipped with the package unless given.

    Raises
    ------
    DataError
        If a table is unknown, missing, unreadable or lacks columns.
    """
    wanted = list(SCHEMA if tables is None else tables)
    unknown = [table for table in wanted if table not in SCHEMA]
    if unknown:
        raise DataError(f"unknown table {', '.join(unknown)}; there are {', '.join(SCHEMA)}")
    if path is not None:
        return Tables(**{table: _read(Path(path), table) for table in wanted})
    with as_file(files(__package__) / "data") as folder:
        return Tables(**{table: _read(folder, table) for table in wanted})


def _read(folder: Path, table: str) -> pd.DataFrame:
    try:
        frame = pd.read_parquet(folder / f"{table}.parquet")
    except (OSError, ValueError) as error:
        raise DataError(f"cannot read table {table} in {folder}: {error}") from error
    return conform(table, frame)


def best_time(measurements: pd.DataFrame) -> pd.Series[float]:
    """Best-known time of each row in microseconds: the interleaved retake if there is one, else the first pass."""
    retake = measurements["retake_us"].astype(np.float64)
    return retake.where(retake.notna(), measurements["time_us"].astype(np.float64)).rename("best_us")
