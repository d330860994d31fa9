"""Training of gradient-boosted trees with XGBoost; what comes out is evaluated in NumPy (:mod:`.trees`)."""

from __future__ import annotations

import json
from typing import Any, Final

import numpy as np

from ..generator.errors import MissingDependency
from .config import TrainingConfig
from .samples import Samples
from .targets import regression_target, row_weights
from .trees import Forest, slim

XGBOOST_OBJECTIVES: Final = {"lambdarank": "rank:ndcg", "ranknet": "rank:pairwise", "mse": "reg:squarederror"}
"""XGBoost's names of our objectives."""


def fit_xgboost(samples: Samples, config: TrainingConfig, rounds: int | None = None) -> tuple[Forest, dict[str, Any]]:
    """Train a forest.

    Parameters
    ----------
    samples
        Training rows.
    config
        Objective, settings, seed and threads.
    rounds
        Boosting rounds, those of the configuration unless said.

    Returns
    -------
    Forest
        The trees.
    dict
        The same as XGBoost's JSON document, without what only further training needs.

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
        if config.objective == "lambdarank":
            parameters["ndcg_exp_gain"] = config.labels == "bands"
        data = xgboost.QuantileDMatrix(
            features,
            label=samples.relevance,
            qid=samples.query,
            weight=samples.weight * len(samples.weight) / samples.weight.sum(),
            max_bin=settings.max_bin,
        )
    booster = xgboost.train(parameters, data, num_boost_round=rounds or settings.rounds)
    document = slim(json.loads(bytes(booster.save_raw("json"))))
    return Forest.from_xgboost(document), document
