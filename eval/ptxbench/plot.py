"""Plot of the baseline: speed-ups over cuBLAS by M."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from matplotlib.ticker import FuncFormatter

from ..drawing import legend_beside

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MARKS: Final[Any] = {
    "first": {"label": "the selector's first", "marker": "s", "markersize": 6, "color": "#0b3c6f"},
    "best": {
        "label": "the best seed", "marker": "o", "markersize": 10, "color": "#0b3c6f", "fillstyle": "none",
        "markeredgewidth": 1.4,
    },
    "retrieved": {"label": "best retrieved", "marker": "^", "markersize": 6.5, "color": "#c75b00"},
    "oracle": {"label": "oracle of the catalogue", "marker": "*", "markersize": 10, "color": "#1b7f6b"},
}  # fmt: skip
_PLACES: Final = {"selector": (-0.34, 0.1), "retrieved": (0.23, 0.23), "oracle": (0.36, 0.36)}
"""Where the candidates of an origin lie beside the place of their M: of the first and of the last."""


def draw_baseline(ax: Axes, section: Mapping[str, Any]) -> None:
    """Draw the selector's candidates as dots in its order, left to right, with the range of their trials; mark picks.

    Parameters
    ----------
    ax
        Where to draw.
    section
        What :func:`~.baseline.summarise` returns.
    """
    ax.axhline(1.0, color="#555555", linewidth=1)
    marked: dict[str, list[tuple[float, float]]] = {key: [] for key in _MARKS}
    dots: list[tuple[float, float, tuple[float, float]]] = []
    for center, size in enumerate(section["sizes"]):
        place: dict[str, float] = {}
        for origin, (left, right) in _PLACES.items():
            members = [one for one in size["candidates"] if one["origin"] == origin]
            step = (right - left) / max(len(members) - 1, 1)
            place |= {one["name"]: center + left + step * i for i, one in enumerate(members)}
        picks = [pick for pick in size["picks"] if pick["failed_gate"] is None]
        for pick in picks:
            marked[pick["key"]].append((place[pick["name"]], pick["speedup"]))
        passed = [one for one in size["candidates"] if one["origin"] == "selector" and one["failed_gate"] is None]
        drawn = {one["name"]: (one["speedup"], one["speedup_range"]) for one in (*passed, *picks)}
        dots += [(place[name], *speeds) for name, speeds in drawn.items()]
    for x, value, (low, high) in dots:
        ax.plot([x, x], [low, high], color="#333333", linewidth=0.9, zorder=1.5)
        ax.plot(x, value, "o", color="#7da7cf", markersize=4)
    ax.plot([], [], "o", color="#7da7cf", markersize=4, label="the selector's, in its order")
    for key, style in _MARKS.items():
        if marked[key]:
            ax.plot(*zip(*marked[key], strict=True), linestyle="", **style)
        for x, value in marked[key] if key in ("best", "oracle") else ():
            ax.annotate(f"{value:.3f}", (x, value), (0, 8), textcoords="offset points", ha="center", fontsize=7.5)
    ax.set_xticks(range(len(section["sizes"])), [f"M = {size['m']}" for size in section["sizes"]])
    ax.set_xlim(-0.5, len(section["sizes"]) - 0.5)
    ax.margins(y=0.14)
    ax.grid(visible=False, axis="x")
    ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}×"))
    ax.set_ylabel("time of cuBLAS / time")
    ax.set_title("Speed-up over cuBLAS; bars: range of the trials")
    legend_beside(ax)
