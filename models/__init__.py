"""How to rank kernels: trained rankers, baselines, training and saved models. Scoring needs NumPy only."""

from __future__ import annotations

from .base import Ranker, assess
from .baselines import AnalyticScore, RandomScore
from .calibration import Calibration
from .config import InvalidTraining, TrainingConfig
from .store import Model, load_model, model_names
from .train import train, train_and_save

__all__ = [
    "AnalyticScore",
    "Calibration",
    "InvalidTraining",
    "Model",
    "RandomScore",
    "Ranker",
    "TrainingConfig",
    "assess",
    "load_model",
    "model_names",
    "train",
    "train_and_save",
]
