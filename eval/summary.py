"""Turns an evaluation and its tables into one JSON-ready dictionary: everything that a report shows."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import TYPE_CHECKING, Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ..datasets.info import noise_floor
from ..generator import Columns, Decomposition, Epilogue, Raster, Schedule, Scheduler, names
from ..generator import columns as col
from .evaluation import BEST_OF, Evaluation, Result
from .methods import NvmmhVariants
from .metrics import bootstrap, speedup, summarise
from .regimes import regimes_of, slices

if TYPE_CHECKING:
    from ..datasets import Group, Tables

BASELINES: Final = ("nvmmh_mean", "nvmmh_best", "cublaslt_first", "cublaslt_best", "static_best")
"""Methods that the rankers are compared with problem by problem."""

_DIGITS: Final = 6


def describe(columns: Columns, row: int) -> str:
    """Return a candidate in a reader's words, e.g. ``128x256x64 2x1, 4 stages, pingpong/tma, swizzle 8, swapped``."""
    value = {name: int(columns[name][row]) for name in col.CANDIDATE_COLUMNS}
    schedule = f"{Schedule(value['schedule']).name.lower()}/{Epilogue(value['epilogue']).name.lower()}"
    words = [
        f"{value['tile_m']}x{value['tile_n']}x{value['tile_k']} {value['cluster_m']}x{value['cluster_n']}",
        f"{value['stages']} stages",
        schedule,
    ]
    if value["scheduler"] == Scheduler.STREAM_K:
        words.append("stream_k")
    if value["raster"] != Raster.HEURISTIC:
        words.append(Raster(value["raster"]).name.lower().replace("_", " "))
    if value["swizzle"] > 1:
        words.append(f"swizzle {value['swizzle']}")
    if value["decomposition"] == Decomposition.SPLIT_K:
        words.append(f"{value['splits']} splits")
    elif value["decomposition"] != Decomposition.HEURISTIC:
        words.append(Decomposition(value["decomposition"]).name.lower().replace("_", " "))
    if value["swapped"]:
        words.append("swapped")
    return ", ".join(words)


def build_summary(
    evaluation: Evaluation, tables: Tables, default: str, hardware: str, seed: int = 0
) -> dict[str, object]:
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
    groups, results = evaluation.groups, evaluation.results
    rankers = [name for name, result in results.items() if result.method.kind == "ranker"]
    everyone = np.ones(len(groups), dtype=bool)
    compared = {name: _speedups(evaluation, name, everyone, seed) for name in rankers}
    report: dict[str, object] = {
        "default_model": default,
        "evaluation": {
            "groups": len(groups),
            "listed_problems": int((tables.problems["split"] == "eval").sum()),
            "candidates": int(sum(len(group.time_us) for group in groups)),
            "hardware": hardware,
            "bootstrap_seed": seed,
            "nvmmh_variants": _variant_counts(groups, tables),
        },
        "provenance": _provenance(tables),
        "noise": _noise(groups, tables),
        "methods": {name: _method(result, everyone, seed) for name, result in results.items()},
        "speedup": compared[default],
        "speedup_by_model": compared,
        "ceiling": {
            name: _plain(speedup(results[name].time_us, evaluation.oracle_us, seed=seed))
            for name in BASELINES
            if name in results
        },
        "best_of_k": {name: _best_of(results[name]) for name in rankers},
        "regimes": {
            key: {
                "title": part.title,
                "rule": part.rule,
                "groups": int(part.mask.sum()),
                "methods": {name: _method(result, part.mask, seed) for name, result in results.items()},
                "speedup": _speedups(evaluation, default, part.mask, seed),
            }
            for key, part in slices(groups).items()
        },
        "problems": [_problem(evaluation, i) for i in range(len(groups))],
        "worst": _worst(evaluation, default),
    }
    rounded = _rounded(report)
    assert isinstance(rounded, dict)
    return rounded


def _method(result: Result, mask: NDArray[np.bool_], seed: int) -> dict[str, object]:
    """Summary, intervals and coverage of one method on the groups of a mask."""
    scores = result.scores[mask]
    answered = int((~np.isnan(scores[:, 0])).sum())
    return {
        "title": result.method.title,
        "kind": result.method.kind,
        **summarise(scores),
        "ci": {name: list(bounds) for name, bounds in bootstrap(scores, seed=seed).items()},
        "groups": answered,
        "coverage": answered / len(scores) if len(scores) else 0.0,
    }


