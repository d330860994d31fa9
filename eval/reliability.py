"""Whether the expected regret that comes with an answer can be believed: found against predicted, bin by bin."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .regimes import slices
from .resampling import interval, resample, weighted_mean

if TYPE_CHECKING:
    from .evaluation import Evaluation, Result

Floats = NDArray[np.float64]

BINS: Final = 10
"""Bins of the reliability diagram; fewer where predictions tie."""
_MEAN_DEVIATION: Final = float(np.sqrt(2.0 / np.pi))
"""Mean absolute deviation of a normal distribution in standard deviations."""


def equal_bins(predicted: Floats, bins: int = BINS) -> NDArray[np.intp]:
    """Number the bin of each prediction so that bins hold about equally many and equal predictions share one.

    Parameters
    ----------
    predicted
        Shape (n,).
    bins
        Most bins.

    Returns
    -------
    ndarray of int, shape (n,)
        Numbers from 0, ascending with the prediction, without gaps.
    """
    values, position, counts = np.unique(predicted, return_inverse=True, return_counts=True)
    middle = np.cumsum(counts) - counts / 2.0
    place = np.minimum(middle * bins / len(predicted), bins - 1).astype(np.intp)
    numbers = np.unique(place, return_inverse=True)[1]
    return np.asarray(numbers[position] if len(values) else position, dtype=np.intp)


def reliability(
    predicted: Floats, found: Floats, clusters: ArrayLike, bins: int = BINS, seed: int = 0
) -> dict[str, object]:
    """Compare predicted with found regrets.

    Parameters
    ----------
    predicted, found
        Regrets, fractions, shape (n,); pairs with a NaN do not count.
    clusters
        Label of each pair's cluster, shape (n,): proposals of one problem, layouts of one shape are no independent
        observations and are resampled together.
    bins
        Most bins.
    seed
        Of the bootstrap.

    Returns
    -------
    dict
        ``bins``: per bin the number of pairs ``count``, mean ``predicted`` and mean ``found`` regret, and the 95%
        interval ``ci`` of the latter. ``ece``: expected calibration error, the mean over pairs of
        |found − predicted| of their bin. ``ece_by_chance``: what a perfectly calibrated ranker would show on as many
        problems, from the bins' standard errors. ``bias``: mean found − mean predicted, above 0 for too rosy
        predictions. ``predicted``, ``found``, ``ci`` (of found) and ``count`` over all pairs. Empty without pairs.
    """
    known = ~(np.isnan(predicted) | np.isnan(found))
    if not known.any():
        return {}
    predicted, found, labels = predicted[known], found[known], np.asarray(clusters)[known]
    weights = resample(labels, seed=seed)
    number = equal_bins(predicted, bins)
    rows: list[dict[str, object]] = []
    error = chance = 0.0
    for one in range(int(number.max()) + 1):
        mine = number == one
        means = weighted_mean(found[mine], weights[:, mine])
        share, gap = float(mine.mean()), abs(float(found[mine].mean() - predicted[mine].mean()))
        error += share * gap
        chance += share * _MEAN_DEVIATION * float(np.nanstd(means))
        rows.append(
            {
                "count": int(mine.sum()),
                "predicted": float(predicted[mine].mean()),
                "found": float(found[mine].mean()),
                "ci": interval(means),
            }
        )
    return {
        "bins": rows,
        "ece": error,
        "ece_by_chance": chance,
        "bias": float(found.mean() - predicted.mean()),
        "predicted": float(predicted.mean()),
        "found": float(found.mean()),
        "ci": interval(weighted_mean(found, weights)),
        "count": len(found),
    }


def calibration(evaluation: Evaluation, name: str, seed: int = 0) -> dict[str, object]:
    """Return how well a ranker knows its regret: of its picks, of all 8 proposals, and of picks by slice.

    Returns
    -------
    dict
        ``picks`` and ``proposals``, see :func:`reliability`, and ``slices``: the same of the picks of each slice
        without bins. Empty if the ranker states no expected regret.
    """
    result: Result = evaluation.results[name]
    if result.expected is None or result.found is None:
        return {}
    shapes = evaluation.shapes
    first = result.expected[:, 0], result.found[:, 0]
    by_slice = {}
    for key, part in slices(evaluation.groups).items():
        summary = reliability(first[0][part.mask], first[1][part.mask], shapes[part.mask], bins=4, seed=seed)
        summary.pop("bins", None)
        if summary:
            by_slice[key] = {"title": part.title, **summary}
    return {
        "picks": reliability(*first, shapes, seed=seed),
        "proposals": reliability(
            result.expected.ravel(), result.found.ravel(), np.repeat(shapes, result.found.shape[1]), seed=seed
        ),
        "slices": by_slice,
    }
