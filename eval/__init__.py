"""How good picks are: regret against the measured oracle, baselines to compare with, and the report."""

from __future__ import annotations

from .agreement import Agreement, TimerBand, mode_study, repeatability, timer_bands
from .evaluation import Evaluation, Result, evaluate
from .explain import Reason, explain
from .gap import ProblemGap, catalogue_gap
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
from .reliability import calibration, reliability
from .report import make_report

__all__ = [
    "Agreement", "BaselineMethod", "Evaluation", "Method", "NvmmhMethod", "NvmmhVariants", "ProblemGap", "REGIMES",
    "RandomPick", "RankerMethod", "Reason", "Result", "StaticBest", "TimerBand", "best_of_k_regret", "bootstrap",
    "calibration", "catalogue_gap", "evaluate", "explain", "harmonic_mean", "make_report", "mode_study", "propose",
    "regimes_of", "regret", "reliability", "repeatability", "score_pick", "speedup", "summarise", "timer_bands",
]  # fmt: skip
