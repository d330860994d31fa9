"""Checks the checker: kernels that say in their first line which gate must refuse them.

The first line of a source is ``// expect: GATE`` or ``// expect: GATE, WORDS``, with ``static``, ``correct``,
``instruction``, ``fast`` or ``pass`` for the gate, and words that the reason must contain.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

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
        return SuiteRow.of(self, outcome.evidence()).met

    def __str__(self) -> str:
        return self.gate + (f" ({self.words})" if self.words else "")


def read_expectation(path: Path) -> Expectation:
    """Read the first line of a source; raises :class:`DataError` if it says nothing."""
    return expectation_of(path.read_text(encoding="utf-8"), str(path))


def expectation_of(source: str, where: str) -> Expectation:
    """Read the first line of a source's text; raises :class:`DataError` if it says nothing."""
    match = re.fullmatch(r"// expect: (\w+)(?:, (.+))?", source.split("\n", 1)[0].strip())
    if match is None or match[1] not in GATES:
        raise DataError(f"{where}: the first line must be '// expect: GATE' with one of {', '.join(GATES)}")
    return Expectation(match[1], match[2] or "")


@dataclass(frozen=True)
class SuiteRow:
    """What became of one kernel of a suite."""

    kernel: str
    expectation: Expectation
    refused_by: str
    """A gate, or ``pass``."""
    seconds: float
    """Of all gates together."""
    reason: str

    @classmethod
    def of(cls, expectation: Expectation, evidence: Mapping[str, Any]) -> SuiteRow:
        """Make it from what the gates said."""
        seconds = sum(evidence["seconds"].values())
        return cls(evidence["solution"], expectation, evidence["failed_gate"] or "pass", seconds, evidence["reason"])

    @property
    def met(self) -> bool:
        """True if the right gate gave the right reason."""
        return self.refused_by == self.expectation.gate and self.expectation.words.lower() in self.reason.lower()


@dataclass(frozen=True)
class SuiteResult:
    """One kernel of a suite."""

    expectation: Expectation
    outcome: Outcome

    @property
    def row(self) -> SuiteRow:
        """Its line of the table."""
        return SuiteRow.of(self.expectation, self.outcome.evidence())

    @property
    def met(self) -> bool:
        """True if the outcome is the expected one."""
        return self.row.met


def run_suite(
    folder: Path, gemm: Gemm, values: dict[str, int], evaluator: Evaluator, only: Sequence[str] = ()
) -> list[SuiteResult]:
    """Evaluate the kernels of a folder (``*.cu``), all or those named."""
    solutions = [
        solution for solution in load_solutions(folder, gemm.definition.name) if not only or solution.name in only
    ]
    outcomes = evaluator.run(solutions, values)
    return [SuiteResult(read_expectation(folder / outcome.solution.entry_file), outcome) for outcome in outcomes]


def suite_table(rows: Sequence[SuiteRow]) -> str:
    """Return a Markdown table of a suite."""
    lines = ["| kernel | expected | refused by | as expected | s | why |", "|---|---|---|---|---|---|"]
    for row in rows:
        cells = (row.kernel, str(row.expectation), row.refused_by, "yes" if row.met else "**NO**", f"{row.seconds:.1f}")
        lines.append("| " + " | ".join((*cells, row.reason.replace("|", "/"))) + " |")
    met = sum(row.met for row in rows)
    return "\n".join(lines) + f"\n\n{met} of {len(rows)} as expected"


def read_expectations(table: str) -> dict[str, Expectation]:
    """Read what was expected of each kernel from a table made by :func:`suite_table`."""
    rows = re.finditer(r"^\| (\S+) \| (\w+)(?: \((.+?)\))? \| ", table, re.MULTILINE)
    return {row[1]: Expectation(row[2], row[3] or "") for row in rows if row[2] in GATES}
