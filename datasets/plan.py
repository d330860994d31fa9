"""Plans: what a measuring campaign is to measure, written as a directory of Parquet files and one JSON file.

``plan/`` holds ``kernels``, ``problems``, ``candidates``, ``nvmmh`` and ``nvmmh_variants`` (``.parquet``) and
``plan.json`` (name, purpose, seed, options). Ids are those of the plan; merging gives stable ones. The runner measures
``candidates`` and finds the launches of each group's best kernels by itself.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from pathlib import Path
from typing import Any, Final, cast

import numpy as np
import pandas as pd

from ..generator import (
    DataError,
    Decomposition,
    MissingDependency,
    Problem,
    load_catalogue,
    names,
    parse_dtype,
    ranked_candidates,
    valid_mask,
)
from ..generator import columns as col
from ..generator.columns import Columns
from .choice import unique
from .draws import training_problems
from .grouping import Group, groups
from .nvmmh import PICK_COLUMNS, first_pick_variants, query
from .problems import LIST_COLUMNS, PROBLEM_COLUMNS, Shape, evaluation_problems, leaks
from .tables import CANDIDATE_KEY, PROBLEM_KEY, Tables

__all__ = [
    "Kind",
    "Plan",
    "make_gap_plan",
    "make_plan",
    "make_repeat_plan",
    "make_retake_plan",
    "make_study_plan",
    "nvmmh_kernels",
    "read_plan",
    "write_plan",
]

CANDIDATE_TABLE_COLUMNS: Final = ("problem_id", "kernel_id", "swapped", *col.LAUNCH_COLUMNS, "kind")
PLAN_TABLES: Final = ("kernels", "problems", "candidates", "nvmmh", "nvmmh_variants")
FIRST_SOURCES: Final = ("paper", "ptxbench")
GAP_SHAPES: Final[tuple[Shape, ...]] = (
    (32, 128, 4096), (64, 12288, 4096),  # small M
    (2048, 2048, 2048), (4096, 4096, 4096),  # square
    (256, 256, 8192), (2048, 128, 4096),  # K much longer than a side
)  # fmt: skip
"""Shapes of the paper, as TNT, on which the catalogue is compared with kernels from the whole space."""


class Kind(IntEnum):
    """Why a candidate is in the plan."""

    FIRST_PASS = 0
    """A kernel that can serve the problem, with the default launch or a split of K worth a look."""
    REQUIRED = 1
    """A candidate that must be measured besides: nvMMH's launch, or one of an earlier campaign that is repeated."""


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
    known: Tables | None = None,
    best: int = 16,
    purpose: str = "main",
    seed: int = 0,
    dtype: str = "bf16",
    deterministic: bool = True,
) -> Plan:
    """Plan a campaign: every kernel that can serve a problem, and nvMMH's first pick in its schedule variants.

    A kernel serves the problems of its own layout and, swapped, those of the transposed one. Stream-K kernels are
    planned with the splits of K that are worth a look too (:func:`~cutlass_ranker.generator.ranked_candidates`).

    Parameters
    ----------
    name
        Name of the campaign.
    kernels
        Kernels to measure, of any families; the shipped catalogue if not given.
    problems
        Columns M, N, K, layout, sources, split; the published evaluation problems and :func:`~.draws.training_problems`
        if not given. Problems for which there is nothing to do are left out.
    picks
        nvMMH's picks (:func:`nvmmh.query`) on the evaluation problems; asked for if not given. Where nvMMH is not
        installed, the plan goes without, with a warning.
    extra
        Kernels that are measured only where they are variants of nvMMH's first pick.
    known
        Tables of what is measured already. Candidates in their main campaigns are not planned again; instead, the
        best known ones of a problem are measured beside its new ones, so that both are retaken together.
    best
        Known candidates of each problem that are measured again.
    purpose
        Purpose of the campaign; only ``"main"`` rows are trained and evaluated on.
    seed
        Seed of everything drawn. Same arguments, same plan.
    dtype
        Element type.
    deterministic
        False also plans split-K with atomic adds.

    Raises
    ------
    DataError
        If a training problem is held out or too near an evaluation problem.
    """
    if problems is None:
        problems = pd.concat([evaluation_problems(), training_problems(seed)], ignore_index=True)
    for shape, other in leaks(problems).values():
        raise DataError(f"training problem {shape} is too near the evaluation problem {other}")
    problem_table = _problem_table(problems, dtype, seed)
    nvmmh = _picks(picks, problem_table, dtype)
    kernels = load_catalogue() if kernels is None else kernels
    kernels = unique(col.take(kernels, valid_mask(kernels, parse_dtype(dtype))))
    parts = [kernels, *([extra] if extra is not None else []), *([_configs(known.kernels)] if known else [])]
    kernel_table = _kernel_table(unique(col.concat(parts)), dtype)
    variants, missing = _variants(nvmmh, problem_table, kernel_table)
    required = variants.assign(swapped=0, kind=int(Kind.REQUIRED))
    first = [_first_pass(kernels, row, deterministic) for row in problem_table.itertuples()]
    candidates = pd.concat([*first, required], ignore_index=True)[list(CANDIDATE_TABLE_COLUMNS)]
    candidates = candidates.drop_duplicates(list(CANDIDATE_KEY), ignore_index=True).astype(np.int32)
    if known is not None:
        candidates = _beside_known(candidates, known, problem_table, kernel_table, best)
    problem_table, nvmmh, variants = (
        table[table["problem_id"].isin(candidates["problem_id"])].reset_index(drop=True)
        for table in (problem_table, nvmmh, variants)
    )
    opened = kernel_table["kernel_id"].isin([*candidates["kernel_id"], *variants["kernel_id"]])
    meta = {
        "name": name, "purpose": purpose, "seed": seed,
        "options": {"dtype": dtype, "nvmmh_variants_without_kernel": missing},
    }  # fmt: skip
    return Plan(kernel_table[opened].reset_index(drop=True), problem_table, candidates, nvmmh, variants, meta)


