"""How good a pick is: regret, its summaries, bootstrap intervals and speed-ups.

Regret of a pick is ``1 - oracle_us / time_us``: the share of its time that the oracle would have saved. It is 0 for the
oracle, 0.5 for a kernel that takes twice as long, and negative for something faster than the oracle (cuBLASLt can be).
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from .resampling import SAMPLES, interval, resample, weighted_mean, weighted_quantiles

Floats = NDArray[np.float64]

LEVELS: Final = {"within_1": 0.01, "within_5": 0.05, "within_10": 0.10, "top1": 0.0}
"""Name and largest regret (fraction) of each "close enough" level; ``top1`` means nothing measured is faster."""

SCORE_COLUMNS: Final = ("regret", *LEVELS)
"""Columns of the score rows made by :func:`score_pick`."""

STATISTICS: Final = ("mean_regret", "median_regret", "p95_regret", "max_regret", *LEVELS)
"""Names of the statistics made by :func:`summarise`, all fractions."""

TIE: Final = 0.005
"""Two times tie when the longer one is at most this fraction longer."""

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
    values = rows[:, 0]
    return {
        "mean_regret": float(values.mean()),
        "median_regret": float(np.median(values)),
        "p95_regret": float(np.quantile(values, 0.95)),
        "max_regret": float(values.max()),
        **{name: float(rows[:, i].mean()) for i, name in enumerate(LEVELS, start=1)},
    }


def bootstrap(
    scores: Floats,
    samples: int = SAMPLES,
    seed: int = 0,
    confidence: float = 0.95,
    clusters: ArrayLike | None = None,
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
    clusters
        Label of each group's cluster, shape (groups,): groups with the same label are drawn together. Every group is
        its own unless given.

    Returns
    -------
    dict
        (low, high) of each of ``STATISTICS``, fractions; NaN if no group counts.
    """
    known = ~np.isnan(scores[:, 0])
    if not known.any():
        return dict.fromkeys(STATISTICS, (float("nan"), float("nan")))
    labels = np.arange(len(scores)) if clusters is None else np.asarray(clusters)
    weights, rows = resample(labels[known], samples, seed), scores[known]
    median, p95, largest = weighted_quantiles(rows[:, 0], weights, (0.5, 0.95, 1.0))
    values = {
        "mean_regret": weighted_mean(rows[:, 0], weights),
        "median_regret": median,
        "p95_regret": p95,
        "max_regret": largest,
        **{name: weighted_mean(rows[:, i], weights) for i, name in enumerate(LEVELS, start=1)},
    }
    return {name: interval(value, confidence) for name, value in values.items()}


def speedup(
    baseline_us: ArrayLike, chosen_us: ArrayLike, seed: int = 0, clusters: ArrayLike | None = None
) -> dict[str, object]:
    """Compare two methods problem by problem: baseline time / chosen time.

    Parameters
    ----------
    baseline_us, chosen_us
        Times in µs, shape (groups,); groups in which either is NaN do not count.
    seed, clusters
        Of the bootstrap over problems, see :func:`bootstrap`.

    Returns
    -------
    dict
        ``geomean`` (above 1: the chosen ones are faster) with its 95% interval ``ci``; ``wins``, ``ties`` and
        ``losses``, numbers of problems, where times within 0.5% of each other tie, and the same as fractions,
        ``win_rate``, ``tie_rate``, ``loss_rate``; ``faster_rate``, the fraction that is faster by any amount; ``min``
        and ``max`` ratio; ``problems`` counted.
    """
    ratio = np.asarray(baseline_us, dtype=np.float64) / np.asarray(chosen_us, dtype=np.float64)
    known = ~np.isnan(ratio)
    labels = np.arange(len(ratio)) if clusters is None else np.asarray(clusters)
    ratio, labels = ratio[known], labels[known]
    if not ratio.size:
        rates = ("geomean", "win_rate", "tie_rate", "loss_rate", "faster_rate", "min", "max")
        nothing: dict[str, object] = dict.fromkeys(rates, float("nan"))
        return {**nothing, "ci": (float("nan"), float("nan")), "wins": 0, "ties": 0, "losses": 0, "problems": 0}
    logs = np.log(ratio)
    low, high = interval(weighted_mean(logs, resample(labels, seed=seed)))
    wins, losses = ratio > 1.0 + TIE + _SLACK, ratio < 1.0 / (1.0 + TIE) - _SLACK
    ties = ~wins & ~losses
    return {
        "geomean": float(np.exp(logs.mean())),
        "ci": (float(np.exp(low)), float(np.exp(high))),
        "wins": int(wins.sum()),
        "ties": int(ties.sum()),
        "losses": int(losses.sum()),
        "win_rate": float(wins.mean()),
        "tie_rate": float(ties.mean()),
        "loss_rate": float(losses.mean()),
        "faster_rate": float((ratio > 1.0).mean()),
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


def best_of_k_summary(regrets: Floats, seed: int = 0, clusters: ArrayLike | None = None) -> dict[str, object]:
    """Summarise the regret left after measuring some proposals.

    Parameters
    ----------
    regrets
        One regret a group, shape (groups,); NaN ones (no proposal) do not count.
    seed, clusters
        Of the bootstrap, see :func:`bootstrap`.

    Returns
    -------
    dict
        ``mean_regret``, ``median_regret``, ``within_1`` and ``within_5`` (fractions of groups), ``groups`` counted, and
        95% intervals of the first and of the shares in ``ci``.
    """
    known = ~np.isnan(regrets)
    labels = np.arange(len(regrets)) if clusters is None else np.asarray(clusters)
    values = regrets[known]
    if not values.size:
        return {}
    weights = resample(labels[known], seed=seed)
    parts = {
        "mean_regret": values,
        "within_1": (values <= LEVELS["within_1"] + _SLACK).astype(np.float64),
        "within_5": (values <= LEVELS["within_5"] + _SLACK).astype(np.float64),
    }
    return {
        **{name: float(part.mean()) for name, part in parts.items()},
        "median_regret": float(np.median(values)),
        "groups": len(values),
        "ci": {name: interval(weighted_mean(part, weights)) for name, part in parts.items()},
    }


def spearman(first: ArrayLike, second: ArrayLike) -> float:
    """Return Spearman's rank correlation, ties sharing their mean rank; NaN if either side is constant or too short."""
    ranks = [pd.Series(np.asarray(values, dtype=np.float64)).rank().to_numpy() for values in (first, second)]
    centred = [rank - rank.mean() if rank.size else rank for rank in ranks]
    scale = float(np.sqrt((centred[0] ** 2).sum() * (centred[1] ** 2).sum()))
    return float(centred[0] @ centred[1]) / scale if scale > 0 else float("nan")
