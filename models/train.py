"""From measured groups to a saved ranker: cross-validation, calibration, final fit, evaluation, model card."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..features import get_hardware
from ..generator import load_catalogue
from ..generator.errors import DataError
from .base import Matrix
from .calibration import fit_calibration
from .card import write_card
from .config import TrainingConfig
from .deployed import choose_launches, order_kernels
from .ensemble import Ensemble
from .heldout import STAGES, HeldOut, fit_one, held_out
from .network import Network
from .samples import build_samples, feature_matrices
from .store import FORMAT, Model, feature_list
from .trees import Forest
from .validation import regret, regrets, summarise

__all__ = ["STAGES", "code_commit", "evaluate_model", "train", "train_and_save"]

if TYPE_CHECKING:
    from ..datasets import Group, Tables
    from ..features import Hardware


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

    held = held_out(groups, matrices, config, log)
    found = summarise(regrets(held.scores, groups))
    log(f"cross-validation: mean regret {found['mean_regret']:.4f}, median {found['median_regret']:.4f}")
    calibration = fit_calibration(groups, held.scores, held.member_scores, held.unit)

    scorer, rows = _fit(groups, matrices, config, held)
    training: dict[str, Any] = {"config": config.to_json(), "rows": rows}
    if held.rounds:
        training["rounds"] = held.rounds
    manifest: dict[str, Any] = {
        "format": FORMAT,
        "name": name or f"{config.kind}-{config.objective}",
        "kind": config.kind,
        "objective": "+".join(dict.fromkeys(member.objective for member in config.members)) or config.objective,
        "feature_set": config.feature_set,
        "features": feature_list(config.feature_set),
        "hardware": hardware.name,
        "data": {**(data or {}), "training_groups": len(groups), "evaluation_groups": len(evaluation)},
        "commit": code_commit(),
        "training": training,
        "metrics": {"cross_validation": found},
        "confidence": calibration.to_json(),
    }
    if held.parts:
        manifest["members"] = [
            {"kind": member.kind, "objective": member.objective, "unit": part.unit, "rounds": part.rounds}
            for member, part in zip(config.members, held.parts, strict=True)
        ]
        manifest["rescore"] = config.rescore
    model = Model(scorer, manifest)
    if evaluation:
        manifest["metrics"]["evaluation"] = evaluate_model(model, evaluation, hardware)
        log(f"evaluation: mean regret {manifest['metrics']['evaluation']['mean_regret']:.4f}")
    return model


def evaluate_model(model: Model, groups: Sequence[Group], hardware: Hardware) -> dict[str, float]:
    """Summarise the regret of a model on groups (:func:`.validation.summarise`), and the mean of what it expected.

    Groups without a candidate to choose from are left out.
    """
    groups = [group for group in groups if group.ranked_first.any()]
    matrices = feature_matrices(groups, hardware, model.feature_set)
    found = np.array([_evaluate(model, group, matrix) for group, matrix in zip(groups, matrices, strict=True)])
    return {**summarise(found[:, 0]), "mean_expected_regret": float(found[:, 1].mean())}


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

    Every measured candidate is trained on (:func:`..datasets.training_groups`). Validated and evaluated is, on the
    shipped tables, the choice among the shipped catalogue's kernels, against the fastest of all that was measured; only
    deterministic launches count.

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
    from ..datasets import groups, load, training_groups

    tables = load(path=path)
    catalogue = load_catalogue() if path is None else None
    training = training_groups(tables, catalogue)
    if not training:
        raise DataError("the tables have no measured training problems")
    model = train(
        training,
        get_hardware(hardware),
        config,
        evaluation=[group.as_deployed() for group in groups(tables, "eval", catalogue=catalogue)],
        name=name or Path(out).resolve().name,
        data={"campaigns": _campaigns(tables), "catalogue": "" if catalogue is None else "default"},
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


def _fit(
    groups: Sequence[Group], matrices: Sequence[Matrix], config: TrainingConfig, held: HeldOut
) -> tuple[Forest | Network | Ensemble, int]:
    """Fit to all groups; return the model and how many rows it, or the largest member, was trained on."""
    if config.kind != "ensemble":
        samples = build_samples(groups, matrices, config)
        return fit_one(samples, config, held.rounds), len(samples.speed)
    fitted = [_fit(groups, matrices, *each) for each in zip(config.members, held.parts, strict=True)]
    members = [member for member, _ in fitted if not isinstance(member, Ensemble)]
    return Ensemble(members, [part.unit for part in held.parts], config.rescore), max(rows for _, rows in fitted)


def _evaluate(model: Model, group: Group, matrix: Matrix) -> tuple[float, float]:
    """Return the regret of a model on a group, of which it has the feature rows, and the one that it expected."""
    scores, doubt = model.assess_matrix(matrix[group.ranked_first])
    kernels, _ = order_kernels(group, scores)
    pick = choose_launches(group, kernels[:1], lambda rows: model.score_matrix(matrix[rows]))
    return regret(group, int(pick[0])), float(model.expected_regret(scores, group.problem, doubt).min())


def _campaigns(tables: Tables) -> list[dict[str, Any]]:
    """Return name, GPU and software of the campaigns that training groups come from."""
    frame = tables.campaigns
    keys = ["name", "gpu", "driver", "cuda", "cutlass", "protocol_version", "commit", "started"]
    rows = frame.loc[frame["purpose"] == "main", keys].astype(str)
    return [dict(zip(keys, row, strict=True)) for row in rows.itertuples(index=False)]
