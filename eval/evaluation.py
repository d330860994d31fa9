"""Runs methods over groups and keeps the scores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from .methods import Method, RankerMethod
from .metrics import SCORE_COLUMNS, best_of_k_regret, harmonic_mean, score_pick

if TYPE_CHECKING:
    from ..datasets import Group

Floats = NDArray[np.float64]

BEST_OF: Final = (1, 2, 4, 8)
"""How many proposals of a ranker are measured in the best-of-k figures."""


@dataclass(frozen=True)
class Result:
    """What one method did on every group."""

    method: Method
    time_us: Floats
    """Time of the pick, µs, shape (groups,): the harmonic mean of its equally likely times; NaN without an answer."""
    scores: Floats
    """Rows of :func:`~.metrics.score_pick`, shape (groups, 5)."""
    best_of: Floats | None = None
    """Regret after measuring the first k of ``BEST_OF`` proposals, shape (groups, 4); rankers only."""
    picks: NDArray[np.intp] | None = None
    """Row picked in each group, -1 without an answer; rankers only."""


@dataclass(frozen=True)
class Evaluation:
    """All methods on the same groups."""

    groups: list[Group]
    oracle_us: Floats
    """Time of the oracle, µs, shape (groups,)."""
    results: dict[str, Result] = field(default_factory=dict)
    """Result of each method by its name, in the order given."""


def evaluate(groups: Sequence[Group], methods: Sequence[Method]) -> Evaluation:
    """Score every method on every group.

    Parameters
    ----------
    groups
        Groups with at least one candidate that is not coarse (so that an oracle exists).
    methods
        Methods with distinct names.

    Raises
    ------
    ValueError
        If two methods share a name.
    """
    names = [method.name for method in methods]
    if len(set(names)) != len(names):
        raise ValueError(f"method names must be distinct: {names}")
    oracle = np.array([group.oracle_us for group in groups], dtype=np.float64)
    return Evaluation(list(groups), oracle, {m.name: _run(m, groups, oracle) for m in methods})


def _run(method: Method, groups: Sequence[Group], oracle: Floats) -> Result:
    """Run one method over all groups."""
    time_us = np.full(len(groups), np.nan)
    scores = np.full((len(groups), len(SCORE_COLUMNS)), np.nan)
    ranker = method if isinstance(method, RankerMethod) else None
    best_of = np.full((len(groups), len(BEST_OF)), np.nan)
    picks = np.full(len(groups), -1, dtype=np.intp)
    for i, group in enumerate(groups):
        if ranker is None:
            times = method.times(group)
        else:
            rows = ranker.proposals(group, max(BEST_OF))
            proposals = np.asarray(group.time_us[rows], dtype=np.float64)
            times = proposals[:1]
            best_of[i] = [best_of_k_regret(oracle[i], proposals, k) for k in BEST_OF]
            picks[i] = rows[0] if rows.size else -1
        time_us[i] = harmonic_mean(times)
        scores[i] = score_pick(oracle[i], times)
    return Result(method, time_us, scores, best_of if ranker else None, picks if ranker else None)
