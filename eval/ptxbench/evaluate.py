"""Runs candidates through the four gates and writes traces.

A candidate that fails *static* or *correct* goes no further. One that uses no target instruction is timed all the same:
it is correct, and its speed is reported apart. The fastest candidate of a workload is timed once more, in a new
process, before its time counts.
"""

from __future__ import annotations

import json
import random
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ...generator import DataError, MeasurementError
from .correctness import CorrectnessCheck, check_correctness, check_memory, plan_cases
from .gemm import Gemm
from .harness_process import HarnessProcess, Misbehaved, Program, build_harness
from .processes import scratch_folder
from .profiling import check_instructions, disassemble
from .sass import InstructionCheck, Used
from .schema import (
    Correctness,
    Evaluation,
    Performance,
    Solution,
    Source,
    Status,
    Trace,
    TraceSet,
    Workload,
    read_json,
    write_json,
)
from .static import Build, Builder, describe, useful_lines
from .timing import Protocol, TimingCheck, check_timing


@dataclass(frozen=True)
class Options:
    """How to evaluate."""

    jobs: int = 1
    """Compilers at once."""
    memory_jobs: int = 3
    """Sanitizers at once."""
    call_seconds: float = 30.0
    """Limit of one command of the candidate's process: its start, or one call."""
    tool_seconds: float = 240.0
    """Limit of a sanitizer or profiler run."""
    seed: int | None = None
    """Seed of hidden inputs; from the system unless given, as it must be where it counts."""
    protocol: Protocol = field(default_factory=Protocol)
    log: Callable[[str], None] = lambda _: None
    finished: Callable[[Outcome], None] = lambda _: None
    """Called with each outcome once its last gate has run, and again if it is timed again."""


@dataclass
class Outcome:
    """What the gates said of one candidate on one workload."""

    solution: Solution
    workload: Workload
    build: Build
    correctness: CorrectnessCheck | None = None
    instructions: InstructionCheck | None = None
    timing: TimingCheck | None = None
    first_timing: TimingCheck | None = None
    """The time before the retake, for a candidate that was timed again."""
    seconds: dict[str, float] = field(default_factory=dict)
    """Seconds that each gate took."""

    @property
    def status(self) -> Status:
        """Outcome in the terms of FlashInfer-Trace."""
        if not self.build.passed:
            return Status.COMPILE_ERROR
        if self.correctness is None or not self.correctness.passed:
            return Status.RUNTIME_ERROR if self.correctness is None else self.correctness.status
        if self.timing is None or not self.timing.passed:
            return Status.TIMEOUT if self.timing is not None and self.timing.timed_out else Status.RUNTIME_ERROR
        return Status.PASSED

    @property
    def failed_gate(self) -> str | None:
        """The first gate that refused the candidate; ``instruction`` if that alone did; None if all passed."""
        if not self.build.passed:
            return "static"
        if self.correctness is None or not self.correctness.passed:
            return "correct"
        if self.timing is None or not self.timing.passed:
            return "fast"
        return None if self.uses_instruction else "instruction"

    @property
    def uses_instruction(self) -> bool:
        """True if the target instruction was seen to be executed."""
        return self.instructions is not None and self.instructions.used is Used.YES

    @property
    def reason(self) -> str:
        """Say in one line what the deciding gate said."""
        gate = self.failed_gate
        if gate == "static":
            return describe(self.build)
        if gate == "correct":
            return self.correctness.reason if self.correctness is not None else "not run"
        if gate == "fast":
            return self.timing.reason if self.timing is not None else "not run"
        if gate == "instruction":
            return self.instructions.reason if self.instructions is not None else "not run"
        return "all gates passed"

    def evidence(self) -> dict[str, Any]:
        """Return the evidence of all gates that ran."""
        gates: dict[str, Any] = {"static": self.build.evidence()}
        if self.build.failed:
            gates["static"]["errors"] = useful_lines(self.build.log)
        for name, check in (("correct", self.correctness), ("instruction", self.instructions), ("fast", self.timing)):
            if check is not None:
                gates[name] = check.evidence()
        if self.first_timing is not None:
            gates["fast"]["before_retake"] = self.first_timing.evidence()
        return {
            "solution": self.solution.name,
            "definition": self.solution.definition,
            "axes": dict(self.workload.axes),
            "status": self.status.value,
            "failed_gate": self.failed_gate,
            "reason": self.reason,
            "gates": gates,
            "seconds": {gate: round(value, 2) for gate, value in self.seconds.items()},
        }

    def trace(self, info: Mapping[str, Any]) -> Trace:
        """Return the trace; its log holds the evidence as JSON."""
        correctness = performance = None
        status = self.status
        if status in (Status.PASSED, Status.INCORRECT_NUMERICAL) and self.correctness is not None:
            extra = {"cases": len(self.correctness.cases), "memcheck": dict(self.correctness.memcheck)}
            correctness = Correctness(self.correctness.max_relative_error, self.correctness.max_absolute_error, extra)
        timing = self.timing
        if (
            status is Status.PASSED
            and timing is not None
            and timing.candidate is not None
            and timing.baseline is not None
        ):
            performance = Performance(
                timing.candidate.latency_us * 1e-3, timing.baseline.latency_us * 1e-3, timing.speedup
            )
        libs = {name: str(info[name]) for name in ("driver_cuda", "cuda_runtime", "cupti", "cublaslt") if name in info}
        evaluation = Evaluation(
            status=status,
            hardware=str(info.get("gpu", "unknown")).replace(" ", "_"),
            libs={**libs, "nvcc": self.build.nvcc or "unknown"},
            timestamp=datetime.now(UTC).isoformat(timespec="seconds"),
            log=json.dumps(self.evidence(), ensure_ascii=False),
            correctness=correctness,
            performance=performance,
        )
        return Trace(self.solution.definition, self.workload, self.solution.name, evaluation)


