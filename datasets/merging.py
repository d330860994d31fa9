"""Merge a campaign's raw rows, its plan and the build manifest into the tables.

Kernels keep their id by procedural name, problems by (M, N, K, layout, dtype), campaigns by name. Merging a campaign
again replaces its rows, so a merge may be repeated at any time, also while the campaign is still running.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
import pandas as pd

from ..generator import CONFIG_COLUMNS, DataError
from .plan import Plan, read_plan
from .records import read_baselines, read_campaign, read_rows
from .tables import CANDIDATE_KEY, PROBLEM_KEY, SCHEMA, Tables, conform, empty, load

BINARY_COLUMNS: Final = ("registers", "spill_bytes", "shared_memory_bytes", "build_status", "build_seconds")


def merge(out_dir: str | Path, plan_dir: str | Path, build_dir: str | Path, data_dir: str | Path) -> Tables:
    """Merge the campaign in ``out_dir`` into the tables in ``data_dir``, made if missing; return what they then hold.

    Parameters
    ----------
    out_dir
        What the runner wrote.
    plan_dir
        The plan it ran.
    build_dir
        The build it loaded; its ``manifest.parquet`` says what the compiler made of each kernel.
    data_dir
        Directory of the tables.

    Raises
    ------
    DataError
        If a part is missing or they do not belong together.
    """
    data = Path(data_dir)
    tables = load(path=data) if (data / "campaigns.parquet").is_file() else Tables()
    out = Path(out_dir)
    manifest = _manifest(Path(build_dir))
    plan = read_plan(plan_dir)
    merged = merge_campaign(tables, plan, read_rows(out), read_baselines(out), manifest, read_campaign(out))
    merged.write(data)
    return load(path=data)


def merge_campaign(
    tables: Tables,
    plan: Plan,
    rows: pd.DataFrame,
    baselines: pd.DataFrame,
    manifest: pd.DataFrame,
    campaign: Mapping[str, Any],
) -> Tables:
    """Merge one campaign into tables already loaded.

    Parameters
    ----------
    tables
        The tables so far.
    plan
        The plan, whose ids ``rows`` and ``baselines`` use.
    rows
        Rows of kernels, one a candidate, as ``records.read_rows`` gives them.
    baselines
        Rows of the cuBLASLt baselines: problem_id, method, time_us, spread, launches, status, algo.
    manifest
        One row a kernel: name and ``BINARY_COLUMNS``.
    campaign
        Values of the ``campaigns`` table but for ``campaign_id``; ``name`` and ``purpose`` default to the plan's.

    Raises
    ------
    DataError
        If a problem is in both splits, or rows name kernels or problems that the plan does not have.
    """
    kernels, kernel_ids = _merge_kernels(tables.kernels, plan.kernels, manifest)
    problems, problem_ids = _merge_problems(tables.problems, plan.problems)
    record = {"name": plan.meta["name"], "purpose": plan.meta["purpose"]} | dict(campaign)
    campaigns, campaign_id = _merge_campaigns(tables.campaigns, record)

    def stable(frame: pd.DataFrame, what: str) -> pd.DataFrame:
        frame = frame.assign(problem_id=_translate(frame["problem_id"], problem_ids, what))
        if "kernel_id" in frame:
            frame = frame.assign(kernel_id=_translate(frame["kernel_id"], kernel_ids, what))
        return frame

    new_rows = stable(rows, "a measurement").assign(campaign_id=campaign_id)
    new_baselines = stable(baselines, "a baseline").assign(campaign_id=campaign_id)
    return Tables(
        kernels=kernels,
        problems=problems,
        measurements=_replace("measurements", tables.measurements, new_rows, campaign_id),
        baselines=_replace("baselines", tables.baselines, new_baselines, campaign_id),
        nvmmh=_update("nvmmh", tables.nvmmh, stable(plan.nvmmh, "a pick")),
        nvmmh_variants=_update("nvmmh_variants", tables.nvmmh_variants, stable(plan.nvmmh_variants, "a variant")),
        campaigns=campaigns,
    )


def _manifest(build_dir: Path) -> pd.DataFrame:
    path = build_dir / "manifest.parquet"
    try:
        return pd.read_parquet(path)
    except (OSError, ValueError) as error:
        raise DataError(f"cannot read the build manifest {path}: {error}") from error


def _translate(ids: pd.Series[int], mapping: pd.Series[int], what: str) -> pd.Series[int]:
    """Turn plan ids into stable ids."""
    result = ids.map(mapping)
    if result.isna().any():
        raise DataError(f"{what} has the {ids.name} {ids[result.isna()].iloc[0]}, which the plan does not have")
    return result.astype(np.int32)


def _next_ids(known: pd.Series[int], count: int) -> np.ndarray[Any, np.dtype[np.int32]]:
    start = int(known.max()) + 1 if len(known) else 0
    return np.arange(start, start + count, dtype=np.int32)


def _merge_kernels(
    known: pd.DataFrame, planned: pd.DataFrame, manifest: pd.DataFrame
) -> tuple[pd.DataFrame, pd.Series[int]]:
    """Append new kernels, refresh binary facts; also return plan id -> stable id."""
    facts = manifest.drop_duplicates("name").set_index("name")[list(BINARY_COLUMNS)]
    built = planned[["name", *CONFIG_COLUMNS]].join(facts, on="name")
    fresh = built[~built["name"].isin(known["name"])].reset_index(drop=True)
    fresh = fresh.assign(kernel_id=_next_ids(known["kernel_id"], len(fresh)))
    table = pd.concat([known, conform("kernels", fresh)], ignore_index=True).set_index("name")
    new_facts = facts[facts.index.isin(table.index)]
    for column in BINARY_COLUMNS:
        table.loc[new_facts.index, column] = new_facts[column].astype(table[column].dtype)
    result = conform("kernels", table.reset_index())
    stable = result.set_index("name")["kernel_id"]
    return result, pd.Series(planned["name"].map(stable).to_numpy(), index=planned["kernel_id"].to_numpy())


def _merge_problems(known: pd.DataFrame, planned: pd.DataFrame) -> tuple[pd.DataFrame, pd.Series[int]]:
    """Append new problems, unite the sources of known ones; also return plan id -> stable id."""
    key = list(PROBLEM_KEY)
    both = known.merge(planned, on=key, suffixes=("", "_new"))
    torn = both[both["split"] != both["split_new"]]
    if len(torn):
        row = torn.iloc[0]
        shape = f"{row['M']}x{row['N']}x{row['K']}"
        raise DataError(f"problem {shape} is {row['split']} in the tables but {row['split_new']} in the plan")
    sources = {row.problem_id: ";".join(_united(row.sources, row.sources_new)) for row in both.itertuples()}
    table = known.assign(sources=known["problem_id"].map(sources).fillna(known["sources"]))
    fresh = planned[~planned.set_index(key).index.isin(known.set_index(key).index)].reset_index(drop=True)
    fresh = fresh.assign(problem_id=_next_ids(known["problem_id"], len(fresh)))
    result = conform("problems", pd.concat([table, conform("problems", fresh)], ignore_index=True))
    stable = planned.merge(result, on=key, suffixes=("_plan", ""))
    return result, pd.Series(stable["problem_id"].to_numpy(), index=stable["problem_id_plan"].to_numpy())


def _united(first: Any, second: Any) -> list[str]:
    return list(dict.fromkeys([*str(first).split(";"), *str(second).split(";")]))


def _merge_campaigns(known: pd.DataFrame, record: Mapping[str, Any]) -> tuple[pd.DataFrame, int]:
    """Add or replace the campaign of this name; also return its id."""
    same = known.loc[known["name"] == record["name"], "campaign_id"]
    campaign_id = int(same.iloc[0]) if len(same) else int(_next_ids(known["campaign_id"], 1)[0])
    entry = {column: record.get(column) for column in SCHEMA["campaigns"]} | {"campaign_id": campaign_id}
    others = known[known["campaign_id"] != campaign_id]
    table = pd.concat([others, conform("campaigns", pd.DataFrame([entry]))], ignore_index=True)
    return conform("campaigns", table.sort_values("campaign_id")), campaign_id


def _replace(table: str, known: pd.DataFrame, fresh: pd.DataFrame, campaign_id: int) -> pd.DataFrame:
    """Put a campaign's rows in the place of those it had; rows are sorted by campaign and candidate."""
    order = [column for column in (*CANDIDATE_KEY, "method") if column in SCHEMA[table]]
    fresh = conform(table, fresh).sort_values(order, kind="stable") if len(fresh) else empty(table)
    before, after = known[known["campaign_id"] < campaign_id], known[known["campaign_id"] > campaign_id]
    parts = [part for part in (before, fresh, after) if len(part)]
    return pd.concat(parts or [fresh], ignore_index=True)


def _update(table: str, known: pd.DataFrame, fresh: pd.DataFrame) -> pd.DataFrame:
    """Replace the rows of the problems that ``fresh`` covers."""
    kept = known[~known["problem_id"].isin(fresh["problem_id"])]
    parts = [part for part in (kept, conform(table, fresh) if len(fresh) else empty(table)) if len(part)]
    result = pd.concat(parts or [empty(table)], ignore_index=True)
    return conform(table, result.sort_values("problem_id", kind="stable"))
