"""Two-stage ranking: every kernel with its default launch first, then every launch of the best ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from ..generator import LAUNCH_COLUMNS, Columns, Problem, enumerate_launches, ranked_candidates, splits_worth_a_look
from ..generator import columns as col
from ..models import assess

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
    """Best score of each kernel in stage 1, shape (rows,); higher is better."""
    doubt: float | None = None
    """How doubtful the best is, for the ranker's calibration; None if it says nothing about single problems."""


def rank_candidates(
    ranker: Ranker,
    configs: Columns,
    problem: Problem,
    hardware: Hardware,
    launches: bool = True,
    top: int = LAUNCH_TOP,
    deterministic: bool = True,
) -> Ranking:
    """Score every kernel that fits a problem, and choose the launch of the best.

    Stage 1 scores each kernel with the default launch, and Stream-K kernels also with the splits of K that are worth a
    look; the best of these scores orders the kernels. Stage 2 scores the other launches of the ``top`` kernels (and of
    those that tie with the last of them) whose K is not split, and gives each its best one; a tie keeps the launch
    that is listed first, which is the default one. Other launches of different kernels are not compared: in the
    measured groups only the fastest kernels have them, so a ranker knows nothing about that comparison.

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
        False leaves every kernel at its launch of stage 1.
    top
        Kernels that reach stage 2.
    deterministic
        False also ranks split-K with atomic adds, in stage 1.

    Returns
    -------
    Ranking
        One row per kernel that fits; none if nothing fits.
    """
    candidates, row = ranked_candidates(configs, problem, deterministic)
    if not len(row):
        return Ranking(candidates, row, np.empty(0))
    score, doubt = assess(ranker, candidates, problem, hardware)
    if (row[1:] <= row[:-1]).any():
        # The best of each kernel's rows, the default launch first where they tie.
        order = np.lexsort((np.arange(len(row)), -score, row))
        kept = order[np.concatenate(([True], row[order][1:] != row[order][:-1]))]
        candidates, row, score = col.take(candidates, kept), row[kept], score[kept]
    if not launches:
        return Ranking(candidates, row, score, doubt)

    best = at_least(score, top)
    best = best[candidates["splits"][best] == 1]
    variants, origin = enumerate_launches(col.take(candidates, best), problem)
    other = ~splits_worth_a_look(variants, problem)
    variants, origin = col.take(variants, other), origin[other]
    if len(origin) == len(best):
        return Ranking(candidates, row, score, doubt)
    order = np.lexsort((np.arange(len(origin)), -ranker.score(variants, problem, hardware), origin))
    winner = order[np.searchsorted(origin[order], np.arange(len(best)))]
    for name in LAUNCH_COLUMNS:
        candidates[name][best] = variants[name][winner]
    return Ranking(candidates, row, score, doubt)


def at_least(score: NDArray[np.float64], count: int) -> NDArray[np.intp]:
    """Return the rows of the ``count`` highest scores, and those that tie with the last of them, ascending."""
    cut = len(score) - min(count, len(score))
    return np.flatnonzero(score >= np.partition(score, cut)[cut])
