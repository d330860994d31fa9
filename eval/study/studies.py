"""What a study is, and what all studies of trained rankers share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from .cells import Outcome, Planned
from .data import StudyData
from .exhibits import Column, Exhibit
from .options import Options
from .scores import Score

KIND_TITLES: Final = {"xgboost": "XGBoost", "mlp": "MLP"}
"""Names of the families for readers."""

SCORE_COLUMNS: Final = (
    Column("seeds", "seeds", "int"),
    Column("cross", "cross-validated", "pct", "cross_range"),
    Column("mean", "mean regret", "pct", "interval"),
    Column("median", "median"),
    Column("within_5", "within 5%"),
    Column("top1", "top-1"),
    Column("best_of_4", "best of 4"),
)
"""Columns of :func:`score_row`."""


@dataclass(frozen=True)
class Study:
    """A question, the cells that answer it, and how the answer is shown."""

    name: str
    """Name on the command line and of its files."""
    title: str
    text: str
    """What is compared and how to read it."""
    options: tuple[str, ...]
    """Fields of :class:`Options` that it reads, besides the sizes of the data."""
    plan: Callable[[Options, StudyData], list[Planned]]
    """Lists the cells."""
    show: Callable[[Sequence[Outcome]], Exhibit]
    """Makes tables and plots of the finished cells, at least one, in the order of the plan."""


def score_row(score: Score) -> dict[str, Any]:
    """Return the cells of ``SCORE_COLUMNS`` and the intervals beside them."""
    return {
        "seeds": len(score.by_seed),
        "cross": score.cross,
        "cross_range": (min(score.cross_by_seed), max(score.cross_by_seed)) if len(score.cross_by_seed) > 1 else None,
        "mean": score.mean,
        "interval": score.interval,
        "median": score.median,
        "within_5": score.within_5,
        "top1": score.top1,
        "best_of_4": score.best_of_4,
        "by_seed": list(score.by_seed),
    }
