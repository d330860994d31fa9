"""Study ``data``: how regret falls with the number of shapes that are trained on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from ...features import feature_names
from .cells import Outcome, Planned
from .data import StudyData, shape_count
from .exhibits import Column, Exhibit, Plot, Series, Table, draw_lines, finish
from .options import Options
from .scores import Score, axis, pick, score
from .studies import KIND_TITLES, SCORE_COLUMNS, Study, score_row
from .training import TrainingCell

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def plan(options: Options, data: StudyData) -> list[Planned]:
    """List a cell for every family, share of the base shapes and draw; no fewer shapes than folds are drawn."""
    total = shape_count(data.training)
    planned = []
    for kind in options.kinds:
        for fraction in options.fractions:
            for draw in range(options.draws):
                config = options.training(kind, draw)
                count = max(round(fraction * total), min(config.folds, total))
                # All shapes are the same set in every draw, so that only the training seed differs.
                part = {} if count >= total else {"shapes": count, "draw": draw}
                cell = TrainingCell(config, feature_names("full"), **part)
                planned.append(Planned({"kind": kind, "fraction": fraction, "seed": draw}, cell))
    return planned


def show(outcomes: Sequence[Outcome]) -> Exhibit:
    """Show regret over the number of base shapes."""
    rows = []
    found: dict[str, list[Score]] = {}
    for kind in axis(outcomes, "kind"):
        for fraction in axis(outcomes, "fraction"):
            members = pick(outcomes, kind=kind, fraction=fraction)
            if members:
                result = score(members)
                found.setdefault(KIND_TITLES[str(kind)], []).append(result)
                counts = {"fraction": fraction, "shapes": result.shapes}
                rows.append({"kind": KIND_TITLES[str(kind)], **counts, **score_row(result)})

    def draw(figure: Figure) -> None:
        left, right = figure.subplots(1, 2, sharey=True)
        for ax, title, part in ((left, "evaluation problems", "by_seed"), (right, "cross-validation", "cross_by_seed")):
            series = []
            for kind, scores in found.items():
                values = [getattr(item, part) for item in scores]
                means = [sum(by_draw) / len(by_draw) for by_draw in values]
                x = [item.shapes for item in scores]
                series.append(Series(kind, x, means, list(map(min, values)), list(map(max, values))))
            draw_lines(ax, series, ("base shapes trained on", "mean regret" if ax is left else ""), logarithmic=True)
            ax.set_title(title)
        finish(figure, "y")

    columns = [
        Column("kind", "family", "text"),
        Column("fraction", "share of shapes"),
        Column("shapes", "shapes", "int"),
        *(Column("seeds", "draws", "int") if item.key == "seeds" else item for item in SCORE_COLUMNS),
    ]
    return Exhibit(
        [Table("data", "Amount of training data", columns, rows)],
        [
            Plot(
                "data",
                "Mean regret over the number of base shapes trained on; bands are the range over draws.",
                (7.4, 3.2),
                draw,
            )
        ],
    )


STUDY: Final = Study(
    "data",
    "Amount of training data",
    "Rankers are trained on a random part of the base shapes; problems that share M, N and K (or have M and N "
    "exchanged) stay together, and a smaller part of a draw lies within a larger one. Every draw has its own training "
    "seed. The cross-validation is that of the part trained on, the evaluation problems are the same throughout.",
    ("kinds", "fractions", "draws", "folds", "rounds", "epochs", "members"),
    plan,
    show,
)
