"""The course of measuring one problem: look, race, first pass, launches of the best, retake, final, baseline.

Everything here is the same for the real engine and a simulated one. Each batch is one call into the engine; its rows
are written before the next begins. Numbers and formulas are in :mod:`.protocol`.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ..generator import LAUNCH_COLUMNS, Columns, MeasurementError, Problem, enumerate_launches, swap_family
from ..generator import columns as col
from ..generator.types import FAMILIES
from .engine import ITEM, EngineFailure
from .meter import Meter
from .protocol import final_launches, final_times, floor_us, interleave, summarise
from .records import KEY, Phase, Status, is_final, latest, new_rows
from .status import NO_KERNEL

KEY_COLUMNS: Final = ("kernel_id", "swapped", *LAUNCH_COLUMNS)
UNOPENED: Final = -2


@dataclass
class Kernels:
    """The plan's kernels."""

    names: list[str]
    configs: Columns
    row_of: dict[int, int]
    """kernel_id to row."""
    ids: NDArray[np.int32]
    places: NDArray[np.int32]
    """[kernel, (unit, index)]: where the engine has opened it; -1 if it was not built, ``UNOPENED`` if not tried."""

    @classmethod
    def from_table(cls, table: pd.DataFrame) -> Kernels:
        """Read them from the plan's table."""
        ids = table["kernel_id"].to_numpy(dtype=np.int32)
        configs = {name: table[name].to_numpy(dtype=np.int32) for name in col.CONFIG_COLUMNS}
        places = np.full((len(ids), 2), UNOPENED, dtype=np.int32)
        return cls(list(table["name"]), configs, {int(k): row for row, k in enumerate(ids)}, ids, places)

    def rows(self, kernel_ids: NDArray[Any]) -> NDArray[np.intp]:
        """Rows of kernel ids."""
        return np.array([self.row_of[int(kernel)] for kernel in kernel_ids], dtype=np.intp)


