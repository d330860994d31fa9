"""Study ``capacity``: how large a ranker has to be."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from ...features import feature_names
from .cells import Outcome, Planned
from .data import StudyData
from .exhibits import Column, Exhibit, Plot, Series, Table, draw_lines, finish
from .options import Options
from .scores import Score, axis, pick, score
from .studies import KIND_TITLES, SCORE_COLUMNS, Study, score_row
from .training import TrainingCell

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def plan(options: Options, _data: StudyData) -> list[Planned]:
    """List a cell for every size of every family and every seed."""
    names = feature_names("full")
    planned = []
    for kind in options.kinds:
        for seed in range(options.seeds):
            if kind == "mlp":
                sizes = [
                    ("x".join(map(str, each)), options.training(kind, seed, hidden=each)) for each in options.hidden
                ]
            else:
                sizes = [(f"depth {each}", options.training(kind, seed, depth=each)) for each in options.depths]
            planned += [
                Planned({"kind": kind, "size": size, "seed": seed}, TrainingCell(config, names))
                for size, config in sizes
            ]
    return planned


def show(outcomes: Sequence[Outcome]) -> Exhibit:
    """Show regret over the number of parameters."""
    rows = []
    found: dict[str, list[tuple[float, Score]]] = {}
    for kind in axis(outcomes, "kind"):
        for size in axis(pick(outcomes, kind=kind), "size"):
            result = score(pick(outcomes, kind=kind, size=size))
            place = result.parameters if kind == "mlp" else float(str(size).removeprefix("depth "))
            found.setdefault(str(kind), []).append((place, result))
            title = {"kind": KIND_TITLES[str(kind)], "size": size}
            rows.append({**title, "parameters": result.parameters, **score_row(result)})

    def draw(figure: Figure) -> None:
        axes = figure.subplots(1, len(found), sharey=True, squeeze=False)[0]
        for ax, (kind, points) in zip(axes, found.items(), strict=True):
            x, scores = [size for size, _ in points], [item for _, item in points]
            series = [
                Series("evaluation", x, [item.mean for item in scores],
                       [min(item.by_seed) for item in scores], [max(item.by_seed) for item in scores]),
                Series("cross-validation", x, [item.cross for item in scores],
                       [min(item.cross_by_seed) for item in scores], [max(item.cross_by_seed) for item in scores]),
            ]  # fmt: skip
            what = "weights and biases" if kind == "mlp" else "depth of trees"
            draw_lines(ax, series, (what, "mean regret" if ax is axes[0] else ""), logarithmic=kind == "mlp")
            ax.set_title(KIND_TITLES[kind])
        finish(figure, "y")

    columns = [
        Column("kind", "family", "text"),
        Column("size", "size", "text"),
        Column("parameters", "parameters", "int"),
        *SCORE_COLUMNS,
    ]
    return Exhibit(
        [
            Table(
                "capacity",
                "Size of the ranker",
                columns,
                rows,
                "Parameters: weights and biases, or nodes of all trees.",
            )
        ],
        [
            Plot(
                "capacity",
                "Mean regret over the size of the ranker; bands are the range over training seeds.",
                (3.5 * max(len(found), 1) + 0.4, 3.2),
                draw,
            )
        ],
    )


STUDY: Final = Study(
    "capacity",
    "Capacity",
    "The MLP with hidden layers of growing number and width, boosted trees of growing depth; everything else as "
    "configured. Cross-validation chooses the number of boosting rounds at each depth.",
    ("kinds", "hidden", "depths", "seeds", "folds", "rounds", "epochs", "members"),
    plan,
    show,
)
