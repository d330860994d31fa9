"""Provenance of a campaign: ``campaign-<n>.json``, one per run, written at the start and kept up to date."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import numpy as np
import pandas as pd

from ..generator import MeasurementError
from .protocol import Options
from .records import CONDITIONS, PROTOCOL_VERSION, conditions_of, write_json

REFRESH_S: Final = 5.0


def _output(*command: str, cwd: Path | None = None) -> str:
    """First line that a command prints, or nothing if it cannot be run."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True, cwd=cwd)
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.strip().split("\n")[0].strip()


def code_commit() -> str:
    """Return the commit of this code: ``$CUTLASS_RANKER_COMMIT``, or git's answer, or "unknown"."""
    given = os.environ.get("CUTLASS_RANKER_COMMIT")
    return given or _output("git", "rev-parse", "HEAD", cwd=Path(__file__).resolve().parent) or "unknown"


def _cutlass_version(build_dir: Path) -> str:
    try:
        versions = pd.read_parquet(build_dir / "manifest.parquet", columns=["cutlass"])["cutlass"].dropna().unique()
    except (OSError, ValueError, KeyError):
        return "unknown"
    return ",".join(sorted(map(str, versions))) or "unknown"


def _refuse_other_conditions(out: Path, earlier: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    for name, before, wanted in zip(CONDITIONS, conditions_of(earlier), conditions_of(now), strict=True):
        if before != wanted:
            raise MeasurementError(
                f"{out} holds rows measured with {name} {before}, this run has {wanted}; give it another directory"
            )


class Provenance:
    """One run's file.

    Parameters
    ----------
    out
        The campaign's directory.
    meta
        The plan's name, purpose and so on.
    build_dir
        Where the manifest with the CUTLASS version lies.
    started
        Unix time.
    workers
        Number of GPUs.
    options
        What the campaign chose.

    Raises
    ------
    MeasurementError
        If ``out`` holds a run under other conditions.
    """

    def __init__(
        self, out: Path, meta: Mapping[str, Any], build_dir: Path, started: float, workers: int, options: Options
    ) -> None:
        earlier = {int(path.stem.split("-")[1]): path for path in out.glob("campaign-*.json")}
        self.session = max(earlier, default=-1) + 1
        self._path = out / f"campaign-{self.session}.json"
        self._written = -np.inf
        self._workers: dict[str, dict[str, Any]] = {}
        self._values: dict[str, Any] = {
            "name": meta.get("name", ""), "purpose": meta.get("purpose", "main"), "gpu": "", "driver": "", "cuda": "",
            "cutlass": _cutlass_version(build_dir), "protocol_version": PROTOCOL_VERSION, "commit": code_commit(),
            "started": datetime.fromtimestamp(started, UTC).isoformat(timespec="seconds"), "seconds": 0.0,
            "workers": workers, "operands": options.operands, "mode": options.mode, "timer_resolution_us": None,
            "probe_us": None, "graph_overhead_us": None, "rows": 0, "finished": False,
            "options": asdict(options), "engines": self._workers,
        }  # fmt: skip
        for path in earlier.values():
            _refuse_other_conditions(out, json.loads(path.read_text(encoding="utf-8")), self._values)
        self._write()

    def ready(self, who: str, facts: Mapping[str, Any]) -> None:
        """Take in what a worker found out about its GPU."""
        self._workers[who] = dict(facts)
        runtime = int(facts.get("cuda_runtime", 0))
        self._values["gpu"] = ", ".join(sorted({str(f["gpu"]) for f in self._workers.values()}))
        if not self._values["driver"]:
            driver = _output("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader")
            self._values["driver"] = driver or f"CUDA {facts.get('driver_cuda', 0)}"
        self._values["cuda"] = f"{runtime // 1000}.{runtime % 1000 // 10}"
        for name in ("timer_resolution_us", "probe_us", "graph_overhead_us"):
            self._values[name] = float(np.median([f[name] for f in self._workers.values()]))
        self._write()

    def refresh(self, seconds: float, rows: int) -> None:
        """Bring time and rows up to date now and then."""
        if time.monotonic() - self._written >= REFRESH_S:
            self._values.update(seconds=seconds, rows=rows)
            self._write()

    def finish(self, seconds: float, rows: int) -> None:
        """Write the final state."""
        self._values.update(seconds=seconds, rows=rows, finished=True)
        self._write()

    def _write(self) -> None:
        write_json(self._path, self._values)
        self._written = time.monotonic()
