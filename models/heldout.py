"""Cross-validation of any configuration: scores of every training group by models that did not see its shape."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from .base import Floats, Matrix, Scorer
from .config import TrainingConfig
from .ensemble import combine, deciding, score_unit
from .linear import fit_ridge
from .network import Network
from .samples import Samples, build_samples
from .trees import Forest
from .validation import cross_validate

if TYPE_CHECKING:
    from ..datasets import Group

STAGES: Final = 8
"""Numbers of boosting rounds that cross-validation compares."""


@dataclass(frozen=True)
class HeldOut:
    """What cross-validation found for a configuration."""

    scores: list[Floats]
    """Of each row of each group, by models that did not see its shape."""
    member_scores: list[Floats]
    """The same by each member of those models, shapes (members, rows)."""
    unit: float
    """Of the scores (:func:`.ensemble.score_unit`)."""
    rounds: int | None = None
    """Boosting rounds that were best."""
    parts: tuple[HeldOut, ...] = ()
    """Of an ensemble, what was found for each member."""


Single = Callable[[TrainingConfig], HeldOut]
"""Cross-validation of a configuration that is no ensemble."""


def held_out(
    groups: Sequence[Group],
    matrices: Sequence[Matrix],
    config: TrainingConfig,
    log: Callable[[str], None] = lambda _: None,
    single: Single | None = None,
) -> HeldOut:
    """Cross-validate a configuration; of an ensemble, its members one by one.

    Parameters
    ----------
    groups, matrices
        Training groups and their feature rows.
    config
        What to train; its seed deals the folds.
    log
        Takes a line of progress now and then.
    single
        Cross-validates what is no ensemble, :func:`cross_validate_one` unless given.
    """
    if config.kind != "ensemble":
        return single(config) if single else cross_validate_one(groups, matrices, config, log)
    parts = tuple(held_out(groups, matrices, member, log, single) for member in config.members)
    scores, members = [], []
    for i, group in enumerate(groups):
        units = [part.scores[i] / part.unit for part in parts]
        # Launches are compared among those of one kernel, which is a list that needs no shortlist.
        score = np.asarray(np.mean(deciding(units, config.rescore), axis=0))
        kernels = np.flatnonzero(group.ranked_first)
        score[kernels] = combine([unit[kernels] for unit in units], config.rescore)
        scores.append(score)
        members.append(np.concatenate([part.member_scores[i] / part.unit for part in deciding(parts, config.rescore)]))
    return HeldOut(scores, members, 1.0, parts=parts)


def cross_validate_one(
    groups: Sequence[Group], matrices: Sequence[Matrix], config: TrainingConfig, log: Callable[[str], None]
) -> HeldOut:
    """Cross-validate a configuration that is no ensemble; of a forest, find the best number of rounds."""

    def fit_fold(index: NDArray[np.intp], fold: int) -> Sequence[Scorer]:
        log(f"{config.kind}, fold {fold + 1} of {config.folds}: {len(index)} groups")
        scorer = fit_one(build_samples(groups, matrices, config, index.tolist()), config)
        return [scorer.head(rounds) for rounds in _rounds(config)] if isinstance(scorer, Forest) else [scorer]

    cross = cross_validate(fit_fold, groups, matrices, config.folds, config.seed)
    members = cross.member_scores[cross.best_stage]
    scores = [part.mean(axis=0) for part in members]
    rounds = _rounds(config)[cross.best_stage] if config.kind == "xgboost" else None
    return HeldOut(scores, members, score_unit(groups, scores), rounds)


def fit_one(samples: Samples, config: TrainingConfig, rounds: int | None = None) -> Forest | Network:
    """Fit a single model."""
    if config.kind == "xgboost":
        from .xgb import fit_xgboost

        return fit_xgboost(samples, config, rounds)[0]
    if config.kind == "mlp":
        from .mlp import fit_mlp

        return fit_mlp(samples, config)
    return fit_ridge(samples, config)


def _rounds(config: TrainingConfig) -> list[int]:
    """Return the numbers of boosting rounds that are compared, ascending; the last is the configured one."""
    most = config.xgboost.rounds
    return sorted({max(1, round(most * (i + 1) / STAGES)) for i in range(STAGES)})
