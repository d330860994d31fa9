"""Why a ranker preferred its pick to the oracle: knobs that differ, and feature groups that moved the score.

The score's lead of the pick over the oracle is split over the groups of features by exact Shapley values (arXiv
1705.07874): each group's mean effect of being taken from the pick's row instead of the oracle's, over all orders of
exchanging groups. They add up to the lead and need nothing but scores of mixed rows, so they hold for every model on
features. Mixed rows need not belong to any kernel; what they say is how the model weighs its inputs, no more.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product
from math import factorial
from typing import TYPE_CHECKING, Final, cast

import numpy as np
from numpy.typing import NDArray

from ..features import Feature, describe_features, featurize
from ..generator import columns as col
from .describe import knob_differences
from .methods import RankerMethod, proposals_of, rank_group

if TYPE_CHECKING:
    from ..datasets import Group

Matrix = NDArray[np.float32]
Floats = NDArray[np.float64]
Score = Callable[[Matrix], Floats]

GROUP_TITLES: Final = {
    "structural": "knobs and sizes",
    "work": "work decomposition",
    "memory": "memory behaviour",
    "resources": "resource pressure",
    "pipeline": "pipeline behaviour",
    "time": "estimated time",
}
"""Groups of features for readers; the paper's names where it has them."""
_WORDS: Final = {
    "cluster": "cluster {}",
    "epilogue": "{} epilogue",
    "stages": "{} stages",
    "splits": "{} splits",
    "swizzle": "swizzle {}",
    "raster": "raster {}",
    "decomposition": "{} decomposition",
}
"""Knobs whose value alone would not say what it is."""
_NAMED: Final = 0.2
"""A group is named in the sentence if it moved the score by at least this fraction of what the leading one did."""


@dataclass(frozen=True)
class Influence:
    """What one group of features did to the score."""

    group: str
    effect: float
    """Shapley value, in units of the score; above 0 it spoke for the pick."""
    feature: str
    """The feature that did most in the same direction, empty if none did."""
    values: tuple[float, float]
    """Its value for the pick and for the oracle; NaN without a feature."""
    unit: str
    """Unit of the values."""


@dataclass(frozen=True)
class Reason:
    """Why a pick is not the oracle."""

    knobs: dict[str, tuple[str, str]]
    """Knobs that differ: of the pick, of the oracle."""
    oracle_rank: int
    """Place of the oracle's kernel in the ranker's order, from 1; 0 if the ranker could not have picked it."""
    kernels: int
    """Kernels that were ranked."""
    lead: float
    """Score of the pick − score of the oracle, as compared; NaN where nothing was compared."""
    influences: tuple[Influence, ...]
    """By falling effect; empty for a ranker that does not score feature rows."""
    sentence: str
    """All that in words."""


def explain(method: RankerMethod, group: Group) -> Reason:
    """Compare a ranker's pick on a group with the oracle.

    The rows compared are those that the ranker compared: the first-stage rows of both kernels, or, where both are the
    same kernel, the launches.

    Parameters
    ----------
    method
        The ranker; it must have an answer on the group.
    group
        Measured candidates with an oracle.
    """
    oracle = int(np.argmin(np.where(group.coarse, np.inf, group.time_us)))
    deployed = group.as_deployed()
    order, _, _ = rank_group(method.ranker, deployed, method.hardware)
    pick = int(proposals_of(method.ranker, group, method.hardware, 1).rows[0])
    variant, ranked = deployed.variant, deployed.ranked_first
    differing = knob_differences(group.columns, pick, oracle)
    kernel = deployed.kernel_id.astype(np.int64) * 2 + deployed.columns["swapped"]
    places = np.flatnonzero(kernel[order] == kernel[oracle])
    rank = int(places[0]) + 1 if places.size else 0
    same = variant[pick] == variant[oracle]
    rivals = np.flatnonzero((variant == variant[oracle]) & ranked)
    rows = (pick, oracle) if same else (int(order[0]), int(rivals[0])) if rivals.size else None
    lead = float("nan")
    influences: tuple[Influence, ...] = ()
    if rows is not None and pick != oracle:
        lead, influences = _compare(method, deployed, rows)
    sentence = _sentence(differing, rank, len(order), influences, same)
    return Reason(differing, rank, len(order), lead, influences, sentence)


