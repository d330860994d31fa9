"""Plots of a report, as SVG text: drawn without a display and byte-identical for the same data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from textwrap import fill
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
import numpy as np
from matplotlib.ticker import FixedLocator, FuncFormatter, NullFormatter

from .curves import draw_best_of, draw_ceiling, draw_reliability
from .drawing import STYLE, Look, legend_beside, looks_of, percent, svg
from .evaluation import Evaluation
from .ptxbench.plot import draw_baseline

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Report = Mapping[str, Any]


def draw_all(evaluation: Evaluation, report: Report) -> dict[str, str]:
    """Draw every plot.

    Parameters
    ----------
    evaluation
        Methods on the evaluation groups.
    report
        Dictionary made by :func:`~.summary.build_summary` from the same evaluation, with the section ``ptxbench``.

    Returns
    -------
    dict
        Plot name -> SVG document. ``reliability`` is there only if the default model states an expected regret,
        ``ptxbench`` only if its section is not empty.
    """
    looks, default = looks_of(evaluation), report["default_model"]
    rows = len(report["regimes"])
    with mpl.rc_context(STYLE):
        plots = {
            "regret_bars": svg((7.2, 0.32 * len(evaluation.results) + 0.9), lambda ax: _bars(ax[0], report, looks)),
            "regret_cdf": svg((8.4, 4.0), lambda ax: _cdf(ax[0], evaluation, looks)),
            "speedup": svg((8.4, 3.8), lambda ax: _speedup(ax[0], evaluation, default, looks)),
            "ceiling": svg((8.4, 0.27 * rows + 1.3), lambda ax: draw_ceiling(ax, report), panels=3),
            "regimes": svg((7.2, 0.3 * rows + 1.9), lambda ax: _regimes(ax[0], report)),
            "best_of_k": svg((8.4, 3.3), lambda ax: draw_best_of(ax, report, looks), panels=2),
        }
        if default in report["calibration"]:
            plots["reliability"] = svg((8.4, 3.6), lambda ax: draw_reliability(ax, report), panels=2)
        if report["ptxbench"]:
            plots["ptxbench"] = svg((8.4, 3.8), lambda ax: draw_baseline(ax[0], report["ptxbench"]))
        return plots


def _bars(ax: Axes, report: Report, looks: Mapping[str, Look]) -> None:
    """Mean regret of each method with its interval, best on top."""
    methods = {name: m for name, m in report["methods"].items() if m["mean_regret"] is not None}
    order = sorted(methods, key=lambda name: -methods[name]["mean_regret"])
    means = np.array([methods[name]["mean_regret"] for name in order])
    bounds = np.array([methods[name]["ci"]["mean_regret"] for name in order]).reshape(len(order), 2)
    error = np.abs(np.column_stack([means - bounds[:, 0], bounds[:, 1] - means]).T)
    for y, (name, mean) in enumerate(zip(order, means, strict=True)):
        look = looks[name]
        ax.barh(y, mean, height=0.68, color=look.color, hatch=look.hatch, edgecolor="white", linewidth=0)
    ax.errorbar(means, np.arange(len(order)), xerr=error, fmt="none", ecolor="#333333", elinewidth=1, capsize=2.5)
    for y, (mean, (_, high)) in enumerate(zip(means, bounds, strict=True)):
        ax.annotate(percent(round(mean, 3)), (max(high, mean, 0.0), y), (5, 0), textcoords="offset points", va="center")
    ax.axvline(0.0, color="#555555", linewidth=0.8)
    ax.set_yticks(np.arange(len(order)), [methods[name]["title"] for name in order])
    ax.grid(visible=False, axis="y")
    ax.xaxis.set_major_formatter(FuncFormatter(percent))
    ax.margins(x=0.1)
    ax.set_title("Mean regret, 95% bootstrap interval")


def _cdf(ax: Axes, evaluation: Evaluation, looks: Mapping[str, Look]) -> None:
    """Share of groups with at most a given regret."""
    # Thresholds every 0.25%, zero among them: a step for each problem would only make the file large.
    levels = np.arange(-24, 201) * 0.0025
    for name, result in evaluation.results.items():
        values = result.scores[:, 0]
        if np.isnan(values).all():
            continue
        share = [np.count_nonzero(values <= level + 1e-9) / len(values) for level in levels]
        look, ranker = looks[name], result.method.kind == "ranker"
        ax.step(
            levels, share, where="post", color=look.color, linestyle=look.line, linewidth=1.8 if ranker else 1.3,
            marker=look.marker, markevery=(3 * len(ax.lines) % 24, 24), markersize=4, label=result.method.title,
        )  # fmt: skip
    ax.set_xlim(-0.06, 0.5)
    ax.set_ylim(0, 1.02)
    ax.axvline(0.0, color="#555555", linewidth=0.8)
    ax.xaxis.set_major_formatter(FuncFormatter(percent))
    ax.yaxis.set_major_formatter(FuncFormatter(percent))
    ax.set_xlabel("regret (below 0: faster than every CUTLASS candidate)")
    ax.set_ylabel("share of problems at or below")
    ax.set_title("Regret over problems")
    legend_beside(ax)


def _speedup(ax: Axes, evaluation: Evaluation, default: str, looks: Mapping[str, Look]) -> None:
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
        look = looks[name]
        ax.plot(
            share, ratio, color=look.color, linestyle=look.line, linewidth=1.6, marker=look.marker, markersize=4,
            markevery=max(1, len(ratio) // 12), label=title,
        )  # fmt: skip
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
    ax.xaxis.set_major_formatter(FuncFormatter(percent))
    ax.set_xlim(0, 1)
    ax.set_xlabel("problems, sorted by speed-up")
    ax.set_ylabel("baseline time / chosen time")
    ax.set_title(f"Speed-up of {default} and its geometric mean")
    legend_beside(ax)


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
    ax.imshow(np.clip(values, 0.0, 0.3), aspect="auto", cmap="Greys", vmin=0.0, vmax=0.7)
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
