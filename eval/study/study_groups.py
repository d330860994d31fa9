"""Study ``groups``: what each group of features is worth, left out of training or permuted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ...features import feature_names
from .cells import Labels, Outcome, Planned
from .data import StudyData
from .exhibits import Column, Exhibit, Plot, Series, Table, draw_dots, finish
from .importance import feature_groups
from .options import Options
from .scores import Score, axis, difference, pick, score
from .studies import KIND_TITLES, SCORE_COLUMNS, Study, score_row
from .training import TrainingCell

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NOTHING: Final = "nothing"
"""Label of the rankers that see all features."""
SHOWN: Final = 20
"""Features in the plot; the table has all."""


def plan(options: Options, _data: StudyData) -> list[Planned]:
    """List a cell for every family, left-out group (or nothing, with permutations) and seed."""
    names = feature_names("full")
    planned = []
    for kind in options.kinds:
        for without, dropped in {NOTHING: [], **feature_groups(names)}.items():
            kept = tuple(name for name in names if name not in set(dropped))
            for seed in range(options.seeds):
                permutations = options.permutations if without == NOTHING else 0
                cell = TrainingCell(options.training(kind, seed), kept, permutations=permutations)
                labels: Labels = {"kind": kind, "without": without, "features": len(kept), "seed": seed}
                planned.append(Planned(labels, cell))
    return planned


def show(outcomes: Sequence[Outcome]) -> Exhibit:
    """Show what leaving out costs, and permutation importance by group and by feature."""
    groups = list(feature_groups(feature_names("full")))
    left_out, plots = _left_out(outcomes, groups)
    by_group, by_feature = _importance(outcomes, "groups"), _importance(outcomes, "features")
    order = sorted(
        {name for found in by_feature.values() for name in found},
        key=lambda name: -max(float(np.mean(found.get(name, [0.0]))) for found in by_feature.values()),
    )
    tables = [
        left_out,
        _importance_table("permuted_groups", "Permutation importance of groups", by_group, groups),
        _importance_table("permuted_features", "Permutation importance of features", by_feature, order),
    ]
    for name, found, rows, what in (
        ("permuted_groups", by_group, groups, "a group of features is"),
        ("permuted_features", by_feature, order[:SHOWN], f"one of the {SHOWN} features that matter most is"),
    ):
        if found:
            plots.append(_importance_plot(name, found, rows, what))
    return Exhibit(tables, plots)


def _left_out(outcomes: Sequence[Outcome], groups: Sequence[str]) -> tuple[Table, list[Plot]]:
    """Make the table and plot of groups left out of training."""
    rows: list[dict[str, Any]] = []
    changes: dict[str, list[tuple[int, float, tuple[float, float]]]] = {}
    for kind in axis(outcomes, "kind"):
        title = KIND_TITLES[str(kind)]
        complete: Score | None = None
        for without in (NOTHING, *groups):
            members = pick(outcomes, kind=kind, without=without)
            if not members:
                continue
            found = score(members)
            row = {"kind": title, "without": without, "features": members[0].labels["features"], **score_row(found)}
            if without == NOTHING:
                complete = found
            elif complete is not None:
                row["change"], row["change_interval"] = difference(found, complete)
                row["cross_change"] = found.cross - complete.cross
                changes.setdefault(title, []).append((groups.index(without), row["change"], row["change_interval"]))
            rows.append(row)

    def draw(figure: Figure) -> None:
        series = [
            Series(
                title,
                [change for _, change, _ in listed],
                [place for place, _, _ in listed],
                [low for _, _, (low, _) in listed],
                [high for _, _, (_, high) in listed],
            )
            for title, listed in changes.items()
        ]
        ax = figure.add_subplot()
        draw_dots(ax, groups, series, "rise of mean regret when the group is left out", signed=True)
        finish(figure)

    columns = [
        Column("kind", "family", "text"),
        Column("without", "left out", "text"),
        Column("features", "features", "int"),
        *SCORE_COLUMNS,
        Column("change", "rise", "points", "change_interval"),
        Column("cross_change", "rise, cross-validated", "points"),
    ]
    plot = Plot(
        "left_out",
        "Rise of the mean regret on the evaluation problems when rankers are trained without a group of features; "
        "bars are 95% intervals over shapes, in pairs.",
        (6.4, 0.42 * len(groups) + 1.2),
        draw,
    )
    return Table("left_out", "Groups of features left out one at a time", columns, rows), [plot] if changes else []


def _importance(outcomes: Sequence[Outcome], part: str) -> dict[str, dict[str, list[float]]]:
    """Return the rises of regret by family title and name, of all seeds and permutations."""
    found: dict[str, dict[str, list[float]]] = {}
    for item in outcomes:
        importance = item.result.get("importance")
        if importance is not None:
            by_name = found.setdefault(KIND_TITLES[str(item.labels["kind"])], {})
            for name, values in importance[part].items():
                by_name.setdefault(name, []).extend(values)
    return found


def _importance_table(name: str, title: str, found: dict[str, dict[str, list[float]]], order: Sequence[str]) -> Table:
    """Make a table of importances, a row a name and a column a family."""
    rows: list[dict[str, Any]] = []
    for member in order:
        row: dict[str, Any] = {"name": member}
        for kind, by_name in found.items():
            if member in by_name:
                row[kind] = float(np.mean(by_name[member]))
                row[f"{kind}_range"] = (min(by_name[member]), max(by_name[member]))
        rows.append(row)
    columns = [Column("name", "permuted", "text"), *(Column(kind, kind, "points", f"{kind}_range") for kind in found)]
    note = "Rise of the mean regret; the range is over seeds and permutations."
    return Table(name, title, columns, rows, note)


def _importance_plot(name: str, found: dict[str, dict[str, list[float]]], rows: Sequence[str], what: str) -> Plot:
    """Make a plot of importances."""

    def draw(figure: Figure) -> None:
        series = []
        for kind, by_name in found.items():
            listed = [(place, by_name[row]) for place, row in enumerate(rows) if row in by_name]
            series.append(
                Series(
                    kind,
                    [float(np.mean(values)) for _, values in listed],
                    [place for place, _ in listed],
                    [min(values) for _, values in listed],
                    [max(values) for _, values in listed],
                )
            )
        ax = figure.add_subplot()
        draw_dots(ax, rows, series, "rise of mean regret when permuted", signed=True)
        finish(figure)

    return Plot(
        name,
        f"Rise of the mean regret on the evaluation problems when {what} permuted among the candidates of a problem; "
        "bars are the range over seeds and permutations.",
        (6.4, (0.42 if len(rows) < 10 else 0.3) * len(rows) + 1.2),
        draw,
    )


STUDY: Final = Study(
    "groups",
    "Groups of features",
    "Rankers are trained without one group of features at a time, with the base objective of their family. Those that "
    "saw all features are also asked to rank candidates whose features were permuted within the problem: a whole "
    "group at once, and each feature. Leaving out shows what the other features cannot make up for, permuting shows "
    "what a ranker leans on.",
    ("kinds", "seeds", "folds", "rounds", "epochs", "members", "permutations"),
    plan,
    show,
)
