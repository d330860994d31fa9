"""The supervisor of a campaign: one worker process per GPU, watched, replaced when it hangs or dies.

``run_campaign`` may be killed at any moment and called again with the same arguments; it goes on where it stopped.
"""

from __future__ import annotations

import ctypes
import fcntl
import json
import os
import selectors
import signal
import subprocess
import sys
import time
from collections import Counter, deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Final

import numpy as np
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from ..generator import MeasurementError
from .engine import build_engine
from .plan import read_plan
from .protocol import Options
from .provenance import Provenance
from .records import Phase, Recorder, Status, done_problems, is_final, latest, new_rows, read_raw
from .status import State, StatusFile
from .worker import EXIT_LOST, Setup, status_path

GRACE_S: Final = 30.0
"""How long workers may take to finish their batch once the time is spent."""
MOST_STARTS: Final = 3
"""Starts in a row that may fail before a GPU is given up."""
UNKILLABLE_S: Final = 60.0
"""How long a killed process may take to end before its GPU is given up."""
MOST_KILLS: Final = 10
"""Times that workers on one problem may be killed from outside (say, for want of memory) before it is given up."""
MOST_FAILURES: Final = 2
"""Times a problem may fail without a culprit before it is given up."""
_CRASH_SIGNALS: Final = {signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGILL}


@dataclass(frozen=True)
class Limits:
    """How long a worker may show no progress, seconds."""

    hang_s: float = 6.0
    """While candidates run."""
    setup_s: float = 120.0
    """While it starts, or prepares a problem."""


@dataclass(frozen=True)
class Summary:
    """What a run did."""

    rows: int
    """Final outcomes that this run added."""
    problems_done: int
    """Problems finished in all runs."""
    problems: int
    """Problems of the plan."""
    seconds: float
    stopped: bool
    """True if work is left."""


def visible_gpus() -> list[str]:
    """Return what ``CUDA_VISIBLE_DEVICES`` calls each visible SM90 GPU.

    Raises
    ------
    MeasurementError
        If there is no driver or no SM90 GPU.
    """
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        raise MeasurementError(f"no NVIDIA driver: {error}") from error
    code = cuda.cuInit(0)
    if code != 0:
        raise MeasurementError(f"the NVIDIA driver does not start (cuInit returned {code})")
    count, value = ctypes.c_int(), ctypes.c_int()
    cuda.cuDeviceGetCount(ctypes.byref(count))
    given = os.environ.get("CUDA_VISIBLE_DEVICES")
    labels = [part.strip() for part in given.split(",")] if given else [str(i) for i in range(count.value)]
    found = []
    for device in range(count.value):
        capability = []
        for attribute in (75, 76):  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, _MINOR
            cuda.cuDeviceGetAttribute(ctypes.byref(value), attribute, device)
            capability.append(value.value)
        if capability == [9, 0]:
            found.append(labels[device])
    if not found:
        raise MeasurementError(f"none of the {count.value} visible GPUs is an SM90 (Hopper) GPU")
    return found


@dataclass
class _Worker:
    """A worker process and what the supervisor knows of it."""

    gpu: str
    who: str
    process: subprocess.Popen[bytes]
    status: StatusFile
    log: Path
    problem: int | None = None
    ready: bool = False
    signature: tuple[int, ...] = ()
    changed: float = field(default_factory=time.monotonic)
    killed_for: Status | None = None
    """HANG if the supervisor killed it for showing no progress, OK if the time was spent."""
    killed_at: float | None = None
    reason: str = ""
    buffer: bytes = b""


