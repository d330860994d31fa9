"""What arXiv 2609.35587 reports: context for our numbers, measured on other hardware and over its whole space."""

from __future__ import annotations

from typing import Final, NamedTuple

SOURCE: Final = "arXiv 2609.35587"


class PublishedRegret(NamedTuple):
    """A row of the paper's table of regrets on a GH200: 17 shapes × 4 layouts, each measured exhaustively."""

    title: str
    """Method in the paper's words."""
    ours: str
    """Our method that comes closest; empty if there is none."""
    mean_regret: float
    median_regret: float | None
    within_1: float | None
    within_5: float | None
    top1: float | None


class PublishedSpeedup(NamedTuple):
    """A speed-up over nvMMH's best schedule variant that the paper reports."""

    problems: str
    ours: str
    """Key of our slice that comes closest."""
    geomean: float
    win_rate: float


REGRETS: Final = (
    PublishedRegret("MLP, full features", "mlp", 0.062, 0.026, 0.368, 0.632, 0.279),
    PublishedRegret("XGBoost, full features", "xgboost", 0.064, 0.049, 0.250, 0.529, 0.191),
    PublishedRegret("MLP, structural features", "mlp-structural", 0.074, 0.031, 0.324, 0.559, 0.265),
    PublishedRegret("XGBoost, structural features", "xgboost-structural", 0.107, 0.083, 0.176, 0.397, 0.132),
    PublishedRegret("nvMMH, best schedule variant", "nvmmh_best", 0.120, 0.102, 0.0, 0.250, 0.0),
    PublishedRegret("nvMMH, first pick", "nvmmh_mean", 0.173, 0.146, 0.0, 0.103, 0.0),
    PublishedRegret("ridge, full features", "", 0.237, None, None, None, None),
    PublishedRegret("analytic score", "analytic", 0.637, None, None, None, None),
    PublishedRegret("random", "random", 0.715, None, None, None, None),
)

SPEEDUPS: Final = (
    PublishedSpeedup("8,000 held-out problems, half 32-aligned, half only 8-aligned", "random", 1.14, 0.796),
    PublishedSpeedup("151 DeepBench problems", "source:deepbench", 1.12, 0.96),
)
