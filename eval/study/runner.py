"""Runs the missing cells of studies, in this process or in worker processes of one thread each, and keeps the results.

A worker writes a finished cell to disk itself, so killing everything at any moment loses only the cells in flight.
"""

from __future__ import annotations

import math
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from multiprocessing.connection import Connection, wait
from typing import Any, Final

from ...generator import CutlassRankerError
from ...models.spawn import SPAWN, choose_gpu, library_threads
from ...models.train import code_commit
from .cells import Cell, key_of
from .data import StudyData
from .store import Store

SECONDS_PER_UNIT: Final[Mapping[str, float]] = {"xgboost": 5e-9, "mlp": 1e-10, "sample": 4e-7}
"""Time of a unit of work on one core of a server CPU, before anything is known of the machine at hand."""
_ADVICE: Final = "is there memory for so many workers?"

Progress = Callable[[Cell, Mapping[str, Any]], None]


class StudyFailed(CutlassRankerError, RuntimeError):
    """A cell of a study could not be computed; the finished ones are kept."""


def missing(cells: Sequence[Cell], data: StudyData, store: Store) -> list[Cell]:
    """Return the cells that are not finished, each once."""
    listed = {key_of(cell, data): cell for cell in cells}
    return [cell for key, cell in listed.items() if not store.has(key)]


class Estimate:
    """How long cells take: by the finished ones of the same kind of work, by a guess where there are none.

    Parameters
    ----------
    data
        What the cells run on.
    store
        Where finished cells are.
    """

    def __init__(self, data: StudyData, store: Store) -> None:
        self._data = data
        spent: dict[str, tuple[float, float]] = {}
        for record in store.records():
            kind, units = record["work"]
            seconds, total = spent.get(kind, (0.0, 0.0))
            spent[kind] = seconds + record["seconds"], total + units
        self.rates = {**SECONDS_PER_UNIT, **{kind: seconds / units for kind, (seconds, units) in spent.items()}}
        """Seconds per unit by kind of work."""

    def seconds(self, cell: Cell) -> float:
        """Return the seconds that a cell is likely to take on one core."""
        kind, units = cell.work(self._data)
        return self.rates[kind] * units


def run_cell(cell: Cell, data: StudyData, store: Store) -> dict[str, Any]:
    """Compute one cell, keep its record and return it."""
    started = time.perf_counter()
    result = cell.run(data)
    record = {
        "cell": cell.to_json(),
        "data": data.fingerprint,
        "result": result,
        "seconds": round(time.perf_counter() - started, 3),
        "work": list(cell.work(data)),
        "commit": code_commit(),
    }
    store.write(key_of(cell, data), record)
    return record


def run_cells(
    cells: Sequence[Cell],
    data: StudyData,
    store: Store,
    workers: int = 0,
    on_done: Progress = lambda cell, record: None,
    seconds: float | None = None,
) -> int:
    """Compute the cells that are not finished, those that take longest first.

    Parameters
    ----------
    cells
        What to compute; equal ones are computed once.
    data
        What to compute it on.
    store
        Where results are kept.
    workers
        Processes to compute in; 0: this one.
    on_done
        Told of every newly finished cell and its record.
    seconds
        No cell is begun that is likely to end after this time.

    Returns
    -------
    int
        Cells computed now.

    Raises
    ------
    StudyFailed
        If a worker fails on a cell or dies; finished cells are kept, and running again goes on.
    """
    estimate = Estimate(data, store)
    queue = sorted(missing(cells, data, store), key=estimate.seconds, reverse=True)
    count = len(queue)
    end = time.monotonic() + (math.inf if seconds is None else seconds)

    def take() -> Cell | None:
        left = end - time.monotonic()
        found = next((i for i, cell in enumerate(queue) if estimate.seconds(cell) <= left), None)
        return None if found is None else queue.pop(found)

    if workers < 1:
        while (cell := take()) is not None:
            on_done(cell, run_cell(cell, data, store))
        return count - len(queue)
    with _pool(min(workers, count), data, store) as idle:
        busy: dict[Connection, Cell] = {}
        while True:
            while idle and (cell := take()) is not None:
                connection = idle.pop()
                busy[connection] = cell
                _send(connection, cell)
            if not busy:
                return count - len(queue)
            for ready in wait(list(busy)):
                assert isinstance(ready, Connection)
                cell = busy.pop(ready)
                on_done(cell, _answer(ready, cell))
                idle.append(ready)


def _send(connection: Connection, message: object) -> None:
    """Send something to a worker."""
    try:
        connection.send(message)
    except OSError as error:
        raise StudyFailed(f"a worker process did not start; {_ADVICE}") from error


def _answer(connection: Connection, cell: Cell) -> Mapping[str, Any]:
    """Return the record that a worker sends of a cell."""
    try:
        answer = connection.recv()
    except (EOFError, OSError) as error:
        raise StudyFailed(f"the worker of “{cell.label}” died; {_ADVICE}") from error
    if isinstance(answer, str):
        raise StudyFailed(f"the cell “{cell.label}” failed: {answer}")
    assert isinstance(answer, dict)
    return answer


@contextmanager
def _pool(workers: int, data: StudyData, store: Store) -> Iterator[list[Connection]]:
    """Start workers, give the connections to them, and end them however the block ends."""
    connections, processes = [], []
    try:
        with library_threads(1):
            for index in range(workers):
                ours, theirs = SPAWN.Pipe()
                process = SPAWN.Process(target=_serve, args=(theirs, store, index), daemon=True)
                process.start()
                theirs.close()
                connections.append(ours)
                processes.append(process)
        for connection in connections:
            _send(connection, data)
        yield connections
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            process.join()


def _serve(connection: Connection, store: Store, index: int) -> None:
    """Receive the data, then compute cells until the other side is gone; worker ``index`` has a GPU of several."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # an interrupt is for the process that shows the progress
    try:
        data: StudyData = connection.recv()
    except EOFError:
        return
    while True:
        try:
            cell = connection.recv()
        except EOFError:
            return
        answer: dict[str, Any] | str
        try:
            if cell.work(data).kind == "mlp":
                choose_gpu(index)
            answer = run_cell(cell, data, store)
        except Exception as error:
            answer = f"{type(error).__name__}: {error}"
        try:
            connection.send(answer)
        except OSError:
            return
