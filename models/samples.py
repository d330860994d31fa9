"""Training rows: groups of measured candidates as queries of a ranking problem.

Launches other than the default are measured for the fastest kernels of a group only. Were all rows of a group one
query, a ranker could learn that a row with an unusual launch belongs to a fast kernel, which says nothing about
launches. So a group becomes several queries: one over kernels (all rows with the default launch, and the splits of K
that are measured for every Stream-K kernel), and one for each kernel whose other launches were measured (all its
launches). Those are compared with launches of the same kernel only. Rows that may not be chosen are learned from, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from ..features import featurize
from ..generator.errors import DataError
from .base import Floats, Matrix, Rows
from .config import TrainingConfig

if TYPE_CHECKING:
    from ..datasets import Group
    from ..features import Hardware

COST_ROWS: Final = 16
"""Fastest rows of a query that decide what a mistake in it costs."""


@dataclass(frozen=True)
class Samples:
    """Rows grouped into queries."""

    features: Matrix
    """Feature rows, shape (rows, features)."""
    speed: Floats
    """Fastest time of the group / time, shape (rows,), in (0, 1]. Rows that may not be chosen count, too."""
    relevance: Floats
    """Relevance of each row against the fastest of its query, shape (rows,), ≥ 0: :func:`speed_relevance` or bands."""
    start: Rows
    """First row of each query and the number of rows, shape (queries + 1,)."""
    weight: Floats
    """Weight of each query, shape (queries,)."""
    group: Rows
    """Group that each query came from, shape (queries,)."""

    @property
    def query(self) -> NDArray[np.int32]:
        """Query of each row, shape (rows,), ascending."""
        return np.repeat(np.arange(len(self.weight), dtype=np.int32), np.diff(self.start))


def feature_matrices(groups: Sequence[Group], hardware: Hardware, feature_set: str) -> list[Matrix]:
    """Compute the feature rows of each group, shapes (rows of the group, features)."""
    return [featurize(group.columns, group.problem, hardware, feature_set) for group in groups]


def subset(group: Group, rows: Rows) -> Group:
    """Return a group with some of its rows."""
    changes: dict[str, object] = {}
    for item in fields(group):
        value = getattr(group, item.name)
        if isinstance(value, np.ndarray):
            changes[item.name] = value[rows]
        elif isinstance(value, dict):
            changes[item.name] = {name: column[rows] for name, column in value.items()}
    return replace(group, **changes)  # type: ignore[arg-type]


def speed_relevance(speed: Floats, floor: float, sharpness: float) -> Floats:
    """Relevance of a relative speed: sharpness·(speed − floor)/(1 − floor), cut at 0.

    With NDCG's exponential gain, mistakes near the top cost most and rows slower than the floor are all alike.
    """
    return np.asarray(sharpness * np.clip((speed - floor) / (1.0 - floor), 0.0, 1.0), dtype=np.float64)


def mistake_cost(speed: Floats) -> float:
    """Return the mean regret of a random pick among the ``COST_ROWS`` fastest rows of a query, given all its speeds."""
    best = np.sort(speed)[::-1][:COST_ROWS]
    return float(1.0 - best.mean() / best[0])


def build_samples(
    groups: Sequence[Group], matrices: Sequence[Matrix], config: TrainingConfig, index: Sequence[int] | None = None
) -> Samples:
    """Turn groups into training rows.

    Parameters
    ----------
    groups
        Measured groups.
    matrices
        Feature rows of each (:func:`feature_matrices`).
    config
        Sampling, labels and seed.
    index
        Groups to use, all unless said; ``Samples.group`` refers to positions in ``groups``.

    Returns
    -------
    Samples
        Queries with fewer than two rows are left out.

    Raises
    ------
    DataError
        If nothing is left to learn from.
    """
    features: list[Matrix] = []
    speed: list[Floats] = []
    relevance: list[Floats] = []
    weight: list[float] = []
    owner: list[int] = []
    for number in range(len(groups)) if index is None else index:
        group = groups[number]
        fastest = replace(group, allowed=None).oracle_us
        for rows, share in _queries(group, config):
            features.append(matrices[number][rows])
            speed.append(np.minimum(fastest / group.time_us[rows], 1.0))
            relevance.append(_relevance(group, rows, config))
            weight.append(share)
            owner.append(number)
    if not features:
        raise DataError("no group has two rows to compare")
    shares = np.array(weight)
    if config.samples.cost_weight:
        cost = np.array([mistake_cost(part) for part in speed])
        costly = config.samples.cost_weight
        shares *= 1.0 - costly + costly * cost / max(float(shares @ cost / shares.sum()), 1e-12)
    return Samples(
        np.concatenate(features),
        np.concatenate(speed),
        np.concatenate(relevance),
        np.concatenate(([0], np.cumsum([len(part) for part in speed]))).astype(np.intp),
        shares,
        np.array(owner, dtype=np.intp),
    )


def _queries(group: Group, config: TrainingConfig) -> list[tuple[Rows, float]]:
    """Split a group into queries: (rows, weight)."""
    rng = np.random.default_rng([config.seed, group.problem_id])
    keep = ~group.coarse | (rng.random(len(group.coarse)) < config.samples.coarse_fraction)
    first = group.first_stage
    kernels = np.flatnonzero(first & keep)
    queries = [(kernels, 1.0)] if len(kernels) > 1 else []
    kernel = group.variant
    with_launches = np.unique(kernel[~first])
    launches = [rows for rows in (np.flatnonzero(kernel == key) for key in with_launches) if len(rows) > 1]
    if config.samples.launch_weight > 0:
        queries += [(rows, config.samples.launch_weight / len(launches)) for rows in launches]
    return queries


def _relevance(group: Group, rows: Rows, config: TrainingConfig) -> Floats:
    """Return the relevance of the rows of one query."""
    if config.labels == "bands":
        from ..datasets.labels import relevance

        return relevance(subset(group, rows), config.samples.top_bands).astype(np.float64)
    times = group.time_us[rows]
    return speed_relevance(times.min() / times, config.samples.speed_floor, config.samples.sharpness)
