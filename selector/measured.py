"""Measured times of choices, looked up in the shipped tables without loading them whole."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from importlib.resources import as_file, files
from operator import itemgetter
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple

from ..generator import (
    LAUNCH_COLUMNS,
    Candidate,
    DataError,
    Decomposition,
    Launch,
    Problem,
    Raster,
    effective_launch,
)
from ..generator import columns as col
from .choice import Choice

if TYPE_CHECKING:
    from numpy.typing import NDArray

Row = dict[str, Any]
"""A row of the measurements by column."""
Key = tuple[int, ...]
"""What identifies a candidate on a problem."""
_key: Callable[[Row], Key] = itemgetter("kernel_id", "swapped", *LAUNCH_COLUMNS)


@dataclass(frozen=True, slots=True)
class Measured:
    """What the shipped data knows of a problem. Times are best-known ones, in µs, at the newest campaign's clock."""

    choices: dict[Candidate, float] = field(default_factory=dict)
    """Times of those choices that were measured with a launch that comes to the same."""
    fastest: float | None = None
    """Time of the fastest measured candidate that was allowed; None if the problem is not in the data."""
    cublaslt: float | None = None
    """Time of cuBLASLt's first answer, the median over campaigns; None if not measured."""


def look_up(choices: Sequence[Choice], folder: Path | None = None, deterministic: bool = True) -> Measured:
    """Look up choices of one problem.

    Parameters
    ----------
    choices
        At least one choice, all of the same problem.
    folder
        Directory of the Parquet tables; the shipped data unless given. Without tables nothing is known.
    deterministic
        False lets the fastest candidate be one whose results differ from run to run.
    """
    if folder is None:
        with as_file(files(__package__.rpartition(".")[0] + ".datasets") / "data") as shipped:
            return look_up(choices, shipped, deterministic)
    if not (folder / "measurements.parquet").is_file():
        return Measured()
    problem = choices[0].problem
    for asked, flipped in ((problem, False), (problem.transposed(), True)):
        found = _read(
            folder, "problems", ["problem_id"],
            M=asked.m, N=asked.n, K=asked.k, layout=asked.layout, dtype=asked.dtype.name,
        )  # fmt: skip
        if found["problem_id"]:
            return _of_problem(choices, folder, found["problem_id"][0], flipped, deterministic)
    return Measured()


def _of_problem(
    choices: Sequence[Choice], folder: Path, problem_id: int, flipped: bool, deterministic: bool
) -> Measured:
    """Look up choices on a stored problem, which is the transposed one if ``flipped``."""
    campaigns = _read(folder, "campaigns", ["campaign_id", "protocol_version"], purpose="main")
    main = dict(zip(campaigns["campaign_id"], campaigns["protocol_version"], strict=True))
    names = _read(folder, "kernels", ["kernel_id", "name"])
    wanted = {choice.name: choice.config for choice in choices}
    configs = {i: wanted[name] for i, name in zip(names["kernel_id"], names["name"], strict=True) if name in wanted}
    columns = [*LAUNCH_COLUMNS, "kernel_id", "swapped", "status", "time_us", "retake_us", "campaign_id"]
    rows = _read(folder, "measurements", columns, problem_id=problem_id)

    measured = [
        row | {"protocol": main.get(row["campaign_id"])}
        for row in (dict(zip(rows, values, strict=True)) for values in zip(*rows.values(), strict=True))
        if row["campaign_id"] in main and row["status"] in ("ok", "coarse")
    ]
    clocks = _clocks(measured)
    allowed: list[float] = []
    timed: list[tuple[Candidate, float]] = []
    for row, time in _times(measured, clocks):
        if row["status"] == "ok" and not (_atomic(row) and deterministic):
            allowed.append(time)
        if row["kernel_id"] in configs:
            launch = Launch(Raster(row["raster"]), row["swizzle"], Decomposition(row["decomposition"]), row["splits"])
            timed.append((Candidate(configs[row["kernel_id"]], launch, bool(row["swapped"]) != flipped), time))
    times = dict(
        zip(_keys([candidate for candidate, _ in timed], choices[0].problem), (t for _, t in timed), strict=True)
    )
    asked = [choice.candidate for choice in choices]
    found = _read(
        folder, "baselines", ["time_us", "campaign_id"],
        problem_id=problem_id, method="cublaslt_first", status="ok",
    )  # fmt: skip
    baseline = [
        time * clocks[campaign].factor if campaign in clocks else time
        for time, campaign in zip(found["time_us"], found["campaign_id"], strict=True)
        if campaign in main
    ]
    return Measured(
        {c: times[key] for c, key in zip(asked, _keys(asked, choices[0].problem), strict=True) if key in times},
        min(allowed, default=None),
        median(baseline) if baseline else None,
    )


class _Clock(NamedTuple):
    """What brings a campaign's times to one clock."""

    factor: float
    """From its retakes to those of the newest campaign with retakes."""
    drift: float
    """From its first pass to its retakes."""