def run_campaign(
    plan_dir: str | Path,
    build_dir: str | Path,
    out_dir: str | Path,
    seconds: float,
    gpus: list[str] | None = None,
    *,
    limits: Limits | None = None,
    options: dict[str, Any] | None = None,
    simulation: str | None = None,
    simulation_options: dict[str, Any] | None = None,
    progress: bool = True,
) -> Summary:
    """Measure a plan for at most ``seconds``, on every given GPU.

    Parameters
    ----------
    plan_dir
        What ``write_plan`` wrote. Values in its ``options`` that :class:`~.protocol.Options` knows are taken.
    build_dir
        What ``build`` made: ``manifest.parquet`` and ``units/``.
    out_dir
        Where rows go; made if missing. With rows of the same plan in it, the campaign is continued.
    seconds
        Time budget. Batches in flight are finished, which may take some seconds more.
    gpus
        Names for ``CUDA_VISIBLE_DEVICES``, one worker each; all visible SM90 GPUs if not given.
    limits
        Patience with silent workers.
    options
        Fields of :class:`~.protocol.Options` that differ from the plan's.
    simulation, simulation_options
        ``module:class`` of an engine to use in place of the GPU, and its arguments.
    progress
        Show a progress bar.

    Raises
    ------
    MeasurementError
        If no GPU can be used, every worker fails, another run uses ``out_dir``, or the rows in it were measured with
        other operands, in another mode or by another version of the protocol.
    DataError
        If the plan cannot be read.
    """
    out = Path(out_dir).resolve()
    out.mkdir(parents=True, exist_ok=True)
    with _lock(out):
        if simulation is None:
            build_engine(build_dir)
        labels = gpus or (["0"] if simulation else visible_gpus())
        supervisor = _Supervisor(
            Path(plan_dir).resolve(), Path(build_dir).resolve(), out, seconds, labels, limits or Limits(),
            options or {}, simulation, simulation_options,
        )  # fmt: skip
        return supervisor.run(progress)


