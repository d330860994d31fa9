"""Training of gradient-boosted trees with XGBoost; what comes out is evaluated in NumPy (:mod:`.trees`)."""

from __future__ import annotations

import json
from typing import Any, Final

import numpy as np

from ..generator.errors import MissingDependency
from .base import Floats, Matrix
from .config import TrainingConfig
from .samples import Samples
from .targets import gains, regression_target, row_weights
from .trees import Forest, slim

XGBOOST_OBJECTIVES: Final = {"lambdarank": "rank:ndcg", "ranknet": "rank:pairwise", "mse": "reg:squarederror"}
"""XGBoost's names of our objectives."""


class Booster:
    """A trained booster that XGBoost itself evaluates, which for large forests is quicker than NumPy.

    Parameters
    ----------
    booster
        The trained ``xgboost.Booster``.
    """

    def __init__(self, booster: Any) -> None:
        self.booster = booster

    def scores(self, features: Matrix) -> Floats:
        """Return the scores of feature rows (rows, features), shape (rows,)."""
        return np.asarray(self.booster.inplace_predict(features, predict_type="margin"), dtype=np.float64)

    def member_scores(self, features: Matrix) -> Floats:
        """Return the scores as those of an ensemble's single member, shape (1, rows)."""
        return self.scores(features)[None, :]

    def forest(self) -> tuple[Forest, dict[str, Any]]:
        """Return the trees for NumPy, and XGBoost's JSON document without what only further training needs."""
        document = slim(json.loads(bytes(self.booster.save_raw("json"))))
        forest = Forest.from_xgboost(document)
        forest.document = document
        return forest, document


def fit_booster(samples: Samples, config: TrainingConfig, rounds: int | None = None) -> Booster:
    """Train gradient-boosted trees.

    Parameters
    ----------
    samples
        Training rows.
    config
        Objective, settings, seed and threads.
    rounds
        Boosting rounds, those of the configuration unless said.

    Raises
    ------
    MissingDependency
        If xgboost is not installed.
    """
    try:
        import xgboost
    except ImportError as error:
        raise MissingDependency("training this model needs xgboost: pip install 'cutlass-ranker[train]'") from error
    settings = config.xgboost
    names = (
        "learning_rate", "max_depth", "min_child_weight", "subsample", "colsample_bytree",
        "reg_lambda", "reg_alpha", "gamma", "max_bin",
    )  # fmt: skip
    parameters: dict[str, Any] = {name: getattr(settings, name) for name in names}
    parameters |= {
        "objective": XGBOOST_OBJECTIVES[config.objective],
        "tree_method": "hist",
        "seed": config.seed,
        "nthread": config.threads,
        "verbosity": 0,
    }
    features = np.ascontiguousarray(samples.features)
    if config.objective == "mse":
        data = xgboost.QuantileDMatrix(
            features,
            label=regression_target(samples, config),
            weight=row_weights(samples),
            max_bin=settings.max_bin,
        )
    else:
        parameters |= {"lambdarank_pair_method": "topk", "lambdarank_num_pair_per_sample": settings.pairs}
        label = samples.relevance
        if config.objective == "lambdarank":
            # The gains themselves are the labels: relevances need not be whole numbers.
            parameters["ndcg_exp_gain"] = False
            label = gains(samples, config)
        data = xgboost.QuantileDMatrix(
            features,
            label=label,
            qid=samples.query,
            weight=samples.weight * len(samples.weight) / samples.weight.sum(),
            max_bin=settings.max_bin,
        )
    return Booster(xgboost.train(parameters, data, num_boost_round=rounds or settings.rounds))


def fit_xgboost(samples: Samples, config: TrainingConfig, rounds: int | None = None) -> tuple[Forest, dict[str, Any]]:
    """Train trees that NumPy evaluates, and return XGBoost's JSON document as well; see :func:`fit_booster`."""
    return fit_booster(samples, config, rounds).forest()
