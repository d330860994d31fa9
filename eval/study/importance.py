"""Permutation importance: how much regret rises when a feature tells a trained ranker nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...datasets import Group
from ...features import describe_features
from ...models.base import Matrix, Scorer
from ...models.deployed import choose
from ...models.validation import regret

_DIGITS = 6


def feature_groups(names: Sequence[str]) -> dict[str, list[str]]:
    """Return the names by feature group, both in the order of the full feature set."""
    wanted = set(names)
    found: dict[str, list[str]] = {}
    for feature in describe_features("full"):
        if feature.name in wanted:
            found.setdefault(feature.group, []).append(feature.name)
    return found


def permutation_importance(
    scorer: Scorer,
    groups: Sequence[Group],
    rows: Sequence[Matrix],
    names: Sequence[str],
    repeats: int,
    seed: int,
) -> dict[str, Any]:
    """Permute features among the candidates of each problem and see how much more regret the picks have.

    Rows change places with rows of their own stage only: launches that are ranked first among themselves, all others
    among themselves. A feature that is equal for all candidates of a problem, like K, can have no importance. The
    features of a group move together, so that what they say of each other stays true.

    Parameters
    ----------
    scorer
        Trained on the columns of ``rows``.
    groups
        Measured groups.
    rows
        Feature rows of each, shapes (candidates, features).
    names
        Names of the features.
    repeats
        Permutations of everything.
    seed
        Of the permutations.

    Returns
    -------
    dict
        ``baseline``: the mean regret without permutation. ``groups`` and ``features``: by name, the rise of the mean
        regret (a fraction, negative where it falls) in each repeat.
    """
    blocks = {
        ("groups", name): [names.index(member) for member in members] for name, members in feature_groups(names).items()
    } | {("features", name): [column] for column, name in enumerate(names)}
    rise = {block: np.zeros(repeats) for block in blocks}
    baseline = 0.0
    for group, matrix in zip(groups, rows, strict=True):
        intact = regret(group, choose(group, scorer.scores(matrix)))
        baseline += intact
        for repeat in range(repeats):
            shuffled = matrix[_shuffled(group, np.random.default_rng([seed, repeat, group.problem_id]))]
            for block, columns in blocks.items():
                moved = shuffled[:, columns]
                if np.array_equal(moved, matrix[:, columns]):
                    continue
                permuted = matrix.copy()
                permuted[:, columns] = moved
                rise[block][repeat] += regret(group, choose(group, scorer.scores(permuted))) - intact
    found: dict[str, Any] = {"baseline": round(baseline / len(groups), _DIGITS), "groups": {}, "features": {}}
    for (kind, name), values in rise.items():
        found[kind][name] = [round(value, _DIGITS) for value in (values / len(groups)).tolist()]
    return found


def _shuffled(group: Group, rng: np.random.Generator) -> NDArray[np.intp]:
    """Return an order of the rows in which each stays among those of its stage."""
    order = np.arange(len(group))
    for stage in (group.first_stage, ~group.first_stage):
        members = np.flatnonzero(stage)
        order[members] = rng.permutation(members)
    return order
