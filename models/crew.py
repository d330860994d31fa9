"""The processes that work on a sweep."""

from __future__ import annotations

import fcntl
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import replace
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import TYPE_CHECKING, Final

import optuna
import sqlalchemy

from .config import TrainingConfig
from .spawn import SPAWN, choose_gpu, library_threads
from .study import StudyRecord, TrialRecord
from .sweep import Bench, Stored
from .tuning import (
    Objective,
    Sweep,
    SweepError,
    Tally,
    confirmation_key,
    open_storage,
    open_study,
    read_study,
    rescue,
    worker_tag,
)

if TYPE_CHECKING:
    from optuna import Study

TICK: Final = 1.0
"""Seconds between two looks at the study."""
START_DEATHS: Final = 3
"""Workers that may die before they are ready, one after the other, until the sweep gives up."""


def run_sweep(
    sweep: Sweep,
    bench: Bench,
    trials: int,
    workers: int = 1,
    seconds: float | None = None,
    watch: Callable[[Tally], None] = lambda _: None,
) -> Tally:
    """Work on a study until it has so many trials.

    Killing a worker costs the fold in flight, which is run again; killing this process too: run it again. An
    interrupt (Ctrl-C, SIGTERM) queues the trials in flight for the next run.

    Parameters
    ----------
    sweep
        The study; begun if it does not exist.
    bench
        Training groups, of which trials use the study's share.
    trials
        Trials that the study shall have in the end: complete, pruned and failed ones, those of earlier runs among them.
    workers
        Processes.
    seconds
        No trial is begun after this time.
    watch
        Called with the state of the study once in a while, at least after each finished trial.

    Returns
    -------
    Tally
        The state in the end.

    Raises
    ------
    SweepError
        If the study was begun with other settings, or workers die at once.
    """
    study = open_study(sweep, bench.fingerprint)
    rescue(study)
    tally = Tally.of(study, ())
    if tally.finished >= trials:
        return tally
    part = bench.part(sweep.fraction, sweep.base.seed)
    with part.on_disk() as stored, library_threads(sweep.base.threads), _interrupted_by_sigterm():
        crew = _Crew(sweep, stored, bench.fingerprint, workers)
        try:
            _supervise(study, crew, trials, time.monotonic() + (float("inf") if seconds is None else seconds), watch)
        finally:
            rescue(study, crew.dismiss())
    return Tally.of(study, ())


def _supervise(study: Study, crew: _Crew, trials: int, deadline: float, watch: Callable[[Tally], None]) -> None:
    """Hand out trials until there are enough, or the time is up."""
    while True:
        rescue(study, crew.look())
        tally = Tally.of(study, crew.tags)
        watch(tally)
        over = time.monotonic() > deadline
        room = 0 if over else trials - tally.finished - tally.elsewhere - crew.busy
        crew.hand_out(room)
        if not crew.busy and (over or tally.finished >= trials):
            return


class _Worker:
    """One process and what it is doing."""

    def __init__(self, sweep: Sweep, stored: Stored, data: str, index: int, seed: int) -> None:
        self.index = index
        self.ready = self.busy = False
        self.connection, other = SPAWN.Pipe()
        self.process = SPAWN.Process(target=_work, args=(other, sweep, stored, data, index, seed), daemon=True)
        self.process.start()
        other.close()

    @property
    def tag(self) -> str:
        """Name of the process in the study."""
        return worker_tag(self.process.pid or 0)


class _Crew:
    """All workers of a parent."""

    def __init__(self, sweep: Sweep, stored: Stored, data: str, workers: int) -> None:
        self._order = (sweep, stored, data)
        # Every worker that is ever started samples from a seed of its own.
        self._seed = int(time.time())
        self._deaths = 0
        self.workers = [self._start(index) for index in range(workers)]

    @property
    def busy(self) -> int:
        """Workers with a trial."""
        return sum(worker.busy for worker in self.workers)

    @property
    def tags(self) -> list[str]:
        """Names of the workers in the study."""
        return [worker.tag for worker in self.workers]

    def look(self) -> list[str]:
        """Wait a moment for news, replace workers that have ended, and return the tags of those.

        Raises
        ------
        SweepError
            If worker after worker dies before it is ready.
        """
        wait([worker.connection for worker in self.workers], timeout=TICK)
        ended: list[str] = []
        for place, worker in enumerate(self.workers):
            try:
                while worker.connection.poll():
                    worker.connection.recv()
                    worker.ready, worker.busy = True, False
            except (EOFError, OSError):
                worker.process.join()
                ended.append(worker.tag)
                self._deaths = 0 if worker.ready else self._deaths + 1
                if self._deaths >= START_DEATHS:
                    raise SweepError("the workers die before they are ready; what they printed says why") from None
                self.workers[place] = self._start(worker.index)
        return ended

    def _start(self, index: int) -> _Worker:
        """Start a process."""
        self._seed += 1
        return _Worker(*self._order, index, self._seed)

    def hand_out(self, room: int) -> None:
        """Let idle workers begin at most so many trials."""
        for worker in self.workers:
            if room > 0 and worker.ready and not worker.busy:
                try:
                    worker.connection.send(True)
                except OSError:
                    continue
                worker.busy = True
                room -= 1

    def dismiss(self) -> list[str]:
        """End all workers, at once where they have a trial, and return their tags."""
        for worker in self.workers:
            worker.connection.close()
            if worker.busy or not worker.ready:
                worker.process.kill()
        for worker in self.workers:
            worker.process.join()
        return self.tags


