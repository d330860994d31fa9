"""The methods that are compared: each maps a group to the measured time of what it would have picked.

A method returns *equally likely times*: one for a method that decides, one per candidate for a random pick, none where
its answer was not measured in the group. Groups without an answer are counted, never dropped silently.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ..datasets import clock_factors
from ..generator import columns as col
from ..models import assess
from ..models.deployed import choose_launches, order_kernels
from .metrics import harmonic_mean

if TYPE_CHECKING:
    from ..datasets import Group, Tables
    from ..features import Hardware
    from ..generator import Problem
    from ..models import Ranker

Floats = NDArray[np.float64]
Rows = NDArray[np.intp]

_NOTHING: Final = np.empty(0, dtype=np.float64)


class Method(Protocol):
    """Something that answers "which kernel?" for a group."""

    name: str
    """Key in the report."""
    title: str
    """Name for readers."""
    kind: str
    """``ranker``, ``nvmmh``, ``cublaslt`` or ``simple``."""

    def times(self, group: Group) -> Floats:
        """Return the equally likely times of the pick, µs, shape (outcomes,); empty if not measured."""
        ...


class Proposals(NamedTuple):
    """What a ranker proposes for a group."""

    rows: Rows
    """Rows of the group, best first, shape (at most k,)."""
    gaps: Floats
    """Score of the best kernel − score of each proposed one, shape of ``rows``, ascending from 0."""
    doubt: float | None = None
    """How doubtful the best is (:func:`~..models.base.assess`)."""


def rank_group(ranker: Ranker, group: Group, hardware: Hardware) -> tuple[Rows, Floats, float | None]:
    """Order the kernels of a group as the first stage of selection does (:mod:`..models.deployed`).

    Parameters
    ----------
    ranker
        Anything with ``score(columns, problem, hardware)``, higher is better.
    group
        Measured candidates of one problem, as ``Group.as_deployed`` gives it.
    hardware
        The GPU that the features describe.

    Returns
    -------
    tuple
        First-stage row of each kernel (a kernel and its swapped use are two), best first; its score; and how doubtful
        the best is.
    """
    first = np.flatnonzero(group.ranked_first)
    if not first.size:
        return first, np.empty(0), None
    scores, doubt = assess(ranker, col.take(group.columns, first), group.problem, hardware)
    return *order_kernels(group, scores), doubt


def proposals_of(ranker: Ranker, group: Group, hardware: Hardware, k: int) -> Proposals:
    """Return what ``rank_kernels(..., top_k=k)`` would have answered, had it only the group's rows to choose from.

    Each of the ``k`` best kernels of :func:`rank_group` gets its best-scored measured launch. Parameters as there.
    """
    group = group.as_deployed()
    order, scores, doubt = rank_group(ranker, group, hardware)
    if not order.size:
        return Proposals(order, scores)
    order, scores = order[:k], scores[:k]

    def score(rows: Rows) -> Floats:
        return np.asarray(ranker.score(col.take(group.columns, rows), group.problem, hardware), dtype=np.float64)

    return Proposals(choose_launches(group, order, score), scores[0] - scores, doubt)


def propose(ranker: Ranker, group: Group, hardware: Hardware, k: int = 1) -> Rows:
    """Return the rows that a ranker deploys on a group, best first, shape (at most k,); see :func:`proposals_of`."""
    return proposals_of(ranker, group, hardware, k).rows


def predicted_regret(ranker: Ranker, proposed: Proposals, problem: Problem) -> Floats | None:
    """Return the regret that a ranker expects of its proposals, shape (proposals,); None if it is not calibrated.

    Parameters
    ----------
    ranker
        A ranker, with a ``calibration`` if it states what to expect.
    proposed
        What it proposes.
    problem
        The problem as it was ranked.
    """
    calibration = getattr(ranker, "calibration", None)
    if calibration is None:
        return None
    return np.asarray(1.0 - calibration.relative_speed(proposed.gaps, problem, proposed.doubt), dtype=np.float64)


class RankerMethod:
    """A ranker under the deployed rule (:func:`propose`)."""

    def __init__(
        self,
        ranker: Ranker,
        hardware: Hardware,
        name: str | None = None,
        title: str | None = None,
        kind: str = "ranker",
    ) -> None:
        self.ranker = ranker
        self.hardware = hardware
        self.name = name or ranker.name
        self.title = title or self.name
        self.kind = kind

    def proposals(self, group: Group, k: int) -> Proposals:
        """Return its ``k`` best kernels, best first."""
        return proposals_of(self.ranker, group, self.hardware, k)

    def times(self, group: Group) -> Floats:
        """Return the time of its pick, µs."""
        return np.asarray(group.time_us[self.proposals(group, 1).rows], dtype=np.float64)


class NvmmhVariants:
    """nvMMH's first pick, in the schedule variants of it that exist as CUTLASS kernels.

    nvMMH names tile, cluster, stages and launch but no schedule, so one answer stands for several kernels.
    """

    def __init__(self, tables: Tables) -> None:
        listed = tables.nvmmh_variants
        self._variants = {key: listed[listed["problem_id"] == key] for key in listed["problem_id"].unique().tolist()}

    def rows(self, group: Group) -> tuple[Rows, int]:
        """Return the rows of the pick's variants, with the launch it asked for, and how many variants exist."""
        listed = self._variants.get(group.problem_id)
        if listed is None:
            return np.empty(0, dtype=np.intp), 0
        wanted = set(zip(*(listed[name].tolist() for name in ("kernel_id", *col.LAUNCH_COLUMNS)), strict=True))
        launches = (group.columns[name].tolist() for name in col.LAUNCH_COLUMNS)
        keys = zip(group.kernel_id.tolist(), *launches, strict=True)
        match = np.array([key in wanted for key in keys], dtype=bool) & (group.columns["swapped"] == 0)
        return np.flatnonzero(match), len(wanted)


