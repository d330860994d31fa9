"""Several rankers as one: the mean of their scores, each in a unit of its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import numpy as np

from ..generator.errors import ModelMismatch
from .base import Floats, Matrix, Rows
from .network import Network
from .trees import Forest

if TYPE_CHECKING:
    from ..datasets import Group

UNIT_RANK: Final = 16
"""The unit of a ranker's scores is how far this place lies below the first, on average over problems."""


class Ensemble:
    """The mean of members' scores / units.

    Units are constants of the model: scores of different calls for one problem stay comparable, which they would not
    if each list of candidates were standardised by itself.

    Parameters
    ----------
    members
        Networks and forests on the same features.
    units
        Unit of the scores of each (:func:`score_unit`), positive.
    rescored
        How many of the rows that the first member ranks highest the others score as well; 0 for all rows.

    Raises
    ------
    ModelMismatch
        If there are fewer than two members, not a unit for each, or they take different numbers of features.
    """

    def __init__(self, members: Sequence[Network | Forest], units: Sequence[float], rescored: int = 0) -> None:
        self.members = tuple(members)
        self.units = tuple(units)
        self.rescored = rescored
        if len(self.members) < 2 or len(self.units) != len(self.members) or min(self.units) <= 0:
            raise ModelMismatch("an ensemble needs at least two members and a positive unit for each")
        if len({member.features for member in self.members}) > 1:
            raise ModelMismatch("the members of an ensemble take different numbers of features")
        self.features = self.members[0].features

    def scores(self, features: Matrix) -> Floats:
        """Return the scores of feature rows (rows, features), shape (rows,); higher is better."""
        return self.detailed(features)[0]

    def member_scores(self, features: Matrix) -> Floats:
        """Return what each network and forest scores feature rows, in units, shape (all members' members, rows)."""
        parts = [member.member_scores(features) / unit for member, unit in zip(self.members, self.units, strict=True)]
        return np.concatenate(parts)

    def detailed(self, features: Matrix) -> tuple[Floats, Rows, Floats]:
        """Return scores (rows,), the rows that all members scored (top,), and their scores there (members, top)."""
        every = self.members[0].member_scores(features) / self.units[0]
        first = every.mean(axis=0)
        top = _top(first, self.rescored)
        others = zip(self.members[1:], self.units[1:], strict=True)
        parts = [every[:, top], *(member.member_scores(features[top]) / unit for member, unit in others)]
        return _below(first, top, [part.mean(axis=0) for part in parts]), top, np.concatenate(parts)


def combine(parts: Sequence[Floats], rescored: int) -> Floats:
    """Return an ensemble's scores of a list of candidates from those of its members in units, shapes (rows,)."""
    top = _top(parts[0], rescored)
    return _below(parts[0], top, [part[top] for part in parts])


def _top(scores: Floats, count: int) -> Rows:
    """Return the rows of the ``count`` highest scores, ascending; all if the count is 0 or there are not more."""
    if not 0 < count < len(scores):
        return np.arange(len(scores))
    return np.sort(np.argsort(-scores, kind="stable")[:count])


def _below(first: Floats, top: Rows, parts: Sequence[Floats]) -> Floats:
    """Score the top rows by the mean of all members, and move the others below them in the first member's order."""
    mean = np.mean(parts, axis=0)
    result = first.copy()
    result[top] = -np.inf
    result += min(0.0, float(mean.min() - result.max())) if len(top) < len(first) else 0.0
    result[top] = mean
    return result


def score_unit(groups: Sequence[Group], scores: Sequence[Floats]) -> float:
    """Return the mean over groups of the gap between the best and the ``UNIT_RANK``-th best kernel.

    Parameters
    ----------
    groups
        Groups that the scores' model was not trained on.
    scores
        Score of each row of each group.

    Returns
    -------
    float
        At least 1e-6.
    """
    gaps = []
    for group, score in zip(groups, scores, strict=True):
        ordered = np.sort(score[group.ranked_first])[::-1]
        gaps.append(ordered[0] - ordered[min(UNIT_RANK, len(ordered)) - 1])
    return max(float(np.mean(gaps)), 1e-6)