def _work(connection: Connection, sweep: Sweep, stored: Stored, data: str, index: int, seed: int) -> None:
    """Run trials, one for each message, until the parent is gone; end after one that went wrong.

    What went wrong may have damaged the process, as an error on a GPU does.
    """
    # The parent decides what an interrupt means.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    if sweep.base.kind == "mlp":
        choose_gpu(index)
    study = open_study(sweep, data, seed)
    objective = Objective(sweep, stored.open())
    turns = Turns(sweep.storage)
    failed: list[bool] = []

    def run(trial: optuna.trial.Trial) -> float:
        turns.give()
        return objective(trial)

    def note(_: Study, trial: optuna.trial.FrozenTrial) -> None:
        failed.append(trial.state == optuna.trial.TrialState.FAIL)

    try:
        while not any(failed):
            connection.send(None)
            connection.recv()
            turns.take()
            study.optimize(run, n_trials=1, catch=(Exception,), callbacks=[note])
        connection.send(None)
    except (EOFError, OSError):
        return


class Turns:
    """Lets one process at a time begin a trial of a study in an SQLite file; a process that dies loses its turn.

    Optuna gives a queued trial to one process by locking its row. SQLite has no such locks: all that ask at the same
    moment would get the same trial. Servers need no turns.

    Parameters
    ----------
    storage
        URL of the database.
    """

    def __init__(self, storage: str) -> None:
        url = sqlalchemy.engine.make_url(storage)
        shared = url.drivername.startswith("sqlite") and url.database not in (None, "", ":memory:")
        self._file = Path(f"{url.database}.lock").open("w") if shared else None  # noqa: SIM115

    def take(self) -> None:
        """Wait for a turn."""
        if self._file is not None:
            fcntl.flock(self._file, fcntl.LOCK_EX)

    def give(self) -> None:
        """Let the next one begin."""
        if self._file is not None:
            fcntl.flock(self._file, fcntl.LOCK_UN)


@contextmanager
def _interrupted_by_sigterm() -> Iterator[None]:
    """Treat SIGTERM, as ``timeout`` and batch systems send it, like Ctrl-C; some send it twice."""

    def interrupt(number: int, frame: object) -> None:
        signal.signal(number, signal.SIG_IGN)
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


_bench: Bench | None = None
"""Of a confirming process."""


def confirm(
    storage: str,
    name: str,
    bench: Bench,
    top: int = 5,
    folds: int = 5,
    seeds: int = 3,
    workers: int = 1,
    threads: int = 1,
    watch: Callable[[TrialRecord, int, int], None] = lambda *_: None,
) -> StudyRecord:
    """Score the best trials of a study again, on all groups, with more folds and seeds; what was done before is kept.

    Parameters
    ----------
    storage, name
        The study.
    bench
        The groups that it was made with, all of them.
    top
        Trials.
    folds, seeds
        Folds, and models trained on each.
    workers, threads
        Processes, and threads of each.
    watch
        Called with the trial, the seed and the number of each finished fold.

    Raises
    ------
    SweepError
        If the study was made with other data, or a process was killed; run it again then.
    """
    record = read_study(storage, name)
    if record.data != bench.fingerprint:
        raise SweepError(f"study {name!r} was made with other data: {record.data}; this is {bench.fingerprint}")
    study = optuna.load_study(study_name=name, storage=open_storage(storage))
    done = study.user_attrs
    jobs = [
        (trial, seed, fold)
        for seed in range(seeds)
        for trial in record.top(top)
        for fold in range(folds)
        if done.get(confirmation_key(trial.number, seed, fold), (0,))[0] != folds
    ]
    with bench.on_disk() as stored, library_threads(threads):
        pool = ProcessPoolExecutor(workers, SPAWN, initializer=_open_bench, initargs=(stored, record.base.kind))
        try:
            with pool:
                running = {}
                for trial, seed, fold in jobs:
                    config = record.config(trial)
                    config = replace(config, threads=threads, mlp=replace(config.mlp, members=1))
                    running[pool.submit(_confirm, config, folds, seed, fold)] = (trial, seed, fold)
                for future in as_completed(running):
                    trial, seed, fold = running[future]
                    study.set_user_attr(confirmation_key(trial.number, seed, fold), [folds, future.result()])
                    watch(trial, seed, fold)
        except BrokenProcessPool as error:
            raise SweepError("a confirming process was killed; run it again, it goes on where it stopped") from error
    return read_study(storage, name)


def _open_bench(stored: Stored, kind: str) -> None:
    """Prepare a confirming process."""
    global _bench
    _bench = stored.open()
    if kind == "mlp":
        choose_gpu()


def _confirm(config: TrainingConfig, folds: int, seed: int, fold: int) -> float:
    """Return the regret on a fold of a model trained from a seed."""
    assert _bench is not None
    return next(_bench.fold_regrets(config, folds, (config.seed + seed,), fold))
