"""What a study shows: tables of plain values, and plots that read well in print and without colour."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ...generator import MissingDependency

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FORMATS: Final = ("svg", "pdf", "png")
"""Every plot is written as vectors for pages and for print, and as pixels for everything else."""
_DOTS_PER_INCH = 200
_STYLE: Final[Any] = {
    "svg.hashsalt": "cutlass-ranker",
    "svg.fonttype": "path",
    "pdf.fonttype": 42,
    "font.family": "DejaVu Sans",
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#444444",
    "axes.titlesize": 9.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#e2e2e2",
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "legend.fontsize": 8,
    "xtick.labelsize": 8,
    "lines.linewidth": 1.5,
    "lines.markersize": 5.5,
}
_MARKS: Final = (
    ("#0b4f8a", "o", "-", True),
    ("#c2570c", "s", "--", False),
    ("#1b7f5b", "^", "-.", True),
    ("#7a3b8f", "D", ":", False),
    ("#555555", "v", (0, (5, 1, 1, 1, 1, 1)), True),
    ("#a02030", "P", (0, (1, 1)), False),
    ("#8c6d1f", "X", (0, (8, 2)), True),
    ("#2a9db0", "<", (0, (4, 2, 1, 2, 1, 2)), False),
)
"""Colour, marker, line and whether the marker is filled: no two series share a marker or a line."""


@dataclass(frozen=True)
class Column:
    """A column of a table."""

    key: str
    title: str
    kind: str = "pct"
    """``text``, ``int``, ``pct`` (a fraction shown in per cent) or ``points`` (a signed difference of fractions)."""
    interval: str = ""
    """Key of the interval that is shown beside the value."""


@dataclass(frozen=True)
class Table:
    """Rows of plain values; a row may lack a value."""

    name: str
    title: str
    columns: Sequence[Column]
    rows: Sequence[Mapping[str, Any]]
    note: str = ""


@dataclass(frozen=True)
class Plot:
    """A figure."""

    name: str
    caption: str
    size: tuple[float, float]
    """Width and height, inches."""
    draw: Callable[[Figure], None]


@dataclass(frozen=True)
class Exhibit:
    """All that a study shows."""

    tables: Sequence[Table] = field(default_factory=list)
    plots: Sequence[Plot] = field(default_factory=list)


@dataclass(frozen=True)
class Series:
    """Points of one line or one row of dots, with the bars or the band around them."""

    title: str
    x: Sequence[float]
    y: Sequence[float]
    low: Sequence[float] | None = None
    high: Sequence[float] | None = None


def render(plot: Plot, folder: Path) -> str:
    """Write a plot in all ``FORMATS``, the same bytes for the same data, and return the SVG document.

    Raises
    ------
    MissingDependency
        If matplotlib is not installed.
    """
    try:
        import matplotlib as mpl
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingDependency("plots need matplotlib: pip install 'cutlass-ranker[report]'") from error
    folder.mkdir(parents=True, exist_ok=True)
    without_date: dict[str, dict[str, None]] = {
        "svg": {"Date": None, "Creator": None},
        "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
        "png": {"Software": None},
    }
    svg = ""
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=plot.size, layout="constrained")
        plot.draw(figure)
        for suffix in FORMATS:
            buffer = io.BytesIO()
            figure.savefig(buffer, format=suffix, dpi=_DOTS_PER_INCH, metadata=without_date[suffix])
            (folder / f"{plot.name}.{suffix}").write_bytes(buffer.getvalue())
            if suffix == "svg":
                svg = buffer.getvalue().decode()
    return svg


def draw_dots(ax: Axes, rows: Sequence[str], series: Sequence[Series], title: str, signed: bool = False) -> None:
    """Draw values of named rows, the first row on top, with horizontal bars.

    Parameters
    ----------
    ax
        Where to draw.
    rows
        Names of the rows.
    series
        ``y`` holds the positions of the points among ``rows``, ``x`` their values (fractions).
    title
        Of the axis of values.
    signed
        Whether values are differences, with a line at 0.
    """
    for number, item in enumerate(series):
        color, marker, _, filled = _MARKS[number % len(_MARKS)]
        shift = (number - (len(series) - 1) / 2) * min(0.26, 0.7 / len(series))
        places = [place + shift for place in item.y]
        bars = None
        if item.low is not None and item.high is not None:
            bars = [
                [max(x - low, 0.0) for x, low in zip(item.x, item.low, strict=True)],
                [max(high - x, 0.0) for x, high in zip(item.x, item.high, strict=True)],
            ]
        ax.errorbar(
            item.x, places, xerr=bars, fmt=marker, color=color, mfc=color if filled else "white",
            ecolor=color, elinewidth=1.0, capsize=2.0, label=item.title,
        )  # fmt: skip
    ax.set_yticks(range(len(rows)), list(rows))
    ax.set_ylim(len(rows) - 0.5, -0.5)
    ax.grid(visible=False, axis="y")
    for edge in range(1, len(rows)):
        ax.axhline(edge - 0.5, color="#eeeeee", linewidth=0.6, zorder=0)
    if signed:
        ax.axvline(0.0, color="#444444", linewidth=0.8)
    _percent_axis(ax.xaxis, signed)
    ax.set_xlabel(title)


def draw_lines(ax: Axes, series: Sequence[Series], titles: tuple[str, str], logarithmic: bool = False) -> None:
    """Draw lines over a number, with bands; there is a tick at every point.

    Parameters
    ----------
    ax
        Where to draw.
    series
        ``y`` are fractions.
    titles
        Of the horizontal and the vertical axis.
    logarithmic
        Whether the horizontal axis is.
    """
    for number, item in enumerate(series):
        color, marker, line, filled = _MARKS[number % len(_MARKS)]
        face = color if filled else "white"
        ax.plot(item.x, item.y, color=color, linestyle=line, marker=marker, mfc=face, label=item.title)
        if item.low is not None and item.high is not None:
            ax.fill_between(item.x, item.low, item.high, color=color, alpha=0.14, linewidth=0)
            for edge in (item.low, item.high):
                ax.plot(item.x, edge, color=color, linestyle=line, linewidth=0.5)
    if logarithmic:
        from matplotlib.ticker import NullLocator

        ax.set_xscale("log", base=2)
        ax.xaxis.set_minor_locator(NullLocator())
    ticks = sorted({x for item in series for x in item.x})
    ax.set_xticks(ticks, [_short(x) for x in ticks])
    _percent_axis(ax.yaxis)
    ax.set_xlabel(titles[0])
    ax.set_ylabel(titles[1])


def finish(figure: Figure, from_zero: str = "", title: str | None = None) -> None:
    """Let axes start at 0 once all is drawn, and name the series above the axes, where they hide nothing.

    Parameters
    ----------
    figure
        With the same series in all of its axes.
    from_zero
        ``x`` or ``y``: the axes that start at 0, if any.
    title
        What the series differ by.
    """
    for ax in figure.axes:
        if from_zero == "x":
            ax.set_xlim(left=0.0)
        elif from_zero == "y":
            ax.set_ylim(bottom=0.0)
    handles, labels = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=min(len(labels), 4), title=title)


def _percent_axis(ticks: Any, signed: bool = False) -> None:
    """Show fractions as per cent."""
    from matplotlib.ticker import FuncFormatter

    def text(value: float, _place: int) -> str:
        percent = round(100 * value, 6) + 0.0
        return f"{percent:{'+' if signed and percent else ''}.3g}%".replace("-", "−")

    ticks.set_major_formatter(FuncFormatter(text))


def _short(value: float) -> str:
    """Format a count: 512, 7.3k, 1.8M."""
    for size, letter in ((1e6, "M"), (1e3, "k")):
        if value >= 10 * size or (value >= size and value % 1):
            return f"{value / size:.2g}{letter}" if value < 100 * size else f"{value / size:.0f}{letter}"
    return f"{value:g}"
