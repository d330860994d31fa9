"""Checks the checker: kernels that say in their first line which gate must refuse them.

The first line of a source is ``// expect: GATE`` or ``// expect: GATE, WORDS``, with ``static``, ``correct``,
``instruction``, ``fast`` or ``pass`` for the gate, and words that the reason must contain.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ...generator import DataError
from .evaluate import Evaluator, Outcome, load_solutions
from .gemm import Gemm

GATES: Final = ("static", "correct", "instruction", "fast", "pass")


@dataclass(frozen=True)
class Expectation:
    """What a source says of itself."""

    gate: str
    words: str

    def met_by(self, outcome: Outcome) -> bool:
        """Tell whether the right gate gave the right reason."""
        return (outcome.failed_gate or "pass") == self.gate and self.words.lower() in outcome.reason.lower()


def read_expectation(path: Path) -> Expectation:
    """Read the first line of a source; raises :class:`DataError` if it says nothing."""
    first = path.read_text(encoding="utf-8").split("\n", 1)[0]
    match = re.fullmatch(r"// expect: (\w+)(?:, (.+))?", first.strip())
    if match is None or match[1] not in GATES:
        raise DataError(f"{path}: the first line must be '// expect: GATE' with one of {', '.join(GATES)}")
    return Expectation(match[1], match[2] or "")


@dataclass(frozen=True)
class SuiteResult:
    """One kernel of a suite."""

    expectation: Expectation
    outcome: Outcome

    @property
    def met(self) -> bool:
        """True if the outcome is the expected one."""
        return self.expectation.met_by(self.outcome)


def run_suite(
    folder: Path, gemm: Gemm, values: dict[str, int], evaluator: Evaluator, only: Sequence[str] = ()
) -> list[SuiteResult]:
    """Evaluate the kernels of a folder (``*.cu``), all or those named."""
    solutions = [
        solution for solution in load_solutions(folder, gemm.definition.name) if not only or solution.name in only
    ]
    outcomes = evaluator.run(solutions, values)
    return [SuiteResult(read_expectation(folder / outcome.solution.entry_file), outcome) for outcome in outcomes]


def suite_table(results: Sequence[SuiteResult]) -> str:
    """Return a Markdown table of a suite."""
    lines = ["| kernel | expected | refused by | as expected | s | why |", "|---|---|---|---|---|---|"]
    for result in results:
        outcome, expected = result.outcome, result.expectation
        words = f" ({expected.words})" if expected.words else ""
        seconds = f"{sum(outcome.seconds.values()):.1f}"
        verdict = "yes" if result.met else "**NO**"
        cells = (outcome.solution.name, expected.gate + words, outcome.failed_gate or "pass", verdict, seconds)
        lines.append("| " + " | ".join((*cells, outcome.reason.replace("|", "/"))) + " |")
    met = sum(result.met for result in results)
    return "\n".join(lines) + f"\n\n{met} of {len(results)} as expected"
