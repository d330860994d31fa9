"""What the objectives are computed from: gains of the ranking ones, target and row weights of the regression."""

from __future__ import annotations

import numpy as np

from .base import Floats
from .config import TrainingConfig
from .samples import Samples


def gains(samples: Samples, config: TrainingConfig) -> Floats:
    """Return NDCG's gain of each row, shape (rows,): 2^relevance − 1, or the relevance itself if ``gain`` is linear."""
    if config.samples.gain == "linear":
        return samples.relevance
    return np.asarray(np.exp2(samples.relevance) - 1.0, dtype=np.float64)


def regression_target(samples: Samples, config: TrainingConfig) -> Floats:
    """Return the target of the mse objective, shape (rows,): log relative speed, cut at the floor."""
    return np.log(np.maximum(samples.speed, config.samples.regression_floor))


def row_weights(samples: Samples) -> Floats:
    """Return row weights of mean 1, shape (rows,); a query counts by its weight, however many rows it has."""
    rows = np.diff(samples.start)
    weight = np.repeat(samples.weight / rows, rows)
    return np.asarray(weight / weight.mean())