def load_solutions(path: Path, definition: str, entry: str = "run") -> list[Solution]:
    """Read solutions: a JSON file, a CUDA source, a trace set, or a folder of these.

    Parameters
    ----------
    definition
        Name of the definition that CUDA sources solve; solutions of others are left out.
    entry
        Function of CUDA sources.

    Raises
    ------
    DataError
        If there is none.
    """
    if path.is_dir():
        files = sorted((path / "solutions").rglob("*.json")) or sorted(
            file for file in path.iterdir() if file.suffix in (".json", ".cu") and file.name != "pack.json"
        )
    else:
        files = [path]
    solutions = [_load_solution(file, definition, entry) for file in files]
    wanted = [solution for solution in solutions if solution.definition == definition]
    if not wanted:
        raise DataError(f"{path} holds no solution of {definition}")
    names = [solution.name for solution in wanted]
    if len(set(names)) != len(names):
        raise DataError(f"{path} holds two solutions of the same name")
    return wanted


def _load_solution(file: Path, definition: str, entry: str) -> Solution:
    if file.suffix == ".json":
        return Solution.from_dict(read_json(file))
    try:
        content = file.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise DataError(f"cannot read {file}: {error}") from error
    siblings = [other for other in sorted(file.parent.iterdir()) if other.suffix in (".h", ".cuh", ".hpp", ".inc")]
    headers = [Source(other.name, other.read_text(encoding="utf-8")) for other in siblings if other.name in content]
    return Solution(
        name=file.stem,
        definition=definition,
        author="unknown",
        language="cuda",
        target_hardware=("cuda",),
        entry_point=f"{file.name}::{entry}",
        sources=(Source(file.name, content), *headers),
    )


