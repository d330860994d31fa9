"""The measurement protocol of one problem: verify, look, race, first pass, launches of the best, retake, baseline.

Everything here is the same for the real engine and a simulated one. Each batch is one call into the engine; its rows
are written before the next begins.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ..generator import LAUNCH_COLUMNS, Columns, MeasurementError, Problem, enumerate_launches, swap_family
from ..generator import columns as col
from ..generator.types import FAMILIES
from .engine import ITEM, NULL_SLOT, PROBE_SLOT, Engine, EngineFailure
from .records import KEY, Phase, Recorder, Status, is_final, latest, new_rows
from .status import NO_KERNEL, StatusFile

KEY_COLUMNS: Final = ("kernel_id", "swapped", *LAUNCH_COLUMNS)
TENSOR_FLOPS_PER_CLOCK: Final = 4096
"""Dense BF16 floating-point operations of one SM90 SM per clock."""


H200_CLOCK_KHZ: Final = 1_980_000
H200_BANDWIDTH: Final = 4.92e12
"""Highest clock and nominal bytes per second of an H200, where the driver does not tell (virtual machines)."""


@dataclass(frozen=True)
class Options:
    """Numbers of the protocol."""

    launches: int = 10
    """Timed launches of a candidate that takes ``small_us`` or longer; the median counts."""
    small_launches: int = 24
    """Timed launches of a faster one; the mean of the middle half counts."""
    small_us: float = 20.0
    look_launches: int = 2
    race: float = 3.0
    """A candidate slower than this many times the best is kept with its ``look_launches``."""
    launches_for_best: int = 16
    """Kernels whose other launches are measured."""
    retake_top: int = 32
    """Candidates measured again, interleaved and with a second timer."""
    blas_algorithms: int = 8
    batch_s: float = 1.0
    """GPU time that a batch is sized for; what a kill can lose."""
    max_batch: int = 256
    """Most candidates in a batch."""
    probe_every_s: float = 2.0


class Stopped(Exception):
    """The time is spent or the run was told to stop; nothing is lost."""


@dataclass
class Kernels:
    """The plan's kernels."""

    names: list[str]
    configs: Columns
    row_of: dict[int, int]
    """kernel_id to row."""
    ids: NDArray[np.int32]

    @classmethod
    def from_table(cls, table: pd.DataFrame) -> Kernels:
        """Read them from the plan's table."""
        ids = table["kernel_id"].to_numpy(dtype=np.int32)
        configs = {name: table[name].to_numpy(dtype=np.int32) for name in col.CONFIG_COLUMNS}
        return cls(list(table["name"]), configs, {int(k): row for row, k in enumerate(ids)}, ids)

    def rows(self, kernel_ids: NDArray[Any]) -> NDArray[np.intp]:
        """Rows of kernel ids."""
        return np.array([self.row_of[int(kernel)] for kernel in kernel_ids], dtype=np.intp)


def keys_of(table: pd.DataFrame) -> NDArray[np.void]:
    """Return ``KEY`` records of a table with ``KEY_COLUMNS``."""
    keys = np.zeros(len(table), dtype=KEY)
    for name in KEY_COLUMNS:
        keys[name] = table[name].to_numpy()
    return keys


def summarise(times_us: NDArray[np.float64], small_us: float) -> tuple[float, float]:
    """Return the time of a candidate and its relative interquartile range.

    The median; under ``small_us`` the mean of the middle half of the launches, because the timer's ticks are coarse
    against such times while starts fall anywhere between two ticks.
    """
    quartiles = np.quantile(times_us, (0.25, 0.5, 0.75))
    value = float(quartiles[1])
    if value < small_us and len(times_us) >= 4:
        cut = len(times_us) // 4
        value = float(np.sort(times_us)[cut : len(times_us) - cut].mean())
    return value, float((quartiles[2] - quartiles[0]) / value)


