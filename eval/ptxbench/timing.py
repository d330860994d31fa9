"""Gate 4: how fast, against cuBLAS, by timers that the candidate cannot reach.

Candidate and cuBLAS run in processes of their own and take turns, one launch each, in random order. A timed launch is::

    fresh operands, poisoned output, L2 flushed, device idle
    delay kernel | call | device synchronised        <- activity records of this window are the call's
    D x compared with A (B x) for a random x          <- the output must be right

The time is CUPTI's: start of the first to end of the last activity of the window, on whatever stream, thread, context
or graph. Events around the call on its own stream are the second timer, wall-clock time the third. Events also enclose
the gaps before and after the work, which profiling widens to tens of microseconds: what the events of cuBLAS's launches
add to CUPTI's time is allowed to the candidate's too, and the host's time until the call returned. Back to back, where
gaps vanish, nothing is. Work outside the window, a wrong output, timers that disagree, or a time under the roofline
floor refuse the candidate. Three numbers are kept:

* the *latency* that counts: single launches, operands cold (median of 50, median of 3 trials);
* *offline*: calls queued back to back, time per call;
* *server*: a call that arrives at an idle GPU, from the call to the synchronised result, host work included.
"""

from __future__ import annotations

import random
import shutil
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np

from ...datasets.protocol import floor_us
from .correctness import DISTRIBUTIONS
from .gemm import Gemm
from .harness_process import Draw, HarnessProcess, Misbehaved, Program, draws, problem_arguments
from .processes import scratch_folder

DISAGREEMENT: Final = 0.05
"""Largest relative difference of the timers."""
RESOLUTION_US: Final = 2.0
"""Difference of the timers that is always allowed: launch gaps differ by as much between kernels."""
GAP_QUANTILE: Final = 0.95
"""Of what events add to CUPTI's time of cuBLAS's launches: the gap that a launch may have."""
MOST_DISPUTED: Final = 0.1
"""Largest share of launches on which the timers may disagree: one may be disturbed now and then."""
WALL_SLACK_US: Final = 60.0
"""What synchronising and the profiler's own work may add to the wall-clock time of a call."""
DELAY_US: Final = 60.0
"""Least time that the stream is kept busy before a call, so that its launches leave no gaps."""
MOST_DELAY_US: Final = 20_000.0


@dataclass(frozen=True)
class Protocol:
    """Numbers of the protocol."""

    warmups: int = 10
    launches: int = 50
    trials: int = 3
    offline_us: float = 4000.0
    """GPU time that a back-to-back batch is sized for."""
    offline_batches: int = 5
    server_calls: int = 20


@dataclass(frozen=True)
class Times:
    """Times of one side, microseconds."""

    trial_us: tuple[float, ...]
    """Median of each trial's launches."""
    event_us: float
    """Second timer: median of all launches."""
    wall_us: float
    """Third timer: median of all launches, the delay before the call taken off."""
    host_us: float
    """Median time until the call returned."""
    gap_us: float
    """What events may add to CUPTI's time besides the host's: ``GAP_QUANTILE`` of what they add to that of cuBLAS."""
    disputed: float
    """Share of launches on which the first two timers disagree."""
    spread: float
    """Interquartile range of all launches, relative to the median."""
    offline_us: float
    server_us: float
    activities: tuple[str, ...]
    """Kernels, copies and memsets of one call."""

    @property
    def latency_us(self) -> float:
        """The time that counts: the median of the trials' medians."""
        return statistics.median(self.trial_us)

    def evidence(self) -> dict[str, Any]:
        """Return what a trace keeps."""
        return {
            "latency_us": round(self.latency_us, 3),
            "trial_us": [round(value, 3) for value in self.trial_us],
            "event_us": round(self.event_us, 3),
            "wall_us": round(self.wall_us, 3),
            "host_us": round(self.host_us, 3),
            "gap_us": round(self.gap_us, 3),
            "disputed": round(self.disputed, 3),
            "spread": round(self.spread, 5),
            "offline_us": round(self.offline_us, 3),
            "server_us": round(self.server_us, 3),
            "activities": list(self.activities),
        }


