"""Study ``features``: what the computed features add to the stated ones, by family and objective."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from ...features import feature_names
from .cells import Outcome, Planned
from .data import StudyData
from .exhibits import Column, Exhibit, Plot, Series, Table, draw_dots, finish
from .options import Options
from .scores import Score, axis, difference, pick, score
from .studies import KIND_TITLES, SCORE_COLUMNS, Study, score_row
from .training import TrainingCell

if TYPE_CHECKING:
    from matplotlib.figure import Figure

OBJECTIVE_TITLES: Final = {
    "xgboost": {"lambdarank": "ndcg", "ranknet": "pairwise", "mse": "mse"},
    "mlp": {"lambdarank": "LambdaRank", "ranknet": "RankNet", "mse": "MSE"},
}
"""What each family calls the objectives."""
SETS: Final = ("full", "structural")


def plan(options: Options, _data: StudyData) -> list[Planned]:
    """List a cell for every family, objective, feature set and seed."""
    return [
        Planned(
            {"kind": kind, "objective": objective, "features": chosen, "seed": seed},
            TrainingCell(options.training(kind, seed, objective=objective, feature_set=chosen), feature_names(chosen)),
        )
        for kind in options.kinds
        for objective in options.objectives
        for chosen in SETS
        for seed in range(options.seeds)
    ]


def show(outcomes: Sequence[Outcome]) -> Exhibit:
    """Show regret with full and with structural features side by side."""
    rows: list[dict[str, Any]] = []
    names: list[str] = []
    found: dict[str, list[tuple[int, Score]]] = {name: [] for name in SETS}
    for kind in axis(outcomes, "kind"):
        for objective in axis(outcomes, "objective"):
            scores: dict[str, Score] = {}
            title = {"kind": KIND_TITLES[str(kind)], "objective": OBJECTIVE_TITLES[str(kind)][str(objective)]}
            for chosen in SETS:
                members = pick(outcomes, kind=kind, objective=objective, features=chosen)
                if members:
                    scores[chosen] = score(members)
                    found[chosen].append((len(names), scores[chosen]))
                    rows.append({**title, "features": chosen, **score_row(scores[chosen])})
            if len(scores) == len(SETS):
                rows[-1]["change"], rows[-1]["change_interval"] = difference(scores["structural"], scores["full"])
            if scores:
                names.append(f"{title['kind']}, {title['objective']}")

    def draw(figure: Figure) -> None:
        left, right = figure.subplots(1, 2, sharex=True, sharey=True)
        draw_dots(left, names, [_evaluated(name, found[name]) for name in SETS], "mean regret, evaluation")
        draw_dots(right, names, [_validated(name, found[name]) for name in SETS], "mean regret, cross-validation")
        finish(figure, "x", "features")

    columns = [
        Column("kind", "family", "text"),
        Column("objective", "objective", "text"),
        Column("features", "features", "text"),
        *SCORE_COLUMNS,
        Column("change", "structural − full", "points", "change_interval"),
    ]
    return Exhibit(
        [Table("features", "Full against structural features", columns, rows)],
        [
            Plot(
                "features",
                "Mean regret with all features (filled circles) and with the structural ones only (open squares). "
                "Bars: 95% intervals over shapes on the left, the range over training seeds on the right.",
                (7.2, 0.42 * len(names) + 1.6),
                draw,
            )
        ],
    )


def _evaluated(title: str, found: Sequence[tuple[int, Score]]) -> Series:
    """Mean regret on the evaluation problems, with intervals over problems."""
    scores = [item for _, item in found]
    return Series(
        title,
        [item.mean for item in scores],
        [place for place, _ in found],
        [item.interval[0] for item in scores],
        [item.interval[1] for item in scores],
    )


def _validated(title: str, found: Sequence[tuple[int, Score]]) -> Series:
    """Mean cross-validated regret, with the range over seeds."""
    scores = [item for _, item in found]
    return Series(
        title,
        [item.cross for item in scores],
        [place for place, _ in found],
        [min(item.cross_by_seed) for item in scores],
        [max(item.cross_by_seed) for item in scores],
    )


STUDY: Final = Study(
    "features",
    "Full against structural features",
    "Each family is trained with each objective on all features and on the structural ones, which only state problem, "
    "kernel and launch. The last column is the rise of regret without the computed features, problems in pairs.",
    ("kinds", "objectives", "seeds", "folds", "rounds", "epochs", "members"),
    plan,
    show,
)
