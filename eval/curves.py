"""Plots of what the rankers know and what the catalogue holds: reliability, best of k, ceiling."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator

from .drawing import Look, percent

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Report = Mapping[str, Any]

_CEILING: Final = (
    ("nvmmh_best", "over nvMMH's best variant"),
    ("cublaslt_first", "over cuBLASLt's first"),
    ("cublaslt_best", "over cuBLASLt's best"),
)


def draw_reliability(panels: list[Axes], report: Report) -> None:
    """Found against predicted regret, for the picks and for all proposals of the default model."""
    found = report["calibration"][report["default_model"]]
    for ax, (key, title) in zip(panels, (("picks", "Picks"), ("proposals", "First 8 proposals")), strict=True):
        bins = [one for one in found[key]["bins"] if one["ci"][0] is not None]
        x, y = (np.array([one[name] for one in bins]) for name in ("predicted", "found"))
        low, high = np.array([one["ci"] for one in bins]).reshape(len(bins), 2).T
        error = np.abs(np.stack([y - low, high - y]))
        limit = 1.08 * max(float(high.max()), float(x.max()), 0.01) if len(bins) else 0.01
        ax.plot([0, limit], [0, limit], color="#555555", linewidth=1, linestyle=(0, (4, 3)), label="perfect")
        ax.errorbar(x, y, yerr=error, fmt="o", color="#0b3c6f", markersize=5, capsize=3, linewidth=1.1, label="found")
        for one in bins:
            ax.annotate(
                str(one["count"]), (one["predicted"], one["found"]), (5, -9), textcoords="offset points", fontsize=7
            )
        ax.set_xlim(0, limit)
        ax.set_ylim(0, limit)
        for axis in (ax.xaxis, ax.yaxis):
            axis.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10]))
            axis.set_major_formatter(FuncFormatter(percent))
        ax.set_xlabel("mean expected regret")
        ax.set_ylabel("mean regret found")
        ax.set_title(f"{title}: calibration error {100 * found[key]['ece']:.2f}%", fontsize=9.5)
        ax.legend(loc="upper left")


def draw_best_of(panels: list[Axes], report: Report, looks: Mapping[str, Look]) -> None:
    """Mean regret left, and share of problems within 1% of the oracle, after measuring the first k proposals."""
    for ax, key, label in zip(
        panels,
        ("mean_regret", "within_1"),
        ("mean regret left", "share within 1% of the oracle"),
        strict=True,
    ):
        for name, by_k in report["best_of_k"].items():
            if not by_k:
                continue
            look, ks = looks[name], [int(k) for k in by_k]
            means = [one[key] for one in by_k.values()]
            low, high = zip(*(one["ci"][key] for one in by_k.values()), strict=True)
            title = report["methods"][name]["title"]
            ax.fill_between(ks, low, high, color=look.color, alpha=0.13, linewidth=0)
            ax.plot(ks, means, color=look.color, linestyle=look.line, marker=look.marker, markersize=5, label=title)
        ax.set_xscale("log", base=2)
        ax.xaxis.set_major_locator(FixedLocator([1, 2, 4, 8]))
        ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.0f}"))
        ax.yaxis.set_major_formatter(FuncFormatter(percent))
        ax.set_xlabel("kernels measured, in the ranker's order")
        ax.set_title(label[0].upper() + label[1:])
    panels[0].set_ylim(bottom=0)
    panels[1].set_ylim(top=1)
    panels[0].legend(loc="upper right")


def draw_ceiling(panels: list[Axes], report: Report) -> None:
    """Speed-up of the default model and of the oracle over each baseline, slice by slice."""
    everything = {key: report[key] for key in ("speedup", "ceiling")} | {
        "title": "all",
        "groups": report["evaluation"]["groups"],
    }
    parts = [everything, *report["regimes"].values()]
    rows = np.arange(len(parts))
    for ax, (name, title) in zip(panels, _CEILING, strict=True):
        values = np.array(
            [[part[key].get(name, {}).get("geomean") for key in ("speedup", "ceiling")] for part in parts],
            dtype=np.float64,
        )  # None becomes NaN
        ax.hlines(rows, values[:, 0], values[:, 1], color="#999999", linewidth=1.2)
        ax.plot(values[:, 0], rows, linestyle="", marker="o", color="#0b3c6f", markersize=5, label="picked")
        ax.plot(
            values[:, 1], rows, linestyle="", marker="D", markerfacecolor="white", color="#c75b00", markersize=5,
            label="oracle",
        )  # fmt: skip
        ax.axvline(1.0, color="#555555", linewidth=1)
        ax.xaxis.set_major_locator(MaxNLocator(4, steps=[1, 2, 5, 10]))
        ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}×"))
        ax.set_ylim(len(parts) - 0.5, -0.5)
        ax.set_yticks(rows, [f"{part['title']} ({part['groups']})" for part in parts] if ax is panels[0] else [])
        ax.set_title(title, fontsize=8.5)
    panels[0].legend(loc="best", fontsize=8)
