"""Several rankers as one: the mean of their scores, each in a unit of its own; one may shortlist for the others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, TypeVar

import numpy as np

from ..generator.errors import ModelMismatch
from .base import Floats, Matrix, Rows
from .network import Network
from .trees import Forest

if TYPE_CHECKING:
    from ..datasets import Group

T = TypeVar("T")

UNIT_RANK: Final = 16
"""The unit of a ranker's scores is how far this place lies below the first, on average over problems."""


class Ensemble:
    """The mean of members' scores / units; or in two stages, the first member alone shortlisting for the others.

    Units are constants of the model: scores of different calls for one problem stay comparable, which they would not
    if each list of candidates were standardised by itself.

    Parameters
    ----------
    members
        Networks and forests on the same features.
    units
        Unit of the scores of each (:func:`score_unit`), positive.
    rescored
        0 for the mean of all. Otherwise the mean of the others decides about so many rows that the first member ranks
        highest, and the remaining ones come after those in the first member's order.

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
        """Return what the networks and forests that decide score feature rows, in units, shape (networks, rows)."""
        return np.concatenate([self._voices(number, features) for number in self._deciding])

    def detailed(self, features: Matrix) -> tuple[Floats, Rows, Floats]:
        """Return scores (rows,), the rows that were decided about (top,), and the members' scores there (members, top).

        Members are the networks and forests that decide.
        """
        if not self.rescored or len(features) <= self.rescored:
            parts = [self._voices(number, features) for number in self._deciding]
            return _mean(parts), np.arange(len(features)), np.concatenate(parts)
        first = self._voices(0, features).mean(axis=0)
        top = _top(first, self.rescored)
        shortlist = features[top]
        parts = [self._voices(number, shortlist) for number in self._deciding]
        return _two_stages(first, top, _mean(parts)), top, np.concatenate(parts)

    @property
    def _deciding(self) -> range:
        """Numbers of the members whose mean is taken."""
        return range(1 if self.rescored else 0, len(self.members))

    def _voices(self, number: int, features: Matrix) -> Floats:
        """Return what each network of a member scores rows, in units, shape (networks, rows)."""
        return self.members[number].member_scores(features) / self.units[number]


def deciding(parts: Sequence[T], rescored: int) -> Sequence[T]:
    """Return those of an ensemble's members whose mean is taken."""
    return parts[1:] if rescored else parts


def combine(parts: Sequence[Floats], rescored: int) -> Floats:
    """Return an ensemble's scores of a list of candidates from those of its members in units, shapes (rows,)."""
    mean = np.asarray(np.mean(deciding(parts, rescored), axis=0))
    if not rescored:
        return mean
    top = _top(parts[0], rescored)
    return _two_stages(parts[0], top, mean[top])


def _mean(parts: Sequence[Floats]) -> Floats:
    """Return the mean over members of the mean over each one's networks."""
    return np.asarray(np.mean([part.mean(axis=0) for part in parts], axis=0))


def _top(scores: Floats, count: int) -> Rows:
    """Return the rows of the ``count`` highest scores, ascending."""
    return np.sort(np.argsort(-scores, kind="stable")[:count])


def _two_stages(first: Floats, top: Rows, second: Floats) -> Floats:
    """Give the top rows their second scores, and move the others below those, in the order of their first ones."""
    if len(top) == len(first):
        return second
    result = first.copy()
    result[top] = -np.inf
    result += min(0.0, float(second.min() - result.max()))
    result[top] = second
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
