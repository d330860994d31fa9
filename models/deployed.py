"""The deployed rule on measured groups: which kernels a ranker proposes, and with which launches.

Kernels are ordered by the score of their default launch, or of the split of K worth a look that scores best; each then
gets its best-scored measured launch. Other launches are measured only for the truly fastest kernels of a group, so
ranking all rows together would give away which kernels those are. Ties go to fewer splits, the lower kernel id, the
unswapped row, the earlier row, as the group is ranked (``Group.as_deployed``).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from .base import Floats, Rows

if TYPE_CHECKING:
    from ..datasets import Group


def order_kernels(group: Group, scores: Floats) -> tuple[Rows, Floats]:
    """Order the kernels of a group; a kernel and its swapped use are two.

    Parameters
    ----------
    group
        Measured candidates of one problem.
    scores
        Score of each row that is ranked first (``Group.ranked_first``), higher is better.

    Returns
    -------
    tuple
        First-stage row of each kernel, best first, and its score, both of shape (kernels,).
    """
    group = group.as_deployed()
    first = np.flatnonzero(group.ranked_first)
    swapped = group.columns["swapped"][first]
    order = np.lexsort((swapped, group.kernel_id[first], group.columns["splits"][first], -scores))
    kernel = group.kernel_id[first].astype(np.int64) * 2 + swapped
    kept = order[np.sort(np.unique(kernel[order], return_index=True)[1])]
    return first[kept], scores[kept]


def choose_launches(group: Group, rows: Rows, score: Callable[[Rows], Floats]) -> Rows:
    """Return the best-scored measured launch of each of these kernels.

    Parameters
    ----------
    group
        Measured candidates of one problem.
    rows
        First-stage rows, shape (kernels,).
    score
        Returns the scores of rows of the group; it is called once, with the launches of all these kernels.

    Returns
    -------
    ndarray of int, shape (kernels,)
        Rows of the group, in the order of ``rows``.
    """
    variant = group.variant
    launches = np.isin(variant, variant[rows])
    members = np.flatnonzero(launches if group.allowed is None else launches & group.allowed)
    ranked = members[np.lexsort((group.columns["splits"][members], -score(members), variant[members]))]
    best = ranked[np.unique(variant[ranked], return_index=True)[1]]
    return best[np.searchsorted(variant[best], variant[rows])]


def choose(group: Group, scores: Floats) -> int:
    """Return the row that a ranker deploys on a group, of which something is ranked first, from a score of each row."""
    rows, _ = order_kernels(group, scores[group.ranked_first])
    return int(choose_launches(group, rows[:1], lambda members: scores[members])[0])