def nvmmh_kernels(problems: pd.DataFrame, picks: pd.DataFrame | None = None, dtype: str = "bf16") -> Columns:
    """Return every valid schedule variant of nvMMH's first pick on the evaluation problems of a list.

    Parameters
    ----------
    problems, picks, dtype
        As in :func:`make_plan`.

    Returns
    -------
    Columns
        ``CONFIG_COLUMNS``, unique: what must be compiled for nvMMH to be scored in full.
    """
    table = _problem_table(problems, dtype, seed=0)
    nvmmh = _picks(picks, table, dtype)
    parts = [first_pick_variants(mine, problem) for _, problem, mine in _with_picks(nvmmh, table)]
    return unique({name: values for name, values in col.concat(parts).items() if name in col.CONFIG_COLUMNS})


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


def make_study_plan(
    name: str, tables: Tables, *, problems: int = 40, best: int = 48, others: int = 16, seed: int = 0
) -> Plan:
    """Plan a campaign that measures known candidates again under other conditions: warm operands, idle gaps.

    Half of the problems are evaluation problems, half training ones, each half spread evenly over the sizes; each
    gives its best candidates and some drawn from the rest. The purpose is ``"study"``, which keeps the rows out of
    the groups. The conditions are the runner's options.

    Parameters
    ----------
    name
        Name of the campaign.
    tables
        Tables of the main campaigns.
    problems, best, others
        How many problems, and how many of the best and of the other candidates of each.
    seed
        Seed of what is drawn; the same seed gives the same problems and candidates under any name.
    """
    rng = np.random.default_rng(seed)
    measured = groups(tables)
    parts = []
    for number, split in enumerate(("eval", "train")):
        ordered = sorted((g for g in measured if g.split == split), key=lambda g: (g.problem.flops, g.problem_id))
        count = min((problems + 1 - number) // 2, len(ordered))
        for bin_ in np.array_split(np.arange(len(ordered)), count) if count else []:
            group = ordered[int(rng.choice(bin_))]
            order = np.argsort(group.time_us, kind="stable")
            rest = order[best:]
            drawn = rng.choice(rest, min(others, len(rest)), replace=False)
            parts.append(_rows(group, np.concatenate([order[:best], np.sort(drawn)])))
    return _of_known(tables, parts, {"name": name, "purpose": "study", "seed": seed, "options": {}})


def make_retake_plan(
    name: str, tables: Tables, *, best: int = 24, problems: int | None = None, purpose: str = "main", seed: int = 0
) -> Plan:
    """Plan a campaign in which the best known candidates of each problem are decided between once more, all together.

    As a main campaign it gives every problem an oracle by the present protocol; as a repeat it tells how far oracles
    can be trusted. Other launches of the best kernels are not added. Evaluation problems come first.

    Parameters
    ----------
    name, tables
        As in :func:`make_study_plan`.
    best
        Deterministic candidates of each problem; split-K with atomic adds comes on top where it is among the best.
    problems
        How many problems, drawn evenly over the sizes; None for all.
    purpose
        ``"main"`` or ``"repeat"``.
    seed
        Seed of what is drawn.
    """
    rng = np.random.default_rng(seed)
    measured = sorted(groups(tables, deterministic=False), key=lambda g: (g.problem.flops, g.problem_id))
    if problems is not None and problems < len(measured):
        bins = np.array_split(np.arange(len(measured)), problems)
        measured = [measured[int(rng.choice(bin_))] for bin_ in bins]
    parts = []
    for group in measured:
        order = np.argsort(group.time_us, kind="stable")
        atomic = group.columns["decomposition"][order] == Decomposition.SPLIT_K_ATOMIC
        place = np.where(atomic, np.arange(len(order)), np.cumsum(~atomic) - 1)
        parts.append(_rows(group, order[place < best]))
    options = {"launches_for_best": 0}
    return _of_known(tables, parts, {"name": name, "purpose": purpose, "seed": seed, "options": options})


def _of_known(tables: Tables, parts: list[pd.DataFrame], meta: dict[str, Any]) -> Plan:
    """Plan required candidates of the tables, evaluation problems first, otherwise in random order; ids stay."""
    candidates = pd.concat(parts, ignore_index=True).assign(kind=int(Kind.REQUIRED))
    chosen = tables.problems[tables.problems["problem_id"].isin(candidates["problem_id"])].reset_index(drop=True)
    shuffled = np.random.default_rng(meta["seed"]).permutation(len(chosen))
    order = np.lexsort((shuffled, chosen["split"] != "eval"))
    chosen = chosen.assign(priority=np.argsort(order))
    kernels = tables.kernels[tables.kernels["kernel_id"].isin(candidates["kernel_id"])].reset_index(drop=True)
    return Plan(
        kernels[["kernel_id", "name", *col.CONFIG_COLUMNS]],
        chosen[list(PROBLEM_COLUMNS)],
        candidates[list(CANDIDATE_TABLE_COLUMNS)].astype(np.int32),
        tables.nvmmh.iloc[:0],
        tables.nvmmh_variants.iloc[:0],
        meta,
    )


def make_gap_plan(name: str, tables: Tables, sample: Columns, *, best: int = 32, seed: int = 0) -> Plan:
    """Plan how much faster than the catalogue's best the best of a sample of other kernels is.

    Parameters
    ----------
    name
        Name of the campaign; its purpose is ``"gap"``.
    tables
        Tables of the main campaigns.
    sample
        Kernels of family TNT that the catalogue lacks, drawn evenly from a space.
    best
        Known candidates of each of ``GAP_SHAPES`` that are measured beside them.
    seed
        Seed of the order of the problems.
    """
    rows = [(*shape, "TNT", "paper", "eval") for shape in GAP_SHAPES]
    problems = pd.DataFrame(rows, columns=list(LIST_COLUMNS))
    none = pd.DataFrame({column: [] for column in PICK_COLUMNS})
    return make_plan(name, sample, problems, none, known=tables, best=best, purpose="gap", seed=seed)


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


def _kernel_table(kernels: Columns, dtype: str) -> pd.DataFrame:
    table = pd.DataFrame({name: kernels[name] for name in col.CONFIG_COLUMNS})
    table.insert(0, "name", names(kernels, parse_dtype(dtype)))
    table.insert(0, "kernel_id", np.arange(len(table), dtype=np.int32))
    return table


def _configs(kernels: pd.DataFrame) -> Columns:
    return {name: kernels[name].to_numpy(dtype=np.int32) for name in col.CONFIG_COLUMNS}


def _problem_table(problems: pd.DataFrame, dtype: str, seed: int) -> pd.DataFrame:
    """Give ids and priorities: the paper's and PTXBench's problems first, then all others in a shuffled order."""
    table = problems.reset_index(drop=True).assign(dtype=dtype)
    table["problem_id"] = np.arange(len(table), dtype=np.int32)
    first = np.array([not set(FIRST_SOURCES).isdisjoint(sources.split(";")) for sources in table["sources"]])
    order = np.lexsort((np.random.default_rng(seed).random(len(table)), ~first))
    table["priority"] = np.argsort(order)
    return table.astype({"M": np.int32, "N": np.int32, "K": np.int32, "priority": np.int32})[list(PROBLEM_COLUMNS)]


def _problem(row: Any) -> Problem:
    return Problem(int(row.M), int(row.N), int(row.K), row.layout, row.dtype)


def _first_pass(kernels: Columns, row: Any, deterministic: bool) -> pd.DataFrame:
    """First-pass candidates of one problem; kernel ids are positions in ``kernels``."""
    columns, rows = ranked_candidates(kernels, _problem(row), deterministic)
    table = pd.DataFrame({name: columns[name] for name in ("swapped", *col.LAUNCH_COLUMNS)})
    return table.assign(problem_id=row.problem_id, kernel_id=rows, kind=int(Kind.FIRST_PASS))


def _picks(picks: pd.DataFrame | None, problems: pd.DataFrame, dtype: str) -> pd.DataFrame:
    """Picks on the evaluation problems, by problem_id and rank; none, with a warning, if nvMMH is not installed."""
    key = list(PICK_COLUMNS[:4])
    evaluation = problems[problems["split"] == "eval"]
    if picks is None:
        try:
            picks = query(evaluation, dtype=dtype)
        except MissingDependency as error:
            warnings.warn(f"planning without nvMMH's launches: {error}", stacklevel=3)
            picks = pd.DataFrame({column: [] for column in PICK_COLUMNS})
    known = evaluation[["problem_id", *key]].merge(picks.astype({"layout": object}), on=key)
    return known[["problem_id", *PICK_COLUMNS[4:]]].sort_values(["problem_id", "rank"], ignore_index=True)


def _with_picks(nvmmh: pd.DataFrame, problems: pd.DataFrame) -> list[tuple[int, Problem, pd.DataFrame]]:
    """Id, problem and picks of every problem that has picks."""
    described: dict[Any, Problem] = {row.problem_id: _problem(row) for row in problems.itertuples()}
    return [(cast(int, number), described[number], mine) for number, mine in nvmmh.groupby("problem_id")]


def _variants(nvmmh: pd.DataFrame, problems: pd.DataFrame, kernels: pd.DataFrame) -> tuple[pd.DataFrame, int]:
    """Valid schedule variants of the first picks, and how many of them have no kernel."""
    ids = kernels.set_index(list(col.CONFIG_COLUMNS))["kernel_id"]
    columns = ["problem_id", "kernel_id", *col.LAUNCH_COLUMNS]
    parts = [pd.DataFrame({column: np.zeros(0, dtype=np.int32) for column in columns})]
    missing = 0
    for problem_id, problem, mine in _with_picks(nvmmh, problems):
        table = pd.DataFrame(first_pick_variants(mine, problem)).join(ids, on=list(col.CONFIG_COLUMNS))
        missing += int(table["kernel_id"].isna().sum())
        parts.append(table.dropna(subset="kernel_id").assign(problem_id=problem_id)[columns])
    return pd.concat(parts, ignore_index=True).astype(np.int32), missing


def _beside_known(
    candidates: pd.DataFrame, known: Tables, problems: pd.DataFrame, kernels: pd.DataFrame, best: int
) -> pd.DataFrame:
    """Drop candidates that the main campaigns measured; add the best known ones of the problems that are left.

    The fastest known one is put into the first pass, where it sets the pace of the race.
    """
    key = list(CANDIDATE_KEY)
    matched = known.problems.merge(problems, on=list(PROBLEM_KEY), suffixes=("", "_plan"))
    problem_ids = matched.set_index("problem_id")["problem_id_plan"]
    kernel_ids = known.kernels.set_index("kernel_id")["name"].map(kernels.set_index("name")["kernel_id"])
    main = known.campaigns.loc[known.campaigns["purpose"] == "main", "campaign_id"]
    rows = known.measurements
    rows = rows.loc[rows["problem_id"].isin(problem_ids.index) & rows["campaign_id"].isin(main), key].drop_duplicates()
    rows = rows.assign(problem_id=rows["problem_id"].map(problem_ids), kernel_id=rows["kernel_id"].map(kernel_ids))
    met = candidates.merge(rows.astype(np.int32), on=key, how="left", indicator=True)["_merge"] == "both"
    fresh = candidates[~met.to_numpy()]
    ours = matched.loc[matched["problem_id_plan"].isin(fresh["problem_id"]), "problem_id"]
    listed = groups(replace(known, problems=known.problems[known.problems["problem_id"].isin(ours)]))
    parts = [fresh]
    for group in listed:
        repeated = _rows(group, np.argsort(group.time_us, kind="stable")[:best])
        kind = np.full(len(repeated), int(Kind.REQUIRED))
        kind[:1] = int(Kind.FIRST_PASS)
        repeated = repeated.assign(
            problem_id=int(problem_ids[group.problem_id]), kernel_id=repeated["kernel_id"].map(kernel_ids), kind=kind
        )
        parts.append(repeated[list(CANDIDATE_TABLE_COLUMNS)])
    result = pd.concat(parts, ignore_index=True).sort_values("problem_id", kind="stable", ignore_index=True)
    return result.drop_duplicates(key, ignore_index=True).astype(np.int32)


def _rows(group: Group, rows: Sequence[int] | np.ndarray[Any, np.dtype[np.intp]]) -> pd.DataFrame:
    """Return candidates of a group as a table with ``CANDIDATE_KEY``."""
    columns = {name: group.columns[name][rows] for name in (*col.LAUNCH_COLUMNS, "swapped")}
    return pd.DataFrame({"problem_id": group.problem_id, "kernel_id": group.kernel_id[rows], **columns})
