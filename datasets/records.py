"""The raw files of a campaign: what the runner appends while it measures, and how it is read back.

An output directory holds, besides ``campaign-<n>.json`` (one per run of the command, with its provenance):

``rows-<who>-<n>.bin``
    Fixed-size records of ``ROW``, one per outcome of a candidate, appended batch by batch. A later record of the same
    candidate supersedes an earlier one; a record cut short by a kill is ignored.
``notes-<who>-<n>.jsonl``
    One JSON object a line: ``done`` (a problem is finished), ``baseline`` (cuBLASLt), ``final`` (its noise),
    ``note`` (something to know).
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from enum import IntEnum
from pathlib import Path
from typing import Any, Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ..generator import LAUNCH_COLUMNS, DataError
from .tables import SCHEMA, STATUSES, TIMED

PROTOCOL_VERSION: Final = 4
"""Version of the measurement protocol.

1. The first.
2. Operands are scaled by K, so that outputs are of order one.
3. Operands may be warm and launches may follow idle gaps (``Options.operands``, ``Options.mode``). L2 is flushed by
   2.2 times its size (was 192 MB, 3.05 times an H200's). Both look launches are verified, by an output poisoned before
   each, and count among the 10 launches of a first pass; 20 launches (were 24) under 20 microseconds are for candidates
   within 1.5 times the best only, the others have 10; those slower than 1.5 times the best (was 3) keep their look. The
   best 8 of the retake within 3% of its fastest, and cuBLASLt's first and best, are decided by a final
   (``measure.ProblemRun``), whose times replace ``retake_us`` on its scale. The second timer takes 10 launches.
4. The final is between the best 16 within 4%, with 1.5 to 3 times as many launches (15 instead of 20 above 5 ms).
"""
CONDITIONS: Final = ("protocol_version", "operands", "mode")
"""What must be the same for all rows of a campaign."""


class Phase(IntEnum):
    """How far a candidate has come."""

    LOOK = 0
    """Verified and launched twice; not final unless it failed."""
    FIRST = 1
    """First pass finished."""
    RETAKE = 2
    """Measured again among the best of its group."""
    FINAL = 3
    """Measured a third time, among those that may be the best."""


class Status(IntEnum):
    """Outcome of a candidate: positions in ``tables.STATUSES``."""

    OK = 0
    COARSE = 1
    WRONG = 2
    REFUSED = 3
    LAUNCH_FAILED = 4
    HANG = 5
    CRASH = 6
    BELOW_FLOOR = 7


KEY: Final = np.dtype(
    [
        ("kernel_id", "<i4"), ("swapped", "i1"), ("raster", "i1"), ("swizzle", "i1"),
        ("decomposition", "i1"), ("splits", "<i2"),
    ]
)  # fmt: skip
"""What identifies a candidate within a problem."""

ROW: Final = np.dtype(
    [
        ("problem_id", "<i4"),
        ("key", KEY),
        ("status", "i1"),
        ("phase", "i1"),
        ("launches", "<i2"),
        ("session", "<i2"),
        ("wrong", "<i8"),
        ("time_us", "<f4"),
        ("spread", "<f4"),
        ("retake_us", "<f4"),
        ("graph_us", "<f4"),
        ("probe_us", "<f4"),
        ("at_s", "<f8"),
    ]
)
"""One outcome. ``wrong``: wrong output elements; times in microseconds; ``probe_us``: latest time of the probe kernel;
``at_s``: Unix time; ``session``: n of ``campaign-<n>.json``."""


def new_rows(problem_id: int, keys: NDArray[np.void], session: int) -> NDArray[np.void]:
    """Return records of ``ROW`` for candidates about which nothing is known yet."""
    rows = np.zeros(len(keys), dtype=ROW)
    rows["problem_id"] = problem_id
    rows["key"] = keys
    rows["session"] = session
    for name in ("time_us", "spread", "retake_us", "graph_us", "probe_us"):
        rows[name] = np.nan
    return rows


def _create(directory: Path, stem: str, suffix: str) -> Any:
    """Create the first file ``<stem>-<n><suffix>`` that does not exist yet, opened for unbuffered appending."""
    number = 0
    while True:
        try:
            handle = os.open(
                directory / f"{stem}-{number}{suffix}", os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o644
            )
        except FileExistsError:
            number += 1
            continue
        return os.fdopen(handle, "wb", buffering=0)


class Recorder:
    """Appends rows and notes to files of its own; every call is on disk (in the page cache) when it returns."""

    def __init__(self, directory: Path, who: str) -> None:
        self._directory = directory
        self._who = who
        self._rows: Any = None
        self._notes: Any = None

    def rows(self, rows: NDArray[np.void]) -> None:
        """Append records of ``ROW``."""
        if len(rows) == 0:
            return
        if self._rows is None:
            self._rows = _create(self._directory, f"rows-{self._who}", ".bin")
        self._write(self._rows, np.ascontiguousarray(rows, dtype=ROW).tobytes())

    def note(self, kind: str, **values: Any) -> None:
        """Append one note."""
        if self._notes is None:
            self._notes = _create(self._directory, f"notes-{self._who}", ".jsonl")
        self._write(self._notes, (json.dumps({"kind": kind, **values}) + "\n").encode())

    @staticmethod
    def _write(file: Any, data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[file.write(view) :]


def read_raw(out_dir: str | Path, problem_id: int | None = None) -> NDArray[np.void]:
    """Read all records (of one problem if given), oldest first."""
    parts = []
    for path in sorted(Path(out_dir).glob("rows-*.bin")):
        data = path.read_bytes()
        part = np.frombuffer(data, dtype=ROW, count=len(data) // ROW.itemsize)
        parts.append(part if problem_id is None else part[part["problem_id"] == problem_id])
    rows = np.concatenate(parts) if parts else np.zeros(0, dtype=ROW)
    return rows[np.argsort(rows["at_s"], kind="stable")]


def latest(rows: NDArray[np.void]) -> NDArray[np.void]:
    """Keep the last record of each candidate."""
    if len(rows) == 0:
        return rows
    identity = pd.DataFrame({"problem_id": rows["problem_id"], **{name: rows["key"][name] for name in KEY.names or ()}})
    kept: NDArray[np.void] = rows[~identity.duplicated(keep="last").to_numpy(dtype=bool)]
    return kept


def is_final(rows: NDArray[np.void]) -> NDArray[np.bool_]:
    """Tell which records need no further first-pass work."""
    final: NDArray[np.bool_] = (rows["phase"] > Phase.LOOK) | (rows["status"] != Status.OK)
    return final


def read_rows(out_dir: str | Path) -> pd.DataFrame:
    """Read the final outcome of every candidate.

    Returns
    -------
    DataFrame
        problem_id, kernel_id, launch columns, swapped, status (text), time_us, spread, launches, retake_us, graph_us
        (microseconds, NaN where there is none or the status has no time), probe_ratio (the probe's time over its
        median in the campaign), phase, wrong (wrong output elements), at_s (Unix time), session.
    """
    rows = latest(read_raw(out_dir))
    rows = rows[is_final(rows)]
    columns: dict[str, Any] = {"problem_id": rows["problem_id"], "kernel_id": rows["key"]["kernel_id"]}
    for name in (*LAUNCH_COLUMNS, "swapped"):
        columns[name] = rows["key"][name]
    for name in ("phase", "time_us", "spread", "launches", "retake_us", "graph_us", "wrong", "at_s", "session"):
        columns[name] = rows[name]
    frame = pd.DataFrame(
        {name: np.asarray(values).astype(values.dtype.newbyteorder("=")) for name, values in columns.items()}
    )
    frame.insert(7, "status", np.array(STATUSES, dtype=object)[rows["status"]])
    frame.loc[~frame["status"].isin(TIMED), ["time_us", "spread", "retake_us", "graph_us"]] = np.nan
    probes = np.unique(rows["probe_us"][np.isfinite(rows["probe_us"])])
    frame["probe_ratio"] = rows["probe_us"] / (np.median(probes) if len(probes) else np.float32(np.nan))
    return frame


def read_notes(out_dir: str | Path) -> Iterator[dict[str, Any]]:
    """Yield all complete notes."""
    for path in sorted(Path(out_dir).glob("notes-*.jsonl")):
        for line in path.read_text(encoding="utf-8").splitlines(keepends=True):
            if line.endswith("\n"):
                yield json.loads(line)


def done_problems(out_dir: str | Path) -> set[int]:
    """Return the problems that need no further work: finished, or given up."""
    return {int(note["problem_id"]) for note in read_notes(out_dir) if note["kind"] == "done"}


def read_baselines(out_dir: str | Path) -> pd.DataFrame:
    """Read cuBLASLt's results; of several of a problem the last counts.

    Returns
    -------
    DataFrame
        problem_id, method, time_us, spread, launches, status, algo, graph_us.
    """
    columns = ["problem_id", "method", "time_us", "spread", "launches", "status", "algo", "graph_us"]
    notes = [note for note in read_notes(out_dir) if note["kind"] == "baseline"]
    notes.sort(key=lambda note: float(note["at_s"]))
    frame = pd.DataFrame([[note[name] for name in columns] for note in notes], columns=columns)
    frame = frame.drop_duplicates(["problem_id", "method"], keep="last", ignore_index=True)
    return frame.astype(
        {"problem_id": np.int32, "launches": np.int16, "time_us": float, "spread": float, "graph_us": float}
    )


def conditions_of(run: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return ``CONDITIONS`` of a ``campaign-<n>.json``; up to protocol 2 every campaign was offline."""
    return tuple(run.get(name, "offline") for name in CONDITIONS)


def read_campaign(out_dir: str | Path) -> dict[str, Any]:
    """Read the provenance of a campaign, one entry for all its runs.

    Returns
    -------
    dict
        The columns of the ``campaigns`` table but for ``campaign_id``, and ``mode``. ``seconds`` is the sum over runs,
        ``started`` the first start, ``workers`` the most GPUs at once; measured values are medians.

    Raises
    ------
    DataError
        If there is no campaign, or its runs were made on different GPUs, drivers or versions.
    """
    paths = sorted(Path(out_dir).glob("campaign-*.json"), key=lambda path: int(path.stem.split("-")[1]))
    runs = [json.loads(path.read_text(encoding="utf-8")) for path in paths]
    runs = [run for run in runs if run["gpu"]]
    if not runs:
        raise DataError(f"{out_dir} holds no campaign: no campaign-<n>.json with a GPU")
    for run in runs:
        run.update(zip(CONDITIONS, conditions_of(run), strict=True))
    for name in ("name", "gpu", "driver", "cuda", "cutlass", *CONDITIONS):
        values = {run[name] for run in runs}
        if len(values) > 1:
            raise DataError(f"the runs in {out_dir} differ in {name}: {', '.join(sorted(map(str, values)))}")
    result: dict[str, Any] = {name: runs[-1].get(name) for name in SCHEMA["campaigns"] if name != "campaign_id"}
    result["mode"] = runs[-1]["mode"]
    result["started"] = runs[0]["started"]
    result["seconds"] = float(sum(run["seconds"] for run in runs))
    result["workers"] = max(int(run["workers"]) for run in runs)
    for name in ("timer_resolution_us", "probe_us", "graph_overhead_us"):
        result[name] = float(np.median([run[name] for run in runs]))
    return result


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    """Replace a JSON file in one step."""
    partial = path.with_suffix(".tmp")
    partial.write_text(json.dumps(value, indent=1) + "\n", encoding="utf-8")
    partial.replace(path)
