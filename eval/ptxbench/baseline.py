"""Sums up the baseline's traces: how fast the selector's candidates are against cuBLAS, and what the gates said.

What a candidate is, its name tells: ``..._01_selector`` is the selector's first, ``..._09_retrieved`` comes from the
nearest measured problems, ``oracle_...`` is the fastest measured kernel of the catalogue.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterable, Sequence
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any, Final

from ...generator import Candidate, DataError, InvalidConfig, Problem, parse_name
from ...generator import columns as col
from ..describe import describe
from .collect import BASELINE, SUITE, TABLE, evidence_of
from .gemm import Gemm, read_gemm
from .schema import Solution, Trace, TraceSet
from .suite import GATES, SuiteRow, read_expectations

FINDINGS: Final = "FINDINGS.md"
STEPS: Final = ("static", "correct", "memcheck", "instruction", "fast")
"""What seconds are kept of: the gates, and the sanitizer's run of the second gate."""


def summarise_shipped() -> dict[str, Any]:
    """Sum up the traces that the package ships; empty if it ships none."""
    with as_file(files(__package__) / "data") as folder:
        return summarise(folder)


def summarise(folder: Path) -> dict[str, Any]:
    """Sum up a folder that :func:`~.collect.collect` wrote.

    Parameters
    ----------
    folder
        Holds ``baseline/`` and, if there are such, ``suite/`` and ``FINDINGS.md``.

    Returns
    -------
    dict
        JSON-ready; empty if there are no traces of a baseline. ``sizes`` lists for each value of M the ``candidates``
        and ``picks``: the selector's first, the best seed, the best retrieved one and the oracle, of those there are.
        Times in microseconds, speed-ups as time of cuBLAS over time of the candidate.

    Raises
    ------
    DataError
        If a trace is not what the checker writes.
    """
    baseline = TraceSet(folder / BASELINE)
    traces = baseline.traces()
    if not traces:
        return {}
    gemm = read_gemm(baseline.definitions()[traces[0].definition])
    solutions = {solution.name: solution for solution in baseline.solutions()}
    by_size: dict[int, list[Trace]] = {}
    for trace in traces:
        by_size.setdefault(gemm.problem(dict(trace.workload.axes)).m, []).append(trace)
    environments = [trace.evaluation for trace in traces if trace.evaluation is not None]
    findings = folder / FINDINGS
    return {
        "definition": gemm.definition.name,
        "hardware": sorted({one.hardware.replace("_", " ") for one in environments}),
        "libs": sorted({", ".join(f"{name} {version}" for name, version in one.libs.items()) for one in environments}),
        "days": sorted({one.timestamp[:10] for one in environments}),
        "sizes": [_size(gemm, by_size[m], solutions) for m in sorted(by_size)],
        "suite": _suite(folder / SUITE),
        "findings": findings.read_text(encoding="utf-8").strip() if findings.is_file() else "",
    }


def _size(gemm: Gemm, traces: Sequence[Trace], solutions: dict[str, Solution]) -> dict[str, Any]:
    """Sum up the candidates of one workload."""
    problem = gemm.problem(dict(traces[0].workload.axes))
    candidates = [_candidate(trace, solutions[str(trace.solution)], problem) for trace in traces]
    candidates.sort(key=lambda one: (("selector", "retrieved", "oracle", "other").index(one["origin"]), one["name"]))
    baselines = [one["cublas_us"] for one in candidates if one["cublas_us"] is not None]
    works = {str(one["cublas_work"]) for one in candidates if one["cublas_work"]}
    return {
        "m": problem.m,
        "n": problem.n,
        "k": problem.k,
        "layout": problem.layout,
        "dtype": problem.dtype.name,
        "cublas_us": round(statistics.median(baselines), 3) if baselines else None,
        "cublas_range_us": [min(baselines), max(baselines)] if baselines else [None, None],
        "cublas_work": sorted(works),
        "floor_us": max((one["floor_us"] for one in candidates if one["floor_us"] is not None), default=None),
        "picks": _picks(candidates),
        "seconds": _mean_seconds(candidates),
        "candidates": candidates,
    }