def _speedups(evaluation: Evaluation, name: str, mask: NDArray[np.bool_], seed: int) -> dict[str, object]:
    """Speed-up of one method over each baseline on the groups of a mask."""
    chosen = evaluation.results[name].time_us[mask]
    return {
        baseline: _plain(speedup(evaluation.results[baseline].time_us[mask], chosen, seed=seed))
        for baseline in BASELINES
        if baseline in evaluation.results
    }


def _plain(values: dict[str, object]) -> dict[str, object]:
    """Turn tuples into lists, as JSON has them."""
    return {key: list(value) if isinstance(value, tuple) else value for key, value in values.items()}


def _best_of(result: Result) -> dict[str, object]:
    """Regret left after measuring the first k proposals."""
    assert result.best_of is not None
    values = result.best_of[~np.isnan(result.best_of[:, 0])]
    if not len(values):
        return {}
    return {
        str(k): {
            "mean_regret": float(values[:, i].mean()),
            "within_1": float((values[:, i] <= 0.01).mean()),
            "within_5": float((values[:, i] <= 0.05).mean()),
        }
        for i, k in enumerate(BEST_OF)
    }


def _problem(evaluation: Evaluation, index: int) -> dict[str, object]:
    """One row of the per-problem table."""
    group = evaluation.groups[index]
    problem = group.problem
    best = int(np.argmin(np.where(group.coarse, np.inf, group.time_us)))
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


def _worst(evaluation: Evaluation, name: str, count: int = 10) -> list[dict[str, object]]:
    """The problems on which a ranker loses most, worst first."""
    values = evaluation.results[name].scores[:, 0]
    order = np.argsort(-np.where(np.isnan(values), -np.inf, values), kind="stable")[:count]
    rows = []
    for index in order:
        row = _problem(evaluation, int(index))
        methods = row["methods"]
        assert isinstance(methods, dict)
        rows.append(
            {
                **{key: row[key] for key in ("m", "n", "k", "layout", "oracle", "oracle_us")},
                **methods[name],
            }
        )
    return rows


def _variant_counts(groups: list[Group], tables: Tables) -> dict[str, int]:
    """How many of nvMMH's schedule variants exist and were measured, over the evaluation groups."""
    variants = NvmmhVariants(tables)
    counts = [(len(rows), listed) for rows, listed in map(variants.rows, groups)]
    return {"listed": sum(listed for _, listed in counts), "measured": sum(measured for measured, _ in counts)}


def _provenance(tables: Tables) -> dict[str, object]:
    """Campaigns and what they measured."""
    rows = tables.measurements
    campaigns = []
    for row in tables.campaigns.sort_values("campaign_id").to_dict("records"):
        counts = rows.loc[rows["campaign_id"] == row["campaign_id"], "status"].astype(str).value_counts()
        campaigns.append({str(key): _scalar(value) for key, value in row.items()} | {"rows": _counts(counts)})
    return {
        "campaigns": campaigns,
        "kernels": int((tables.kernels["build_status"] == "ok").sum()),
        "problems": _counts(tables.problems["split"].value_counts()),
        "rows": len(rows),
        "verified_rows": int(rows["status"].isin(["ok", "coarse"]).sum()),
    }


def _counts(values: pd.Series[int]) -> dict[str, int]:
    """Turn counts into a dictionary in alphabetical order."""
    return {str(key): int(count) for key, count in values.sort_index().items()}


def _scalar(value: object) -> object:
    """Turn a NumPy scalar into a plain one."""
    return value.item() if isinstance(value, np.generic) else value


def _noise(groups: list[Group], tables: Tables) -> dict[str, object]:
    """How far two measurements of the same thing differ, relative to the time."""
    retaken = set(tables.measurements.loc[tables.measurements["retake_us"].notna(), "problem_id"])
    share = float(np.mean([group.problem_id in retaken for group in groups]))
    return {**asdict(noise_floor(tables)), "oracles_retaken": share}


def _rounded(value: object) -> object:
    """Round floats to 6 significant digits and turn NaN into None, through dictionaries and lists."""
    if isinstance(value, dict):
        return {str(key): _rounded(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_rounded(item) for item in value]
    if isinstance(value, (float, np.floating)):
        return float(f"{value:.{_DIGITS}g}") if math.isfinite(value) else None
    if isinstance(value, np.integer):
        return int(value)
    return value