class Evaluator:
    """Evaluates candidates of one definition on the first visible GPU.

    Parameters
    ----------
    gemm
        The definition.
    cache
        Folder of builds: the checker's program and the candidates.

    Raises
    ------
    BuildError
        If something has to be built and cannot be.
    MeasurementError
        If there is no SM90 GPU, no CUPTI or no cuBLASLt.
    """

    def __init__(self, gemm: Gemm, cache: Path, options: Options | None = None) -> None:
        self.gemm = gemm
        self.options = options or Options()
        self.cache = cache
        self.builder = Builder(cache, self.options.jobs)
        seed = self.options.seed
        self._rng = random.Random(secrets.randbits(128) if seed is None else seed)
        self.info: dict[str, Any] = {}

    def run(self, solutions: Sequence[Solution], values: Mapping[str, int]) -> list[Outcome]:
        """Run all gates.

        Parameters
        ----------
        values
            Values of the free axes.
        """
        workload = self.gemm.workload(dict(values))
        self._say(f"gate 1, static: {len(solutions)} candidates")
        outcomes = [
            Outcome(solution, workload, build, seconds={"static": build.seconds})
            for solution, build in zip(solutions, self.builder.build_all(solutions), strict=True)
        ]
        built = self._passed(outcomes, lambda o: o.build.passed)
        if not built:
            return outcomes
        program = self._program()
        with scratch_folder("referee") as folder, self._referee(program, folder) as referee:
            self._say(f"gate 2, correct: {len(built)} candidates")
            for outcome in built:
                self._timed("correct", self._check_correct, outcome, program, values, referee)
            correct = self._passed(built, lambda o: o.correctness is not None and o.correctness.passed)
            with ThreadPoolExecutor(self.options.memory_jobs) as pool:
                list(pool.map(lambda o: self._timed("memcheck", self._check_memory, o, program, values), correct))
            correct = self._passed(correct, lambda o: o.correctness is not None and o.correctness.passed)
            self._say(f"gate 3, target instruction: {len(correct)} candidates")
            for outcome in correct:
                self._timed("instruction", self._check_instructions, outcome, program, values)
            self._say(f"gate 4, fast: {len(correct)} candidates")
            for outcome in correct:
                self._timed("fast", self._check_fast, outcome, program, values, referee)
                self.options.finished(outcome)
            self._confirm(correct, program, values, referee)
        return outcomes

    def _say(self, text: str) -> None:
        self.options.log(text)

    def _passed(self, outcomes: Sequence[Outcome], passed: Callable[[Outcome], bool]) -> list[Outcome]:
        """Return the outcomes that go on to the next gate; the others are finished."""
        for outcome in outcomes:
            if not passed(outcome):
                self.options.finished(outcome)
        return [outcome for outcome in outcomes if passed(outcome)]

    def _program(self) -> Program:
        """Build the program; see whether it works for an unprivileged user, who may not reach CUDA's libraries."""
        program = Program(build_harness(self.cache))
        with scratch_folder("user") as folder, HarnessProcess(program, "candidate", folder, trace=True) as candidate:
            try:
                candidate.ask("hello", 120.0)
            except Misbehaved as error:
                self._say(f"candidates run as the checker's own user: {error}")
                return Program(program.path, unprivileged=False)
        return program

    def _referee(self, program: Program, folder: Path) -> HarnessProcess:
        """Start the reference process."""
        referee = HarnessProcess(program, "reference", folder, trace=True)
        try:
            self.info = {**referee.ask("hello", 120.0), "unprivileged": program.unprivileged}
        except Misbehaved as error:
            referee.close()
            raise MeasurementError(f"the reference process does not start: {error}") from error
        return referee

    @staticmethod
    def _timed(gate: str, check: Callable[..., None], outcome: Outcome, *arguments: object) -> None:
        """Run a gate on an outcome and add up its seconds."""
        began = time.monotonic()
        check(outcome, *arguments)
        outcome.seconds[gate] = outcome.seconds.get(gate, 0.0) + time.monotonic() - began

    def _check_correct(
        self, outcome: Outcome, program: Program, values: Mapping[str, int], referee: HarnessProcess
    ) -> None:
        outcome.correctness = check_correctness(
            program, Path(outcome.build.library), outcome.build.entry, self.gemm,
            plan_cases(self.gemm, values, self._rng), referee, self.options.call_seconds,
        )  # fmt: skip
        self._say(f"  {outcome.solution.name}: {outcome.correctness.reason}")

    def _check_memory(self, outcome: Outcome, program: Program, values: Mapping[str, int]) -> None:
        before = outcome.correctness
        if before is None:
            return
        status, reason, evidence = check_memory(
            program, Path(outcome.build.library), outcome.build.entry, self.gemm, values,
            random.Random(self._rng.getrandbits(62)), self.options.tool_seconds,
        )  # fmt: skip
        passed = status is Status.PASSED
        outcome.correctness = CorrectnessCheck(
            before.status if passed else status,
            before.reason if passed else reason,
            before.cases,
            evidence,
            before.max_absolute_error,
            before.max_relative_error,
        )
        self._say(f"  {outcome.solution.name}: {reason}")

    def _check_instructions(self, outcome: Outcome, program: Program, values: Mapping[str, int]) -> None:
        outcome.instructions = check_instructions(
            program, Path(outcome.build.library), outcome.build.entry, self.gemm, values, self.options.tool_seconds
        )
        self._say(f"  {outcome.solution.name}: {outcome.instructions.used}, {outcome.instructions.reason}")

    def _check_fast(
        self, outcome: Outcome, program: Program, values: Mapping[str, int], referee: HarnessProcess
    ) -> None:
        disassembly = disassemble(Path(outcome.build.library))
        check = check_timing(
            program, Path(outcome.build.library), outcome.build.entry, self.gemm, values, referee, self.info, self._rng,
            self.options.call_seconds, self.options.protocol, disassembly.functions if disassembly is not None else (),
        )  # fmt: skip
        outcome.timing = check
        self._say(f"  {outcome.solution.name}: " + (f"{check.speedup:.3f} of cuBLAS" if check.passed else check.reason))

    def _confirm(
        self, outcomes: Sequence[Outcome], program: Program, values: Mapping[str, int], referee: HarnessProcess
    ) -> None:
        """Time the fastest again until the fastest is one that was timed again, so that no winner is luck."""
        while True:
            timed = [outcome for outcome in outcomes if outcome.timing is not None and outcome.timing.passed]
            best = max(timed, key=lambda o: o.timing.speedup if o.timing is not None else 0.0, default=None)
            if best is None or best.first_timing is not None:
                return
            best.first_timing = best.timing
            self._say(f"timed again: {best.solution.name}")
            self._timed("fast", self._check_fast, best, program, values, referee)
            self.options.finished(best)


