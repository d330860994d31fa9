"""Bootstrap by weights: a resample is how often each group was drawn, so a statistic is one pass over sorted values.

Groups of one cluster are drawn together. Layouts of one shape are not independent observations, so intervals resample
shapes where the caller says which groups share one.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]

SAMPLES: Final = 2000
"""Resamples of every interval."""


def resample(clusters: ArrayLike, samples: int = SAMPLES, seed: int = 0) -> Floats:
    """Return how often each group occurs in each resample, shape (samples, groups).

    Parameters
    ----------
    clusters
        Label of each group's cluster, shape (groups,); as many clusters are drawn, with replacement, as there are.
    samples
        Number of resamples.
    seed
        The same seed gives the same resamples.
    """
    labels, position = np.unique(np.asarray(clusters), return_inverse=True)
    count = len(labels)
    drawn = np.random.default_rng(seed).integers(0, count, size=(samples, count))
    drawn += count * np.arange(samples)[:, None]
    times = np.bincount(drawn.ravel(), minlength=samples * count).reshape(samples, count)
    return times[:, position].astype(np.float64)


def weighted_mean(values: Floats, weights: Floats) -> Floats:
    """Return the mean of each resample, shape (samples,); NaN where nothing was drawn."""
    total = weights.sum(axis=1)
    return np.asarray(np.divide(weights @ values, total, out=np.full(len(total), np.nan), where=total > 0))


def weighted_quantiles(values: Floats, weights: Floats, levels: tuple[float, ...]) -> list[Floats]:
    """Return quantiles of each resample, shape (samples,) each, as ``np.quantile`` gives them for the repeated values.

    Parameters
    ----------
    values
        Shape (groups,), at least one.
    weights
        Whole numbers from :func:`resample`, shape (samples, groups).
    levels
        Between 0 (the least) and 1 (the greatest).
    """
    order = np.argsort(values, kind="stable")
    ordered = values[order]
    reached = np.cumsum(weights[:, order], axis=1)
    last = reached[:, -1] - 1.0
    result = []
    for level in levels:
        place = level * np.maximum(last, 0.0)
        low = np.floor(place)
        first = ordered[np.argmax(reached > low[:, None], axis=1)]
        second = ordered[np.argmax(reached > np.minimum(low + 1.0, last)[:, None], axis=1)]
        result.append(np.where(last >= 0, first + (place - low) * (second - first), np.nan))
    return result


def interval(values: Floats, confidence: float = 0.95) -> tuple[float, float]:
    """Return the percentile interval of a statistic's resampled values; NaN if none of them is a number."""
    known = values[~np.isnan(values)]
    if not known.size:
        return float("nan"), float("nan")
    tail = (1.0 - confidence) / 2.0
    low, high = np.quantile(known, (tail, 1.0 - tail))
    return float(low), float(high)


def mean_interval(values: Floats, clusters: ArrayLike | None = None, seed: int = 0) -> tuple[float, float]:
    """Return the 95% bootstrap interval of a mean.

    Parameters
    ----------
    values
        One value a group, shape (groups,); NaN ones do not count.
    clusters
        Label of each group's cluster; every group is its own unless given.
    seed
        Of the resampling.
    """
    known = ~np.isnan(values)
    if not known.any():
        return float("nan"), float("nan")
    labels = np.arange(len(values)) if clusters is None else np.asarray(clusters)
    return interval(weighted_mean(values[known], resample(labels[known], seed=seed)))
