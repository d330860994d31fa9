"""Training labels: relative speed, noise-aware bands, grades and relevance.

Candidates whose times cannot be told apart share a band; a ranker is not asked to order noise.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from .grouping import Group

TOP_GRADE: Final = 31
"""Grade of the fastest band; XGBoost's exponential gain takes no higher one."""
IQR_PER_SIGMA: Final = 1.349
"""Interquartile range of a normal distribution in standard deviations."""
MIN_SIGMA: Final = 0.002
"""Least relative noise assumed of a row: launches that happen to agree, as a coarse timer makes them, are not exact."""


def sigma(group: Group) -> NDArray[np.float64]:
    """Relative standard deviation of each row: its relative interquartile range / 1.349, at least ``MIN_SIGMA``.

    A row without a spread gets the group's median one.
    """
    spread = group.spread
    known = spread[np.isfinite(spread)]
    filled = np.where(np.isfinite(spread), spread, np.median(known) if len(known) else 0.0)
    return np.maximum(filled / IQR_PER_SIGMA, MIN_SIGMA)


def bands(time: NDArray[np.float64], sigma: NDArray[np.float64]) -> NDArray[np.intp]:
    """Number the bands of indistinguishable times, 0 the fastest.

    In order of time, a row i opens a band and a following row j belongs to it as long as
    t_j - t_i <= 2 sqrt((sigma_i t_i)^2 + (sigma_j t_j)^2). Rows are compared with the band's fastest one, not with
    their neighbours, or a dense group would be one band.

    Parameters
    ----------
    time
        Times, shape (rows,), any unit.
    sigma
        Relative standard deviations, shape (rows,).
    """
    order = np.argsort(time, kind="stable")
    result = np.zeros(len(time), dtype=np.intp)
    band, leader = -1, -1
    for row in order:
        noise = 2 * np.hypot(sigma[leader] * time[leader], sigma[row] * time[row])
        if band < 0 or time[row] - time[leader] > noise:
            band, leader = band + 1, row
        result[row] = band
    return result


def grades(group: Group) -> NDArray[np.intp]:
    """Grade of each row: 31 minus its band, at least 0; higher is faster."""
    return np.maximum(TOP_GRADE - bands(group.time_us, sigma(group)), 0)


def relevance(group: Group, top_bands: int = 2) -> NDArray[np.intp]:
    """Relevance of each row: clip(grade - (31 - B), 0, B) with B = ``top_bands``, so only the B fastest bands count."""
    return np.clip(grades(group) - (TOP_GRADE - top_bands), 0, top_bands)


def relative_speed(group: Group) -> NDArray[np.float64]:
    """Oracle time / time of each row, in (0, 1] for rows that are not coarse."""
    return group.oracle_us / group.time_us
