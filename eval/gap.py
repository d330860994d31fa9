"""What a finite catalogue costs against the whole space, from a uniform sample of kernels that it lacks."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pandas as pd

from ..datasets import best_time
from ..datasets.tables import TIMED

if TYPE_CHECKING:
    from ..datasets import Tables

CONFIDENCE: Final = 0.95
MARGINS: Final = (0.0, 0.01, 0.05)
"""Kernels that are faster than the catalogue's best by more than these fractions are counted."""


@dataclass(frozen=True)
class ProblemGap:
    """The catalogue against the sample on one problem."""

    problem_id: int
    m: int
    n: int
    k: int
    layout: str
    sampled: int
    """Kernels drawn that were launched on the problem, whatever became of them."""
    failed: int
    """Those of them without a time."""
    catalogue_us: float
    """Fastest candidate of the catalogue, µs, as measured in the same campaign."""
    best_us: float
    """Fastest candidate of the sampled kernels, µs; NaN if none ran."""
    gain: float
    """catalogue_us / best_us − 1: above 0, the best sampled kernel is faster by this fraction."""
    faster: dict[str, int]
    """Sampled kernels that are faster than the catalogue's best by more than each of ``MARGINS``."""
    share_at_most: dict[str, float]
    """Upper 95% confidence bound on the share of all kernels that the catalogue lacks which are that much faster."""
    best_name: str
    """Procedural name of the fastest sampled kernel; empty if none ran."""


def clopper_pearson_upper(hits: int, draws: int, confidence: float = CONFIDENCE) -> float:
    """Return the exact one-sided upper confidence bound of a share.

    The largest p for which at most ``hits`` hits among ``draws`` independent draws still have a probability of
    1 − ``confidence`` (Clopper and Pearson, Biometrika 26, 1934). Nothing is assumed about how times are distributed.
    Without hits it is 1 − (1 − confidence)^(1/draws), at 95% about 3 / draws, the rule of three (Hanley and
    Lippman-Hand, JAMA 249, 1983). A sample without replacement from a finite space only makes it more careful.

    Parameters
    ----------
    hits, draws
        0 ≤ hits ≤ draws.
    confidence
        Probability that the bound holds.

    Raises
    ------
    ValueError
        If the counts make no sense.
    """
    if not 0 <= hits <= draws:
        raise ValueError(f"{hits} hits among {draws} draws; hits must lie between 0 and the number of draws")
    if hits == draws:
        return 1.0
    low, high = hits / draws, 1.0
    for _ in range(60):
        middle = (low + high) / 2.0
        low, high = (middle, high) if _at_most(hits, draws, middle) > 1.0 - confidence else (low, middle)
    return (low + high) / 2.0


def _at_most(hits: int, draws: int, share: float) -> float:
    """Return the binomial probability of at most ``hits`` hits."""
    if share <= 0.0:
        return 1.0
    if share >= 1.0:
        return 0.0
    terms = (
        math.lgamma(draws + 1) - math.lgamma(i + 1) - math.lgamma(draws - i + 1)
        + i * math.log(share) + (draws - i) * math.log1p(-share)
        for i in range(hits + 1)
    )  # fmt: skip
    return math.fsum(map(math.exp, terms))


def catalogue_gap(tables: Tables) -> list[ProblemGap]:
    """Compare the catalogue with a uniform sample of the kernels that it lacks, on each problem of the gap campaigns.

    Both sides were measured in the same campaign: the sampled kernels, and the catalogue's best known candidates
    beside them. A kernel is of the catalogue if a main campaign that started earlier had it, else it was drawn. Each
    kernel counts with its fastest candidate (its retake where there is one); one that failed is a draw that is not
    faster.

    The statement: had more than ``share_at_most`` of the kernels outside the catalogue been faster than its best by the
    margin, so few hits among that many draws would have had a probability under 5%. It bounds how many faster kernels
    there are, problem by problem; how much faster the fastest of them is cannot be bounded from a sample.

    Parameters
    ----------
    tables
        The measurement tables.

    Returns
    -------
    list
        In order of problem_id; empty if there is no gap campaign with candidates of the catalogue beside the sample.
    """
    campaigns = tables.campaigns
    gaps = campaigns[campaigns["purpose"] == "gap"]
    if gaps.empty:
        return []
    main = campaigns[(campaigns["purpose"] == "main") & (campaigns["started"] <= gaps["started"].min())]
    measured = tables.measurements
    catalogue = measured.loc[measured["campaign_id"].isin(main["campaign_id"]), "kernel_id"].unique()
    rows = measured[measured["campaign_id"].isin(gaps["campaign_id"])]
    timed = rows["status"].isin(TIMED)
    rows = rows.assign(best_us=best_time(rows).where(timed), known=rows["kernel_id"].isin(catalogue))
    described = tables.problems.set_index("problem_id")
    names = tables.kernels.set_index("kernel_id")["name"]
    found = []
    for problem_id, members in rows.groupby("problem_id"):
        kernels = members.groupby(["known", "kernel_id"])["best_us"].min()
        known, drawn = (_side(kernels, side) for side in (True, False))
        if known.notna().any() and len(drawn):
            found.append(_problem_gap(problem_id, described.loc[problem_id], float(known.min()), drawn, names))
    return found


def _side(kernels: pd.Series[float], known: bool) -> pd.Series[float]:
    """Return the fastest time of each kernel of the catalogue, or of each one drawn, by kernel_id."""
    mine = kernels[kernels.index.get_level_values("known") == known]
    return mine.droplevel("known")


def _problem_gap(
    problem_id: Any, sizes: Any, catalogue_us: float, drawn: pd.Series[float], names: pd.Series[str]
) -> ProblemGap:
    """Compare one problem's draws with the catalogue's best time."""
    ran = drawn.dropna()
    best = float(ran.min()) if len(ran) else float("nan")
    ratio = catalogue_us / ran.to_numpy(dtype=np.float64)
    faster = {str(margin): int((ratio > 1.0 + margin).sum()) for margin in MARGINS}
    return ProblemGap(
        problem_id=int(problem_id),
        m=int(sizes["M"]),
        n=int(sizes["N"]),
        k=int(sizes["K"]),
        layout=str(sizes["layout"]),
        sampled=len(drawn),
        failed=len(drawn) - len(ran),
        catalogue_us=catalogue_us,
        best_us=best,
        gain=catalogue_us / best - 1.0,
        faster=faster,
        share_at_most={margin: clopper_pearson_upper(hits, len(drawn)) for margin, hits in faster.items()},
        best_name=str(names.get(ran.idxmin(), "")) if len(ran) else "",
    )