def floor_us(problem: Problem, info: dict[str, Any]) -> float:
    """Return the time that no correct kernel can beat with cold operands, microseconds.

    Tensor cores at the highest clock, or A and B once through DRAM at its nominal bandwidth (D may stay in L2),
    whichever is longer, less 2%.
    """
    peak = info["sm_count"] * TENSOR_FLOPS_PER_CLOCK * (info["clock_khz"] or H200_CLOCK_KHZ) * 1e3
    bandwidth = 2 * info["memory_clock_khz"] * 1e3 * info["memory_bus_bits"] / 8 or H200_BANDWIDTH
    operand_bytes = problem.dtype.bytes * problem.k * (problem.m + problem.n)
    return float(0.98e6 * max(problem.flops / peak, operand_bytes / bandwidth))


def interleave(counts: NDArray[np.int64], rng: np.random.Generator) -> NDArray[np.intp]:
    """Return an order that visits item i ``counts[i]`` times, in rounds that are shuffled each."""
    rounds = [rng.permutation(np.flatnonzero(counts > number)) for number in range(int(counts.max(initial=0)))]
    return np.concatenate(rounds) if rounds else np.zeros(0, dtype=np.intp)


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
        times = self.engine.time(np.full(256, PROBE_SLOT, dtype=np.int32))
        steps = np.diff(np.unique(np.round(times * 1e3)))
        self.facts["timer_resolution_us"] = float(steps.min()) * 1e-3 if len(steps) else float("nan")
        self.probe_us = self.facts["probe_us"] = float(np.median(times))
        self.facts["probe_spread"] = summarise(times, 0.0)[1]
        try:
            overhead = float(np.median(self.engine.graph_time(np.full(32, NULL_SLOT, dtype=np.int32), 3)))
        except EngineFailure as failure:
            overhead = float("nan")
            self.recorder.note("note", problem_id=None, text=f"second timer failed: {failure}", at_s=time.time())
        self.facts["graph_overhead_us"] = overhead
        return self.facts

    def checkpoint(self, problem_id: int) -> None:
        """Stop if asked to; run the probe if it is due."""
        if self.should_stop():
            raise Stopped
        if time.monotonic() - self.probed_at >= self.options.probe_every_s:
            self.batch(problem_id, np.full(3, NO_KERNEL, dtype=np.int32))
            self.probe_us = float(np.median(self.engine.time(np.full(3, PROBE_SLOT, dtype=np.int32))))
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


