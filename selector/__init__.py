"""The product: which kernel to use for a problem."""

from __future__ import annotations

from .choice import Choice
from .ranking import Ranking, rank_candidates
from .select import rank_kernels, select_kernel

__all__ = ["Choice", "Ranking", "rank_candidates", "rank_kernels", "select_kernel"]
