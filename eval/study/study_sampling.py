"""Study ``sampling``: how much of the best is missed by measuring only some candidates of a problem."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ..resampling import mean_interval
from .cells import Outcome, Planned
from .data import StudyData
from .exhibits import Column, Exhibit, Plot, Series, Table, draw_lines, finish
from .options import Options
from .replay import SamplingCell, strategy
from .scores import axis, pick
from .studies import Study

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PAPER_ALPHA: Final = 0.75
"""Share of the static score in arXiv 2609.35587; the plot over budgets shows the one next to it."""
UNIFORM: Final = -1.0
"""Label of uniform sampling, which has no α."""


def plan(options: Options, _data: StudyData) -> list[Planned]:
    """List a cell for every strategy and budget."""
    return [
        Planned(
            {"alpha": UNIFORM if alpha is None else alpha, "budget": budget},
            SamplingCell(alpha, budget, options.samples),
        )
        for alpha in (None, *options.alphas)
        for budget in options.budgets
    ]


def show(outcomes: Sequence[Outcome]) -> Exhibit:
    """Show sampling regret over budgets by strategy, and over α by budget."""
    alphas = [float(value) for value in axis(outcomes, "alpha")]
    budgets = [int(value) for value in axis(outcomes, "budget")]
    rows: list[dict[str, Any]] = []
    points: dict[tuple[float, int], dict[str, Any]] = {}
    for alpha in alphas:
        for budget in budgets:
            for item in pick(outcomes, alpha=alpha, budget=budget):
                points[alpha, budget] = _point(item)
                rows.append({"strategy": _title(alpha), "budget": budget, **points[alpha, budget]})
    matrix = [
        {"strategy": _title(alpha)}
        | {f"b{b}": points[alpha, b]["mean"] for b in budgets if (alpha, b) in points}
        | {f"b{b}_band": points[alpha, b]["band"] for b in budgets if (alpha, b) in points}
        for alpha in alphas
    ]

    def line(title: str, keys: Sequence[tuple[float, int]], x: Sequence[float]) -> Series:
        listed = [points[key] for key in keys]
        return Series(
            title, x, [point["mean"] for point in listed],
            [point["band"][0] for point in listed], [point["band"][1] for point in listed],
        )  # fmt: skip

    def draw_budgets(figure: Figure) -> None:
        series = []
        for alpha in _shown(alphas):
            keys = [(alpha, budget) for budget in budgets if (alpha, budget) in points]
            series.append(line(_title(alpha), keys, [budget for _, budget in keys]))
        ax = figure.add_subplot()
        draw_lines(ax, series, ("candidates measured of each problem", "mean sampling regret"), logarithmic=True)
        finish(figure, "y")

    def draw_alphas(figure: Figure) -> None:
        series = []
        for budget in budgets:
            keys = [(alpha, budget) for alpha in alphas if alpha != UNIFORM and (alpha, budget) in points]
            series.append(line(f"{budget} candidates", keys, [alpha for alpha, _ in keys]))
        ax = figure.add_subplot()
        draw_lines(ax, series, ("α: share from the top of the static score", "mean sampling regret"))
        finish(figure, "y")

    strategies = [
        Column("strategy", "strategy", "text"),
        *(Column(f"b{budget}", f"{budget} candidates", "pct", f"b{budget}_band") for budget in budgets),
    ]
    details = [
        Column("strategy", "strategy", "text"),
        Column("budget", "candidates", "int"),
        Column("share", "share of the pool"),
        Column("mean", "mean regret", "pct", "interval"),
        Column("median", "median over problems"),
        Column("within_1", "within 1%"),
        Column("within_5", "within 5%"),
    ]
    return Exhibit(
        [
            Table(
                "sampling",
                "Mean sampling regret by strategy and budget",
                strategies,
                matrix,
                "In brackets: 5th to 95th percentile over samples.",
            ),
            Table("sampling_details", "Every strategy and budget", details, rows, "In brackets: 95% over shapes."),
        ],
        [
            Plot(
                "sampling_budget",
                "Mean sampling regret over the number of candidates measured; bands hold 90% of the samples.",
                (6.4, 3.8),
                draw_budgets,
            ),
            Plot(
                "sampling_alpha",
                "Mean sampling regret over α, the share of a sample that is taken from the top of the static score, "
                "the rest stratified by tile and swap; bands hold 90% of the samples.",
                (6.4, 3.8),
                draw_alphas,
            ),
        ],
    )


def _point(item: Outcome) -> dict[str, Any]:
    """Summarise a cell: means over problems and samples, the band over samples, the interval over problems."""
    by_sample, regrets = np.array(item.result["by_sample"]), np.array(item.result["regrets"])
    low, high = np.quantile(by_sample, (0.05, 0.95))
    return {
        "mean": float(by_sample.mean()),
        "band": (float(low), float(high)),
        "interval": mean_interval(regrets, item.result["clusters"]),
        "median": float(np.median(regrets)),
        **{name: item.result[name] for name in ("share", "within_1", "within_5", "pool", "groups")},
    }


def _title(alpha: float) -> str:
    return strategy(None if alpha == UNIFORM else alpha)


def _shown(alphas: Sequence[float]) -> list[float]:
    """Return the strategies of the plot over budgets: uniform, both ends of α, and the one next to the paper's."""
    ordered = sorted(alpha for alpha in alphas if alpha != UNIFORM)
    shown = {ordered[0], ordered[-1], min(ordered, key=lambda alpha: abs(alpha - PAPER_ALPHA))} if ordered else set()
    return [alpha for alpha in alphas if alpha == UNIFORM or alpha in shown]


STUDY: Final = Study(
    "sampling",
    "Which candidates to measure",
    "Replay of the recorded measurements, no training: of each problem's measured kernels (a kernel, its swapped use "
    "and its splits of K are several candidates, each with its fastest measured launch) some are sampled, and the "
    "regret of the fastest one is taken against the fastest of all. The pool is what was measured, not the whole space "
    "of kernels.",
    ("budgets", "alphas", "samples"),
    plan,
    show,
)
