"""What a ranker is, and the feature transform that belongs to a saved one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Final, Protocol

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from ..features import Hardware
    from ..generator import Columns, Problem

Floats = NDArray[np.float64]
Matrix = NDArray[np.float32]
Rows = NDArray[np.intp]

WIDE_RANGE: Final = 64.0
"""A feature whose magnitude exceeds this anywhere in the training rows passes through the signed logarithm first."""
CLIP: Final = 8.0
"""Standardised features are cut to this many standard deviations: unseen sizes must not send a network off the map."""


class Ranker(Protocol):
    """Anything that scores candidates of one problem."""

    @property
    def name(self) -> str:
        """Name in reports."""
        ...

    @property
    def feature_set(self) -> str:
        """Feature set that the scores are computed from; ``none`` if the ranker needs no feature matrix."""
        ...

    def score(self, columns: Columns, problem: Problem, hardware: Hardware) -> Floats:
        """Return one score per row, shape (rows,), float64; higher is better, comparable within one problem only."""
        ...


def assess(ranker: Ranker, columns: Columns, problem: Problem, hardware: Hardware) -> tuple[Floats, float | None]:
    """Return the score of each candidate of a list, shape (rows,), and how doubtful the best is.

    The doubt is for the ranker's calibration; None if the ranker says nothing about single problems.
    """
    method = getattr(ranker, "assess", None)
    if method is None:
        return np.asarray(ranker.score(columns, problem, hardware), dtype=np.float64), None
    scores, doubt = method(columns, problem, hardware)
    return scores, doubt


class Scorer(Protocol):
    """A fitted function from feature rows to scores."""

    def scores(self, features: Matrix) -> Floats:
        """Return the scores of feature rows (rows, features), shape (rows,); higher is better."""
        ...

    def member_scores(self, features: Matrix) -> Floats:
        """Return what each member of an ensemble scores them, shape (members, rows); one member if it is none."""
        ...


@dataclass(frozen=True)
class Standardizer:
    """Signed logarithm of wide-ranged features, then zero mean and unit variance, then a cut at ``CLIP``.

    All in float32, so that training and inference see the same bits. A feature that was constant in training becomes 0.
    """

    mean: Matrix
    """Mean of each (transformed) feature, shape (features,)."""
    scale: Matrix
    """One over its standard deviation, 0 for a constant one, shape (features,)."""
    log: NDArray[np.bool_]
    """Features that pass through sign(x)·log(1 + |x|), shape (features,)."""

    @classmethod
    def fit(cls, features: Matrix) -> Standardizer:
        """Learn the transform from training rows (rows, features)."""
        log = np.abs(features).max(axis=0) > WIDE_RANGE
        values = np.array(features, dtype=np.float32)
        values[:, log] = _signed_log(values[:, log])
        values = values.astype(np.float64)
        deviation = values.std(axis=0)
        constant = deviation <= 1e-6 * np.maximum(1.0, np.abs(values.mean(axis=0)))
        scale = np.where(constant, 0.0, 1.0 / np.where(constant, 1.0, deviation))
        return cls(values.mean(axis=0).astype(np.float32), scale.astype(np.float32), log)

    def apply(self, features: Matrix) -> Matrix:
        """Transform rows (rows, features) into float32 of the same shape."""
        values = np.subtract(features, self.mean, dtype=np.float32)
        wide = np.flatnonzero(self.log)
        values[:, wide] = _signed_log(features[:, wide]) - self.mean[wide]
        values *= self.scale
        return np.clip(values, -CLIP, CLIP, out=values)

    @cached_property
    def bounds(self) -> tuple[Matrix, Matrix]:
        """Least and greatest value of each feature that is not cut, before it is centred, shapes (features,)."""
        reach = np.divide(CLIP, self.scale, out=np.zeros_like(self.scale), where=self.scale > 0)
        return self.mean - reach, self.mean + reach

    def cut(self, features: Matrix) -> Matrix:
        """Transform rows (rows, features) like :meth:`apply`, but leave them neither centred nor scaled."""
        low, high = self.bounds
        wide = np.flatnonzero(self.log)
        values = np.maximum(features, low, dtype=np.float32)
        values[:, wide] = np.maximum(_signed_log(features[:, wide]), low[wide])
        return np.minimum(values, high, out=values)

    def tensors(self) -> dict[str, NDArray[np.generic]]:
        """Return the arrays to save, by name."""
        return {
            "standardizer.mean": self.mean,
            "standardizer.scale": self.scale,
            "standardizer.log": self.log.astype(np.uint8),
        }

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, NDArray[np.generic]]) -> Standardizer:
        """Rebuild the transform from :meth:`tensors`.

        Raises
        ------
        KeyError
            If one is missing.
        """
        return cls(
            np.asarray(tensors["standardizer.mean"], dtype=np.float32),
            np.asarray(tensors["standardizer.scale"], dtype=np.float32),
            np.asarray(tensors["standardizer.log"]).astype(np.bool_),
        )


def _signed_log(values: Matrix) -> Matrix:
    """Return sign(x)·log(1 + |x|), float32."""
    return np.copysign(np.log1p(np.abs(values)), values).astype(np.float32, copy=False)
