"""The engine with what belongs to a worker: status file, recorder, options, probe."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .engine import NULL_SLOT, PROBE_SLOT, Conditions, Engine, EngineFailure
from .protocol import Options, draw_gaps, summarise
from .records import KEY, Recorder
from .status import NO_KERNEL, StatusFile


class Stopped(Exception):
    """The time is spent or the run was told to stop; nothing is lost."""


@dataclass
class Meter:
    """An engine with what belongs to a worker: status file, recorder, probe.

    ``should_stop`` is asked before every batch.
    """

    engine: Engine
    status: StatusFile
    recorder: Recorder
    options: Options
    should_stop: Callable[[], bool]
    session: int = 0
    on_rows: Callable[[int], None] = lambda count: None
    rng: np.random.Generator = field(default_factory=np.random.default_rng)
    probe_us: float = np.nan
    probed_at: float = -np.inf
    facts: dict[str, Any] = field(default_factory=dict)

    def calibrate(self) -> dict[str, Any]:
        """Measure timer resolution, probe time and the second timer's overhead; return them with the engine's info."""
        self.facts = self.engine.info()
        times = self.engine.time(np.full(256, PROBE_SLOT, dtype=np.int32), self.plain)
        steps = np.diff(np.unique(np.round(times * 1e3)))
        self.facts["timer_resolution_us"] = float(steps.min()) * 1e-3 if len(steps) else float("nan")
        self.probe_us = self.facts["probe_us"] = float(np.median(times))
        self.facts["probe_spread"] = summarise(times, 0.0)[1]
        try:
            overhead = float(np.median(self.engine.graph_time(np.full(32, NULL_SLOT, dtype=np.int32), 3, self.plain)))
        except EngineFailure as failure:
            overhead = float("nan")
            self.recorder.note("note", problem_id=None, text=f"second timer failed: {failure}", at_s=time.time())
        self.facts["graph_overhead_us"] = overhead
        return self.facts

    @property
    def plain(self) -> Conditions:
        """Cold operands and no gaps: the conditions of the probe in every campaign."""
        return Conditions(self.options.flush_bytes(self.facts["l2_bytes"]))

    def conditions(self, launches: int) -> Conditions:
        """Draw the campaign's conditions for a batch."""
        gaps_us = draw_gaps(launches, self.rng) if self.options.mode == "server" else None
        return Conditions(self.plain.flush_bytes if self.options.operands == "cold" else 0, gaps_us)

    def checkpoint(self, problem_id: int) -> None:
        """Stop if asked to; run the probe if it is due."""
        if self.should_stop():
            raise Stopped
        if time.monotonic() - self.probed_at >= self.options.probe_every_s:
            self.batch(problem_id, np.full(3, NO_KERNEL, dtype=np.int32))
            self.probe_us = float(np.median(self.engine.time(np.full(3, PROBE_SLOT, dtype=np.int32), self.plain)))
            self.probed_at = time.monotonic()

    def batch(self, problem_id: int, keys: NDArray[Any]) -> None:
        """Announce a batch: ``KEY`` records in the engine's order, or bare kernel ids."""
        if keys.dtype != KEY:
            kernel_ids = keys
            keys = np.zeros(len(kernel_ids), dtype=KEY)
            keys["kernel_id"] = kernel_ids
        self.status.batch(problem_id, keys)

    def write(self, rows: NDArray[np.void], fresh: int) -> None:
        """Append rows, stamped with the time and the latest probe; ``fresh`` of them are newly final."""
        rows["at_s"] = time.time()
        rows["probe_us"] = self.probe_us
        rows["session"] = self.session
        self.recorder.rows(rows)
        self.on_rows(fresh)
