"""Turns an evaluation and its tables into one JSON-ready dictionary: everything that a report shows."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from ..generator import columns as col
from ..generator import names
from .describe import describe
from .evaluation import BEST_OF, Evaluation, Result
from .explain import explain
from .methods import RankerMethod
from .metrics import best_of_k_summary, bootstrap, speedup, summarise
from .provenance import noise, provenance, trust, variant_counts
from .published import REGRETS, SOURCE, SPEEDUPS
from .regimes import Slice, regimes_of, slices
from .reliability import calibration
from .resampling import mean_interval

if TYPE_CHECKING:
    from ..datasets import Group, Tables

BASELINES: Final = ("nvmmh_mean", "nvmmh_best", "cublaslt_first", "cublaslt_best", "static_best")
"""Methods that the rankers are compared with problem by problem."""
WORST: Final = 10
"""Problems in the lists of the worst ones."""

_DIGITS: Final = 6


def build_summary(evaluation: Evaluation, tables: Tables, default: str, hardware: str, seed: int = 0) -> dict[str, Any]:
    """Return the report as a dictionary of plain values; the same data give the same dictionary.

    Parameters
    ----------
    evaluation
        Methods on the evaluation groups.
    tables
        The tables that the groups come from.
    default
        Name of the method whose speed-ups, per-problem picks and worst problems are shown.
    hardware
        Name of the hardware description that features were computed for.
    seed
        Seed of every bootstrap.
    """
    groups, results, shapes = evaluation.groups, evaluation.results, evaluation.shapes
    rankers = [name for name, result in results.items() if result.method.kind == "ranker"]
    everyone = np.ones(len(groups), dtype=bool)
    compared = {name: _speedups(evaluation, results[name].time_us, everyone, seed) for name in rankers}
    parts = slices(groups)
    report: dict[str, object] = {
        "default_model": default,
        "evaluation": {
            "groups": len(groups),
            "shapes": len(np.unique(shapes)),
            "listed_problems": int((tables.problems["split"] == "eval").sum()),
            "candidates": int(sum(len(group.time_us) for group in groups)),
            "hardware": hardware,
            "bootstrap_seed": seed,
            "nvmmh_variants": variant_counts(groups, tables),
        },
        "provenance": provenance(tables),
        "noise": noise(groups, tables),
        **trust(tables, seed),
        "methods": {name: _method(result, shapes, seed) for name, result in results.items()},
        "speedup": compared[default],
        "speedup_by_model": compared,
        "ceiling": _speedups(evaluation, evaluation.oracle_us, everyone, seed),
        "best_of_k": {name: _best_of(results[name], shapes, everyone, seed) for name in rankers},
        "calibration": {name: found for name in rankers if (found := calibration(evaluation, name, seed))},
        "regimes": {key: _slice(evaluation, default, part, seed) for key, part in parts.items()},
        "published": _published(evaluation, default, parts),
        "lacking": _lacking(evaluation, tables),
        "problems": [_problem(evaluation, i) for i in range(len(groups))],
        "worst": _worst(evaluation, default),
    }
    rounded = _rounded(report)
    assert isinstance(rounded, dict)
    return rounded


def _method(result: Result, shapes: NDArray[np.intp], seed: int) -> dict[str, object]:
    """Summary, intervals and coverage of one method on all groups."""
    return {
        "title": result.method.title,
        "kind": result.method.kind,
        **summarise(result.scores),
        "ci": bootstrap(result.scores, seed=seed, clusters=shapes),
        **_coverage(result.scores),
    }


def _coverage(scores: NDArray[np.float64]) -> dict[str, object]:
    """Count the groups with an answer."""
    answered = int((~np.isnan(scores[:, 0])).sum())
    return {"groups": answered, "coverage": answered / len(scores) if len(scores) else 0.0}


def _slice(evaluation: Evaluation, default: str, part: Slice, seed: int) -> dict[str, object]:
    """Every method on a slice, and what the default model and the oracle are worth there."""
    mask, shapes = part.mask, evaluation.shapes[part.mask]
    methods = {
        name: {
            **summarise(result.scores[mask]),
            "ci": {"mean_regret": mean_interval(result.scores[mask, 0], shapes, seed)},
            **_coverage(result.scores[mask]),
        }
        for name, result in evaluation.results.items()
    }
    return {
        "title": part.title,
        "rule": part.rule,
        "groups": int(mask.sum()),
        "methods": methods,
        "speedup": _speedups(evaluation, evaluation.results[default].time_us, mask, seed),
        "ceiling": _speedups(evaluation, evaluation.oracle_us, mask, seed),
        "best_of_k": _best_of(evaluation.results[default], evaluation.shapes, mask, seed),
    }


def _speedups(
    evaluation: Evaluation, chosen_us: NDArray[np.float64], mask: NDArray[np.bool_], seed: int
) -> dict[str, object]:
    """Speed-up of chosen times, µs, shape (groups,), over each baseline on the groups of a mask."""
    shapes = evaluation.shapes[mask]
    return {
        name: speedup(evaluation.results[name].time_us[mask], chosen_us[mask], seed=seed, clusters=shapes)
        for name in BASELINES
        if name in evaluation.results
    }


def _best_of(result: Result, shapes: NDArray[np.intp], mask: NDArray[np.bool_], seed: int) -> dict[str, object]:
    """Regret left after measuring the first k proposals, on the groups of a mask."""
    if result.best_of is None:
        return {}
    found = {str(k): best_of_k_summary(result.best_of[mask, i], seed, shapes[mask]) for i, k in enumerate(BEST_OF)}
    return {k: summary for k, summary in found.items() if summary}


def _published(evaluation: Evaluation, default: str, parts: dict[str, Slice]) -> dict[str, object]:
    """The paper's numbers with our closest ones beside; the slice of its shapes has fewer layouts where some lack."""
    paper = parts.get("source:paper")
    regrets = []
    for row in REGRETS:
        result = evaluation.results.get(row.ours)
        measured = None if paper is None or result is None else summarise(result.scores[paper.mask])
        regrets.append({**row._asdict(), "measured": measured})
    speedups = []
    for claim in SPEEDUPS:
        part, base = parts.get(claim.ours), evaluation.results.get("nvmmh_best")
        measured_speedup = None
        if part is not None and base is not None:
            measured_speedup = speedup(base.time_us[part.mask], evaluation.results[default].time_us[part.mask])
        speedups.append({**claim._asdict(), "measured": measured_speedup})
    groups = 0 if paper is None else int(paper.mask.sum())
    return {"source": SOURCE, "groups": groups, "regrets": regrets, "speedups": speedups}


