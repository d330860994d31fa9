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
    """Fastest candidate of the catalogue, µs, in the campaign of ``best_us``."""
    best_us: float
    """Candidate of the sampled kernels that comes closest to the catalogue's best, or is ahead of it most, µs; NaN if
    none ran."""
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
    beside them. A kernel is of the catalogue if a main campaign that started earlier had it, else it was drawn. Draws
    of several gap campaigns count together, each against the catalogue's best of its own campaign. Each kernel counts
    with its fastest candidate (its retake where there is one); one that failed is a draw that is not faster.

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
    gaps = tables.campaigns[tables.campaigns["purpose"] == "gap"]
    draws = [
        _draws(tables, campaign_id, started)
        for campaign_id, started in zip(gaps["campaign_id"], gaps["started"], strict=True)
    ]
    if not draws:
        return []
    described = tables.problems.set_index("problem_id")
    names = tables.kernels.set_index("kernel_id")["name"]
    by_problem = pd.concat(draws).groupby("problem_id")
    return [_problem_gap(problem_id, described.loc[problem_id], drawn, names) for problem_id, drawn in by_problem]


def _draws(tables: Tables, campaign_id: int, started: str) -> pd.DataFrame:
    """Return a campaign's drawn kernels: problem_id, kernel_id, ``best_us``, and ``catalogue_us`` of the problem."""
    earlier = tables.campaigns[(tables.campaigns["purpose"] == "main") & (tables.campaigns["started"] <= started)]
    measured = tables.measurements
    catalogue = measured.loc[measured["campaign_id"].isin(earlier["campaign_id"]), "kernel_id"].unique()
    rows = measured[measured["campaign_id"] == campaign_id]
    rows = rows.assign(best_us=best_time(rows).where(rows["status"].isin(TIMED)))
    known = rows["kernel_id"].isin(catalogue)
    drawn = rows[~known].groupby(["problem_id", "kernel_id"])["best_us"].min().reset_index()
    drawn["catalogue_us"] = drawn["problem_id"].map(rows[known].groupby("problem_id")["best_us"].min())
    return drawn[drawn["catalogue_us"].notna()]


def _problem_gap(problem_id: Any, sizes: Any, drawn: pd.DataFrame, names: pd.Series[str]) -> ProblemGap:
    """Compare one problem's draws with the catalogue's best times."""
    ran = drawn[drawn["best_us"].notna()]
    ratio = (ran["catalogue_us"] / ran["best_us"]).to_numpy(dtype=np.float64)
    best = ran.iloc[int(ratio.argmax())] if len(ran) else None
    faster = {str(margin): int((ratio > 1.0 + margin).sum()) for margin in MARGINS}
    return ProblemGap(
        problem_id=int(problem_id),
        m=int(sizes["M"]),
        n=int(sizes["N"]),
        k=int(sizes["K"]),
        layout=str(sizes["layout"]),
        sampled=len(drawn),
        failed=len(drawn) - len(ran),
        catalogue_us=float(drawn["catalogue_us"].iloc[0] if best is None else best["catalogue_us"]),
        best_us=float("nan") if best is None else float(best["best_us"]),
        gain=float("nan") if best is None else float(ratio.max()) - 1.0,
        faster=faster,
        share_at_most={margin: clopper_pearson_upper(hits, len(drawn)) for margin, hits in faster.items()},
        best_name="" if best is None else str(names.get(best["kernel_id"], "")),
    )
