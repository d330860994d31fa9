"""Two-stage ranking: every kernel with its default launch first, then every launch of the best ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from ..generator import Columns, Problem, candidates_for, enumerate_launches
from ..generator import columns as col

if TYPE_CHECKING:
    from ..features import Hardware
    from ..models import Ranker

LAUNCH_TOP: Final = 16
"""Kernels whose launches are chosen unless said; the others keep their default launch."""


@dataclass(frozen=True, slots=True)
class Ranking:
    """Candidates with their scores, one row per kernel that can serve the problem, in the order of the input."""

    candidates: Columns
    """Candidate columns: each kernel with its launch."""
    row: NDArray[np.intp]
    """Row of the input that each candidate came from, shape (rows,)."""
    score: NDArray[np.float64]
    """Score of each kernel with the default launch, shape (rows,); higher is better."""


def rank_candidates(
    ranker: Ranker,
    configs: Columns,
    problem: Problem,
    hardware: Hardware,
    launches: bool = True,
    top: int = LAUNCH_TOP,
) -> Ranking:
    """Score every kernel that fits a problem, and choose the launch of the best.

    Stage 1 scores each kernel with the default launch; these scores order the kernels. Stage 2 scores all launches of
    the ``top`` kernels (and of those that tie with the last of them) and gives each its best one; a tie keeps the
    launch that is listed first, which is the default one. Launches of different kernels are not compared: in the
    measured groups only the fastest kernels have several, so a ranker knows nothing about that comparison.

    Parameters
    ----------
    ranker
        Model that scores candidates.
    configs
        Kernels, ``CONFIG_COLUMNS``; those that cannot serve the problem, directly or swapped, are left out.
    problem
        Problem that TMA can take.
    hardware
        GPU to rank for.
    launches
        False leaves every kernel at its default launch.
    top
        Kernels that reach stage 2.

    Returns
    -------
    Ranking
        One row per kernel that fits; none if nothing fits.
    """
    candidates, row = candidates_for(configs, problem)
    if not len(row):
        return Ranking(candidates, row, np.empty(0))
    score = ranker.score(candidates, problem, hardware)
    if not launches:
        return Ranking(candidates, row, score)

    best = at_least(score, top)
    variants, origin = enumerate_launches(col.take(candidates, best), problem)
    if len(origin) == len(best):
        return Ranking(candidates, row, score)
    order = np.lexsort((np.arange(len(origin)), -ranker.score(variants, problem, hardware), origin))
    winner = order[np.searchsorted(origin[order], np.arange(len(best)))]
    for name, values in candidates.items():
        values[best] = variants[name][winner]
    return Ranking(candidates, row, score)


def at_least(score: NDArray[np.float64], count: int) -> NDArray[np.intp]:
    """Return the rows of the ``count`` highest scores, and those that tie with the last of them, ascending."""
    cut = len(score) - min(count, len(score))
    return np.flatnonzero(score >= np.partition(score, cut)[cut])
