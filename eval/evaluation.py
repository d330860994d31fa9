"""Runs methods over groups and keeps the scores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from .methods import Method, RankerMethod, predicted_regret
from .metrics import SCORE_COLUMNS, best_of_k_regret, harmonic_mean, regret, score_pick

if TYPE_CHECKING:
    from ..datasets import Group

Floats = NDArray[np.float64]
Rows = NDArray[np.intp]

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
    picks: Rows | None = None
    """Row picked in each group, -1 without an answer; rankers only."""
    found: Floats | None = None
    """Regret of each of the first 8 proposals, shape (groups, 8), NaN where there are fewer; rankers only."""
    expected: Floats | None = None
    """Regret that the ranker expects of each of them, shape (groups, 8); calibrated rankers only."""


@dataclass(frozen=True)
class Evaluation:
    """All methods on the same groups."""

    groups: list[Group]
    oracle_us: Floats
    """Time of the oracle, µs, shape (groups,)."""
    results: dict[str, Result] = field(default_factory=dict)
    """Result of each method by its name, in the order given."""

    @property
    def shapes(self) -> NDArray[np.intp]:
        """Number of each group's shape (M, N, K), shape (groups,): layouts of one shape are no independent samples."""
        listed = [(group.problem.m, group.problem.n, group.problem.k) for group in self.groups]
        number = {shape: i for i, shape in enumerate(dict.fromkeys(listed))}
        return np.array([number[shape] for shape in listed], dtype=np.intp)


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
    if isinstance(method, RankerMethod):
        return _run_ranker(method, groups, oracle)
    times = [method.times(group) for group in groups]
    scores = [score_pick(oracle[i], outcomes) for i, outcomes in enumerate(times)]
    return Result(method, np.array([harmonic_mean(outcomes) for outcomes in times]), _table(scores))


def _run_ranker(method: RankerMethod, groups: Sequence[Group], oracle: Floats) -> Result:
    """Run one ranker over all groups."""
    most = max(BEST_OF)
    time_us, picks = np.full(len(groups), np.nan), np.full(len(groups), -1, dtype=np.intp)
    scores: list[Floats] = []
    best_of = np.full((len(groups), len(BEST_OF)), np.nan)
    found, expected = np.full((len(groups), most), np.nan), np.full((len(groups), most), np.nan)
    calibrated = True
    for i, group in enumerate(groups):
        proposed = method.proposals(group, most)
        rows = proposed.rows
        times = np.asarray(group.time_us[rows], dtype=np.float64)
        scores.append(score_pick(oracle[i], times[:1]))
        time_us[i] = harmonic_mean(times[:1])
        if not rows.size:
            continue
        picks[i] = rows[0]
        best_of[i] = [best_of_k_regret(oracle[i], times, k) for k in BEST_OF]
        found[i, : len(rows)] = regret(oracle[i], times)
        predicted = predicted_regret(method.ranker, proposed, group.as_deployed().problem)
        calibrated = predicted is not None
        if predicted is not None:
            expected[i, : len(rows)] = predicted
    return Result(method, time_us, _table(scores), best_of, picks, found, expected if calibrated else None)


def _table(scores: list[Floats]) -> Floats:
    """Stack score rows, shape (groups, 5), also if there are none."""
    return np.array(scores, dtype=np.float64).reshape(len(scores), len(SCORE_COLUMNS))