def _problem(evaluation: Evaluation, index: int) -> dict[str, Any]:
    """One row of the per-problem table."""
    group = evaluation.groups[index]
    problem = group.problem
    best = _oracle_row(group)
    methods: dict[str, object] = {}
    for name, result in evaluation.results.items():
        entry: dict[str, object] = {
            "time_us": float(result.time_us[index]),
            "regret": float(result.scores[index, 0]),
        }
        if result.picks is not None and result.picks[index] >= 0:
            entry["pick"] = describe(group.columns, int(result.picks[index]))
        methods[name] = entry
    return {
        "m": problem.m,
        "n": problem.n,
        "k": problem.k,
        "layout": problem.layout,
        "dtype": problem.dtype.name,
        "sources": list(group.sources),
        "regimes": list(regimes_of(problem)),
        "candidates": len(group.time_us),
        "oracle_us": float(group.time_us[best]),
        "oracle_tflops": problem.flops / float(group.time_us[best]) * 1e-6,
        "oracle": describe(group.columns, best),
        "oracle_name": names(col.take(group.columns, np.array([best])), problem.dtype)[0],
        "methods": methods,
    }


def _oracle_row(group: Group) -> int:
    """Row of the fastest candidate that was timed in full."""
    return int(np.argmin(np.where(group.coarse, np.inf, group.time_us)))


def _worst(evaluation: Evaluation, name: str) -> list[dict[str, object]]:
    """The problems on which a ranker loses most, worst first, with reasons."""
    result = evaluation.results[name]
    method = result.method
    assert isinstance(method, RankerMethod)
    values = result.scores[:, 0]
    answered = np.flatnonzero(~np.isnan(values))
    rows: list[dict[str, object]] = []
    for index in answered[np.argsort(-values[answered], kind="stable")][:WORST].tolist():
        row = _problem(evaluation, index)
        reason = explain(method, evaluation.groups[index])
        rows.append(
            {
                **{key: row[key] for key in ("m", "n", "k", "layout", "oracle", "oracle_us")},
                **row["methods"][name],
                "reason": asdict(reason),
            }
        )
    return rows


def _lacking(evaluation: Evaluation, tables: Tables) -> list[dict[str, object]]:
    """Where cuBLASLt's best answer is furthest ahead of the oracle, worst first: what the catalogue lacks."""
    best = evaluation.results.get("cublaslt_best")
    if best is None:
        return []
    ratio = evaluation.oracle_us / best.time_us
    behind = np.flatnonzero(np.nan_to_num(ratio, nan=0.0) > 1.0)
    listed = tables.baselines[tables.baselines["method"] == "cublaslt_best"]
    algorithms = dict(zip(listed["problem_id"].tolist(), listed["algo"].tolist(), strict=True))
    rows: list[dict[str, object]] = []
    for index in behind[np.argsort(-ratio[behind], kind="stable")][:WORST].tolist():
        group = evaluation.groups[index]
        problem = group.problem
        rows.append(
            {
                "m": problem.m,
                "n": problem.n,
                "k": problem.k,
                "layout": problem.layout,
                "oracle": describe(group.columns, _oracle_row(group)),
                "oracle_us": float(evaluation.oracle_us[index]),
                "cublaslt_us": float(best.time_us[index]),
                "ratio": float(ratio[index]),
                "algo": str(algorithms.get(group.problem_id, "")),
            }
        )
    return rows


def _rounded(value: object) -> object:
    """Round floats to 6 significant digits, turn NaN and infinity into None and tuples into lists, all the way down."""
    if isinstance(value, dict):
        return {str(key): _rounded(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_rounded(item) for item in value]
    if isinstance(value, (float, np.floating)):
        return float(f"{value:.{_DIGITS}g}") if math.isfinite(value) else None
    if isinstance(value, np.integer):
        return int(value)
    return value