@contextmanager
def _lock(out: Path) -> Iterator[None]:
    """Keep other runs out of a directory; the lock goes with the process."""
    with (out / "lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise MeasurementError(f"another run is measuring into {out}") from error
        yield


class _Supervisor:
    """Hands out problems, watches workers, records culprits."""

    def __init__(
        self,
        plan_dir: Path,
        build_dir: Path,
        out: Path,
        seconds: float,
        gpus: list[str],
        limits: Limits,
        options: dict[str, Any],
        simulation: str | None,
        simulation_options: dict[str, Any] | None,
    ) -> None:
        plan = read_plan(plan_dir)
        self.plan_dir, self.build_dir, self.out = plan_dir, build_dir, out
        self.gpus, self.limits = gpus, limits
        self.simulation, self.simulation_options = simulation, simulation_options
        known = Options.__dataclass_fields__
        self.options = {name: value for name, value in plan.meta.get("options", {}).items() if name in known} | options
        self.seed = int(plan.meta.get("seed", 0))
        self.started = time.time()
        self.deadline = self.started + seconds
        self.done = done_problems(out) & set(plan.problems["problem_id"])
        ordered = plan.problems.sort_values(["priority", "problem_id"], kind="stable")["problem_id"]
        self.queue = deque(int(problem) for problem in ordered if problem not in self.done)
        self.total = len(plan.problems)
        self.recorder = Recorder(out, "supervisor")
        self.rows = 0
        earlier = latest(read_raw(out))
        self.earlier_rows = int(is_final(earlier).sum())
        self.begun = set(earlier["problem_id"].tolist())
        self.failures: Counter[int] = Counter()
        self.kills: Counter[int] = Counter()
        self.failed_starts: Counter[str] = Counter()
        self.last_reason = ""
        self.stop = False
        self.workers: dict[int, _Worker] = {}
        self.selector = selectors.DefaultSelector()
        self.provenance = Provenance(out, plan.meta, build_dir, self.started, len(gpus), Options(**self.options))

    # -- main loop

    def run(self, progress: bool) -> Summary:
        """Run until the work or the time is done."""
        previous = {number: signal.signal(number, self._on_signal) for number in (signal.SIGTERM, signal.SIGINT)}
        rows = TextColumn("problems, {task.fields[rows]} rows ({task.fields[rate]:.0f}/s)")
        columns = (
            TextColumn("measuring"),
            BarColumn(),
            MofNCompleteColumn(),
            rows,
            TimeElapsedColumn(),
            TimeRemainingColumn(),
        )
        try:
            with Progress(*columns, disable=not progress) as bar:
                task = bar.add_task("", total=self.total, completed=len(self.done), rows=self.earlier_rows, rate=0.0)
                if self.queue:
                    for gpu in self.gpus:
                        self._start(gpu)
                while self.workers:
                    self._step()
                    rate = self.rows / max(time.time() - self.started, 1e-3)
                    bar.update(task, completed=len(self.done), rows=self.earlier_rows + self.rows, rate=rate)
        finally:
            for worker in list(self.workers.values()):
                worker.process.kill()
                with suppress(subprocess.TimeoutExpired):
                    worker.process.wait(5.0)
            for number, handler in previous.items():
                signal.signal(number, handler)
            self.provenance.finish(time.time() - self.started, self.rows)
        left = self.total - len(self.done)
        if left and not self._out_of_time():
            raise MeasurementError(
                f"no worker is left; {left} problems are not measured. Last error: {self.last_reason}"
            )
        return Summary(self.rows, len(self.done), self.total, time.time() - self.started, left > 0)

    def _on_signal(self, *_: Any) -> None:
        self.stop = True
        self.deadline = min(self.deadline, time.time())

    def _out_of_time(self) -> bool:
        return self.stop or time.time() >= self.deadline

    def _step(self) -> None:
        for key, _ in self.selector.select(timeout=0.1):
            self._read(self.workers[key.fd])
        for worker in list(self.workers.values()):
            if worker.process.poll() is not None:
                self._ended(worker)
            else:
                self._watch(worker)
        self.provenance.refresh(time.time() - self.started, self.rows)

    # -- workers

    def _start(self, gpu: str) -> None:
        who = f"gpu{gpu}".replace("/", "_")
        status = StatusFile(status_path(self.out, who), create=True)
        setup = Setup(
            str(self.plan_dir), str(self.build_dir), str(self.out), who, self.provenance.session, self.seed,
            os.getpid(), self.options, self.simulation, self.simulation_options,
        )  # fmt: skip
        environment = os.environ | {
            "CUDA_VISIBLE_DEVICES": gpu,
            "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
            "OMP_NUM_THREADS": "1",
        }
        log = self.out / f"worker-{who}.log"
        with log.open("ab") as file:
            process = subprocess.Popen(
                [sys.executable, "-m", f"{__package__}.worker", setup.to_json()],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=file, env=environment,
            )  # fmt: skip
        assert process.stdout is not None
        os.set_blocking(process.stdout.fileno(), False)
        worker = _Worker(gpu, who, process, status, log)
        self.workers[process.stdout.fileno()] = worker
        self.selector.register(process.stdout, selectors.EVENT_READ)

    def _read(self, worker: _Worker) -> None:
        assert worker.process.stdout is not None
        data = worker.process.stdout.read()
        worker.buffer += data or b""
        *lines, worker.buffer = worker.buffer.split(b"\n")
        for line in lines:
            self._answer(worker, json.loads(line))

    def _answer(self, worker: _Worker, answer: dict[str, Any]) -> None:
        kind = answer["kind"]
        assert worker.process.stdin is not None
        if kind == "rows":
            self.rows += int(answer["count"])
            return
        if kind == "ready":
            worker.ready = True
            self.failed_starts[worker.gpu] = 0
            self.provenance.ready(worker.who, answer["facts"])
        elif kind == "fatal":
            worker.reason = answer["reason"]
            return
        elif kind == "done":
            self.done.add(int(answer["problem_id"]))
            worker.problem = None
        elif kind == "stopped":
            if worker.problem is not None:
                self.queue.appendleft(worker.problem)
            worker.problem = None
            worker.process.stdin.close()  # a worker that was told to stop takes no more work
            return
        elif kind == "failed":
            self._problem_failed(int(answer["problem_id"]), answer["reason"])
            worker.problem = None
        self._next(worker)

    def _next(self, worker: _Worker) -> None:
        """Give a worker its next problem, or let it end."""
        stdin: IO[bytes] | None = worker.process.stdin
        assert stdin is not None
        if self._out_of_time() or not self.queue:
            stdin.close()
            return
        worker.problem = self.queue.popleft()
        command = {"problem_id": worker.problem, "deadline": self.deadline, "begun": worker.problem in self.begun}
        self.begun.add(worker.problem)
        try:
            stdin.write(json.dumps(command).encode() + b"\n")
            stdin.flush()
        except BrokenPipeError:
            return  # it died; _ended puts the problem back

    def _watch(self, worker: _Worker) -> None:
        """Kill a worker that has shown no progress for too long."""
        now = time.monotonic()
        signature = worker.status.signature()
        if signature != worker.signature:
            worker.signature, worker.changed = signature, now
        silent = now - worker.changed
        patience = {State.BATCH: self.limits.hang_s, State.SLOW: self.limits.setup_s}.get(worker.status.state, np.inf)
        if worker.killed_at is not None:
            if now - worker.killed_at > UNKILLABLE_S:
                self._abandon(worker)
        elif silent > patience:
            self._kill(worker, Status.HANG)
        elif self._out_of_time():
            if time.time() > self.deadline + GRACE_S or (self.stop and not worker.ready):
                self._kill(worker, Status.OK)
            elif self.stop:
                worker.process.terminate()

    @staticmethod
    def _kill(worker: _Worker, reason: Status) -> None:
        worker.killed_for, worker.killed_at = reason, time.monotonic()
        worker.process.kill()

    def _abandon(self, worker: _Worker) -> None:
        """Give up a process that even SIGKILL does not end, and its GPU."""
        self.last_reason = f"worker {worker.who} does not end although it was killed; its GPU is not used any more"
        self._note(self.last_reason, worker.problem)
        if worker.problem is not None:
            self.queue.appendleft(worker.problem)
        self._forget(worker)

    def _forget(self, worker: _Worker) -> None:
        assert worker.process.stdout is not None
        assert worker.process.stdin is not None
        del self.workers[worker.process.stdout.fileno()]
        self.selector.unregister(worker.process.stdout)
        worker.process.stdout.close()
        with suppress(BrokenPipeError):
            worker.process.stdin.close()

    def _ended(self, worker: _Worker) -> None:
        """Take leave of a worker; find out whose fault it was, and replace it if there is work left."""
        self._read(worker)
        self._forget(worker)
        code = worker.process.returncode
        if code != 0:
            self._judge(worker, code)
        if worker.problem is not None and worker.problem not in self.done and worker.problem not in self.queue:
            self.queue.appendleft(worker.problem)
        if self.queue and not self._out_of_time() and self.failed_starts[worker.gpu] < MOST_STARTS:
            self._start(worker.gpu)

    def _judge(self, worker: _Worker, code: int) -> None:
        """Record why a worker died."""
        tail = worker.log.read_text(errors="replace").strip().splitlines()[-1:] or [""]
        self.last_reason = worker.reason or f"worker {worker.who} ended with status {code}: {tail[0]}"
        if worker.killed_for is Status.OK:
            return
        if not worker.ready:
            self.failed_starts[worker.gpu] += 1
            self._note(self.last_reason, worker.problem)
            return
        crashed = code == EXIT_LOST or (code < 0 and -code in _CRASH_SIGNALS)
        culprit = worker.status.culprit()
        if worker.problem is not None and culprit is not None and (worker.killed_for is Status.HANG or crashed):
            row = new_rows(worker.problem, culprit, self.provenance.session)
            row["status"] = Status.HANG if worker.killed_for is Status.HANG else Status.CRASH
            row["phase"] = Phase.FIRST
            row["at_s"] = time.time()
            self.recorder.rows(row)
            self.rows += 1
            self._note(self.last_reason, worker.problem)
        elif worker.problem is not None and (worker.killed_for is Status.HANG or crashed or code > 0):
            self._problem_failed(worker.problem, self.last_reason)
        else:
            reason = f"{self.last_reason} (killed from outside)"
            self._note(reason, worker.problem)
            if worker.problem is not None:
                self.kills[worker.problem] += 1
                if self.kills[worker.problem] >= MOST_KILLS:
                    self._give_up(worker.problem, reason)

    def _problem_failed(self, problem: int, reason: str) -> None:
        """Count a failure that no candidate is to blame for; give the problem up in the end."""
        self.failures[problem] += 1
        self._note(reason, problem)
        if self.failures[problem] >= MOST_FAILURES:
            self._give_up(problem, reason)
        elif problem not in self.queue:
            self.queue.append(problem)

    def _give_up(self, problem: int, reason: str) -> None:
        self.recorder.note("done", problem_id=problem, given_up=reason, at_s=time.time())
        self.done.add(problem)

    def _note(self, text: str, problem: int | None) -> None:
        self.recorder.note("note", problem_id=problem, text=text, at_s=time.time())
