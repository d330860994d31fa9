"""From measured groups to a saved ranker: cross-validation, calibration, final fit, evaluation, model card."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from ..features import get_hardware
from ..generator.errors import DataError
from .base import Matrix, Scorer
from .calibration import fit_calibration
from .card import write_card
from .config import TrainingConfig
from .linear import fit_ridge
from .network import Network
from .samples import build_samples, feature_matrices
from .store import FORMAT, Model, feature_list
from .trees import Forest
from .validation import cross_validate, regrets, summarise

if TYPE_CHECKING:
    from ..datasets import Group, Tables
    from ..features import Hardware

STAGES: Final = 8
"""Numbers of boosting rounds that cross-validation compares."""


def train(
    groups: Sequence[Group],
    hardware: Hardware,
    config: TrainingConfig,
    *,
    evaluation: Sequence[Group] = (),
    name: str | None = None,
    data: Mapping[str, Any] | None = None,
    log: Callable[[str], None] = lambda _: None,
) -> Model:
    """Train a ranker; the same groups, configuration and framework versions give the same one.

    Cross-validation by shape gives the number of boosting rounds, the calibration and the first metrics; the model is
    then fitted to all training groups and scored once on the evaluation groups.

    Parameters
    ----------
    groups
        Training groups, of more shapes than folds.
    hardware
        The GPU that they were measured on.
    config
        Family, objective and settings.
    evaluation
        Groups that take no part in any choice.
    name
        Name of the model, ``<kind>-<objective>`` unless said.
    data
        Where the groups come from, for the manifest.
    log
        Takes a line of progress now and then.

    Returns
    -------
    Model
        Ready to score and to save; its manifest holds the metrics.

    Raises
    ------
    MissingDependency
        If the framework of the family is not installed.
    InvalidTraining
        If there are fewer shapes than folds.
    DataError
        If no group has two candidates to compare.
    """
    matrices = feature_matrices(groups, hardware, config.feature_set)
    log(f"{len(groups)} training groups, {sum(map(len, matrices))} rows, {matrices[0].shape[1]} features")

    def fit_fold(index: NDArray[np.intp], fold: int) -> Sequence[Scorer]:
        log(f"fold {fold + 1} of {config.folds}: {len(index)} groups")
        return _fit_stages(groups, matrices, config, index.tolist())

    cross = cross_validate(fit_fold, groups, matrices, config.folds, config.seed)
    stage = cross.best_stage
    held_out = summarise(cross.regrets[stage])
    log(f"cross-validation: mean regret {held_out['mean_regret']:.4f}, median {held_out['median_regret']:.4f}")
    calibration = fit_calibration(groups, cross.scores[stage])

    samples = build_samples(groups, matrices, config)
    training: dict[str, Any] = {"config": config.to_json(), "rows": len(samples.speed)}
    document: dict[str, Any] | None = None
    scorer: Forest | Network
    if config.kind == "xgboost":
        from .xgb import fit_xgboost

        training["rounds"] = _rounds(config)[stage]
        scorer, document = fit_xgboost(samples, config, training["rounds"])
    elif config.kind == "mlp":
        from .mlp import fit_mlp

        scorer = fit_mlp(samples, config)
    else:
        scorer = fit_ridge(samples, config)
    manifest: dict[str, Any] = {
        "format": FORMAT,
        "name": name or f"{config.kind}-{config.objective}",
        "kind": config.kind,
        "objective": config.objective,
        "feature_set": config.feature_set,
        "features": feature_list(config.feature_set),
        "hardware": hardware.name,
        "data": {**(data or {}), "training_groups": len(groups), "evaluation_groups": len(evaluation)},
        "commit": code_commit(),
        "training": training,
        "metrics": {"cross_validation": held_out},
        "confidence": calibration.to_json(),
    }
    model = Model(scorer, manifest, document)
    if evaluation:
        manifest["metrics"]["evaluation"] = evaluate_model(model, evaluation, hardware)
        log(f"evaluation: mean regret {manifest['metrics']['evaluation']['mean_regret']:.4f}")
    return model


def evaluate_model(model: Model, groups: Sequence[Group], hardware: Hardware) -> dict[str, float]:
    """Summarise the regret of a model on groups (:func:`.validation.summarise`), and the mean of what it expected."""
    scores = [model.score_matrix(x) for x in feature_matrices(groups, hardware, model.feature_set)]
    expected = [
        model.expected_regret(score[group.ranked_first], group.problem).min()
        for score, group in zip(scores, groups, strict=True)
    ]
    return {**summarise(regrets(scores, groups)), "mean_expected_regret": float(np.mean(expected))}


def train_and_save(
    out: str | Path,
    config: TrainingConfig,
    *,
    hardware: str = "h200",
    name: str | None = None,
    path: str | Path | None = None,
    log: Callable[[str], None] = lambda _: None,
) -> Model:
    """Train on the training split of measured tables, evaluate on the evaluation split, and write the model's folder.

    Parameters
    ----------
    out
        Folder to write: manifest, weights and ``CARD.md``. Its name is the model's name unless ``name`` is given.
    config
        Family, objective and settings.
    hardware
        The GPU that the tables were measured on.
    name
        Name of the model.
    path
        Folder of the tables; the shipped ones unless said.
    log
        Takes a line of progress now and then.

    Raises
    ------
    DataError
        If the tables are missing or have no training groups.
    MissingDependency
        If the framework of the family is not installed.
    """
    from ..datasets import groups, load

    tables = load(path=path)
    training = groups(tables, "train")
    if not training:
        raise DataError("the tables have no measured training problems")
    model = train(
        training,
        get_hardware(hardware),
        config,
        evaluation=groups(tables, "eval"),
        name=name or Path(out).resolve().name,
        data={"campaigns": _campaigns(tables)},
        log=log,
    )
    folder = model.save(out)
    write_card(model.manifest, folder)
    return model


def code_commit() -> str:
    """Return the commit of the code, ``-dirty`` where files were changed since; ``unknown`` outside a checkout."""
    root = Path(__file__).resolve().parents[1]
    try:
        return subprocess.run(
            ["git", "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"],
            cwd=root, capture_output=True, text=True, check=True,
        ).stdout.strip()  # fmt: skip
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def _fit_stages(
    groups: Sequence[Group], matrices: Sequence[Matrix], config: TrainingConfig, index: Sequence[int]
) -> Sequence[Scorer]:
    """Fit to some of the groups; a forest is returned at several numbers of rounds."""
    samples = build_samples(groups, matrices, config, index)
    if config.kind == "xgboost":
        from .xgb import fit_xgboost

        forest, _ = fit_xgboost(samples, config)
        return [forest.head(rounds) for rounds in _rounds(config)]
    if config.kind == "mlp":
        from .mlp import fit_mlp

        return [fit_mlp(samples, config)]
    return [fit_ridge(samples, config)]


def _rounds(config: TrainingConfig) -> list[int]:
    """Return the numbers of boosting rounds that are compared, ascending; the last is the configured one."""
    most = config.xgboost.rounds
    return sorted({max(1, round(most * (i + 1) / STAGES)) for i in range(STAGES)})


def _campaigns(tables: Tables) -> list[dict[str, Any]]:
    """Return name, GPU and software of the campaigns that training groups come from."""
    frame = tables.campaigns
    keys = ["name", "gpu", "driver", "cuda", "cutlass", "protocol_version", "commit", "started"]
    rows = frame.loc[frame["purpose"] == "main", keys].astype(str)
    return [dict(zip(keys, row, strict=True)) for row in rows.itertuples(index=False)]
