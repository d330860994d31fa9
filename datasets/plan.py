"""Plans: what a measuring campaign is to measure, written as a directory of Parquet files and one JSON file.

``plan/`` holds ``kernels``, ``problems``, ``candidates``, ``nvmmh`` and ``nvmmh_variants`` (``.parquet``) and
``plan.json`` (name, purpose, seed, options). Ids are those of the plan; merging gives stable ones. The runner measures
``candidates`` and finds the launches of each group's best kernels by itself.
"""

from __future__ import annotations

import json
import warnings
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path
from typing import Any, Final

import numpy as np
import pandas as pd

from ..generator import (
    DataError,
    MissingDependency,
    Problem,
    candidates_for,
    effective_launch,
    names,
    parse_dtype,
    ranked_candidates,
    valid_mask,
)
from ..generator import columns as col
from ..generator.columns import Columns
from .choice import choose_kernels
from .grouping import groups
from .nvmmh import PICK_COLUMNS, query, schedule_variants
from .problems import PROBLEM_COLUMNS, evaluation_problems, near_held_out, training_problems
from .tables import Tables

__all__ = [
    "Kind",
    "Plan",
    "choose_kernels",
    "make_plan",
    "make_repeat_plan",
    "make_split_plan",
    "read_plan",
    "write_plan",
]

CANDIDATE_TABLE_COLUMNS: Final = ("problem_id", "kernel_id", "swapped", *col.LAUNCH_COLUMNS, "kind")
PLAN_TABLES: Final = ("kernels", "problems", "candidates", "nvmmh", "nvmmh_variants")
FIRST_SOURCES: Final = ("paper", "ptxbench")


class Kind(IntEnum):
    """Why a candidate is in the plan."""

    FIRST_PASS = 0
    """A kernel that can serve the problem, with the default launch."""
    REQUIRED = 1
    """A launch that must be measured besides: nvMMH's, or a row of an earlier campaign that is repeated."""


@dataclass(frozen=True)
class Plan:
    """A campaign's work list; see the module docstring for the tables."""

    kernels: pd.DataFrame
    """kernel_id, name, ``CONFIG_COLUMNS``."""
    problems: pd.DataFrame
    """problem_id, M, N, K, layout, dtype, sources, split, priority (low first)."""
    candidates: pd.DataFrame
    """problem_id, kernel_id, swapped, ``LAUNCH_COLUMNS``, kind."""
    nvmmh: pd.DataFrame
    """problem_id, rank, tile, cluster, stages, splits, swizzle, raster, predicted_us."""
    nvmmh_variants: pd.DataFrame
    """problem_id, kernel_id, ``LAUNCH_COLUMNS``: schedule variants of nvMMH's first pick, on evaluation problems."""
    meta: dict[str, Any] = field(default_factory=dict)
    """name, purpose, seed, options."""


def make_plan(
    name: str,
    kernels: Columns | None = None,
    problems: pd.DataFrame | None = None,
    picks: pd.DataFrame | None = None,
    *,
    extra: Columns | None = None,
    seed: int = 0,
    dtype: str = "bf16",
) -> Plan:
    """Plan a main campaign: every kernel that can serve a problem, and nvMMH's first pick in its schedule variants.

    Parameters
    ----------
    name
        Name of the campaign.
    kernels
        Kernels to measure; chosen by :func:`choose_kernels` if not given.
    problems
        Columns M, N, K, sources, split (layout TNT); the first campaign's lists if not given.
    picks
        nvMMH's picks (:func:`nvmmh.query`); asked for if not given. Where nvMMH is not installed and ``kernels`` are
        given, the plan goes without, with a warning.
    extra
        Kernels that are measured only where they are variants of nvMMH's first pick.
    seed
        Seed of everything drawn. Same arguments, same plan.
    dtype
        Element type.

    Raises
    ------
    DataError
        If a training problem is held out or too near a held-out shape.
    MissingDependency
        If neither ``picks`` nor ``kernels`` are given and nvMatmulHeuristics is not installed.
    """
    if problems is None:
        problems = pd.concat([evaluation_problems(), training_problems(seed)], ignore_index=True)
    _refuse_leaks(problems)
    if picks is None:
        try:
            picks = query(_shapes(problems), dtype=dtype)
        except MissingDependency as error:
            if kernels is None:
                raise
            warnings.warn(f"planning without nvMMH's launches: {error}", stacklevel=2)
            picks = pd.DataFrame({column: np.zeros(0, dtype=np.int64) for column in PICK_COLUMNS})
    if kernels is None:
        kernels = choose_kernels(picks, problems, seed)
    kernels = col.take(kernels, valid_mask(kernels, parse_dtype(dtype)))
    kernel_table = _kernel_table(kernels if extra is None else col.concat([kernels, extra]), dtype)
    problem_table = _problem_table(problems, dtype, seed)
    ids = problem_table.set_index(["M", "N", "K"])["problem_id"]
    known = picks.join(ids, on=["M", "N", "K"], how="inner").sort_values(["problem_id", "rank"])
    nvmmh = known[["problem_id", *PICK_COLUMNS[3:]]].reset_index(drop=True)
    first = [_first_pass(kernels, row) for row in problem_table.itertuples()]
    variants, missing = _variants(nvmmh, problem_table, kernel_table)
    required = variants.assign(swapped=0, kind=int(Kind.REQUIRED))
    candidates = pd.concat([*first, required], ignore_index=True)[list(CANDIDATE_TABLE_COLUMNS)]
    key = [column for column in CANDIDATE_TABLE_COLUMNS if column != "kind"]
    candidates = candidates.drop_duplicates(key, ignore_index=True).astype(np.int32)
    meta = {
        "name": name, "purpose": "main", "seed": seed,
        "options": {"dtype": dtype, "layout": "TNT", "nvmmh_variants_without_kernel": missing},
    }  # fmt: skip
    return Plan(kernel_table, problem_table, candidates, nvmmh, variants, meta)


