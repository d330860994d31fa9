"""Gate 2: right results on inputs that the writer could not know, memory left alone, nothing cached.

The candidate's process fills operands from seeds, poisons the output, calls the candidate and hands the raw output over
in a file. The reference process, which never loads the candidate, makes the same operands and decides.
"""

from __future__ import annotations

import random
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from ...generator import MeasurementError, Problem
from .gemm import Gemm
from .harness_process import (
    Draw,
    HarnessProcess,
    Misbehaved,
    Program,
    draws,
    output_file,
    problem_arguments,
    run_script,
)
from .processes import scratch_folder
from .schema import Status

TOLERANCE: Final = 1e-2
"""atol and rtol."""
DISTRIBUTIONS: Final = {"normal": 0, "uniform": 1, "integer": 2, "outlier": 3, "blocks": 4}
"""As in ``harness/kernels.h``."""
HIDDEN_RANGES: Final = ((1, 63), (65, 320), (321, 1500))
"""Where the hidden sizes of a free axis are drawn from."""
MEMCHECK_RANGE: Final = (129, 300)
SANITIZER_ERRORS: Final = 77
"""Exit status of the sanitizer if it found something."""


@dataclass(frozen=True)
class Case:
    """One call on fresh inputs."""

    values: Mapping[str, int]
    """Values of the free axes."""
    hidden: bool
    """True if the writer was not shown these sizes."""
    buffers: int
    """Which of two sets of buffers; the second case in a set finds other inputs at the same addresses."""
    distribution: str
    a: Draw
    b: Draw


@dataclass(frozen=True)
class CorrectnessCheck:
    """Verdict of the gate with its evidence."""

    status: Status
    reason: str
    cases: tuple[Mapping[str, Any], ...] = ()
    """One entry a case that ran: sizes, distribution, errors, first wrong elements; no seeds."""
    memcheck: Mapping[str, Any] = field(default_factory=dict)
    max_absolute_error: float = 0.0
    max_relative_error: float = 0.0

    @property
    def passed(self) -> bool:
        """True if every case is right and memory was left alone."""
        return self.status is Status.PASSED

    def evidence(self) -> dict[str, Any]:
        """Return what a trace keeps."""
        return {
            "passed": self.passed,
            "status": self.status.value,
            "reason": self.reason,
            "cases": [dict(case) for case in self.cases],
            "memcheck": dict(self.memcheck),
            "tolerance": TOLERANCE,
        }


def _scaled(gemm: Gemm, values: Mapping[str, int]) -> float:
    """Return the power of two that brings outputs of normal operands near a standard deviation of 1."""
    import math

    return float(2.0 ** -round(math.log2(gemm.problem(dict(values)).k) / 4.0))


def plan_cases(gemm: Gemm, values: Mapping[str, int], rng: random.Random) -> list[Case]:
    """Draw the cases: the public sizes three times, then hidden ones where the definition leaves an axis free.

    Parameters
    ----------
    values
        The public values of the free axes.
    rng
        Source of sizes and seeds; unknown to the writer.
    """

    def case(sizes: Mapping[str, int], hidden: bool, buffers: int, distribution: str, scale: float) -> Case:
        kind = DISTRIBUTIONS[distribution]
        a, b = (Draw(kind, scale, rng.getrandbits(62)) for _ in range(2))
        return Case(dict(sizes), hidden, buffers, distribution, a, b)

    scale = _scaled(gemm, values)
    # 1.0 and normal is what torch.randn gives, which flashinfer-bench uses.
    cases = [
        case(values, False, 0, "normal", 1.0),
        case(values, False, 1, "blocks", scale),
        case(values, False, 0, "uniform", scale),
    ]
    for low, high in HIDDEN_RANGES if gemm.free_axes else ():
        sizes = hidden_sizes(gemm, values, low, high, rng)
        cases += [
            case(sizes, True, 0, "normal", scale),
            case(sizes, True, 1, rng.choice(("outlier", "integer")), scale),
        ]
    return cases


