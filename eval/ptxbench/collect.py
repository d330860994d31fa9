"""Gathers what ``evaluate`` and ``suite`` wrote into one small place: ``baseline/`` and ``suite/``.

``baseline/`` is a trace set of all evaluated folders together. ``suite/`` holds traces and the table of outcomes only;
the sources of its kernels are where the suite was read from. Evidence is in the log of each trace.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from ...generator import DataError
from .schema import Definition, Solution, Trace, TraceSet
from .static import load_evidence, source_hash
from .suite import SuiteRow, expectation_of, suite_table

BASELINE: Final = "baseline"
SUITE: Final = "suite"
TABLE: Final = "suite.md"
_PARTS: Final = ("definitions", "solutions", "workloads", "traces")


def collect(folders: Sequence[Path], into: Path) -> dict[str, int]:
    """Gather evaluated folders; what the place held of the same kind is replaced.

    Parameters
    ----------
    folders
        Outputs of ``evaluate`` and, known by their ``suite.md``, of ``suite``. Of several traces of one solution on
        one workload, the last counts.
    into
        Folder for ``baseline/`` and ``suite/``.

    Returns
    -------
    dict
        Kind -> number of traces written.

    Raises
    ------
    DataError
        If a folder holds no trace, a trace has no solution or was made from another source, two solutions share a name,
        or there is more than one definition.
    """
    written: dict[str, int] = {}
    for kind in (BASELINE, SUITE):
        chosen = [folder for folder in folders if (folder / TABLE).is_file() == (kind == SUITE)]
        if chosen:
            definition, solutions, traces = _read(chosen)
            place = into / kind
            for part in _PARTS:
                shutil.rmtree(place / part, ignore_errors=True)
            written[kind] = len(traces)
            if kind == SUITE:
                TraceSet(place).add_traces(definition, traces)
                rows = [_suite_row(solutions[str(trace.solution)], trace) for trace in traces]
                (place / TABLE).write_text(suite_table(rows) + "\n", encoding="utf-8")
            else:
                _write_baseline(TraceSet(place), definition, solutions, traces)
    return written


def evidence_of(trace: Trace) -> dict[str, Any]:
    """Return the evidence in a trace's log; raises :class:`DataError` if there is none."""
    evidence = load_evidence(trace.evaluation.log if trace.evaluation is not None else "")
    if "gates" not in evidence:
        raise DataError(f"the trace of {trace.solution} has no evidence in its log; evaluate the solution")
    return evidence


def _read(folders: Sequence[Path]) -> tuple[Definition, dict[str, Solution], list[Trace]]:
    """Read and check folders of one kind: definition, solutions by name, traces in order of size and name."""
    definitions: dict[str, Definition] = {}
    solutions: dict[str, Solution] = {}
    traces: dict[tuple[tuple[tuple[str, int], ...], str], Trace] = {}
    for folder in folders:
        found = TraceSet(folder)
        definitions |= found.definitions()
        for solution in found.solutions():
            if solutions.setdefault(solution.name, solution) != solution:
                raise DataError(f"{folder}: another folder has a different solution named {solution.name}; rename one")
        evaluated = found.traces()
        if not evaluated:
            raise DataError(f"{folder} holds no traces; give folders that 'evaluate' or 'suite' wrote to")
        traces |= {(tuple(sorted(t.workload.axes.items())), str(t.solution)): t for t in evaluated}
    if len(definitions) != 1:
        raise DataError(f"there must be one definition, not {len(definitions)}: {', '.join(sorted(definitions))}")
    for (_, name), trace in traces.items():
        if name not in solutions:
            raise DataError(f"there is no solution {name}, which a trace is of")
        if evidence_of(trace)["gates"]["static"]["source_sha256"] != source_hash(solutions[name]):
            raise DataError(f"the trace of {name} was made from another source than the solution's; evaluate it again")
    return next(iter(definitions.values())), solutions, [traces[key] for key in sorted(traces)]


def _suite_row(solution: Solution, trace: Trace) -> SuiteRow:
    """Return the line of one kernel; its entry source says what was expected."""
    entry = next(source for source in solution.sources if source.path == solution.entry_file)
    return SuiteRow.of(expectation_of(entry.content, solution.name), evidence_of(trace))


def _write_baseline(
    place: TraceSet, definition: Definition, solutions: dict[str, Solution], traces: Sequence[Trace]
) -> None:
    """Write a trace set: the definition, and the solutions and workloads that there are traces of."""
    place.add_definition(definition)
    for name in sorted({str(trace.solution) for trace in traces}):
        place.add_solution(definition, solutions[name])
    workloads = {trace.workload.uuid: trace.workload for trace in traces}
    place.add_traces(definition, [Trace(definition.name, workload) for workload in workloads.values()])
    place.add_traces(definition, traces)
