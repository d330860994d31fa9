"""The cell that trains a ranker: cross-validated regret on the training groups, regret on the evaluation groups."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from ...datasets import Group
from ...features import Hardware, feature_names, featurize
from ...generator import Columns, Problem
from ...models import TrainingConfig
from ...models.base import Matrix, Scorer
from ...models.heldout import fit_one, held_out
from ...models.network import Network
from ...models.samples import build_samples
from ...models.trees import Forest
from ...models.validation import regrets
from ...models.validation import summarise as summarise_regrets
from ..evaluation import BEST_OF, evaluate
from ..methods import RankerMethod
from ..metrics import summarise
from .cells import Work
from .data import StudyData, draw_shapes, shape_count, shape_numbers
from .importance import permutation_importance
from .options import settings_of

Floats = NDArray[np.float64]

_DIGITS = 6
_OVERHEAD = 100_000
"""Work of a training row of an MLP besides its weights, counted in weights: pairs, batches, their losses."""


@dataclass(frozen=True)
class TrainingCell:
    """Trains one ranker."""

    training: TrainingConfig
    """Everything about the training."""
    features: tuple[str, ...]
    """Features that it sees, some or all of those of ``training.feature_set``, in their order."""
    shapes: int | None = None
    """Base shapes of the training groups to use; None: all."""
    draw: int = 0
    """Seed of the draw of the shapes."""
    permutations: int = 0
    """Permutations for the importance of features; 0: it is not computed."""

    @property
    def label(self) -> str:
        """Family, objective and what is special."""
        config = self.training
        words = [config.kind, config.objective, f"{len(self.features)} features", f"seed {config.seed}"]
        if config.kind == "mlp":
            words.insert(2, "x".join(map(str, config.mlp.hidden)))
        if config.kind == "xgboost":
            words.insert(2, f"depth {config.xgboost.max_depth}")
        if self.shapes is not None:
            words.append(f"{self.shapes} shapes")
        if self.permutations:
            words.append("importance")
        return ", ".join(words)

    def to_json(self) -> dict[str, Any]:
        """Return everything that determines the result, besides the data."""
        return {
            "task": "train",
            "training": settings_of(self.training),
            "features": list(self.features),
            "shapes": self.shapes,
            "draw": self.draw,
            "permutations": self.permutations,
        }

    def work(self, data: StudyData) -> Work:
        """Rows × passes over them × size of the model × fits (the folds' come to folds − 1 of all rows, the last to 1).

        The size of an MLP is its weights, that of boosted trees the features × depth that a round looks at.
        """
        config = self.training
        counts = [data.rows[group.problem_id] for group in draw_shapes(data.training, self.shapes, self.draw)]
        rows = sum(fine + config.samples.coarse_fraction * coarse for fine, coarse in counts)
        if config.kind == "mlp":
            widths = (len(self.features), *config.mlp.hidden, 1)
            weights = sum(one * two for one, two in pairwise(widths))
            per_row: float = config.mlp.epochs * config.mlp.members * (weights + _OVERHEAD)
        else:
            trees = config.xgboost
            per_row = trees.rounds * trees.max_depth * trees.colsample_bytree * len(self.features)
        return Work(config.kind, rows * per_row * config.folds)

    def run(self, data: StudyData) -> dict[str, Any]:
        """Cross-validate by shape, fit to all, and evaluate under the deployed rule (:func:`~..methods.propose`).

        As in training for release, cross-validation chooses the number of boosting rounds.

        Returns
        -------
        dict
            ``training`` (groups, shapes, rows), ``model`` (rounds, parameters), ``cross_validation`` and
            ``evaluation`` (summaries of regret, fractions), ``best_of`` (mean regret of the best of k proposals),
            ``regrets`` (of each evaluation group) and ``clusters`` (the number of its base shape), and ``importance``
            if it was asked for.
        """
        config = self.training
        groups = draw_shapes(data.training, self.shapes, self.draw)
        rows = FeatureRows(groups, data.hardware, config.feature_set, self.features)
        held = held_out(groups, rows, config)
        samples = build_samples(groups, rows, config)
        scorer = fit_one(samples, config, held.rounds)
        method = RankerMethod(StudiedRanker(scorer, config.feature_set, rows.columns), data.hardware)
        result = evaluate(data.evaluation, [method]).results[method.name]
        assert result.best_of is not None
        best_of = result.best_of.mean(axis=0).tolist()
        found: dict[str, Any] = {
            "training": {"groups": len(groups), "shapes": shape_count(groups), "rows": len(samples.speed)},
            "model": {"rounds": held.rounds, "parameters": parameters(scorer)},
            "cross_validation": _rounded(summarise_regrets(regrets(held.scores, groups))),
            "evaluation": _rounded(summarise(result.scores)),
            "best_of": _rounded({str(k): value for k, value in zip(BEST_OF, best_of, strict=True)}),
            "regrets": [round(value, _DIGITS) for value in result.scores[:, 0].tolist()],
            "clusters": shape_numbers(data.evaluation),
        }
        if self.permutations:
            unseen = FeatureRows(data.evaluation, data.hardware, config.feature_set, self.features)
            found["importance"] = permutation_importance(
                scorer, data.evaluation, unseen, self.features, self.permutations, config.seed
            )
        return found


class FeatureRows(Sequence[Matrix]):
    """Feature rows of groups, some of their columns, computed anew when asked for.

    Computing them takes far less time than training and a tenth of the memory that keeping them all would.

    Parameters
    ----------
    groups
        Measured groups.
    hardware
        The GPU that the features describe.
    feature_set
        Feature set that the columns belong to.
    names
        Columns to keep.
    """

    def __init__(self, groups: Sequence[Group], hardware: Hardware, feature_set: str, names: Sequence[str]) -> None:
        known = feature_names(feature_set)
        self.columns = np.array([known.index(name) for name in names], dtype=np.intp)
        """Positions of the kept columns in the feature set."""
        self._groups = groups
        self._hardware = hardware
        self._feature_set = feature_set
        self._last: tuple[int, Matrix] | None = None

    def __len__(self) -> int:
        return len(self._groups)

    @overload
    def __getitem__(self, index: int) -> Matrix: ...

    @overload
    def __getitem__(self, index: slice) -> list[Matrix]: ...

    def __getitem__(self, index: int | slice) -> Matrix | list[Matrix]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        if self._last is None or self._last[0] != index:
            group = self._groups[index]
            rows = featurize(group.columns, group.problem, self._hardware, self._feature_set)
            self._last = index, rows[:, self.columns]
        return self._last[1]


@dataclass(frozen=True)
class StudiedRanker:
    """A fitted function of some columns of a feature set, as a ranker."""

    scorer: Scorer
    feature_set: str
    columns: NDArray[np.intp]
    name: str = "studied"

    def score(self, columns: Columns, problem: Problem, hardware: Hardware) -> Floats:
        """Return the score of each candidate, shape (rows,); higher is better."""
        return self.scorer.scores(featurize(columns, problem, hardware, self.feature_set)[:, self.columns])


def parameters(scorer: Forest | Network) -> int:
    """Count what was fitted: the weights and biases of networks, the nodes of trees."""
    if isinstance(scorer, Forest):
        return sum(len(tree.left) for tree in scorer.trees)
    return sum(weight.size + bias.size for layers in scorer.members for weight, bias in layers)


def _rounded(values: dict[str, float]) -> dict[str, float]:
    """Round to what the timers can tell apart and more."""
    return {name: round(float(value), _DIGITS) for name, value in values.items()}
