"""Plots of a report, as SVG text: drawn without a display and byte-identical for the same data."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from textwrap import fill
from typing import TYPE_CHECKING, Any, Final

import matplotlib as mpl
import numpy as np
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullFormatter

from .evaluation import Evaluation

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_RANKER_COLORS: Final = ("#0b5fa5", "#3d9bd8", "#1b7f6b", "#6a51a3", "#8fb8de", "#74c0a8")
_COLORS: Final = {
    "nvmmh_best": "#d9730d",
    "nvmmh_mean": "#f2b179",
    "cublaslt_first": "#5e8c1f",
    "cublaslt_best": "#a3c46c",
    "static_best": "#6b6b6b",
    "analytic": "#a0a0a0",
    "random": "#c8c8c8",
}
_STYLE: Final[Any] = {
    "svg.hashsalt": "cutlass-ranker",
    "svg.fonttype": "path",
    "font.family": "DejaVu Sans",
    "font.size": 9.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#555555",
    "axes.titlesize": 10.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#e6e6e6",
    "grid.linewidth": 0.7,
    "legend.frameon": False,
    "legend.fontsize": 8.5,
}

Report = Mapping[str, Any]


def colors_of(evaluation: Evaluation) -> dict[str, str]:
    """Return a colour for each method: blues and greens for rankers, fixed ones for the baselines."""
    spare = iter(_RANKER_COLORS * (1 + len(evaluation.results) // len(_RANKER_COLORS)))
    return {name: _COLORS.get(name) or next(spare) for name in evaluation.results}


def draw_all(evaluation: Evaluation, report: Report) -> dict[str, str]:
    """Draw every plot.

    Parameters
    ----------
    evaluation
        Methods on the evaluation groups.
    report
        Dictionary made by :func:`~.summary.build_summary` from the same evaluation.

    Returns
    -------
    dict
        Plot name -> SVG document.
    """
    colors = colors_of(evaluation)
    with mpl.rc_context(_STYLE):
        return {
            "regret_bars": _svg((7.2, 0.32 * len(evaluation.results) + 0.9), lambda ax: _bars(ax, report, colors)),
            "regret_cdf": _svg((8.4, 4.0), lambda ax: _cdf(ax, evaluation, colors)),
            "speedup": _svg((8.4, 3.8), lambda ax: _speedup(ax, evaluation, report["default_model"], colors)),
            "regimes": _svg((7.2, 0.34 * len(report["regimes"]) + 1.9), lambda ax: _regimes(ax, report)),
            "best_of_k": _svg((7.2, 2.9), lambda ax: _best_of(ax, evaluation, report, colors)),
        }


def _svg(size: tuple[float, float], draw: Callable[[Axes], None]) -> str:
    """Draw on a fresh figure of the given size (inches) and return the SVG."""
    figure = Figure(figsize=size, layout="constrained")
    FigureCanvasSVG(figure)
    draw(figure.add_subplot())
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    return buffer.getvalue()


def _percent(value: float, _position: int = 0) -> str:
    """Format a fraction for an axis."""
    return f"{100 * value:.0f}%"


def _legend_beside(ax: Axes) -> None:
    """Put the legend to the right of the plot, where it hides no curve."""
    ax.legend(loc="center left", bbox_to_anchor=(1.01, 0.5))


def _bars(ax: Axes, report: Report, colors: Mapping[str, str]) -> None:
    """Mean regret of each method with its interval, best on top."""
    methods = {name: m for name, m in report["methods"].items() if m["mean_regret"] is not None}
    order = sorted(methods, key=lambda name: -methods[name]["mean_regret"])
    means = np.array([methods[name]["mean_regret"] for name in order])
    bounds = np.array([methods[name]["ci"]["mean_regret"] for name in order]).reshape(len(order), 2)
    error = np.abs(np.column_stack([means - bounds[:, 0], bounds[:, 1] - means]).T)
    ax.barh(np.arange(len(order)), means, height=0.68, color=[colors[name] for name in order])
    ax.errorbar(means, np.arange(len(order)), xerr=error, fmt="none", ecolor="#333333", elinewidth=1, capsize=2.5)
    for y, (mean, (_, high)) in enumerate(zip(means, bounds, strict=True)):
        ax.annotate(f"{100 * mean:.1f}%", (max(high, mean, 0.0), y), (5, 0), textcoords="offset points", va="center")
    ax.axvline(0.0, color="#555555", linewidth=0.8)
    ax.set_yticks(np.arange(len(order)), [methods[name]["title"] for name in order])
    ax.grid(visible=False, axis="y")
    ax.xaxis.set_major_formatter(FuncFormatter(_percent))
    ax.margins(x=0.1)
    ax.set_title("Mean regret, 95% bootstrap interval")


def _cdf(ax: Axes, evaluation: Evaluation, colors: Mapping[str, str]) -> None:
    """Share of groups with at most a given regret."""
    for name, result in evaluation.results.items():
        values = np.sort(result.scores[:, 0][~np.isnan(result.scores[:, 0])])
        if not values.size:
            continue
        share = np.arange(1, len(values) + 1) / len(evaluation.groups)
        style = "-" if result.method.kind == "ranker" else "--" if result.method.kind == "simple" else "-."
        width = 2.0 if result.method.kind == "ranker" else 1.4
        x = np.concatenate([[-1.0], values, [1.0]])
        y = np.concatenate([[0.0], share, [share[-1]]])
        ax.step(x, y, where="post", color=colors[name], linestyle=style, linewidth=width, label=result.method.title)
    ax.set_xlim(-0.06, 0.5)
    ax.set_ylim(0, 1.02)
    ax.axvline(0.0, color="#555555", linewidth=0.8)
    ax.xaxis.set_major_formatter(FuncFormatter(_percent))
    ax.yaxis.set_major_formatter(FuncFormatter(_percent))
    ax.set_xlabel("regret (below 0: faster than every CUTLASS candidate)")
    ax.set_ylabel("share of problems at or below")
    ax.set_title("Regret over problems")
    _legend_beside(ax)


def _speedup(ax: Axes, evaluation: Evaluation, default: str, colors: Mapping[str, str]) -> None:
    """Speed-ups of the default model, sorted, one curve per baseline."""
    chosen = evaluation.results[default].time_us
    extreme = 1.1
    for name in ("nvmmh_mean", "nvmmh_best", "cublaslt_first", "cublaslt_best"):
        if name not in evaluation.results:
            continue
        ratio = evaluation.results[name].time_us / chosen
        ratio = np.sort(ratio[~np.isnan(ratio)])
        if not ratio.size:
            continue
        extreme = max(extreme, float(ratio[-1]), float(1 / ratio[0]))
        share = (np.arange(len(ratio)) + 0.5) / len(ratio)
        title = f"{evaluation.results[name].method.title}:\n{np.exp(np.log(ratio).mean()):.2f}×"
        ax.plot(share, ratio, color=colors[name], linewidth=1.8, marker=".", markersize=4, label=title)
    ax.axhline(1.0, color="#555555", linewidth=1)
    ax.set_yscale("log")
    ticks = [
        t
        for t in (0.1, 0.15, 0.25, 0.33, 0.5, 0.67, 0.8, 0.9, 1, 1.1, 1.25, 1.5, 2, 3, 4, 8)
        if 1 / extreme <= t <= extreme
    ]
    ax.yaxis.set_major_locator(FixedLocator(_spaced(ticks)))
    ax.yaxis.set_minor_locator(FixedLocator([]))
    ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}×"))
    ax.yaxis.set_minor_formatter(NullFormatter())
    ax.xaxis.set_major_formatter(FuncFormatter(_percent))
    ax.set_xlim(0, 1)
    ax.set_xlabel("problems, sorted by speed-up")
    ax.set_ylabel("baseline time / chosen time")
    ax.set_title(f"Speed-up of {default} and its geometric mean")
    _legend_beside(ax)


def _spaced(ticks: Sequence[float], gap: float = 0.08) -> list[float]:
    """Drop ticks that would touch on a log axis: each kept one lies at least ``gap`` of the log range from the last."""
    if len(ticks) < 2:
        return list(ticks)
    least = gap * np.log(ticks[-1] / ticks[0])
    kept = [1.0]
    for tick in [t for t in ticks if t > 1]:
        if np.log(tick / kept[-1]) >= least:
            kept.append(tick)
    for tick in reversed([t for t in ticks if t < 1]):
        if np.log(kept[0] / tick) >= least:
            kept.insert(0, tick)
    return kept


def _regimes(ax: Axes, report: Report) -> None:
    """Mean regret by slice and method, as a table of shaded cells."""
    names = [name for name in report["methods"] if name not in ("random", "analytic")]
    everything = {"title": "all", "groups": report["evaluation"]["groups"], "methods": report["methods"]}
    parts = [everything, *report["regimes"].values()]
    means = [[part["methods"][name]["mean_regret"] for name in names] for part in parts]
    values = np.array(means, dtype=np.float64)  # None becomes NaN
    ax.imshow(np.clip(values, 0.0, 0.3), aspect="auto", cmap="YlOrRd", vmin=0.0, vmax=0.45)
    for i, row in enumerate(values):
        for j, value in enumerate(row):
            text = "–" if np.isnan(value) else f"{round(100 * value, 1) + 0.0:.1f}".replace("-", "−")
            ax.text(j, i, text, ha="center", va="center", fontsize=8.5, color="#222222")
    titles = [fill(report["methods"][name]["title"], 10) for name in names]
    ax.set_xticks(np.arange(len(names)), titles, fontsize=7.5)
    ax.xaxis.tick_top()
    ax.set_yticks(np.arange(len(parts)), [f"{part['title']} ({part['groups']})" for part in parts])
    ax.tick_params(length=0)
    ax.grid(visible=False)
    for spine in ax.spines.values():
        spine.set_visible(False)


def _best_of(ax: Axes, evaluation: Evaluation, report: Report, colors: Mapping[str, str]) -> None:
    """Mean regret left after measuring the first k proposals of each ranker."""
    for name, by_k in report["best_of_k"].items():
        if not by_k:
            continue
        ks = [int(k) for k in by_k]
        means = [by_k[str(k)]["mean_regret"] for k in ks]
        ax.plot(ks, means, marker="o", color=colors[name], linewidth=1.8, label=evaluation.results[name].method.title)
    ax.set_xscale("log", base=2)
    ax.xaxis.set_major_locator(FixedLocator([1, 2, 4, 8]))
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.0f}"))
    ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:.1f}%"))
    ax.set_ylim(bottom=0)
    ax.set_xlabel("kernels measured, in the ranker's order")
    ax.set_ylabel("mean regret left")
    ax.set_title("Measure a few: regret of the best of k proposals")
    ax.legend(loc="upper right")
