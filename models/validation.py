"""Regret of the deployed rule, and cross-validation in which no shape is on both sides."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from .base import Floats, Matrix, Rows, Scorer
from .calibration import kind_of
from .config import InvalidTraining
from .deployed import choose

if TYPE_CHECKING:
    from ..datasets import Group


def regret(group: Group, row: int) -> float:
    """Return 1 − oracle time / time of a row, at least 0."""
    return max(0.0, 1.0 - group.oracle_us / float(group.time_us[row]))


def regrets(scores: Sequence[Floats], groups: Sequence[Group]) -> Floats:
    """Return the regret of the deployed rule on each group, shape (groups,), from the scores of its rows."""
    return np.array([regret(group, choose(group, score)) for score, group in zip(scores, groups, strict=True)])


def summarise(values: Floats) -> dict[str, float]:
    """Summarise regrets (groups,): mean, median, 95th percentile, maximum; fractions within 1, 5, 10% and at 0."""
    slack = 1e-9
    return {
        "groups": len(values),
        "mean_regret": float(values.mean()),
        "median_regret": float(np.median(values)),
        "p95_regret": float(np.quantile(values, 0.95)),
        "max_regret": float(values.max()),
        "within_1": float((values <= 0.01 + slack).mean()),
        "within_5": float((values <= 0.05 + slack).mean()),
        "within_10": float((values <= 0.10 + slack).mean()),
        "top1": float((values <= slack).mean()),
    }


def shape_keys(groups: Sequence[Group]) -> list[tuple[int, int, int]]:
    """Return the shape of each group, the same for (M, N, K) and (N, M, K), which are one computation transposed."""
    return [(min(g.problem.m, g.problem.n), max(g.problem.m, g.problem.n), g.problem.k) for g in groups]


def shape_folds(groups: Sequence[Group], folds: int, seed: int) -> Rows:
    """Assign each group to a fold so that shapes stay together and folds look alike.

    Groups that share (M, N, K), in any layout, or (N, M, K), which is the same computation transposed, are one shape.
    Shapes are sorted by kind and work, and each run of ``folds`` of them is dealt out in random order.

    Parameters
    ----------
    groups
        Measured groups.
    folds
        Number of folds.
    seed
        Of the dealing.

    Returns
    -------
    ndarray of int, shape (groups,)
        Fold of each group, 0 to folds − 1.

    Raises
    ------
    InvalidTraining
        If there are fewer shapes than folds.
    """
    keys = shape_keys(groups)
    kind = {key: kind_of(group.problem) for key, group in zip(keys, groups, strict=True)}
    shapes = sorted(kind, key=lambda key: (kind[key], key[0] * key[1] * key[2], key))
    if len(shapes) < folds:
        raise InvalidTraining(f"{len(shapes)} different shapes cannot be dealt out to {folds} folds")
    rng = np.random.default_rng(seed)
    fold: dict[tuple[int, int, int], int] = {}
    for start in range(0, len(shapes), folds):
        fold |= dict(zip(shapes[start : start + folds], rng.permutation(folds).tolist(), strict=False))
    return np.array([fold[key] for key in keys], dtype=np.intp)


@dataclass(frozen=True)
class CrossValidation:
    """Scores of groups by models that did not see their shapes."""

    fold: Rows
    """Fold of each group, shape (groups,)."""
    member_scores: list[list[Floats]]
    """By stage and group, what each member scores each row of the group, shape (members, rows)."""
    regrets: Floats
    """Regret of the deployed rule, shape (stages, groups)."""

    @property
    def best_stage(self) -> int:
        """Stage with the lowest mean regret, averaged with its neighbours so that a lucky one does not win."""
        mean = self.regrets.mean(axis=1)
        padded = np.concatenate([mean[:1], mean, mean[-1:]])
        return int(np.argmin((padded[:-2] + padded[1:-1] + padded[2:]) / 3.0))


def cross_validate(
    fit: Callable[[Rows, int], Sequence[Scorer]],
    groups: Sequence[Group],
    matrices: Sequence[Matrix],
    folds: int,
    seed: int,
) -> CrossValidation:
    """Train on all folds but one and score the one left out, for each.

    Parameters
    ----------
    fit
        Given the positions of the training groups and the fold's number, returns a model for each stage of training.
    groups, matrices
        Measured groups and their feature rows.
    folds, seed
        See :func:`shape_folds`.
    """
    fold = shape_folds(groups, folds, seed)
    members: list[list[Floats]] = []
    for number in range(folds):
        stages = fit(np.flatnonzero(fold != number), number)
        if not members:
            members = [[np.empty((1, 0))] * len(groups) for _ in stages]
        for i in np.flatnonzero(fold == number).tolist():
            for stage, scorer in enumerate(stages):
                members[stage][i] = scorer.member_scores(matrices[i])
    means = [[part.mean(axis=0) for part in stage] for stage in members]
    return CrossValidation(fold, members, np.array([regrets(stage, groups) for stage in means]))
