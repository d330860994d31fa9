"""Where the numbers of a report come from: campaigns, counts, noise, repeats and studies of conditions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from ..datasets.info import noise_floor
from .agreement import mode_study, repeatability, timer_bands
from .gap import catalogue_gap
from .methods import NvmmhVariants

if TYPE_CHECKING:
    from ..datasets import Group, Tables


def variant_counts(groups: Sequence[Group], tables: Tables) -> dict[str, int]:
    """How many of nvMMH's schedule variants exist and were measured, over the evaluation groups."""
    variants = NvmmhVariants(tables)
    counts = [(len(rows), listed) for rows, listed in map(variants.rows, groups)]
    return {"listed": sum(listed for _, listed in counts), "measured": sum(measured for measured, _ in counts)}


def provenance(tables: Tables) -> dict[str, object]:
    """Campaigns and what they measured."""
    rows = tables.measurements
    counts = rows.groupby(["campaign_id", "status"], observed=True).size()
    campaigns = []
    for row in tables.campaigns.sort_values("campaign_id").to_dict("records"):
        mine = counts[counts.index.get_level_values("campaign_id") == row["campaign_id"]].droplevel("campaign_id")
        campaigns.append({str(key): _scalar(value) for key, value in row.items()} | {"rows": _counts(mine)})
    return {
        "campaigns": campaigns,
        "kernels": int((tables.kernels["build_status"] == "ok").sum()),
        "problems": _counts(tables.problems["split"].value_counts()),
        "rows": len(rows),
        "verified_rows": int(rows["status"].isin(["ok", "coarse"]).sum()),
    }


def noise(groups: Sequence[Group], tables: Tables) -> dict[str, object]:
    """How far two measurements of the same thing differ, relative to the time."""
    retaken = set(tables.measurements.loc[tables.measurements["retake_us"].notna(), "problem_id"])
    share = float(np.mean([group.problem_id in retaken for group in groups]))
    return {**asdict(noise_floor(tables)), "oracles_retaken": share}


def trust(tables: Tables, seed: int) -> dict[str, object]:
    """Repeats, both timers, conditions and the catalogue's gap; lists are empty where no campaign is for that.

    Parameters
    ----------
    tables
        The measurement tables.
    seed
        Of every bootstrap.
    """
    return {
        "repeatability": [asdict(one) for one in repeatability(tables, seed)],
        "timers": [asdict(band) for band in timer_bands(tables)],
        "modes": [asdict(one) for one in mode_study(tables, seed)],
        "catalogue_gap": [asdict(one) for one in catalogue_gap(tables)],
    }


def _counts(values: pd.Series[int]) -> dict[str, int]:
    """Turn counts into a dictionary in alphabetical order."""
    return {str(key): int(count) for key, count in values.sort_index().items() if count}


def _scalar(value: object) -> object:
    """Turn a NumPy scalar into a plain one."""
    return value.item() if isinstance(value, np.generic) else value