def make_repeat_plan(
    name: str, main: Plan, measured: pd.DataFrame, *, problems: int = 40, rows: int = 1000, seed: int = 0
) -> Plan:
    """Plan a campaign that measures rows of another one again, for the noise floor.

    Parameters
    ----------
    name
        Name of the campaign.
    main
        The plan whose ids ``measured`` uses.
    measured
        Rows with ``problem_id``, ``kernel_id``, ``swapped``, ``LAUNCH_COLUMNS`` and ``status``; those with status
        ``ok`` are drawn from.
    problems, rows
        How many problems to spread over and how many rows to draw in all; every problem gives the same share.
    seed
        Seed of the draw.
    """
    rng = np.random.default_rng(seed)
    usable = measured[measured["status"] == "ok"]
    ids = np.sort(usable["problem_id"].unique())
    ids = np.sort(rng.choice(ids, min(problems, len(ids)), replace=False))
    share = -(-rows // max(len(ids), 1))
    drawn = []
    for problem_id in ids:
        group = usable[usable["problem_id"] == problem_id]
        drawn.append(group.iloc[np.sort(rng.choice(len(group), min(share, len(group)), replace=False))])
    candidates = pd.concat(drawn, ignore_index=True).iloc[:rows].assign(kind=int(Kind.REQUIRED))
    meta = {"name": name, "purpose": "repeat", "seed": seed, "options": {"of": main.meta.get("name", "")}}
    return Plan(
        main.kernels[main.kernels["kernel_id"].isin(candidates["kernel_id"])].reset_index(drop=True),
        main.problems[main.problems["problem_id"].isin(candidates["problem_id"])].reset_index(drop=True),
        candidates[list(CANDIDATE_TABLE_COLUMNS)].astype(np.int32),
        main.nvmmh.iloc[:0],
        main.nvmmh_variants.iloc[:0],
        meta,
    )


def make_split_plan(name: str, tables: Tables, *, best: int = 16, seed: int = 0) -> Plan:
    """Plan a campaign that measures every split-K launch worth a look on the problems already measured.

    Main campaigns measure splits of each problem's best kernels only; here every Stream-K kernel gets its splits
    (:func:`~cutlass_ranker.generator.splits_worth_a_look`), beside the best candidates known so far, so that both are
    retaken together.

    Parameters
    ----------
    name
        Name of the campaign.
    tables
        Tables of the main campaigns.
    best
        Known candidates per problem that are measured again.
    seed
        Seed of the order of the problems.
    """
    kernels = tables.kernels[["kernel_id", "name", *col.CONFIG_COLUMNS]].reset_index(drop=True)
    configs = {column: kernels[column].to_numpy(dtype=np.int32) for column in col.CONFIG_COLUMNS}
    key = ["kernel_id", "swapped", *col.LAUNCH_COLUMNS]
    parts = []
    for group in groups(tables):
        columns, rows = ranked_candidates(configs, group.problem)
        splits = pd.DataFrame(columns).assign(kernel_id=kernels["kernel_id"].to_numpy()[rows])[key]
        splits = splits[splits["splits"] > 1]
        if len(splits):
            fastest = np.argsort(group.time_us, kind="stable")[:best]
            known = pd.DataFrame(group.columns).assign(kernel_id=group.kernel_id).iloc[fastest][key]
            parts.append(pd.concat([splits, known]).drop_duplicates().assign(problem_id=group.problem_id))
    candidates = pd.concat(parts, ignore_index=True).assign(kind=int(Kind.REQUIRED))
    problems = tables.problems[tables.problems["problem_id"].isin(candidates["problem_id"])].reset_index(drop=True)
    problems = problems.assign(priority=np.random.default_rng(seed).permutation(len(problems)))
    empty_picks = tables.nvmmh.iloc[:0], tables.nvmmh_variants.iloc[:0]
    meta = {"name": name, "purpose": "main", "seed": seed, "options": {}}
    chosen = candidates[list(CANDIDATE_TABLE_COLUMNS)].astype(np.int32)
    return Plan(kernels, problems[list(PROBLEM_COLUMNS)], chosen, *empty_picks, meta)


def write_plan(plan: Plan, directory: str | Path) -> Path:
    """Write a plan into ``directory`` (made if missing) and return its path."""
    folder = Path(directory)
    folder.mkdir(parents=True, exist_ok=True)
    for table in PLAN_TABLES:
        getattr(plan, table).to_parquet(folder / f"{table}.parquet", index=False, compression="zstd")
    (folder / "plan.json").write_text(json.dumps(plan.meta, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    return folder


def read_plan(directory: str | Path) -> Plan:
    """Read a plan that :func:`write_plan` wrote.

    Raises
    ------
    DataError
        If a file of it is missing or unreadable.
    """
    folder = Path(directory)
    try:
        tables = {table: pd.read_parquet(folder / f"{table}.parquet") for table in PLAN_TABLES}
        meta = json.loads((folder / "plan.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DataError(f"{folder} is not a plan directory: {error}") from error
    return Plan(**tables, meta=meta)


def _shapes(problems: pd.DataFrame) -> list[tuple[int, int, int]]:
    return [(int(m), int(n), int(k)) for m, n, k in problems[["M", "N", "K"]].itertuples(index=False)]


def _refuse_leaks(problems: pd.DataFrame) -> None:
    for shape in _shapes(problems[problems["split"] == "train"]):
        other = near_held_out(shape)
        if other is not None:
            raise DataError(f"training problem {shape} is too near the held-out shape {other}")


def _kernel_table(kernels: Columns, dtype: str) -> pd.DataFrame:
    table = pd.DataFrame({name: kernels[name] for name in col.CONFIG_COLUMNS})
    table.insert(0, "name", names(kernels, parse_dtype(dtype)))
    table.insert(0, "kernel_id", np.arange(len(table), dtype=np.int32))
    return table


def _problem_table(problems: pd.DataFrame, dtype: str, seed: int) -> pd.DataFrame:
    """Give ids and priorities: the paper's and PTXBench's problems first, then all others in a shuffled order."""
    table = problems.reset_index(drop=True).assign(layout="TNT", dtype=dtype)
    table["problem_id"] = np.arange(len(table), dtype=np.int32)
    first = np.array([not set(FIRST_SOURCES).isdisjoint(sources.split(";")) for sources in table["sources"]])
    order = np.lexsort((np.random.default_rng(seed).random(len(table)), ~first))
    table["priority"] = np.argsort(order)
    return table.astype({"M": np.int32, "N": np.int32, "K": np.int32, "priority": np.int32})[list(PROBLEM_COLUMNS)]


def _problem(row: Any) -> Problem:
    return Problem(int(row.M), int(row.N), int(row.K), row.layout, row.dtype)


def _first_pass(kernels: Columns, row: Any) -> pd.DataFrame:
    """Default launches of the kernels that can serve one problem; kernel ids are positions in ``kernels``."""
    columns, rows = candidates_for(kernels, _problem(row))
    table = pd.DataFrame({name: columns[name] for name in ("swapped", *col.LAUNCH_COLUMNS)})
    return table.assign(problem_id=row.problem_id, kernel_id=rows, kind=int(Kind.FIRST_PASS))


def _variants(nvmmh: pd.DataFrame, problems: pd.DataFrame, kernels: pd.DataFrame) -> tuple[pd.DataFrame, int]:
    """Valid schedule variants of the first picks on evaluation problems, and how many of them have no kernel.

    A variant that CUTLASS runs just as it would with the default launch is given the default launch.
    """
    ids = kernels.set_index(list(col.CONFIG_COLUMNS))["kernel_id"]
    parts, missing = [], 0
    row: Any
    for row in problems[problems["split"] == "eval"].itertuples():
        pick = nvmmh[(nvmmh["problem_id"] == row.problem_id) & (nvmmh["rank"] == 0)]
        variants = schedule_variants(pick, _problem(row).layout)
        variants = col.take(variants, valid_mask(variants, _problem(row).dtype))
        table = pd.DataFrame(_with_plain_launch(variants, _problem(row)))
        table = table.join(ids, on=list(col.CONFIG_COLUMNS))
        missing += int(table["kernel_id"].isna().sum())
        table = table.dropna(subset="kernel_id").astype({"kernel_id": np.int32})
        parts.append(table[["kernel_id", *col.LAUNCH_COLUMNS]].assign(problem_id=row.problem_id))
    columns = ["problem_id", "kernel_id", *col.LAUNCH_COLUMNS]
    if not parts:
        return pd.DataFrame({column: np.zeros(0, dtype=np.int32) for column in columns}), 0
    return pd.concat(parts, ignore_index=True)[columns].astype(np.int32), missing


def _with_plain_launch(variants: Columns, problem: Problem) -> Columns:
    """Replace raster and swizzle by the defaults where they come to the same on ``problem``."""
    default = col.with_launch(variants, swapped=variants["swapped"])
    along_m, log_swizzle = effective_launch(variants, problem)
    default_along_m, default_log_swizzle = effective_launch(default, problem)
    same = (along_m == default_along_m) & (log_swizzle == default_log_swizzle)
    plain = {name: np.where(same, default[name], variants[name]).astype(np.int32) for name in ("raster", "swizzle")}
    return variants | plain