class ProblemRun:
    """Measures one problem; picks up what earlier runs of it left.

    Parameters
    ----------
    meter
        Engine and recorder.
    kernels
        The plan's kernels.
    problem_id, problem
        What to measure.
    earlier
        Records of ``ROW`` of this problem, oldest first.
    """

    def __init__(
        self, meter: Meter, kernels: Kernels, problem_id: int, problem: Problem, earlier: NDArray[np.void]
    ) -> None:
        self.meter = meter
        self.kernels = kernels
        self.problem_id = problem_id
        self.problem = problem
        self.rows = latest(earlier).copy()
        self.index = {key.tobytes(): i for i, key in enumerate(self.rows["key"])}
        self.slots: dict[int, int] = {}
        self.next_slot = 0
        self.floor = floor_us(problem, meter.facts)

    def run(self, first: NDArray[np.void], required: NDArray[np.void]) -> None:
        """Run all phases on first-pass candidates and required extra launches (``KEY`` records).

        Raises
        ------
        Stopped
            If the time is spent.
        EngineFailure, EngineLost
            If the engine failed.
        MeasurementError
            If a candidate's kernel cannot serve the problem.
        """
        problem = self.problem
        self.meter.status.slow(self.problem_id)
        self.meter.engine.set_problem(problem.m, problem.n, problem.k, problem.layout, self.problem_id + 1)
        self.measure(first)
        self.measure(np.concatenate([self.launches_of_best(first), required]))
        self.retake()
        self.meter.recorder.note("done", problem_id=self.problem_id, at_s=time.time())

    # -- first pass

    def measure(self, keys: NDArray[np.void]) -> None:
        """Bring candidates to a final row: verify and look, race, then all launches of the survivors."""
        keys = self._built(keys)
        for chunk in self._chunks(self._unknown(keys), 20 * self.floor * 1e-6 + 2e-4):
            self._look(chunk)
        rows = np.array(list(dict.fromkeys(self.index[key.tobytes()] for key in keys)), dtype=np.intp)
        pending = rows[~is_final(self.rows[rows])]
        if len(pending) == 0:
            return
        slow = self.rows["time_us"][pending] > self.meter.options.race * self._best()
        self.rows["status"][pending[slow]] = Status.COARSE
        self._finish(pending[slow], Phase.FIRST)
        survivors = self.meter.rng.permutation(pending[~slow])
        while len(survivors):
            times = self.rows["time_us"][survivors]
            seconds = np.cumsum(self._launch_counts(times) * (times * 1e-6 + 1.2e-4))
            size = min(max(4, int(np.searchsorted(seconds, self.meter.options.batch_s))), self.meter.options.max_batch)
            self._first_pass(survivors[:size])
            survivors = survivors[size:]

    def _built(self, keys: NDArray[np.void]) -> NDArray[np.void]:
        """Drop candidates whose kernel was not built; refuse those whose kernel has the wrong layouts."""
        if len(keys) == 0:
            return keys
        families = self.kernels.configs["family"][self.kernels.rows(keys["kernel_id"])]
        direct = FAMILIES.index(self.problem.layout)
        expected = np.where(keys["swapped"] != 0, FAMILIES.index(swap_family(self.problem.layout)), direct)
        if (families != expected).any():
            kernel = int(keys["kernel_id"][families != expected][0])
            raise MeasurementError(f"the plan gives problem {self.problem} the kernel {kernel} of another layout")
        self.meter.status.slow(self.problem_id)
        return keys[self._places(keys)[:, 0] >= 0]

    def _places(self, keys: NDArray[np.void]) -> NDArray[np.int32]:
        names = [self.kernels.names[row] for row in self.kernels.rows(keys["kernel_id"])]
        return self.meter.engine.open_kernels(names)

    def _unknown(self, keys: NDArray[np.void]) -> NDArray[np.void]:
        fresh = dict.fromkeys(key.tobytes() for key in keys if key.tobytes() not in self.index)
        return np.frombuffer(b"".join(fresh), dtype=KEY)

    def _chunks(self, keys: NDArray[np.void], seconds_each: float) -> list[NDArray[np.void]]:
        options = self.meter.options
        size = min(max(8, int(options.batch_s / seconds_each)), options.max_batch)
        return [keys[start : start + size] for start in range(0, len(keys), size)]

    def _prepare(self, rows: NDArray[np.intp]) -> NDArray[np.int32]:
        """Give rows slots; returns CrStatus values."""
        keys = self.rows["key"][rows]
        items = np.zeros(len(keys), dtype=ITEM)
        places = self._places(keys)
        items["unit"], items["index"] = places[:, 0], places[:, 1]
        for name in ("swapped", *LAUNCH_COLUMNS):
            items[name] = keys[name]
        self.meter.batch(self.problem_id, keys)
        statuses = self.meter.engine.add(items)
        for row in rows:
            self.slots[int(row)] = self.next_slot
            self.next_slot += 1
        return statuses

    def _slots(self, rows: NDArray[np.intp]) -> NDArray[np.int32]:
        """Return slots of rows, preparing those of an earlier process again."""
        missing = np.array([row for row in rows if int(row) not in self.slots], dtype=np.intp)
        if len(missing):
            self._prepare(missing)
        return np.array([self.slots[int(row)] for row in rows], dtype=np.int32)

    def _look(self, keys: NDArray[np.void]) -> None:
        """Verify unknown candidates and launch the good ones twice."""
        self.meter.checkpoint(self.problem_id)
        start = len(self.rows)
        self.rows = np.concatenate([self.rows, new_rows(self.problem_id, keys, self.meter.session)])
        rows = np.arange(start, len(self.rows))
        self.index.update({key.tobytes(): int(row) for key, row in zip(keys, rows, strict=True)})
        statuses = self._prepare(rows)
        self.rows["status"][rows[statuses != 0]] = Status.REFUSED
        ready = rows[statuses == 0]
        if len(ready):
            self.meter.batch(self.problem_id, self.rows["key"][ready])
            launched, wrong = self.meter.engine.verify(self._slots(ready))
            self.rows["wrong"][ready] = np.where(launched == 0, wrong, 0)
            self.rows["status"][ready[wrong > 0]] = Status.WRONG
            self.rows["status"][ready[launched != 0]] = Status.LAUNCH_FAILED
            good = ready[(launched == 0) & (wrong == 0)]
            self._time(good, np.full(len(good), self.meter.options.look_launches))
        self.rows["phase"][rows] = Phase.LOOK
        self.meter.write(self.rows[rows], int(is_final(self.rows[rows]).sum()))

    def _first_pass(self, rows: NDArray[np.intp]) -> None:
        self._time(rows, self._launch_counts(self.rows["time_us"][rows]))
        self._finish(rows, Phase.FIRST)

    def _launch_counts(self, times_us: NDArray[Any]) -> NDArray[np.int64]:
        options = self.meter.options
        return np.where(times_us < options.small_us, options.small_launches, options.launches).astype(np.int64)

    def _time(self, rows: NDArray[np.intp], counts: NDArray[np.int64]) -> None:
        """Time rows in shuffled rounds and store what came out."""
        for row, times in zip(rows, self._interleaved(rows, [], counts), strict=True):
            self.rows["launches"][row] = len(times)
            if not np.isfinite(times).all():
                self.rows["status"][row] = Status.LAUNCH_FAILED
                continue
            self.rows["time_us"][row], self.rows["spread"][row] = summarise(times, self.meter.options.small_us)
            if self.rows["time_us"][row] < self.floor:
                self.rows["status"][row] = Status.BELOW_FLOOR

    def _interleaved(
        self, rows: NDArray[np.intp], extra_slots: list[int], counts: NDArray[np.int64]
    ) -> list[NDArray[np.float64]]:
        """Launch rows and further slots in shuffled rounds; returns each one's times, microseconds."""
        slots = np.concatenate([self._slots(rows), np.array(extra_slots, dtype=np.int32)]).astype(np.int32)
        if len(slots) == 0:
            return []
        self.meter.checkpoint(self.problem_id)
        order = interleave(counts, self.meter.rng)
        self.meter.batch(self.problem_id, self._keys(rows, len(extra_slots))[order])
        times = self.meter.engine.time(slots[order])
        return [times[order == item] for item in range(len(slots))]

    def _keys(self, rows: NDArray[np.intp], others: int) -> NDArray[np.void]:
        """Return the keys of rows, followed by items that are no candidates."""
        keys = np.zeros(len(rows) + others, dtype=KEY)
        keys[: len(rows)] = self.rows["key"][rows]
        keys["kernel_id"][len(rows) :] = NO_KERNEL
        return keys

    def _finish(self, rows: NDArray[np.intp], phase: Phase) -> None:
        self.rows["phase"][rows] = phase
        self.meter.write(self.rows[rows], len(rows) if phase is Phase.FIRST else 0)

    def _timed(self) -> NDArray[np.intp]:
        return np.flatnonzero((self.rows["status"] == Status.OK) & np.isfinite(self.rows["time_us"]))

    def _best(self) -> float:
        return float(self.rows["time_us"][self._timed()].min(initial=np.inf))

    # -- launches of the best kernels

    def launches_of_best(self, first: NDArray[np.void]) -> NDArray[np.void]:
        """Return every distinct launch of the fastest kernels of the first pass."""
        rows = [self.index[key.tobytes()] for key in first if key.tobytes() in self.index]
        good = np.intersect1d(np.array(rows, dtype=np.intp), self._timed())
        fastest = good[np.argsort(self.rows["time_us"][good], kind="stable")]
        keys = self.rows["key"][fastest]
        _, positions = np.unique(keys["kernel_id"], return_index=True)
        chosen = keys[np.sort(positions)][: self.meter.options.launches_for_best]
        if len(chosen) == 0:
            return chosen
        configs = col.take(self.kernels.configs, self.kernels.rows(chosen["kernel_id"]))
        columns, origin = enumerate_launches(configs, self.problem)
        result = np.zeros(len(origin), dtype=KEY)
        result["kernel_id"] = chosen["kernel_id"][origin]
        for name in ("swapped", *LAUNCH_COLUMNS):
            result[name] = columns[name]
        return result

    # -- retake and baseline

    def retake(self) -> None:
        """Measure the best of the group again, interleaved with cuBLASLt's algorithms, with both timers."""
        options = self.meter.options
        timed = self._timed()
        rows = timed[np.argsort(self.rows["time_us"][timed], kind="stable")][: options.retake_top]
        self._slots(rows)  # candidates of an earlier process get their slots before cuBLASLt's algorithms
        self.meter.status.slow(self.problem_id)
        algorithms = self.meter.engine.add_blas(options.blas_algorithms)
        blas_slots = list(range(self.next_slot, self.next_slot + len(algorithms)))
        self.next_slot += len(algorithms)
        blas_status = self._verify_blas(blas_slots)
        usable = [slot for slot, status in zip(blas_slots, blas_status, strict=True) if status == "ok"]
        if len(rows) + len(usable) == 0:
            return
        best = self._best() if len(rows) else np.inf
        times_us = np.concatenate([self.rows["time_us"][rows], np.full(len(usable), best)])
        counts = self._launch_counts(times_us)
        series = self._interleaved(rows, usable, counts)
        graph = self._graph_times(rows, usable, int(counts.max()))
        for item, row in enumerate(rows):
            self.rows["retake_us"][row] = summarise(series[item], options.small_us)[0]
            self.rows["graph_us"][row] = graph[item]
        self._finish(rows, Phase.RETAKE)
        results = {slot: (series[len(rows) + i], graph[len(rows) + i]) for i, slot in enumerate(usable)}
        self._write_baselines(blas_slots, algorithms, blas_status, results)

    def _verify_blas(self, slots: list[int]) -> list[str]:
        if not slots:
            return []
        self.meter.batch(self.problem_id, np.full(len(slots), NO_KERNEL, dtype=np.int32))
        launched, wrong = self.meter.engine.verify(np.array(slots, dtype=np.int32))
        outcomes = np.where(launched != 0, "launch_failed", np.where(wrong > 0, "wrong", "ok"))
        return [str(outcome) for outcome in outcomes]

    def _graph_times(self, rows: NDArray[np.intp], extra_slots: list[int], rounds: int) -> NDArray[np.float64]:
        """Return medians by the second timer, microseconds; NaN if it fails."""
        slots = np.concatenate([self._slots(rows), np.array(extra_slots, dtype=np.int32)]).astype(np.int32)
        order = self.meter.rng.permutation(len(slots))
        self.meter.batch(self.problem_id, self._keys(rows, len(extra_slots))[order])
        result = np.full(len(slots), np.nan)
        try:
            result[order] = np.median(self.meter.engine.graph_time(slots[order], rounds), axis=0)
        except EngineFailure as failure:
            text = f"second timer failed: {failure}"
            self.meter.recorder.note("note", problem_id=self.problem_id, text=text, at_s=time.time())
        return result

    def _write_baselines(
        self,
        slots: list[int],
        algorithms: list[str],
        statuses: list[str],
        results: dict[int, tuple[NDArray[np.float64], float]],
    ) -> None:
        """Write cuBLASLt's first answer and the fastest of its list."""
        if not slots:
            return
        small = self.meter.options.small_us
        chosen = {"cublaslt_first": slots[0]}
        if results:
            chosen["cublaslt_best"] = min(results, key=lambda slot: summarise(results[slot][0], small)[0])
        for method, slot in chosen.items():
            times, graph_us = results.get(slot, (np.zeros(0), np.nan))
            time_us, spread = summarise(times, small) if len(times) else (np.nan, np.nan)
            position = slot - slots[0]
            self.meter.recorder.note(
                "baseline",
                problem_id=self.problem_id,
                method=method,
                time_us=time_us,
                spread=spread,
                launches=len(times),
                status=statuses[position],
                algo=algorithms[position],
                graph_us=float(graph_us),
                at_s=time.time(),
            )