@dataclass(frozen=True)
class TimingCheck:
    """Verdict of the gate with its evidence."""

    passed: bool
    reason: str
    candidate: Times | None = None
    baseline: Times | None = None
    floor_us: float = 0.0
    details: Mapping[str, Any] = field(default_factory=dict)
    timed_out: bool = False

    @property
    def speedup(self) -> float:
        """Time of cuBLAS over that of the candidate; 0 if it was refused."""
        if not self.passed or self.candidate is None or self.baseline is None:
            return 0.0
        return self.baseline.latency_us / self.candidate.latency_us

    def evidence(self) -> dict[str, Any]:
        """Return what a trace keeps."""
        result: dict[str, Any] = {"passed": self.passed, "reason": self.reason, "floor_us": round(self.floor_us, 3)}
        for name, times in (("candidate", self.candidate), ("cublas", self.baseline)):
            if times is not None:
                result[name] = times.evidence()
        if self.candidate is not None and self.baseline is not None:
            result["speedup"] = {
                "latency": round(self.baseline.latency_us / self.candidate.latency_us, 4),
                "offline": round(self.baseline.offline_us / self.candidate.offline_us, 4),
                "server": round(self.baseline.server_us / self.candidate.server_us, 4),
            }
        return {**result, **self.details}


class _Refused(Exception):
    """The candidate did something that voids its times."""


@dataclass
class _Side:
    """One of the two processes, with the raw answers of its launches."""

    process: HarnessProcess
    rng: random.Random
    seconds: float
    trusted: bool
    delay_us: float = DELAY_US
    launches: list[dict[str, Any]] = field(default_factory=list)
    trials: list[list[float]] = field(default_factory=list)
    batches: list[float] = field(default_factory=list)
    served: list[float] = field(default_factory=list)

    def _ask(self, command: str, delay_us: float, **arguments: Any) -> dict[str, Any]:
        kind = DISTRIBUTIONS["normal"]
        operands = draws(*(Draw(kind, 1.0, self.rng.getrandbits(61)) for _ in range(2)))
        answer = self.process.ask(command, self.seconds, delay_ns=round(1e3 * delay_us), **operands, **arguments)
        if answer["stray"]:
            raise _Refused(f"{answer['stray']} GPU activities outside of the timed call")
        if not answer["activity_count"]:
            raise _Refused("the call does nothing on the GPU")
        if answer["wrong_rows"]:
            raise _Refused(f"{answer['wrong_rows']} rows of the output of a timed call are wrong")
        return answer

    def launch(self) -> dict[str, Any]:
        """Time one launch."""
        return self._ask("time", self.delay_us)

    def warm_up(self, count: int) -> None:
        """Run launches that do not count; they set the delay."""
        host = [self.launch()["host_us"] for _ in range(count)]
        self.delay_us = min(max(DELAY_US, 2.0 * statistics.median(host or [0.0])), MOST_DELAY_US)
        self.trials.append([])

    def record(self) -> None:
        """Run one launch that counts."""
        answer = self.launch()
        self.launches.append(answer)
        self.trials[-1].append(float(answer["span_us"]))

    def batch(self, calls: int) -> None:
        """Time calls back to back."""
        host = statistics.median(answer["host_us"] for answer in self.launches)
        answer = self._ask("batch", min(DELAY_US + 1.5 * calls * host, MOST_DELAY_US), calls=calls)
        self.batches.append(float(answer["span_us"]) / calls)
        if not self.trusted and not _agree(answer):
            raise _Refused(
                f"timers disagree on {calls} calls back to back: {answer['span_us']:.2f} µs by CUPTI, "
                f"{answer['event_us']:.2f} µs by events on the call's stream"
            )

    def serve(self) -> None:
        """Time a call that finds the GPU idle."""
        self.served.append(float(self._ask("serve", 0.0)["wall_us"]))

    def gap_us(self) -> float:
        """Return what the events may add to the time of a launch, by what they added to these."""
        added = [float(answer["event_us"]) - float(answer["span_us"]) for answer in self.launches]
        return max(float(np.quantile(added, GAP_QUANTILE)), 0.0)

    def times(self, gap_us: float) -> Times:
        """Summarise; events may add ``gap_us`` and the host's time to the time of a launch."""
        spans = sorted(value for trial in self.trials for value in trial)
        quarter = len(spans) // 4
        middle = statistics.median(spans)
        return Times(
            trial_us=tuple(statistics.median(trial) for trial in self.trials),
            event_us=statistics.median(float(answer["event_us"]) for answer in self.launches),
            wall_us=statistics.median(float(answer["wall_us"]) for answer in self.launches) - self.delay_us,
            host_us=statistics.median(float(answer["host_us"]) for answer in self.launches),
            gap_us=gap_us,
            disputed=sum(not _agree(answer, gap_us + float(answer["host_us"])) for answer in self.launches)
            / len(self.launches),
            spread=(spans[-1 - quarter] - spans[quarter]) / middle if middle > 0 else 0.0,
            offline_us=statistics.median(self.batches or [float("nan")]),
            server_us=statistics.median(self.served or [float("nan")]),
            activities=tuple(self.launches[-1]["activities"]),
        )


