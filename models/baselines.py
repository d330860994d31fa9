"""Rankers that learn nothing: the paper's static score, and chance."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from .base import Floats

if TYPE_CHECKING:
    from ..features import Hardware
    from ..generator import Columns, Problem


class AnalyticScore:
    """Static score of arXiv 2609.35587: wave efficiency · stages · √(tile_m · tile_n · tile_k).

    Wave efficiency = tiles / (⌈tiles / SMs⌉ · SMs), with one CTA an SM. A swapped candidate is scored on (N, M, K).
    The launch plays no part.
    """

    name = "analytic"
    feature_set = "none"

    def score(self, columns: Columns, problem: Problem, hardware: Hardware) -> Floats:
        """Return the score of each candidate, shape (rows,)."""
        swapped = columns["swapped"] != 0 if "swapped" in columns else np.zeros(len(columns["tile_m"]), dtype=np.bool_)
        tile_m, tile_n, tile_k = (columns[name].astype(np.int64) for name in ("tile_m", "tile_n", "tile_k"))
        m = np.where(swapped, problem.n, problem.m)
        n = np.where(swapped, problem.m, problem.n)
        tiles = -(-m // tile_m) * -(-n // tile_n)
        efficiency = tiles / (-(-tiles // hardware.sm_count) * hardware.sm_count)
        return np.asarray(efficiency * columns["stages"] * np.sqrt(tile_m * tile_n * tile_k), dtype=np.float64)


class RandomScore:
    """Uniformly random scores; the same problem and seed give the same ones.

    Parameters
    ----------
    seed
        Makes independent rankers.
    """

    name = "random"
    feature_set = "none"

    def __init__(self, seed: int = 0) -> None:
        self.seed = seed

    def score(self, columns: Columns, problem: Problem, hardware: Hardware) -> Floats:
        """Return a random number from 0 to 1 for each row, shape (rows,)."""
        text = f"{problem} {hardware.name}"
        return np.random.default_rng([self.seed, *text.encode()]).random(len(columns["tile_m"]))
