"""How good a pick is: regret, its summaries, bootstrap intervals and speed-ups.

Regret of a pick is ``1 - oracle_us / time_us``: the share of its time that the oracle would have saved. It is 0 for the
oracle, 0.5 for a kernel that takes twice as long, and negative for something faster than the oracle (cuBLASLt can be).
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]

LEVELS: Final = {"within_1": 0.01, "within_5": 0.05, "within_10": 0.10, "top1": 0.0}
"""Name and largest regret (fraction) of each "close enough" level; ``top1`` means nothing measured is faster."""

SCORE_COLUMNS: Final = ("regret", *LEVELS)
"""Columns of the score rows made by :func:`score_pick`."""

STATISTICS: Final = ("mean_regret", "median_regret", "p95_regret", "max_regret", *LEVELS)
"""Names of the statistics made by :func:`summarise`, all fractions."""

_SLACK: Final = 1e-9
"""Rounding allowance when a regret is compared with a level; far below any timer's resolution."""


def regret(oracle_us: ArrayLike, time_us: ArrayLike) -> Floats:
    """Return ``1 - oracle_us / time_us``, a fraction; NaN times give NaN.

    Parameters
    ----------
    oracle_us, time_us
        Times of the oracle and of the pick in µs; any shapes that broadcast.
    """
    return np.asarray(1.0 - np.asarray(oracle_us, dtype=np.float64) / np.asarray(time_us, dtype=np.float64))


def harmonic_mean(times_us: ArrayLike) -> float:
    """Return the time whose speed is the mean of the given speeds; NaN if there are none.

    Regret is linear in speed, so ``regret(oracle, harmonic_mean(times))`` is the mean of ``regret(oracle, times)``.
    It never exceeds the arithmetic mean, so a speed-up over it is the smaller, more careful claim.
    """
    times = np.asarray(times_us, dtype=np.float64)
    return float(1.0 / np.mean(1.0 / times)) if times.size else float("nan")


def score_pick(oracle_us: float, times_us: Floats) -> Floats:
    """Score one pick on one group.

    Parameters
    ----------
    oracle_us
        Time of the oracle, µs.
    times_us
        Equally likely times of the pick, µs, shape (outcomes,): one for a method that decides, several for a random
        one.

    Returns
    -------
    ndarray, shape (5,)
        ``SCORE_COLUMNS``: the expected regret and the probability of each level; NaN if there are no outcomes.
    """
    if times_us.size == 0:
        return np.full(len(SCORE_COLUMNS), np.nan)
    values = regret(oracle_us, times_us)
    return np.array([values.mean(), *((values <= level + _SLACK).mean() for level in LEVELS.values())])


def _statistics(scores: Floats) -> dict[str, Floats]:
    """Return each statistic of score rows, shape (..., groups, 5), reduced over the groups."""
    values = scores[..., 0]
    result = {
        "mean_regret": values.mean(axis=-1),
        "median_regret": np.median(values, axis=-1),
        "p95_regret": np.quantile(values, 0.95, axis=-1),
        "max_regret": values.max(axis=-1),
    }
    for i, name in enumerate(LEVELS, start=1):
        result[name] = scores[..., i].mean(axis=-1)
    return result


def covered(scores: Floats) -> Floats:
    """Return the score rows of the groups in which the method had a measurable answer."""
    return np.asarray(scores[~np.isnan(scores[:, 0])])


def summarise(scores: Floats) -> dict[str, float]:
    """Summarise score rows over groups.

    Parameters
    ----------
    scores
        Rows of :func:`score_pick`, shape (groups, 5); NaN rows (no measurable answer) do not count.

    Returns
    -------
    dict
        ``STATISTICS`` as fractions. The 95th percentile interpolates linearly. All NaN if no group counts.
    """
    rows = covered(scores)
    if not len(rows):
        return dict.fromkeys(STATISTICS, float("nan"))
    return {name: float(value) for name, value in _statistics(rows).items()}


def bootstrap(
    scores: Floats, samples: int = 2000, seed: int = 0, confidence: float = 0.95
) -> dict[str, tuple[float, float]]:
    """Return percentile bootstrap intervals of :func:`summarise`, resampling groups with replacement.

    Parameters
    ----------
    scores
        Score rows, shape (groups, 5); NaN rows do not count.
    samples
        Number of resamples.
    seed
        Seed of the resampling: the same data and seed give the same intervals.
    confidence
        Probability that the interval is meant to cover.

    Returns
    -------
    dict
        (low, high) of each of ``STATISTICS``, fractions; NaN if no group counts.
    """
    rows = covered(scores)
    if not len(rows):
        return dict.fromkeys(STATISTICS, (float("nan"), float("nan")))
    index = np.random.default_rng(seed).integers(0, len(rows), size=(samples, len(rows)))
    tail = (1.0 - confidence) / 2.0
    result = {}
    for name, values in _statistics(rows[index]).items():
        low, high = np.quantile(values, (tail, 1.0 - tail))
        result[name] = (float(low), float(high))
    return result


def speedup(baseline_us: ArrayLike, chosen_us: ArrayLike, samples: int = 2000, seed: int = 0) -> dict[str, object]:
    """Compare two methods problem by problem: baseline time / chosen time.

    Parameters
    ----------
    baseline_us, chosen_us
        Times in µs, shape (groups,); groups in which either is NaN do not count.
    samples, seed
        Of the bootstrap over problems.

    Returns
    -------
    dict
        ``geomean`` (above 1: the chosen ones are faster), its 95% interval ``ci``, ``win_rate`` (fraction of problems
        strictly faster), ``tie_rate`` (fraction equal, as when both pick the same kernel), ``min`` and ``max`` ratio,
        and ``problems`` counted.
    """
    ratio = np.asarray(baseline_us, dtype=np.float64) / np.asarray(chosen_us, dtype=np.float64)
    ratio = ratio[~np.isnan(ratio)]
    if not ratio.size:
        nothing: dict[str, object] = dict.fromkeys(("geomean", "win_rate", "tie_rate", "min", "max"), float("nan"))
        return {**nothing, "ci": (float("nan"), float("nan")), "problems": 0}
    logs = np.log(ratio)
    index = np.random.default_rng(seed).integers(0, len(logs), size=(samples, len(logs)))
    low, high = np.exp(np.quantile(logs[index].mean(axis=1), (0.025, 0.975)))
    return {
        "geomean": float(np.exp(logs.mean())),
        "ci": (float(low), float(high)),
        "win_rate": float((ratio > 1.0).mean()),
        "tie_rate": float((ratio == 1.0).mean()),
        "min": float(ratio.min()),
        "max": float(ratio.max()),
        "problems": len(ratio),
    }


def best_of_k_regret(oracle_us: float, proposals_us: Floats, k: int) -> float:
    """Return the regret left after measuring the first ``k`` proposals and keeping the fastest.

    Parameters
    ----------
    oracle_us
        Time of the oracle, µs.
    proposals_us
        Times of the proposals in the ranker's order, µs, shape (proposals,). Fewer than ``k`` are all used; none give
        NaN.
    k
        How many to measure, at least 1.
    """
    return float(regret(oracle_us, proposals_us[:k].min())) if proposals_us.size else float("nan")