def _clocks(rows: Sequence[Row]) -> dict[int, _Clock]:
    """Return the clock of each campaign, by the rule of ``datasets.clock_factors``."""
    first: dict[int, dict[Key, float]] = {row["campaign_id"]: {} for row in rows}
    again: dict[int, dict[Key, float]] = {}
    drifts: dict[int, list[float]] = {}
    for row in rows:
        campaign, key = row["campaign_id"], _key(row)
        if row["status"] == "ok":
            first[campaign][key] = row["time_us"]
        if _retaken(row):
            again.setdefault(campaign, {})[key] = row["retake_us"]
            drifts.setdefault(campaign, []).append(row["retake_us"] / row["time_us"])
    if not again:
        return {campaign: _Clock(1.0, 1.0) for campaign in first}
    newest = max(again)
    return {
        campaign: _Clock(
            _ratio(again.get(campaign, {}), again[newest]) or _ratio(first[campaign], first[newest]) or 1.0,
            median(drifts.get(campaign, drifts[newest])),
        )
        for campaign in first
    }


def _ratio(own: dict[Key, float], reference: dict[Key, float]) -> float | None:
    """Return the median of reference / own time over the candidates that both have."""
    ratios = [reference[key] / time for key, time in own.items() if key in reference]
    return median(ratios) if ratios else None


def _times(rows: Sequence[Row], clocks: dict[int, _Clock]) -> Iterator[tuple[Row, float]]:
    """Yield the row of each candidate that counts and its best-known time, by the rules of ``datasets.groups``."""
    retakes: dict[Key, dict[int, list[float]]] = {}
    counting: dict[Key, Row] = {}
    for row in sorted(rows, key=_weight):
        key = _key(row)
        counting[key] = row
        if _retaken(row):
            of_protocol = retakes.setdefault(key, {}).setdefault(row["protocol"], [])
            of_protocol.append(row["retake_us"] * clocks[row["campaign_id"]].factor)
    best = {key: median(times[max(times)]) for key, times in retakes.items()}
    newest = max((max(times) for times in retakes.values()), default=None)
    deciding = [key for key, times in retakes.items() if newest in times]
    least = {
        atomic: min((best[key] for key in deciding if atomic or not _atomic(counting[key])), default=0.0)
        for atomic in (False, True)
    }
    for key, row in counting.items():
        clock = clocks[row["campaign_id"]]
        own = best[key] if key in best else row["time_us"] * clock.drift * clock.factor
        yield row, max(own, least[_atomic(row)])


def _atomic(row: Row) -> bool:
    return bool(row["decomposition"] == Decomposition.SPLIT_K_ATOMIC)


def _retaken(row: Row) -> bool:
    return row["retake_us"] is not None and not math.isnan(row["retake_us"])


def _weight(row: Row) -> tuple[bool, bool, int]:
    """Order of a candidate's rows, the one that counts last: retaken ones, then those not coarse, then the newest."""
    return _retaken(row), row["status"] == "ok", row["campaign_id"]


def _keys(candidates: Sequence[Candidate], problem: Problem) -> list[tuple[object, ...]]:
    """Return, for each candidate, kernel and swap with what CUTLASS makes of the launch."""
    if not candidates:
        return []
    along_m, log_swizzle = effective_launch(col.from_candidates(candidates), problem)
    return [
        (c.config, c.swapped, m, swizzle, c.launch.decomposition, c.launch.splits)
        for c, m, swizzle in zip(candidates, along_m.tolist(), log_swizzle.tolist(), strict=True)
    ]


def _read(folder: Path, table: str, columns: list[str], **equal: object) -> dict[str, list[Any]]:
    """Read columns of the rows in which other columns have the given values.

    Only the row groups that may hold such rows are read. Most of pyarrow's conveniences, ``read_table`` with filters
    and ``to_numpy`` among them, import pandas, which takes longer than all of this.
    """
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(folder / f"{table}.parquet") as file:
            groups = [i for i in range(file.num_row_groups) if _may_hold(file.metadata.row_group(i), equal)]
            found = file.read_row_groups(groups, columns=list(dict.fromkeys([*columns, *equal])))
        kept = np.ones(len(found), dtype=np.bool_)
        for name, value in equal.items():
            kept &= _values(found[name]) == value
        bounds = np.flatnonzero(np.diff(np.concatenate(([False], kept, [False])))).reshape(-1, 2)
        runs = [found.slice(first, end - first) for first, end in bounds.tolist()]
        selected = pa.concat_tables(runs or [found.slice(0, 0)]).select(columns)
        return {name: column.to_pylist() for name, column in zip(columns, selected.columns, strict=True)}
    except (OSError, pa.ArrowException) as error:
        raise DataError(f"cannot read table {table} in {folder}: {error}") from error


def _values(column: Any) -> NDArray[Any]:
    """Return the values of a column without nulls: whole numbers as they lie in memory, others as objects."""
    import numpy as np
    import pyarrow as pa

    if not pa.types.is_integer(column.type):
        return np.array(column.to_pylist(), dtype=object)
    dtype = np.dtype(f"i{column.type.bit_width // 8}")
    parts = [
        np.frombuffer(chunk.buffers()[1], dtype)[chunk.offset : chunk.offset + len(chunk)] for chunk in column.chunks
    ]
    return np.concatenate(parts) if parts else np.empty(0, dtype)


def _may_hold(group: Any, equal: dict[str, object]) -> bool:
    """Tell by a row group's statistics whether it may hold a row with these values."""
    for i in range(group.num_columns):
        column = group.column(i)
        value, known = equal.get(column.path_in_schema), column.statistics
        if isinstance(value, int) and known is not None and known.has_min_max and not known.min <= value <= known.max:
            return False
    return True
