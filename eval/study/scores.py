"""Summaries of finished cells: means over training seeds, intervals over problems, paired differences."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..resampling import mean_interval
from .cells import Outcome

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Score:
    """What the rankers of one setting, trained from several seeds, do; regrets are fractions."""

    mean: float
    """Mean regret over evaluation problems and seeds."""
    interval: tuple[float, float]
    """95% bootstrap interval of it, shapes resampled."""
    by_seed: tuple[float, ...]
    """Mean regret over evaluation problems of each seed."""
    median: float
    """Median regret over evaluation problems, mean over seeds; so are the three that follow."""
    within_5: float
    top1: float
    best_of_4: float
    """Mean regret of the fastest of the first four proposals."""
    cross: float
    """Mean cross-validated regret on the training problems, mean over seeds."""
    cross_by_seed: tuple[float, ...]
    parameters: float
    """Weights and biases, or nodes of trees, mean over seeds."""
    shapes: float
    """Base shapes trained on, mean over seeds."""
    regrets: Floats
    """Regret of each evaluation problem, mean over seeds, shape (problems,)."""
    clusters: tuple[int, ...]
    """Number of the base shape of each evaluation problem."""


def pick(outcomes: Sequence[Outcome], **labels: str | int | float) -> list[Outcome]:
    """Return the outcomes with the given labels."""
    return [item for item in outcomes if all(item.labels.get(name) == value for name, value in labels.items())]


def axis(outcomes: Sequence[Outcome], name: str) -> list[str | int | float]:
    """Return the different values of a label, in order of appearance."""
    return list(dict.fromkeys(item.labels[name] for item in outcomes if name in item.labels))


def score(outcomes: Sequence[Outcome]) -> Score:
    """Summarise training cells that differ by their seed; at least one."""
    results = [item.result for item in outcomes]
    regrets = np.array([result["regrets"] for result in results], dtype=np.float64)
    cross = [result["cross_validation"]["mean_regret"] for result in results]

    def mean(part: str, name: str) -> float:
        return float(np.mean([result[part][name] for result in results]))

    by_problem, clusters = regrets.mean(axis=0), results[0]["clusters"]
    return Score(
        mean=float(by_problem.mean()),
        interval=mean_interval(by_problem, clusters),
        by_seed=tuple(regrets.mean(axis=1).tolist()),
        median=mean("evaluation", "median_regret"),
        within_5=mean("evaluation", "within_5"),
        top1=mean("evaluation", "top1"),
        best_of_4=mean("best_of", "4"),
        cross=float(np.mean(cross)),
        cross_by_seed=tuple(cross),
        parameters=mean("model", "parameters"),
        shapes=mean("training", "shapes"),
        regrets=by_problem,
        clusters=tuple(clusters),
    )


def difference(one: Score, other: Score) -> tuple[float, tuple[float, float]]:
    """Return mean regret of one less that of the other, and its 95% interval, shapes resampled in pairs."""
    change = one.regrets - other.regrets
    return float(change.mean()), mean_interval(change, one.clusters)
