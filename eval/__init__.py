"""How good picks are: regret against the measured oracle, baselines to compare with, and the report."""

from __future__ import annotations

from .evaluation import Evaluation, Result, evaluate
from .methods import (
    BaselineMethod,
    Method,
    NvmmhMethod,
    NvmmhVariants,
    RandomPick,
    RankerMethod,
    StaticBest,
    propose,
)
from .metrics import best_of_k_regret, bootstrap, harmonic_mean, regret, score_pick, speedup, summarise
from .regimes import REGIMES, regimes_of
from .report import make_report

__all__ = [
    "BaselineMethod", "Evaluation", "Method", "NvmmhMethod", "NvmmhVariants", "REGIMES", "RandomPick", "RankerMethod",
    "Result", "StaticBest", "best_of_k_regret", "bootstrap", "evaluate", "harmonic_mean", "make_report", "propose",
    "regimes_of", "regret", "score_pick", "speedup", "summarise",
]  # fmt: skip