def write_evidence(folder: Path, outcome: Outcome) -> None:
    """Write the evidence of one candidate as a file of its own; of a candidate that was timed again, over the first."""
    sizes = "_".join(f"{axis.lower()}{value}" for axis, value in outcome.workload.axes.items()) or "fixed"
    write_json(folder / "evidence" / f"{outcome.solution.name}-{sizes}.json", outcome.evidence())


def write_outcomes(folder: Path, gemm: Gemm, outcomes: Sequence[Outcome], info: Mapping[str, Any]) -> None:
    """Write a trace set with solutions and traces, and the evidence of each candidate as a file of its own."""
    traces = TraceSet(folder)
    traces.add_definition(gemm.definition)
    known = {trace.workload.uuid for trace in traces.workloads()}
    for outcome in outcomes:
        traces.add_solution(gemm.definition, outcome.solution)
        if outcome.workload.uuid not in known:
            known.add(outcome.workload.uuid)
            traces.add_traces(gemm.definition, [Trace(gemm.definition.name, outcome.workload)])
        traces.add_traces(gemm.definition, [outcome.trace(info)])
        write_evidence(folder, outcome)


def outcome_table(outcomes: Sequence[Outcome]) -> str:
    """Return a Markdown table of outcomes, the fastest first."""
    lines = [
        "| candidate | refused by | instruction | speed-up | µs | cuBLAS, µs | offline | server | spread | s | why |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]

    def order(outcome: Outcome) -> tuple[float, str]:
        return -(outcome.timing.speedup if outcome.timing is not None else 0.0), outcome.solution.name

    for outcome in sorted(outcomes, key=order):
        timing, used = outcome.timing, outcome.instructions
        cells = [outcome.solution.name, outcome.failed_gate or "", used.used.value if used is not None else ""]
        if timing is not None and timing.passed and timing.candidate is not None and timing.baseline is not None:
            ours, theirs = timing.candidate, timing.baseline
            cells += [
                f"{timing.speedup:.3f}", f"{ours.latency_us:.2f}", f"{theirs.latency_us:.2f}",
                f"{theirs.offline_us / ours.offline_us:.3f}", f"{theirs.server_us / ours.server_us:.3f}",
                f"{ours.spread:.1%}",
            ]  # fmt: skip
        else:
            cells += [""] * 6
        cells += [f"{sum(outcome.seconds.values()):.1f}", outcome.reason.replace("|", "/")]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)
