"""Ridge regression of log relative speed, in closed form."""

from __future__ import annotations

import numpy as np

from .base import Standardizer
from .config import TrainingConfig
from .network import Network
from .samples import Samples
from .targets import regression_target, row_weights


def fit_ridge(samples: Samples, config: TrainingConfig) -> Network:
    """Fit ridge regression on standardised features.

    w = (Zᵀ W Z + λ n I)⁻¹ Zᵀ W (y − ȳ) with Z the standardised, weighted-centred features, W the row weights (mean
    1), n the rows and ȳ the weighted mean of the target.

    Parameters
    ----------
    samples
        Training rows.
    config
        Gives λ (``ridge_penalty``) and the floor of the target.

    Returns
    -------
    Network
        A network without hidden layers.
    """
    standardizer = Standardizer.fit(samples.features)
    z = standardizer.apply(samples.features).astype(np.float64)
    weight = row_weights(samples)
    target = regression_target(samples, config)
    center = weight @ z / len(z)
    mean = float(weight @ target) / len(z)
    z -= center
    gram = (z * weight[:, None]).T @ z
    gram[np.diag_indices_from(gram)] += config.ridge_penalty * len(z)
    slope = np.linalg.solve(gram, (z * weight[:, None]).T @ (target - mean))
    layer = (slope.astype(np.float32)[None, :], np.array([mean - slope @ center], dtype=np.float32))
    return Network(standardizer, [[layer]])
