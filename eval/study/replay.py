"""The cell that replays a sampling strategy on recorded measurements: no training, no GPU."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ...datasets import Group
from ...features import Hardware
from ...generator.columns import take
from ...models import AnalyticScore
from ...models.samples import subset
from .cells import Work
from .data import StudyData, shape_numbers

Floats = NDArray[np.float64]
Rows = NDArray[np.intp]

STRATA: Final = ("swapped", "tile_m", "tile_n", "tile_k")
"""Columns whose combinations are the strata that a diverse sample draws from in turn."""
_DIGITS = 6


@dataclass(frozen=True)
class Pool:
    """What can be sampled of one problem: every measured kernel, its swapped use and its splits of K, once."""

    time_us: Floats
    """Time with the fastest measured launch (launches cost nothing to try), µs, shape (candidates,)."""
    score: Floats
    """Static score: wave efficiency · stages · √(tile_m · tile_n · tile_k), shape (candidates,)."""
    stratum: Rows
    """Number of the combination of ``STRATA``, shape (candidates,)."""


@dataclass(frozen=True)
class SamplingCell:
    """Measures a few candidates of every problem, many times over, and keeps the best."""

    alpha: float | None
    """Share of the budget that goes to the best static scores, the rest stratified; None: all of it drawn evenly."""
    budget: int
    """Candidates measured; a problem with fewer has all of its own measured."""
    samples: int
    """Independent samples of every problem."""

    @property
    def label(self) -> str:
        """Strategy and budget."""
        return f"{strategy(self.alpha)}, {self.budget} of each problem's candidates"

    def to_json(self) -> dict[str, Any]:
        """Return everything that determines the result, besides the data."""
        return {"task": "sample", "alpha": self.alpha, "budget": self.budget, "samples": self.samples}

    def work(self, data: StudyData) -> Work:
        """Candidates drawn from, times samples."""
        return Work("sample", float(self.samples * sum(map(len, (*data.training, *data.evaluation)))))

    def run(self, data: StudyData) -> dict[str, Any]:
        """Replay on all problems, training and evaluation alike, since nothing is learned.

        Returns
        -------
        dict
            ``groups``; ``pool`` and ``share``, the mean number of candidates and the mean share of them measured;
            ``by_sample``, the mean regret over problems in each sample; ``regrets``, the mean regret over samples of
            each problem, and ``clusters``, the number of its base shape; ``within_1`` and ``within_5``, the share of
            samples of problems within 1 and 5% of the oracle.
        """
        listed = [*data.training, *data.evaluation]
        values = np.empty((len(listed), self.samples))
        sizes = np.empty(len(listed))
        for number, group in enumerate(listed):
            pool = make_pool(group, data.hardware)
            sizes[number] = len(pool.time_us)
            for sample in range(self.samples):
                rng = np.random.default_rng([sample, group.problem_id])
                best = pool.time_us[draw(pool, self.budget, self.alpha, rng)].min()
                values[number, sample] = max(0.0, 1.0 - group.oracle_us / best)
        slack = 1e-9
        return {
            "groups": len(listed),
            "pool": round(float(sizes.mean()), 1),
            "share": round(float(np.minimum(1.0, self.budget / sizes).mean()), _DIGITS),
            "by_sample": [round(value, _DIGITS) for value in values.mean(axis=0).tolist()],
            "regrets": [round(value, _DIGITS) for value in values.mean(axis=1).tolist()],
            "clusters": shape_numbers(listed),
            "within_1": round(float((values <= 0.01 + slack).mean()), _DIGITS),
            "within_5": round(float((values <= 0.05 + slack).mean()), _DIGITS),
        }


def strategy(alpha: float | None) -> str:
    """Name a strategy for readers."""
    if alpha is None:
        return "uniform"
    return {0.0: "stratified (α = 0)", 1.0: "static top (α = 1)"}.get(alpha, f"biased-diverse (α = {alpha:g})")


def make_pool(group: Group, hardware: Hardware) -> Pool:
    """Collect what can be sampled of a group; its fastest candidate is the group's oracle."""
    if group.allowed is not None:
        group = subset(group, np.flatnonzero(group.allowed))
    _, row, candidate = np.unique(group.variant, return_index=True, return_inverse=True)
    time = np.full(len(row), np.inf)
    np.minimum.at(time, candidate, group.time_us)
    columns = take(group.columns, row)
    keys = np.stack([columns[name] for name in STRATA])
    _, stratum = np.unique(keys, axis=1, return_inverse=True)
    return Pool(time, AnalyticScore().score(columns, group.problem, hardware), stratum.reshape(-1).astype(np.intp))


def draw(pool: Pool, budget: int, alpha: float | None, rng: np.random.Generator) -> Rows:
    """Draw a sample without replacement.

    Parameters
    ----------
    pool
        What there is.
    budget
        Candidates to draw, all if there are no more.
    alpha
        Share (rounded to whole candidates, halves up) of the best static scores, ties broken at random; the rest is
        dealt out by the strata in turn, each giving one of its own at random. None draws evenly from all.
    rng
        Gives every candidate its place in the order.

    Returns
    -------
    ndarray of positions in the pool, shape (at most budget,)
    """
    chance = rng.random(len(pool.time_us))
    if alpha is None:
        return np.argsort(chance)[:budget]
    top = int(alpha * budget + 0.5)
    order = np.lexsort((chance, -pool.score))
    rest = np.sort(order[top:])
    return np.concatenate([order[:top], rest[_in_turn(pool.stratum[rest], chance[rest])][: max(budget - top, 0)]])


def _in_turn(stratum: Rows, chance: Floats) -> Rows:
    """Order rows so that every stratum has given one before any gives its second, and so on."""
    by_stratum = np.lexsort((chance, stratum))
    ordered = stratum[by_stratum]
    start = np.flatnonzero(np.concatenate(([True], ordered[1:] != ordered[:-1]))) if len(ordered) else ordered
    turn = np.arange(len(ordered)) - np.repeat(start, np.diff(np.append(start, len(ordered))))
    return by_stratum[np.lexsort((chance[by_stratum], turn))]