def keys_of(table: pd.DataFrame) -> NDArray[np.void]:
    """Return ``KEY`` records of a table with ``KEY_COLUMNS``."""
    keys = np.zeros(len(table), dtype=KEY)
    for name in KEY_COLUMNS:
        keys[name] = table[name].to_numpy()
    return keys


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
        self.looks: dict[int, NDArray[np.float64]] = {}
        self.slots: dict[int, int] = {}
        self.next_slot = 0
        self.floor = floor_us(problem, meter.facts, meter.options.operands)

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
        self._set_problem(0)
        self.measure(first)
        self.measure(np.concatenate([self.launches_of_best(first), required]))
        self.retake()
        self.meter.recorder.note("done", problem_id=self.problem_id, at_s=time.time())

    def _set_problem(self, placement: int) -> None:
        """Set the problem up with operands in their first or another place; drops all slots."""
        self.slots, self.next_slot = {}, 0
        problem = self.problem
        self.meter.status.slow(self.problem_id)
        self.meter.engine.set_problem(problem.m, problem.n, problem.k, problem.layout, self.problem_id + 1, placement)

    # -- first pass

    def measure(self, keys: NDArray[np.void]) -> None:
        """Bring candidates to a final row: verify and look, race, then all launches of the survivors."""
        keys = self._built(keys)
        for chunk in self._chunks(self._unknown(keys)):
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
            seconds = np.cumsum(self._launch_counts(times) * self._launch_seconds(times))
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
        rows = self.kernels.rows(keys["kernel_id"])
        places = self.kernels.places
        fresh = np.unique(rows[places[rows, 0] == UNOPENED])
        if len(fresh):
            places[fresh] = self.meter.engine.open_kernels([self.kernels.names[row] for row in fresh])
        return places[rows]

    def _unknown(self, keys: NDArray[np.void]) -> NDArray[np.void]:
        fresh = dict.fromkeys(key.tobytes() for key in keys if key.tobytes() not in self.index)
        return np.frombuffer(b"".join(fresh), dtype=KEY)

    def _chunks(self, keys: NDArray[np.void]) -> list[NDArray[np.void]]:
        """Cut unknown candidates into batches; most take less than seven times the roofline floor."""
        options = self.meter.options
        seconds_each = options.look_launches * float(self._launch_seconds(np.array(7 * self.floor))) + 1e-4
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
        """Launch unknown candidates twice, in shuffled rounds, and verify every result."""
        self.meter.checkpoint(self.problem_id)
        start = len(self.rows)
        self.rows = np.concatenate([self.rows, new_rows(self.problem_id, keys, self.meter.session)])
        rows = np.arange(start, len(self.rows))
        self.index.update({key.tobytes(): int(row) for key, row in zip(keys, rows, strict=True)})
        statuses = self._prepare(rows)
        self.rows["status"][rows[statuses != 0]] = Status.REFUSED
        ready = rows[statuses == 0]
        if len(ready):
            order = interleave(np.full(len(ready), self.meter.options.look_launches), self.meter.rng)
            slots = self._slots(ready)
            self.meter.batch(self.problem_id, self.rows["key"][ready][order])
            launched, wrong, times = self.meter.engine.verify(slots[order], self.meter.conditions(len(order)))
            for item, row in enumerate(ready):
                mine = order == item
                if launched[mine].any():
                    self.rows["status"][row] = Status.LAUNCH_FAILED
                elif wrong[mine].any():
                    self.rows["status"][row], self.rows["wrong"][row] = Status.WRONG, wrong[mine].max()
                else:
                    self.looks[int(row)] = times[mine]
                    self._store(row, times[mine])
        self.rows["phase"][rows] = Phase.LOOK
        self.meter.write(self.rows[rows], int(is_final(self.rows[rows]).sum()))

    def _first_pass(self, rows: NDArray[np.intp]) -> None:
        """Launch rows as often as they lack; the launches of a look count where this process made it."""
        looks = [self.looks.pop(int(row), np.zeros(0)) for row in rows]
        made = np.array([len(look) for look in looks], dtype=np.int64)
        counts = self._launch_counts(self.rows["time_us"][rows]) - made
        for row, look, times in zip(rows, looks, self._interleaved(rows, [], counts), strict=True):
            self._store(row, np.concatenate([look, times]))
        self._finish(rows, Phase.FIRST)

    def _store(self, row: np.intp, times: NDArray[np.float64]) -> None:
        """Store what came out of a row's launches."""
        self.rows["launches"][row] = len(times)
        if not np.isfinite(times).all():
            self.rows["status"][row] = Status.LAUNCH_FAILED
            return
        self.rows["time_us"][row], self.rows["spread"][row] = summarise(times, self.meter.options.small_us)
        if self.rows["time_us"][row] < self.floor:
            self.rows["status"][row] = Status.BELOW_FLOOR

    def _launch_counts(self, times_us: NDArray[Any]) -> NDArray[np.int64]:
        return self.meter.options.launch_counts(times_us, self._best())

    def _launch_seconds(self, times_us: NDArray[Any]) -> NDArray[np.float64]:
        return self.meter.options.launch_seconds(times_us, self.meter.facts["l2_bytes"])

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
        times = self.meter.engine.time(slots[order], self.meter.conditions(len(order)))
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

    # -- retake, final and baseline

    def retake(self) -> None:
        """Measure the best of the group again, with cuBLASLt's algorithms and by both timers; then the final."""
        options = self.meter.options
        timed = self._timed()
        rows = timed[np.argsort(self.rows["time_us"][timed], kind="stable")][: options.retake_top]
        self._slots(rows)  # candidates of an earlier process get their slots before cuBLASLt's algorithms
        blas_slots, algorithms = self._add_blas()
        blas_status = self._verify_blas(blas_slots)
        usable = np.flatnonzero(np.array(blas_status) == "ok")
        if len(rows) + len(usable) == 0:
            return
        best = self._best() if len(rows) else np.inf
        counts = self._launch_counts(np.concatenate([self.rows["time_us"][rows], np.full(len(usable), best)]))
        series = self._interleaved(rows, [blas_slots[i] for i in usable], counts)
        graph_us = self._graph_times(rows, [blas_slots[i] for i in usable])
        times_us = np.array([summarise(times, options.small_us)[0] for times in series])
        self.rows["retake_us"][rows] = times_us[: len(rows)]
        self.rows["graph_us"][rows] = graph_us[: len(rows)]
        self._finish(rows, Phase.RETAKE)
        finalists, blas = self._finalists(times_us[: len(rows)]), self._best_blas(usable, times_us[len(rows) :])
        chosen = np.concatenate([finalists, len(rows) + blas])
        if len(chosen) > 1:
            times_us[chosen], final = self._final(rows[finalists], usable[blas], times_us[chosen])
            self.rows["retake_us"][rows[finalists]] = times_us[finalists]
            self._finish(rows[finalists], Phase.FINAL)
            for item, times in zip(chosen, final, strict=True):
                series[item] = times
        results = {
            int(usable[i]): (float(times_us[len(rows) + i]), series[len(rows) + i], float(graph_us[len(rows) + i]))
            for i in blas
        }
        self._write_baselines(algorithms, blas_status, results)

    def _finalists(self, times_us: NDArray[np.float64]) -> NDArray[np.intp]:
        """Return positions of the candidates that the final decides between, best first."""
        order = np.argsort(times_us, kind="stable")[: self.meter.options.final_top]
        return order[times_us[order] <= self.meter.options.final_within * times_us[order[:1]]]

    @staticmethod
    def _best_blas(usable: NDArray[np.intp], times_us: NDArray[np.float64]) -> NDArray[np.intp]:
        """Return positions in ``usable`` of cuBLASLt's first answer and of the fastest of its list."""
        return np.union1d(np.flatnonzero(usable == 0), np.argsort(times_us, kind="stable")[:1])

    def _final(
        self, rows: NDArray[np.intp], blas: NDArray[np.intp], before_us: NDArray[np.float64]
    ) -> tuple[NDArray[np.float64], list[NDArray[np.float64]]]:
        """Launch finalists many times, in blocks that launch each of them once in a random order.

        A launch's time depends a little on where operands lie, in the same way for all launches of a process; that
        would repeat a lucky candidate's luck. So the final moves the operands between its parts.

        Parameters
        ----------
        rows, blas
            Candidates, and positions in cuBLASLt's list.
        before_us
            Their times in the retake, which give the final its scale.

        Returns
        -------
        times_us, series
            [finalist], on the scale of the retake; and all launches of each, as measured.
        """
        options = self.meter.options
        blocks = -(-final_launches(float(before_us.min())) // options.final_placements)
        counts = np.full(len(before_us), blocks)
        parts = []
        for placement in range(options.final_placements):
            self._set_problem(placement)
            self._slots(rows)
            blas_slots, _ = self._add_blas()
            parts.append(np.stack(self._interleaved(rows, [blas_slots[i] for i in blas], counts), axis=1))
        times_us = np.stack(parts)
        if not np.isfinite(times_us).all():
            text = "the final was left out: a launch failed"
            self.meter.recorder.note("note", problem_id=self.problem_id, text=text, at_s=time.time())
            return before_us, list(times_us.reshape(-1, len(before_us)).T)
        values, noise, placed = final_times(times_us, before_us)
        self.meter.recorder.note(
            "final", problem_id=self.problem_id, finalists=len(before_us), noise=noise, placed=placed, at_s=time.time()
        )
        return values, list(times_us.reshape(-1, len(before_us)).T)

    def _add_blas(self) -> tuple[list[int], list[str]]:
        """Add cuBLASLt's algorithms; returns their slots and descriptions."""
        self.meter.status.slow(self.problem_id)
        algorithms = self.meter.engine.add_blas(self.meter.options.blas_algorithms)
        slots = list(range(self.next_slot, self.next_slot + len(algorithms)))
        self.next_slot += len(algorithms)
        return slots, algorithms

    def _verify_blas(self, slots: list[int]) -> list[str]:
        if not slots:
            return []
        self.meter.batch(self.problem_id, np.full(len(slots), NO_KERNEL, dtype=np.int32))
        conditions = self.meter.conditions(len(slots))
        launched, wrong, _ = self.meter.engine.verify(np.array(slots, dtype=np.int32), conditions)
        outcomes = np.where(launched != 0, "launch_failed", np.where(wrong > 0, "wrong", "ok"))
        return [str(outcome) for outcome in outcomes]

    def _graph_times(self, rows: NDArray[np.intp], extra_slots: list[int]) -> NDArray[np.float64]:
        """Return medians by the second timer, microseconds; NaN if it fails, and in server mode: it knows no gaps."""
        slots = np.concatenate([self._slots(rows), np.array(extra_slots, dtype=np.int32)]).astype(np.int32)
        result = np.full(len(slots), np.nan)
        conditions = self.meter.conditions(len(slots))
        if conditions.gaps_us is not None:
            return result
        order = self.meter.rng.permutation(len(slots))
        self.meter.batch(self.problem_id, self._keys(rows, len(extra_slots))[order])
        try:
            times = self.meter.engine.graph_time(slots[order], self.meter.options.launches, conditions)
            result[order] = np.median(times, axis=0)
        except EngineFailure as failure:
            text = f"second timer failed: {failure}"
            self.meter.recorder.note("note", problem_id=self.problem_id, text=text, at_s=time.time())
        return result

    def _write_baselines(
        self,
        algorithms: list[str],
        statuses: list[str],
        results: dict[int, tuple[float, NDArray[np.float64], float]],
    ) -> None:
        """Write cuBLASLt's first answer and the fastest of its list.

        Parameters
        ----------
        algorithms, statuses
            Of the whole list.
        results
            By position in the list: time, launches and time by the second timer, microseconds.
        """
        if not algorithms:
            return
        chosen = {"cublaslt_first": 0}
        if results:
            chosen["cublaslt_best"] = min(results, key=lambda position: results[position][0])
        for method, position in chosen.items():
            time_us, times, graph_us = results.get(position, (np.nan, np.zeros(0), np.nan))
            self.meter.recorder.note(
                "baseline",
                problem_id=self.problem_id,
                method=method,
                time_us=time_us,
                spread=summarise(times, self.meter.options.small_us)[1] if len(times) else np.nan,
                launches=len(times),
                status=statuses[position],
                algo=algorithms[position],
                graph_us=graph_us,
                at_s=time.time(),
            )