def _candidate(trace: Trace, solution: Solution, problem: Problem) -> dict[str, Any]:
    """Read what the gates said of one candidate. Times are None unless it was timed and its time was believed."""
    evidence = evidence_of(trace)
    gates, fast = evidence["gates"], evidence["gates"].get("fast", {})
    used = gates.get("instruction", {}).get("used")
    passed = {name: gates[name]["passed"] if name in gates else None for name in ("static", "correct", "fast")}
    origin, rank = _origin(solution.name)
    result: dict[str, Any] = {
        "name": solution.name,
        "origin": origin,
        "rank": rank,
        "kernel": _kernel(solution, problem),
        "failed_gate": evidence["failed_gate"],
        "reason": evidence["reason"],
        "gates": {**passed, "instruction": used},
        "seconds": evidence["seconds"],
        "timed_again": "before_retake" in fast,
        "floor_us": fast.get("floor_us"),
    }
    if not passed["fast"]:
        nothing = ("latency_us", "cublas_us", "cublas_work", "speedup", "spread", "cublas_spread", "offline", "server")
        return {**result, **dict.fromkeys(nothing), "speedup_range": [None, None]}
    ours, theirs, speedup = fast["candidate"], fast["cublas"], fast["speedup"]
    # The two sides took turns within each trial, so that trials compare one by one.
    trials = [round(base / mine, 4) for mine, base in zip(ours["trial_us"], theirs["trial_us"], strict=True)]
    return {
        **result,
        "latency_us": ours["latency_us"],
        "cublas_us": theirs["latency_us"],
        "cublas_work": " + ".join(theirs["activities"]),
        "speedup": speedup["latency"],
        "speedup_range": [min(trials), max(trials)],
        "spread": ours["spread"],
        "cublas_spread": theirs["spread"],
        "offline": speedup["offline"],
        "server": speedup["server"],
    }


def _origin(name: str) -> tuple[str, int | None]:
    """Read the origin and the rank of a candidate in its name."""
    if name.startswith("oracle"):
        return "oracle", None
    match = re.search(r"_(\d+)_(selector|retrieved)$", name)
    return (match[2], int(match[1])) if match is not None else ("other", None)


def _kernel(solution: Solution, problem: Problem) -> str:
    """Describe the kernel and the launch of a seed in a reader's words, as its description names them."""
    name, *rest = (solution.description or "").split("; ")
    try:
        config = parse_name(name)
    except InvalidConfig:
        return solution.description or ""
    candidate = Candidate(config, swapped=config.family != problem.layout)
    return ", ".join([describe(col.from_candidates([candidate]), 0), *(part for part in rest[:1] if part != "default")])


def _picks(candidates: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Choose the selector's first, and the fastest that passed all gates of the seeds, the retrieved, the oracles."""
    seeds = [one for one in candidates if one["rank"] is not None]
    groups = {
        "first": ("selector's first", [one for one in seeds if one["rank"] == 1]),
        "best": (f"best of {len(seeds)}", seeds),
        "retrieved": ("retrieved", [one for one in candidates if one["origin"] == "retrieved"]),
        "oracle": ("oracle", [one for one in candidates if one["origin"] == "oracle"]),
    }
    picks = []
    for key, (title, members) in groups.items():
        if key != "first":
            members = [one for one in members if one["failed_gate"] is None]
        if members:
            picks.append({"key": key, "title": title, **max(members, key=lambda one: one["speedup"] or 0.0)})
    return picks


def _mean_seconds(evaluated: Iterable[dict[str, Any]]) -> dict[str, float | None]:
    """Return the mean seconds of each step over the candidates that got so far, and of all steps over all."""
    spent = [one["seconds"] for one in evaluated]
    steps = {step: [seconds[step] for seconds in spent if step in seconds] for step in STEPS}
    steps["all"] = [sum(seconds.values()) for seconds in spent]
    return {step: round(statistics.mean(values), 2) if values else None for step, values in steps.items()}


def _suite(folder: Path) -> dict[str, Any]:
    """Sum up what the gates caught of the suite; empty if it was not run."""
    evidence = [evidence_of(trace) for trace in TraceSet(folder).traces()]
    if not evidence:
        return {}
    table = folder / TABLE
    expected = read_expectations(table.read_text(encoding="utf-8")) if table.is_file() else {}
    names = [one["solution"] for one in evidence]
    if sorted(names) != sorted(expected):
        raise DataError(f"{table} does not list the kernels that there are traces of; gather the suite again")
    rows = [SuiteRow.of(expected[one["solution"]], one) for one in evidence]
    return {
        "kernels": len(rows),
        "met": sum(row.met for row in rows),
        "gates": {gate: [row.kernel for row in rows if row.refused_by == gate] for gate in GATES},
        "seconds": _mean_seconds(evidence),
        "rows": [
            {
                "kernel": row.kernel,
                "expected": str(row.expectation),
                "refused_by": row.refused_by,
                "met": row.met,
                "seconds": round(row.seconds, 1),
                "reason": row.reason,
            }
            for row in rows
        ],
    }