def shapley(score: Score, first: Matrix, second: Matrix, players: Sequence[NDArray[np.intp]]) -> Floats:
    """Split ``score(first) - score(second)`` over groups of features.

    Parameters
    ----------
    score
        Scores of feature rows (rows, features).
    first, second
        Two feature rows, shape (features,).
    players
        Positions of each group's features; features in no group must be equal in both rows.

    Returns
    -------
    ndarray, shape (players,)
        Exact Shapley values; they add up to the difference.
    """
    count = len(players)
    coalitions = np.array(list(product((0, 1), repeat=count)), dtype=np.intp).reshape(-1, count)
    rows = np.repeat(second[None, :], len(coalitions), axis=0)
    for player, features in enumerate(players):
        rows[np.ix_(coalitions[:, player] == 1, features)] = first[features]
    value = score(rows)
    size = coalitions.sum(axis=1)
    result = np.zeros(count)
    for player in range(count):
        without = np.flatnonzero(coalitions[:, player] == 0)
        joined = without + 2 ** (count - 1 - player)
        weight = [factorial(int(s)) * factorial(count - 1 - int(s)) / factorial(count) for s in size[without]]
        result[player] = float(np.asarray(weight) @ (value[joined] - value[without]))
    return result


def _compare(method: RankerMethod, group: Group, rows: tuple[int, int]) -> tuple[float, tuple[Influence, ...]]:
    """Return the score's lead of the first row and what each group of features did to it."""
    ranker = method.ranker
    columns = col.take(group.columns, np.array(rows, dtype=np.intp))
    scores = np.asarray(ranker.score(columns, group.problem, method.hardware), dtype=np.float64)
    lead = float(scores[0] - scores[1])
    score = cast("Score | None", getattr(ranker, "score_matrix", None))
    if score is None:
        return lead, ()
    described = describe_features(ranker.feature_set)
    first, second = np.ascontiguousarray(featurize(columns, group.problem, method.hardware, ranker.feature_set))
    differ = first != second
    names = list(dict.fromkeys(feature.group for feature in described))
    members = [np.array([f.group == name for f in described], dtype=bool) & differ for name in names]
    players = {name: np.flatnonzero(mask) for name, mask in zip(names, members, strict=True) if mask.any()}
    effects = shapley(score, first, second, list(players.values()))
    found = [
        _influence(score, first, second, name, float(effect), features, described)
        for (name, features), effect in zip(players.items(), effects, strict=True)
    ]
    return lead, tuple(sorted(found, key=lambda influence: -influence.effect))


def _influence(
    score: Score,
    first: Matrix,
    second: Matrix,
    name: str,
    effect: float,
    features: NDArray[np.intp],
    described: Sequence[Feature],
) -> Influence:
    """Find the feature of a group that did most: the mean effect of exchanging it alone, from either row."""
    alone, back = np.repeat(second[None, :], len(features), axis=0), np.repeat(first[None, :], len(features), axis=0)
    place = np.arange(len(features))
    alone[place, features], back[place, features] = first[features], second[features]
    ends = score(np.stack([first, second]))
    moved = (score(alone) - ends[1] + ends[0] - score(back)) / 2.0
    best = int(np.argmax(moved * np.sign(effect)))
    if moved[best] * effect <= 0:
        return Influence(name, effect, "", (float("nan"), float("nan")), "")
    feature, unit = described[int(features[best])].name, described[int(features[best])].unit
    values = (float(first[features[best]]), float(second[features[best]]))
    if feature.startswith("log2_"):
        feature, values = feature.removeprefix("log2_"), (2.0 ** values[0], 2.0 ** values[1])
    return Influence(name, effect, feature, values, unit)


def _sentence(
    differing: dict[str, tuple[str, str]], rank: int, kernels: int, influences: Sequence[Influence], same: bool
) -> str:
    """Put a reason into words."""
    if not differing:
        return "The pick is the oracle."
    sides = [
        ", ".join(_WORDS.get(name, "{}").format(values[side]) for name, values in differing.items()) for side in (0, 1)
    ]
    place = "the same kernel" if same else f"ranked {rank} of {kernels}" if rank else "which it could not pick"
    text = f"Picked {sides[0]} over {sides[1]} ({place})."
    largest = max((abs(influence.effect) for influence in influences), default=0.0)
    named = [i for i in influences if abs(i.effect) >= _NAMED * largest and i.effect]
    for spoke, mine in (
        ("the pick", [i for i in named if i.effect > 0]),
        ("the oracle", [i for i in reversed(named) if i.effect < 0]),
    ):
        if mine:
            text += f" For {spoke} spoke {', '.join(map(_phrase, mine[:3]))}."
    return text


def _phrase(influence: Influence) -> str:
    """Put one influence into words."""
    text = f"{GROUP_TITLES.get(influence.group, influence.group)} ({abs(influence.effect):.2g}"
    if not influence.feature:
        return text + ")"
    name = influence.feature.replace("_", " ")
    if "=" in name:
        field, level = name.split("=")
        return f"{text}: {field} {'' if influence.values[0] else 'not '}{level})"
    return f"{text}: {name} {' against '.join(_amount(value, influence.unit) for value in influence.values)})"


def _amount(value: float, unit: str) -> str:
    """Put a feature's value into words; times in µs, other units are clear from the feature's name."""
    if unit == "s":
        return f"{1e6 * value:.3g} µs"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
