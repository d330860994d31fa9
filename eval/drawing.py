"""What all plots share: style, one look for each method, SVG text that is byte-identical for the same data.

Methods differ by line, marker and hatch as well as by colour, so that a plot can be read in print.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from .evaluation import Evaluation

STYLE: Final[Any] = {
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
    "hatch.linewidth": 0.6,
    "legend.frameon": False,
    "legend.fontsize": 8.5,
}


class Look(NamedTuple):
    """How a method is drawn."""

    color: str
    line: Any
    marker: str
    hatch: str


_RANKERS: Final = (
    Look("#0b3c6f", "-", "o", ""),
    Look("#2f8fd0", "-", "s", "//"),
    Look("#1b7f6b", (0, (6, 1)), "^", "\\\\"),
    Look("#6a51a3", (0, (6, 1)), "D", "xx"),
    Look("#7da7cf", (0, (3, 1)), "v", "||"),
    Look("#5fb8a0", (0, (3, 1)), "P", "--"),
)
_BASELINES: Final = {
    "nvmmh_best": Look("#c75b00", (0, (7, 2, 1.5, 2)), "X", "-"),
    "nvmmh_mean": Look("#efa763", (0, (7, 2, 1.5, 2)), "x", "--"),
    "cublaslt_first": Look("#4d7a12", (0, (4, 2)), "h", "+"),
    "cublaslt_best": Look("#9cc258", (0, (4, 2)), "+", "|"),
    "static_best": Look("#555555", (0, (1, 1.2)), "<", "/"),
    "analytic": Look("#8f8f8f", (0, (1, 1.2)), ">", "\\"),
    "random": Look("#bdbdbd", (0, (1, 2.4)), "*", ""),
}


def looks_of(evaluation: Evaluation) -> dict[str, Look]:
    """Return a look for each method: blues and greens for rankers, fixed ones for the baselines."""
    spare = iter(_RANKERS * (1 + len(evaluation.results) // len(_RANKERS)))
    return {name: _BASELINES.get(name) or next(spare) for name in evaluation.results}


def svg(size: tuple[float, float], draw: Callable[[list[Axes]], None], panels: int = 1) -> str:
    """Draw on a fresh figure of the given size (inches) with panels side by side, and return the SVG."""
    figure = Figure(figsize=size, layout="constrained")
    FigureCanvasSVG(figure)
    draw(list(figure.subplots(1, panels, squeeze=False)[0]))
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    return buffer.getvalue()


def percent(value: float, _position: int = 0) -> str:
    """Format a fraction for an axis."""
    return f"{100 * value:.3g}%".replace("-", "−")


def legend_beside(ax: Axes) -> None:
    """Put the legend to the right of the plot, where it hides no curve."""
    ax.legend(loc="center left", bbox_to_anchor=(1.01, 0.5))