class NvmmhMethod:
    """nvMMH's first pick: the mean over its schedule variants, or the best of them.

    The mean is the harmonic mean of the variants' times, so its regret is exactly the mean of the variants' regrets.
    """

    kind = "nvmmh"

    def __init__(self, variants: NvmmhVariants, best: bool) -> None:
        self._variants = variants
        self._best = best
        self.name = "nvmmh_best" if best else "nvmmh_mean"
        self.title = "nvMMH, best variant" if best else "nvMMH, mean of variants"

    def times(self, group: Group) -> Floats:
        """Return the time that its variants stand for, µs."""
        times = group.time_us[self._variants.rows(group)[0]]
        if not times.size:
            return _NOTHING
        return np.array([times.min() if self._best else harmonic_mean(times)])


class BaselineMethod:
    """cuBLASLt as measured beside the kernels: the first answer of its heuristic, or the best of its list.

    Its times are brought to the clock of the group's (:func:`~..datasets.clock_factors`); their median counts.
    Its regret is against the CUTLASS oracle of the group, so it is negative where cuBLASLt beats every candidate.
    """

    kind = "cublaslt"

    def __init__(self, tables: Tables, name: str) -> None:
        self.name = name
        self.title = {"cublaslt_first": "cuBLASLt, first answer", "cublaslt_best": "cuBLASLt, best of its list"}[name]
        rows = tables.baselines
        rows = rows[(rows["method"] == name) & (rows["status"] == "ok") & rows["time_us"].notna()]
        main = tables.campaigns.loc[tables.campaigns["purpose"] == "main", "campaign_id"]
        rows = rows[rows["campaign_id"].isin(main)].join(clock_factors(tables), on=["problem_id", "campaign_id"])
        times = (rows["time_us"] * rows["factor"].fillna(1.0)).groupby(rows["problem_id"]).median()
        self._times = dict(zip(times.index.tolist(), times.tolist(), strict=True))

    def times(self, group: Group) -> Floats:
        """Return its time, µs."""
        time = self._times.get(group.problem_id)
        return _NOTHING if time is None else np.array([time])


class StaticBest:
    """The single kernel, default launch, that does best on the training groups; where it cannot run, the next best.

    Kernels are ordered by mean regret over all training groups; a group that one cannot serve counts as regret 1.
    """

    name = "static_best"
    title = "best single kernel"
    kind = "simple"

    def __init__(self, training: Sequence[Group]) -> None:
        parts = [
            pd.DataFrame(
                {
                    "kernel_id": group.kernel_id[rows],
                    "swapped": group.columns["swapped"][rows],
                    "speed": group.oracle_us / group.time_us[rows],
                }
            )
            for group in training
            for rows in [np.flatnonzero(group.default_launch)]
        ]
        self.order: list[tuple[int, int]] = []
        """(kernel id, swapped), best first."""
        if parts:
            total = pd.concat(parts).groupby(["kernel_id", "swapped"])["speed"].sum()
            total = total.sort_index().sort_values(ascending=False, kind="stable")
            self.order = [(int(kernel), int(swapped)) for kernel, swapped in total.index]

    def times(self, group: Group) -> Floats:
        """Return the time of the first kernel of the order that was measured in the group, µs."""
        rows = np.flatnonzero(group.default_launch)
        pairs = zip(group.kernel_id[rows].tolist(), group.columns["swapped"][rows].tolist(), strict=True)
        where = dict(zip(pairs, rows, strict=True))
        for pair in self.order:
            if pair in where:
                return np.array([group.time_us[where[pair]]], dtype=np.float64)
        return _NOTHING


class RandomPick:
    """A uniformly random kernel with its default launch: every outcome is returned, so expectations are exact."""

    name = "random"
    title = "random kernel (expected)"
    kind = "simple"

    def times(self, group: Group) -> Floats:
        """Return the times of all kernels with their default launch, µs."""
        return np.asarray(group.time_us[group.default_launch], dtype=np.float64)
