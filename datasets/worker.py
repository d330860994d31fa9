"""The worker process of a campaign: owns one GPU, measures the problems that the supervisor names.

Started as ``python -m cutlass_ranker.datasets.worker SETUP`` with a :class:`Setup` as JSON. It answers on standard
output, one JSON object a line: ``ready``, ``rows``, ``done``, ``stopped``, ``failed``. A lost CUDA context ends the
process with ``EXIT_LOST``; the supervisor finds the culprit in the status file.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import sys
import time
import traceback
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import numpy as np

from ..generator import CutlassRankerError, MeasurementError, Problem
from .engine import CudaEngine, Engine, EngineFailure, EngineLost
from .measure import Kernels, ProblemRun, keys_of
from .meter import Meter, Stopped
from .plan import Kind, read_plan
from .protocol import Options
from .records import ROW, Recorder, read_raw
from .status import StatusFile

EXIT_LOST: Final = 86
"""Exit status after a lost CUDA context."""
EXIT_SETUP: Final = 87
"""Exit status if the engine could not be started."""
_PR_SET_PDEATHSIG: Final = 1


@dataclass(frozen=True)
class Setup:
    """What a worker is started with."""

    plan: str
    build: str
    out: str
    who: str
    """Name of the worker in file names."""
    session: int
    seed: int
    supervisor: int
    """Process id of the supervisor."""
    options: dict[str, Any]
    """Fields of :class:`~.protocol.Options`."""
    simulation: str | None = None
    """``module:class`` of a simulated engine, or None for the real one."""
    simulation_options: dict[str, Any] | None = None

    def to_json(self) -> str:
        """Return the command-line argument."""
        return json.dumps(asdict(self))


def status_path(out_dir: Path, who: str) -> Path:
    """Where the status file of a worker lies."""
    return out_dir / f"status-{who}.bin"


def _open_engine(setup: Setup, status: StatusFile) -> Engine:
    if setup.simulation is None:
        return CudaEngine(Path(setup.build), status.path)
    module, name = setup.simulation.split(":")
    engine: Engine = getattr(import_module(module), name)(status, **(setup.simulation_options or {}))
    return engine


class Worker:
    """Reads commands, measures, answers."""

    def __init__(self, setup: Setup, answers: Any) -> None:
        self.setup = setup
        self.answers = answers
        self.out = Path(setup.out)
        self.plan = read_plan(setup.plan)
        self.kernels = Kernels.from_table(self.plan.kernels)
        self.status = StatusFile(status_path(self.out, setup.who))
        self.deadline = np.inf
        self.stop = False
        self.status.slow()
        engine = _open_engine(setup, self.status)
        recorder = Recorder(self.out, setup.who)
        self.meter = Meter(
            engine, self.status, recorder, Options(**setup.options), self.should_stop, setup.session,
            on_rows=lambda count: self.answer("rows", count=count),
            rng=np.random.default_rng([setup.seed, os.getpid()]),
        )  # fmt: skip

    def should_stop(self) -> bool:
        """Tell whether the time is spent, a signal came, or the supervisor is gone."""
        return self.stop or time.time() >= self.deadline or os.getppid() != self.setup.supervisor

    def answer(self, kind: str, **values: Any) -> None:
        """Tell the supervisor something."""
        self.answers.write(json.dumps({"kind": kind, **values}) + "\n")
        self.answers.flush()

    def serve(self, commands: Any) -> None:
        """Work until the commands end."""
        self.answer("ready", facts=self.meter.calibrate())
        self.status.idle()
        for line in commands:
            command = json.loads(line)
            self.deadline = float(command["deadline"])
            problem_id = int(command["problem_id"])
            try:
                self.measure(problem_id, bool(command["begun"]))
                self.answer("done", problem_id=problem_id)
            except Stopped:
                self.answer("stopped", problem_id=problem_id)
            except EngineFailure as failure:
                self.answer("failed", problem_id=problem_id, reason=str(failure))
            self.status.idle()

    def measure(self, problem_id: int, begun: bool) -> None:
        """Measure one problem of the plan, of which there may be rows if it was ``begun`` before."""
        self.status.slow(problem_id)
        row = self.plan.problems[self.plan.problems["problem_id"] == problem_id].iloc[0]
        problem = Problem(int(row["M"]), int(row["N"]), int(row["K"]), row["layout"], row["dtype"])
        if problem.dtype.name != "bf16":
            raise MeasurementError(f"the engine measures bf16 problems only; problem {problem_id} is {problem}")
        candidates = self.plan.candidates[self.plan.candidates["problem_id"] == problem_id]
        first, required = (keys_of(candidates[candidates["kind"] == kind]) for kind in (Kind.FIRST_PASS, Kind.REQUIRED))
        earlier = read_raw(self.out, problem_id) if begun else np.zeros(0, dtype=ROW)
        run = ProblemRun(self.meter, self.kernels, problem_id, problem, earlier)
        run.run(first, required)


def main(argument: str) -> int:
    """Run a worker; returns its exit status."""
    setup = Setup(**json.loads(argument))
    # Whatever a library prints must not mix with the answers.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the supervisor decides
    worker: Worker | None = None
    try:
        worker = Worker(setup, answers)

        def stop(*_: Any) -> None:
            assert worker is not None
            worker.stop = True

        signal.signal(signal.SIGTERM, stop)
        worker.serve(sys.stdin)
    except EngineLost as error:
        print(f"worker {setup.who}: {error}", file=sys.stderr, flush=True)
        return EXIT_LOST
    except BrokenPipeError:
        return 0
    except (CutlassRankerError, OSError) as error:
        # Nothing that another try would mend: a bad plan, a missing library.
        print(f"worker {setup.who}: {error}", file=sys.stderr, flush=True)
        with contextlib.suppress(OSError):
            answers.write(json.dumps({"kind": "fatal", "reason": str(error)}) + "\n")
            answers.flush()
        return EXIT_SETUP
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


if __name__ == "__main__":
    code = main(sys.argv[1])
    sys.stderr.flush()
    os._exit(code)  # a destroyed context may wait for a kernel that never ends
