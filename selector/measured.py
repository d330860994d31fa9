"""Measured times of choices, looked up in the shipped tables without loading them whole."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any

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


@dataclass(frozen=True, slots=True)
class Measured:
    """What the shipped data knows of a problem. Times are best-known ones, in µs."""

    choices: dict[Candidate, float] = field(default_factory=dict)
    """Times of those choices that were measured with a launch that comes to the same."""
    fastest: float | None = None
    """Time of the fastest measured candidate that was allowed; None if the problem is not in the data."""
    cublaslt: float | None = None
    """Time of cuBLASLt's first answer; None if not measured."""


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
    main = set(_read(folder, "campaigns", ["campaign_id"], purpose="main")["campaign_id"])
    names = _read(folder, "kernels", ["kernel_id", "name"])
    wanted = {choice.name: choice.config for choice in choices}
    configs = {i: wanted[name] for i, name in zip(names["kernel_id"], names["name"], strict=True) if name in wanted}
    columns = [*LAUNCH_COLUMNS, "kernel_id", "swapped", "status", "time_us", "retake_us", "campaign_id"]
    rows = _read(folder, "measurements", columns, problem_id=problem_id)

    first: list[float] = []
    retaken: list[float] = []
    timed: list[tuple[Candidate, float]] = []
    # Of a candidate that several campaigns measured, the row counts that counts in datasets.groups().
    counting: dict[tuple[object, ...], dict[str, Any]] = {}
    for row in sorted(
        (dict(zip(rows, values, strict=True)) for values in zip(*rows.values(), strict=True)), key=_weight
    ):
        if row["campaign_id"] in main and row["status"] in ("ok", "coarse"):
            counting[tuple(row[name] for name in ("kernel_id", "swapped", *LAUNCH_COLUMNS))] = row
    for row in counting.values():
        again = _retaken(row)
        time = row["retake_us"] if again else row["time_us"]
        if row["status"] == "ok" and (row["decomposition"] != Decomposition.SPLIT_K_ATOMIC or not deterministic):
            (retaken if again else first).append(time)
        if row["kernel_id"] in configs:
            launch = Launch(Raster(row["raster"]), row["swizzle"], Decomposition(row["decomposition"]), row["splits"])
            timed.append((Candidate(configs[row["kernel_id"]], launch, bool(row["swapped"]) != flipped), time))
    times = dict(
        zip(_keys([candidate for candidate, _ in timed], choices[0].problem), (t for _, t in timed), strict=True)
    )
    asked = [choice.candidate for choice in choices]
    baseline = _read(folder, "baselines", ["time_us"], problem_id=problem_id, method="cublaslt_first")["time_us"]
    return Measured(
        {c: times[key] for c, key in zip(asked, _keys(asked, choices[0].problem), strict=True) if key in times},
        min(retaken or first, default=None),
        baseline[0] if baseline else None,
    )


def _retaken(row: dict[str, Any]) -> bool:
    return row["retake_us"] is not None and not math.isnan(row["retake_us"])


def _weight(row: dict[str, Any]) -> tuple[bool, bool, int]:
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
    """Read columns of the rows in which other columns have the given values."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    filters = [(name, "==", value) for name, value in equal.items()] or None
    try:
        found: dict[str, list[Any]] = pq.read_table(
            folder / f"{table}.parquet", columns=columns, filters=filters
        ).to_pydict()
    except (OSError, pa.ArrowException) as error:
        raise DataError(f"cannot read table {table} in {folder}: {error}") from error
    return found