def hidden_sizes(gemm: Gemm, values: Mapping[str, int], low: int, high: int, rng: random.Random) -> dict[str, int]:
    """Draw a size for the first free axis, other than the public one.

    Other free axes keep their public values; a size along which a matrix is contiguous stays a multiple of 8.
    """
    sizes = dict(values)
    axis = gemm.free_axes[0]
    m, n, k = gemm.axes
    letters = gemm.layout
    contiguous = {k if letters[0] == "T" else m, n if letters[1] == "T" else k, n if letters[2] == "T" else m}
    step = 8 if axis in contiguous else 1
    while True:
        size = max(step, rng.randint(low, high) // step * step)
        if size != values[axis]:
            sizes[axis] = size
            return sizes


def check_correctness(
    program: Program,
    library: Path,
    entry: str,
    gemm: Gemm,
    cases: Sequence[Case],
    referee: HarnessProcess,
    seconds: float,
) -> CorrectnessCheck:
    """Run the cases in a process of the candidate's own.

    Parameters
    ----------
    program
        The checker's program.
    library, entry
        The candidate and its function.
    referee
        A running reference process; only one caller may use it at a time.
    seconds
        Time limit of one call, start of the process included.
    """
    largest = max((gemm.problem(dict(case.values)) for case in cases), key=lambda p: p.m * p.n)
    done: list[Mapping[str, Any]] = []
    with scratch_folder("check") as folder, output_file(folder, 2 * largest.m * largest.n) as output:
        local = folder / "candidate.so"
        shutil.copyfile(library, local)
        referee.ask("output", path=str(output.path))
        try:
            with HarnessProcess(program, "candidate", folder, trace=False) as candidate:
                candidate.ask("output", seconds, path=str(output.path))
                candidate.ask("load", seconds, path=str(local), entry=entry)
                previous: Mapping[str, int] | None = None
                for case in cases:
                    if case.values != previous:
                        arguments = problem_arguments(gemm.problem(dict(case.values)))
                        candidate.ask("problem", seconds, **arguments)
                        referee.ask("problem", **arguments)
                        previous = case.values
                    memory = candidate.ask("case", seconds, set=case.buffers, **draws(case.a, case.b))
                    verdict = referee.ask("judge", atol=TOLERANCE, rtol=TOLERANCE, **draws(case.a, case.b))
                    done.append(_entry(case, memory, verdict))
                    failure = _failure(case, memory, verdict, gemm.problem(dict(case.values)))
                    if failure is not None:
                        return _check(failure[0], failure[1], done)
                loaded = candidate.vendor_libraries()
                if loaded:
                    return _check(Status.RUNTIME_ERROR, f"the process has loaded {', '.join(loaded)}", done)
        except Misbehaved as error:
            where = _where(cases[len(done)]) if len(done) < len(cases) else "the end"
            status = Status.TIMEOUT if error.kind == "timeout" else Status.RUNTIME_ERROR
            return _check(status, f"{where}: {error}", done)
    return _check(Status.PASSED, "all cases are right", done)


def _where(case: Case) -> str:
    return "a hidden size" if case.hidden else "the given size"


def _entry(case: Case, memory: Mapping[str, Any], verdict: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "axes": dict(case.values),
        "hidden": case.hidden,
        "buffers": case.buffers,
        "distribution": case.distribution,
        **memory,
        **verdict,
    }


def _failure(
    case: Case, memory: Mapping[str, Any], verdict: Mapping[str, Any], problem: Problem
) -> tuple[Status, str] | None:
    """Say what is wrong with a case; None if nothing is."""
    where, total = _where(case), problem.m * problem.n
    if memory["inputs_changed"]:
        return Status.RUNTIME_ERROR, f"{where}: the inputs were overwritten"
    if memory["guard_bytes"]:
        return Status.RUNTIME_ERROR, f"{where}: memory around the matrices was overwritten"
    wrong, unwritten = int(verdict["wrong"]), int(verdict["unwritten"])
    if not wrong:
        return None
    # Shares, not counts: these would tell a hidden size.
    if unwritten == wrong:
        return Status.INCORRECT_SHAPE, f"{where}: {unwritten / total:.3%} of the elements were not written"
    share = f"{wrong / total:.3%} of the elements are wrong, {unwritten / total:.3%} were not written"
    return Status.INCORRECT_NUMERICAL, f"{where}: {share}"


def _check(status: Status, reason: str, cases: Sequence[Mapping[str, Any]]) -> CorrectnessCheck:
    return CorrectnessCheck(
        status,
        reason,
        tuple(cases),
        max_absolute_error=max((float(case["max_absolute_error"]) for case in cases), default=0.0),
        max_relative_error=max((float(case["max_relative_error"]) for case in cases), default=0.0),
    )


def find_tool(name: str) -> str | None:
    """Return a tool of the CUDA toolkit: on the path, or where toolkits lie."""
    places = ["/usr/local/cuda/bin", "/usr/local/cuda/compute-sanitizer"]
    places += sorted(str(folder) for folder in Path("/opt/nvidia/nsight-compute").glob("*/"))
    return shutil.which(name) or next((found for place in places if (found := shutil.which(name, path=place))), None)


def check_memory(
    program: Program,
    library: Path,
    entry: str,
    gemm: Gemm,
    values: Mapping[str, int],
    rng: random.Random,
    seconds: float,
) -> tuple[Status, str, dict[str, Any]]:
    """Run two calls under ``compute-sanitizer --tool memcheck``, on buffers of exactly the right size.

    Returns
    -------
    tuple
        Status, reason, and the tool's findings.

    Raises
    ------
    MeasurementError
        If the sanitizer is missing.
    """
    tool = find_tool("compute-sanitizer")
    if tool is None:
        raise MeasurementError("compute-sanitizer is missing; it comes with the CUDA toolkit")
    sizes = hidden_sizes(gemm, values, *MEMCHECK_RANGE, rng) if gemm.free_axes else dict(values)
    problem = gemm.problem(sizes)
    with scratch_folder("memcheck") as folder, output_file(folder, 2 * problem.m * problem.n) as output:
        local = folder / "candidate.so"
        shutil.copyfile(library, local)
        a, b = (Draw(DISTRIBUTIONS["normal"], 1.0, rng.getrandbits(62)) for _ in range(2))
        commands: list[tuple[str, dict[str, Any]]] = [
            ("output", {"path": output.path}),
            ("load", {"path": local, "entry": entry}),
            ("problem", problem_arguments(problem, guarded=False)),
            ("case", {"set": 0, **draws(a, b)}),
            ("case", {"set": 1, **draws(b, a)}),
        ]
        prefix = [tool, "--tool", "memcheck", "--error-exitcode", str(SANITIZER_ERRORS), "--print-limit", "20"]
        prefix += ["--report-api-errors", "no"]  # what fails without harm is the candidate's own affair
        done, answers = run_script(program, prefix, commands, folder, seconds)
    findings = sanitizer_findings(done.output)
    evidence = {
        "tool": "memcheck",
        "findings": findings,
        "seconds": round(done.seconds, 2),
        "calls": max(0, len(answers) - 3),
    }
    if findings:
        return Status.RUNTIME_ERROR, f"memcheck: {findings[0]['what']}", evidence
    if done.timed_out:
        return Status.TIMEOUT, f"memcheck took over {seconds:.0f} s", evidence
    failed = next((str(answer["failed"]) for answer in answers if "failed" in answer), None)
    if failed is not None:
        return Status.RUNTIME_ERROR, f"memcheck: {failed}", evidence
    if done.returncode != 0 or len(answers) != len(commands):
        last = (done.output.strip().splitlines() or [""])[-1]
        return Status.RUNTIME_ERROR, f"memcheck: the process ended early ({last[:200]})", evidence
    return Status.PASSED, "memcheck found nothing", evidence


def sanitizer_findings(text: str, most: int = 8) -> list[dict[str, Any]]:
    """Read what compute-sanitizer prints: one entry a kind of error and place, with how often it came."""
    found: dict[tuple[str, str], int] = {}
    lines = [line.removeprefix("=========").strip() for line in text.splitlines() if line.startswith("=========")]
    pattern = re.compile(r"(Invalid |Program hit |Misaligned |Out-of-|Uninitialized |Leaked |Error: |Fatal UVM).*")
    for index, line in enumerate(lines):
        match = pattern.match(line)
        if match is None or "ERROR SUMMARY" in line:
            continue
        place = next((item for item in lines[index + 1 : index + 3] if item.startswith("at ")), "")
        found[match[0][:200], place[:200]] = found.get((match[0][:200], place[:200]), 0) + 1
    return [{"what": what, "where": where, "count": count} for (what, where), count in list(found.items())[:most]]