def _agree(answer: Mapping[str, Any], gap_us: float = 0.0) -> bool:
    """Tell whether CUPTI and the events, which may enclose a gap, say the same of one answer."""
    cupti_us, event_us = float(answer["span_us"]), float(answer["event_us"])
    tolerance = max(DISAGREEMENT * cupti_us, RESOLUTION_US)
    return -tolerance <= event_us - cupti_us <= tolerance + gap_us


def check_times(times: Times, floor: float) -> None:
    """Refuse times that cannot be true.

    Raises
    ------
    _Refused
        With the reason.
    """
    if times.disputed > MOST_DISPUTED:
        raise _Refused(
            f"timers disagree on {times.disputed:.0%} of the launches: medians are {times.latency_us:.2f} µs by CUPTI "
            f"and {times.event_us:.2f} µs by events on the call's stream"
        )
    if times.latency_us < floor:
        raise _Refused(f"{times.latency_us:.2f} µs is under the roofline floor of {floor:.2f} µs")
    # A host that is slower than the delay adds its own time.
    if times.wall_us > times.latency_us * (1.0 + DISAGREEMENT) + times.host_us + WALL_SLACK_US:
        raise _Refused(
            f"timers disagree: {times.latency_us:.2f} µs by CUPTI, {times.wall_us:.2f} µs until the device was idle"
        )


def check_timing(
    program: Program,
    library: Path,
    entry: str,
    gemm: Gemm,
    values: Mapping[str, int],
    referee: HarnessProcess,
    info: Mapping[str, Any],
    rng: random.Random,
    seconds: float,
    protocol: Protocol | None = None,
    known_kernels: Sequence[str] = (),
) -> TimingCheck:
    """Time a candidate against cuBLAS.

    Parameters
    ----------
    referee
        The reference process, started with activity records and calibrated.
    info
        Its answer to ``hello``.
    seconds
        Time limit of one command.
    known_kernels
        Mangled names of the kernels in the candidate's library; another one that runs is refused. Not checked if empty.
    """
    rules = protocol or Protocol()
    problem = gemm.problem(dict(values))
    floor = floor_us(problem, dict(info))
    with scratch_folder("timing") as folder:
        local = folder / "candidate.so"
        shutil.copyfile(library, local)
        referee.ask("problem", **problem_arguments(problem))
        referee.ask("calibrate")
        try:
            with HarnessProcess(program, "candidate", folder, trace=True) as process:
                process.ask("problem", seconds, **problem_arguments(problem))
                process.ask("calibrate", seconds)
                process.ask("load", seconds, path=str(local), entry=entry)
                ours = _Side(process, rng, seconds, trusted=False)
                theirs = _Side(referee, rng, seconds, trusted=True)
                _take_turns(ours, theirs, rng, rules)
                loaded = process.vendor_libraries()
        except Misbehaved as error:
            return TimingCheck(False, str(error), floor_us=floor, timed_out=error.kind == "timeout")
        except _Refused as error:
            return TimingCheck(False, str(error), floor_us=floor)
    gap_us = theirs.gap_us()
    candidate, baseline = ours.times(gap_us), theirs.times(gap_us)
    try:
        check_times(candidate, floor)
        if loaded:
            raise _Refused(f"the process has loaded {', '.join(loaded)}")
        foreign = [name for name in candidate.activities if known_kernels and not _known(name, known_kernels)]
        if foreign:
            raise _Refused(f"a kernel runs that is not in the library: {foreign[0]}")
    except _Refused as error:
        return TimingCheck(False, str(error), candidate, baseline, floor)
    return TimingCheck(True, "timed", candidate, baseline, floor)


def _known(name: str, kernels: Sequence[str]) -> bool:
    return name in ("memcpy", "memset") or name in kernels


def _take_turns(ours: _Side, theirs: _Side, rng: random.Random, rules: Protocol) -> None:
    """Run all launches of both sides, interleaved."""
    sides = [ours, theirs]
    for _ in range(rules.trials):
        for side in sides:
            side.warm_up(rules.warmups)
        for _ in range(rules.launches):
            rng.shuffle(sides)
            for side in sides:
                side.record()
    typical = statistics.median(theirs.trials[0])
    calls = int(min(max(rules.offline_us / max(typical, 1.0), 4), 64))
    for _ in range(rules.offline_batches):
        rng.shuffle(sides)
        for side in sides:
            side.batch(calls)
    for _ in range(rules.server_calls):
        rng.shuffle(sides)
        for side in sides:
            side.serve()
