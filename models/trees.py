"""NumPy evaluation of the boosted trees in an XGBoost ``model.json``.

Every distinct condition "feature >= threshold" is evaluated once for all rows and packed into bits, 64 rows a word.
The trees are then walked level by level with word operations: a node's rows are those of its parent that took its
side. What is left at the end is one bit a level, row and tree (which way the row went there); those bits are the
row's leaf number in the tree. A few rows are instead walked down all trees node by node, which the preparation of the
bits would take longer than.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ..generator.errors import ModelMismatch
from .base import Floats, Matrix, Rows

OBJECTIVES: Final = frozenset({"rank:ndcg", "rank:pairwise", "reg:squarederror"})
"""Objectives whose prediction is the margin itself, so that ``base_score`` is simply added."""
MAX_DEPTH: Final = 16
"""Deepest tree that is evaluated: the tables of nodes and leaves have 2^depth entries a tree each."""
_BLOCK: Final = 1024
"""Rows evaluated together: a multiple of 64, small enough for the words of a level to stay in cache."""
_FEW: Final = 40
"""Most rows that are walked down node by node."""
_NARROW: Final = 128
"""Most rows whose features are copied to every condition, instead of comparing feature by feature."""

Ints = NDArray[np.intp]
Words = NDArray[np.uint64]


@dataclass(frozen=True)
class Tree:
    """One regression tree as XGBoost stores it; every array has shape (nodes,)."""

    left: NDArray[np.int32]
    """Left child ("feature < threshold"); -1 in a leaf."""
    right: NDArray[np.int32]
    """Right child; -1 in a leaf."""
    feature: NDArray[np.int32]
    """Feature that is compared."""
    value: NDArray[np.float32]
    """Threshold; in a leaf, its output."""
    default_left: NDArray[np.bool_]
    """Side of a NaN."""


@dataclass(frozen=True)
class _Level:
    """The inner nodes of one depth in all trees, ordered by tree."""

    condition: Ints
    """Condition of each node, shape (nodes,)."""
    tree: Ints
    """Trees that have nodes here, ascending, shape (trees here,)."""
    first: Ints
    """Position of the first node of each of them, shape (trees here,)."""
    inner: Ints
    """For each node of the next level: its position among (left sides, right sides) of this one."""


class Forest:
    """A sum of regression trees.

    Parameters
    ----------
    trees
        The trees, in boosting order.
    base
        Constant added to every score (``base_score``).
    features
        Number of features that a row must have.

    Raises
    ------
    ModelMismatch
        If a tree is deeper than ``MAX_DEPTH``.
    """

    def __init__(self, trees: Sequence[Tree], base: float, features: int) -> None:
        self.trees = tuple(trees)
        self.base = base
        self.features = features
        self.document: Mapping[str, Any] | None = None
        """XGBoost's JSON document of a newly trained forest."""
        self._compile()

    @classmethod
    def from_xgboost(cls, document: Mapping[str, Any]) -> Forest:
        """Read a parsed ``model.json`` of XGBoost 2 or 3.

        Raises
        ------
        ModelMismatch
            If the document is no such model, or uses what is not evaluated here: another booster or objective,
            several outputs, categorical splits.
        """
        try:
            learner = document["learner"]
            booster, parameters = learner["gradient_booster"], learner["learner_model_param"]
            if booster["name"] != "gbtree" or learner["objective"]["name"] not in OBJECTIVES:
                raise ModelMismatch(
                    f"booster {booster['name']!r} with objective {learner['objective']['name']!r} is not supported; "
                    f"use gbtree with one of {', '.join(sorted(OBJECTIVES))}"
                )
            base = str(parameters["base_score"]).strip("[]").split(",")
            if len(base) != 1 or int(parameters.get("num_target", 1)) > 1 or int(parameters["num_class"]) > 1:
                raise ModelMismatch("models with several outputs are not supported")
            trees = [_tree(tree) for tree in booster["model"]["trees"]]
            return cls(trees, float(base[0]), int(parameters["num_feature"]))
        except (KeyError, TypeError, ValueError) as error:
            if isinstance(error, ModelMismatch):
                raise
            raise ModelMismatch(f"not a readable XGBoost JSON model: {error!r}") from error

    def head(self, trees: int) -> Forest:
        """Return the forest of the first trees only, as if boosting had stopped there."""
        return Forest(self.trees[:trees], self.base, self.features)

    def scores(self, features: Matrix) -> Floats:
        """Return the margins of feature rows (rows, features), shape (rows,), summed in float32 as XGBoost does."""
        rows = len(features)
        result = np.empty(rows, dtype=np.float64)
        if rows <= _FEW and not np.isnan(features).any():
            return self._walk(features)
        for start in range(0, rows, _BLOCK):
            result[start : start + _BLOCK] = self._block(features[start : start + _BLOCK])
        return result

    def member_scores(self, features: Matrix) -> Floats:
        """Return the scores as those of an ensemble's single member, shape (1, rows)."""
        return self.scores(features)[None, :]

    def detailed(self, features: Matrix) -> tuple[Floats, Rows, Floats]:
        """Return the scores (rows,), the rows whose members' scores are known, all, and those (1, rows)."""
        scores = self.scores(features)
        return scores, np.arange(len(features)), scores[None, :]

    def _compile(self) -> None:
        """Flatten the trees into conditions, levels and a table of leaves."""
        count = len(self.trees)
        offset = np.concatenate(([0], np.cumsum([len(tree.left) for tree in self.trees]))).astype(np.intp)
        left = _join([tree.left for tree in self.trees], np.intp)
        right = _join([tree.right for tree in self.trees], np.intp)
        feature = _join([tree.feature for tree in self.trees], np.intp)
        value = _join([tree.value for tree in self.trees], np.float32)
        default_left = _join([tree.default_left for tree in self.trees], np.bool_)
        owner = np.repeat(np.arange(count), np.diff(offset))
        left, right = left + offset[owner], right + offset[owner]
        leaf = left < offset[owner]

        # Feature, threshold and default side in one whole number, which sorts ten times as fast as three columns.
        bits = value.view(np.int32).astype(np.int64) + (1 << 31)
        unique, inverse = np.unique((feature << 33 | bits << 1 | default_left)[~leaf], return_inverse=True)
        condition = np.zeros(len(leaf), dtype=np.intp)
        condition[~leaf] = inverse
        self._feature = (unique >> 33).astype(np.intp)
        self._threshold = ((unique >> 1 & 0xFFFFFFFF) - (1 << 31)).astype(np.int32).view(np.float32)
        self._default_left = (unique & 1).astype(np.bool_)
        used, start = np.unique(self._feature, return_index=True)
        stop = np.append(start, len(unique))[1:]
        self._spans = list(zip(used.tolist(), start.tolist(), stop.tolist(), strict=True))

        # A code has bit d set if the path turned right at depth d; in tables, trees of the same code are neighbours.
        self._levels: list[_Level] = []
        self._nodes: list[tuple[Ints, Matrix]] = []
        leaves: list[tuple[Ints, NDArray[np.int64]]] = []
        nodes, code = offset[:-1].copy(), np.zeros(count, dtype=np.int64)
        leaves.append((nodes[leaf[nodes]], code[leaf[nodes]]))
        nodes, code = nodes[~leaf[nodes]], code[~leaf[nodes]]
        while len(nodes):
            depth = len(self._levels)
            if depth == MAX_DEPTH:
                raise ModelMismatch(f"a tree is deeper than {MAX_DEPTH} levels, the most that is evaluated")
            children = np.concatenate([left[nodes], right[nodes]])
            codes = np.concatenate([code, code | 1 << depth])
            tip = leaf[children]
            leaves.append((children[tip], codes[tip]))
            inner = np.flatnonzero(~tip)
            inner = inner[np.argsort(owner[children[inner]], kind="stable")]
            trees, first = np.unique(owner[nodes], return_index=True)
            self._levels.append(_Level(condition[nodes], trees, first, inner))
            # Where a path has ended it goes on to the left: nothing reaches a threshold of NaN.
            shape, place = (1 << depth, count), (code, owner[nodes])
            compared, threshold = np.zeros(shape, dtype=np.intp), np.full(shape, np.nan, dtype=np.float32)
            compared[place], threshold[place] = feature[nodes], value[nodes]
            self._nodes.append((compared, threshold))
            nodes, code = children[inner], codes[inner]

        self._leaves = np.zeros((1 << len(self._levels), count), dtype=np.float32)
        for tips, codes in leaves:
            self._leaves[codes, owner[tips]] = value[tips]

    def _walk(self, features: Matrix) -> Floats:
        """Return the scores of a few rows without NaN, added up in the same order as those of many."""
        rows, width = features.shape
        flat = np.ascontiguousarray(features, dtype=np.float32).reshape(-1)
        step = len(self.trees)
        first = np.tile(np.arange(rows) * width, (step, 1))
        index = np.repeat(np.arange(step)[:, None], rows, axis=1)
        place, value, threshold = np.empty_like(index), *np.empty((2, *index.shape), dtype=np.float32)
        # Indices are always in range; "clip" only saves the check, and a copy of the output.
        for compared, thresholds in self._nodes:
            compared.take(index, out=place, mode="clip")
            place += first
            flat.take(place, out=value, mode="clip")
            thresholds.take(index, out=threshold, mode="clip")
            index += np.multiply(value >= threshold, step, out=place)
            step *= 2
        return self._sum(index)

    def _conditions(self, features: Matrix) -> Words:
        """Return "goes right" of every condition and row as bits, shape (words, conditions)."""
        rows = len(features)
        columns = np.ascontiguousarray(features.T, dtype=np.float32)
        right = np.zeros((len(self._feature), -(-rows // 64) * 64), dtype=np.bool_)
        if rows <= _NARROW:
            np.greater_equal(columns.take(self._feature, axis=0), self._threshold[:, None], out=right[:, :rows])
        else:
            for feature, start, stop in self._spans:
                np.greater_equal(columns[feature], self._threshold[start:stop, None], out=right[start:stop, :rows])
        if np.isnan(columns).any():
            right[:, :rows] |= np.isnan(columns[self._feature]) & ~self._default_left[:, None]
        packed = np.packbits(right, axis=1, bitorder="little").view(np.uint64)
        return np.ascontiguousarray(packed.T)

    def _block(self, features: Matrix) -> Floats:
        """Return the scores of at most ``_BLOCK`` rows."""
        rows, count = len(features), len(self.trees)
        conditions = self._conditions(features)
        words = conditions.shape[0]
        code = np.zeros((words, count, 64), dtype=np.uint8 if len(self._levels) <= 8 else np.uint16)
        reach = np.full((words, len(self._levels[0].condition)), ~np.uint64(0)) if self._levels else None
        for depth, level in enumerate(self._levels):
            assert reach is not None
            right = np.take(conditions, level.condition, axis=1)
            right &= reach
            went = np.zeros((words, count), dtype=np.uint64)
            went[:, level.tree] = np.bitwise_or.reduceat(right, level.first, axis=1)
            bits = np.unpackbits(went.view(np.uint8), axis=1, bitorder="little").reshape(code.shape)
            code |= bits.astype(code.dtype, copy=False) << code.dtype.type(depth)
            if len(level.inner):
                reach = np.take(np.concatenate([reach ^ right, right], axis=1), level.inner, axis=1)
        index = code.astype(np.intp)
        index *= count
        index += np.arange(count)[:, None]
        return self._sum(index).reshape(-1)[:rows]

    def _sum(self, index: Ints) -> Floats:
        """Add up leaves of shape (..., trees, rows) over the trees, one after the other."""
        output: NDArray[np.float32] = self._leaves.take(index).sum(
            axis=-2, dtype=np.float32, initial=np.float32(self.base)
        )
        return output.astype(np.float64)


def slim(document: dict[str, Any]) -> dict[str, Any]:
    """Return a ``model.json`` that predicts the same in XGBoost and here, with what only training needs set to zero."""
    booster = document["learner"]["gradient_booster"]
    trees = []
    for tree in booster["model"]["trees"]:
        nothing = [0.0] * len(tree["left_children"])
        trees.append({**tree, "loss_changes": nothing, "sum_hessian": nothing, "base_weights": nothing})
    booster = {**booster, "model": {**booster["model"], "trees": trees}}
    return {**document, "learner": {**document["learner"], "gradient_booster": booster}}


def _tree(document: Mapping[str, Any]) -> Tree:
    """Read one tree of a ``model.json``."""
    if document.get("categories_nodes") or any(document.get("split_type", ())):
        raise ModelMismatch("categorical splits are not supported; emit levels as 0/1 features")
    return Tree(
        np.array(document["left_children"], dtype=np.int32),
        np.array(document["right_children"], dtype=np.int32),
        np.array(document["split_indices"], dtype=np.int32),
        np.array(document["split_conditions"], dtype=np.float32),
        np.array(document["default_left"], dtype=np.bool_),
    )


def _join(parts: Sequence[NDArray[Any]], dtype: type) -> NDArray[Any]:
    """Concatenate arrays, of which there may be none."""
    return np.concatenate([np.empty(0, dtype=dtype), *parts]).astype(dtype)
