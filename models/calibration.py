"""What a difference of scores is worth: expected relative speed, calibrated on held-out groups.

Scores of a ranker say who is faster, not by how much. The mean relative speed (oracle time / time) of candidates is
tabulated as a never rising function of their gap to the best score of the group, separately for each kind of problem,
over groups that the scoring model was not trained on. Kinds with few groups are drawn towards the curve of all
groups.

How good the best candidate itself is differs from problem to problem: where the runners-up are close behind, or the
members of an ensemble disagree about them, a better one is likelier to be missed (:func:`doubt`). The mean regret of
the pick is tabulated as a never falling function of that doubt.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from ..generator import Problem
from ..generator.errors import ModelMismatch
from .base import Floats
from .deployed import choose_launches, order_kernels

if TYPE_CHECKING:
    from ..datasets import Group

KINDS: Final[tuple[tuple[str, Callable[[Problem], bool]], ...]] = (
    ("thin", lambda p: min(p.m, p.n) <= 64),
    ("long_k", lambda p: p.k >= 4 * max(p.m, p.n)),
    ("small", lambda p: p.flops < 2 * 2048**3),
    ("large", lambda p: True),
)
"""Kinds of problem with their rules; the first that holds decides."""
KNOTS: Final = 24
"""Most points of a curve."""
PRIOR_GROUPS: Final = 8.0
"""Weight of the curve of all groups in the curve of a kind, counted in groups."""
DOUBT_ROWS: Final = 16
"""Candidates, the best ones, that doubt is computed from."""
DOUBT_NOISE: Final = 0.3
"""Standard deviation of a gap that the members of an ensemble do not show, in units of the scores."""
DOUBT_KNOTS: Final = 10
"""Most points of the curve over doubt."""
KNOT_GROUPS: Final = 8
"""Fewest groups behind each of them."""


def kind_of(problem: Problem) -> str:
    """Return the kind of a problem: ``thin``, ``long_k``, ``small`` or ``large``."""
    return next(name for name, holds in KINDS if holds(problem))


@dataclass(frozen=True)
class Calibration:
    """Expected relative speed by gap to the best score."""

    gap: tuple[float, ...]
    """Points of the curves: best score − score, ascending from 0."""
    speed: Mapping[str, tuple[float, ...]]
    """Expected oracle time / time at each point, by kind of problem; never rising."""
    groups: Mapping[str, int]
    """Held-out groups behind each curve."""
    unit: float = 1.0
    """Unit of the scores (:func:`.ensemble.score_unit`)."""
    doubt: tuple[float, ...] = ()
    """Points of the curve over doubt, ascending; none if the model says nothing about single problems."""
    pick_regret: tuple[float, ...] = ()
    """Expected regret of the best candidate at each; never falling."""

    def relative_speed(self, gap: Floats | float, problem: Problem, doubt: float | None = None) -> Floats:
        """Return the expected oracle time / time of candidates, of the shape of ``gap``.

        Parameters
        ----------
        gap
            Best score of the list − score of the candidate, ≥ 0.
        problem
            Decides which curve is used.
        doubt
            Of the list (:func:`doubt`), which decides what to expect of its best candidate; the mean of all problems of
            the kind if it is not given.
        """
        curve = self.speed[kind_of(problem)]
        speed = np.asarray(np.interp(gap, self.gap, curve), dtype=np.float64)
        if doubt is None or not self.doubt:
            return speed
        return speed * ((1.0 - float(np.interp(doubt, self.doubt, self.pick_regret))) / max(curve[0], 1e-6))

    def expected_regret(self, scores: Floats, problem: Problem, doubt: float | None = None) -> Floats:
        """Return 1 − expected relative speed of each of the candidates with these scores, shape (candidates,)."""
        return 1.0 - self.relative_speed(scores.max() - scores, problem, doubt)

    def to_json(self) -> dict[str, Any]:
        """Return a JSON object that :meth:`from_json` reads."""
        return {
            "gap": list(self.gap),
            "speed": {kind: list(curve) for kind, curve in self.speed.items()},
            "groups": dict(self.groups),
            "unit": self.unit,
            "doubt": list(self.doubt),
            "pick_regret": list(self.pick_regret),
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Calibration:
        """Read the curves of a saved model.

        Raises
        ------
        ModelMismatch
            If they are damaged or made for other kinds of problem.
        """
        try:
            gap = tuple(float(x) for x in value["gap"])
            speed = {kind: tuple(float(x) for x in value["speed"][kind]) for kind, _ in KINDS}
            groups = {kind: int(value["groups"][kind]) for kind, _ in KINDS}
            unit = float(value.get("unit", 1.0))
            doubts, regrets = (tuple(float(x) for x in value.get(key, ())) for key in ("doubt", "pick_regret"))
        except (KeyError, TypeError, ValueError) as error:
            raise ModelMismatch(f"the model's calibration cannot be read: {error!r}") from error
        if {len(curve) for curve in speed.values()} != {len(gap)} or not gap or list(gap) != sorted(gap):
            raise ModelMismatch("the model's calibration needs equally many points in each curve, with ascending gaps")
        if len(doubts) != len(regrets) or list(doubts) != sorted(doubts):
            raise ModelMismatch("the model's calibration needs a regret for each doubt, with ascending doubts")
        return cls(gap, speed, groups, unit, doubts, regrets)


def doubt(scores: Floats, member_scores: Floats, unit: float) -> float:
    """Return how likely and how large an improvement on the best candidate is, from the scores of a list.

    The logarithm of the sum, over the runners-up, of the expected improvement on the best one if its gap g is the mean
    of a normal distribution: σ φ(g/σ) − g Φ(−g/σ), with σ² = the variance of the gap over the members + the square of
    ``DOUBT_NOISE``. At most ``DOUBT_ROWS`` candidates are looked at.

    Parameters
    ----------
    scores
        Of a list of candidates, shape (candidates,).
    member_scores
        Of each member of an ensemble, shape (members, candidates).
    unit
        Unit of the scores.
    """
    top = np.argsort(-scores, kind="stable")[:DOUBT_ROWS]
    gap = (scores[top[0]] - scores[top[1:]]) / unit
    members = (member_scores[:, top[:1]] - member_scores[:, top[1:]]) / unit
    sigma = np.sqrt(members.var(axis=0) + DOUBT_NOISE**2)
    z = gap / sigma
    tail = np.array([math.erfc(value / math.sqrt(2.0)) / 2.0 for value in z.tolist()])
    density = np.exp(-0.5 * z**2) / math.sqrt(2.0 * math.pi)
    return math.log(float((sigma * density - gap * tail).sum()) + 1e-6)


def fit_calibration(
    groups: Sequence[Group],
    scores: Sequence[Floats],
    member_scores: Sequence[Floats] | None = None,
    unit: float = 1.0,
) -> Calibration:
    """Calibrate on groups that the scores' model was not trained on.

    Each kernel of a group that may be chosen is one candidate, with gap and launch by the deployed rule
    (:mod:`.deployed`). The first point is the pick itself (gap 0); the others are the mean gaps of bins that end where
    the 2nd, 3rd, 4th, 6th, ... best candidate of the median group lies, so that they are narrow near the top.

    Parameters
    ----------
    groups
        Held-out groups, at least one.
    scores
        Score of each row of each group.
    member_scores
        Of each group, what each member of the model scores each row, shape (members, rows); without it nothing is
        said about single problems.
    unit
        Unit of the scores.
    """
    pairs = [_kernels(group, score) for group, score in zip(groups, scores, strict=True)]
    edges = _edges([gap for gap, _ in pairs])
    bins = len(edges) + 1
    count = np.zeros((len(groups), bins))
    speed, gaps = np.zeros_like(count), np.zeros(bins)
    for i, (gap, value) in enumerate(pairs):
        place = np.searchsorted(edges, gap, side="left") + 1
        place = np.minimum(place, bins - 1)
        place[0] = 0
        count[i] = np.bincount(place, minlength=bins)
        speed[i] = np.bincount(place, weights=value, minlength=bins)
        gaps += np.bincount(place, weights=gap, minlength=bins)
    used = count.sum(axis=0) > 0
    count, speed, gaps = count[:, used], speed[:, used], gaps[used] / count.sum(axis=0)[used]
    # Each group weighs the same in a bin, however many of its candidates lie there.
    present = count > 0
    mean = np.where(present, speed / np.maximum(count, 1), 0.0)
    pooled = mean.sum(axis=0) / present.sum(axis=0)
    kinds = np.array([kind_of(group.problem) for group in groups])
    curves = {}
    for kind, _ in KINDS:
        own = present[kinds == kind].sum(axis=0) + PRIOR_GROUPS
        curve = (mean[kinds == kind].sum(axis=0) + PRIOR_GROUPS * pooled) / own
        curves[kind] = tuple(never_rising(curve, own).tolist())
    sizes = {kind: int((kinds == kind).sum()) for kind, _ in KINDS}
    if member_scores is None:
        return Calibration(tuple(gaps.tolist()), curves, sizes, unit)
    first = [group.ranked_first for group in groups]
    parts = zip(scores, member_scores, first, strict=True)
    doubts = np.array([doubt(score[rows], members[:, rows], unit) for score, members, rows in parts])
    regret = np.array([1.0 - value[0] for gap, value in pairs])
    return Calibration(tuple(gaps.tolist()), curves, sizes, unit, *_doubt_curve(doubts, regret))


def never_rising(values: Floats, weights: Floats) -> Floats:
    """Return the weighted least-squares fit that never rises (pool adjacent violators), of the shape of ``values``."""
    blocks: list[list[float]] = []
    for value, weight in zip(values.tolist(), weights.tolist(), strict=True):
        blocks.append([value, weight, 1])
        while len(blocks) > 1 and blocks[-2][0] < blocks[-1][0]:
            value, weight, length = blocks.pop()
            mass = blocks[-1][1] + weight
            blocks[-1] = [(blocks[-1][0] * blocks[-1][1] + value * weight) / mass, mass, blocks[-1][2] + length]
    return np.repeat([block[0] for block in blocks], [int(block[2]) for block in blocks])


def _doubt_curve(doubts: Floats, regret: Floats) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return the points of the never falling curve of mean regret over doubt, from bins of equally many groups."""
    knots = max(1, min(DOUBT_KNOTS, len(doubts) // KNOT_GROUPS))
    parts = np.array_split(np.argsort(doubts, kind="stable"), knots)
    centers = [float(doubts[part].mean()) for part in parts]
    fit = -never_rising(-np.array([regret[part].mean() for part in parts]), np.array([float(len(p)) for p in parts]))
    return tuple(centers), tuple(fit.tolist())


def _kernels(group: Group, score: Floats) -> tuple[Floats, Floats]:
    """Return gap and relative speed of each kernel of a group, best first, shapes (kernels,)."""
    rows, scores = order_kernels(group, score[group.ranked_first])
    chosen = choose_launches(group, rows, lambda members: score[members])
    return scores[0] - scores, np.minimum(group.oracle_us / group.time_us[chosen], 1.0)


def _edges(gaps: Sequence[Floats]) -> Floats:
    """Return the ascending upper ends of the bins of positive gaps."""
    last = max(len(gap) for gap in gaps) - 1
    if not last:
        return np.empty(0)
    ranks: NDArray[np.intp] = np.unique(np.geomspace(1, last, KNOTS - 1).astype(np.intp))
    ends = [np.median([np.partition(gap, rank)[rank] for gap in gaps if rank < len(gap)]) for rank in ranks.tolist()]
    return np.unique(np.array(ends, dtype=np.float64))
