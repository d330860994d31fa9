"""How large the studies are: what they compare, how often they repeat it, and what is cut down for a quick look."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Final

from ... import models
from ...models import InvalidTraining, TrainingConfig
from ...models.config import OBJECTIVES

KINDS: Final = ("xgboost", "mlp")
"""Model families that are studied."""


def shipped_config(kind: str) -> TrainingConfig:
    """Return the training configuration that the shipped ranker of a family was trained with.

    Raises
    ------
    InvalidTraining
        If no ranker of that family is shipped.
    """
    return TrainingConfig.from_file(Path(models.__file__).parent / "configs" / f"{kind}.json")


@dataclass(frozen=True)
class Options:
    """Grids, repeats and sizes of all studies; each study reads those that it knows.

    Raises
    ------
    InvalidTraining
        If a number is not positive, a share is outside its range, or a list is empty.
    """

    kinds: tuple[str, ...] = KINDS
    """Model families."""
    objectives: tuple[str, ...] = OBJECTIVES
    """Training objectives of ``features``."""
    hidden: tuple[tuple[int, ...], ...] = (
        (16, 8), (32, 16), (64, 32), (128, 64), (256, 128), (512, 256), (512, 512, 256), (1024, 1024, 512, 256),
    )  # fmt: skip
    """Widths of the hidden layers of the MLPs of ``capacity``."""
    depths: tuple[int, ...] = (2, 4, 6, 8, 10, 12, 14)
    """Tree depths of ``capacity``."""
    fractions: tuple[float, ...] = (0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0)
    """Shares of the base shapes of the training problems of ``data``, above 0 and at most 1."""
    draws: int = 3
    """Independent draws of the shapes of ``data``, each with a training seed of its own."""
    budgets: tuple[int, ...] = (8, 16, 32, 64, 128, 256, 512)
    """Candidates of a problem that ``sampling`` measures."""
    alphas: tuple[float, ...] = (0.0, 0.25, 0.5, 0.75, 0.9, 1.0)
    """Shares of ``sampling`` that are taken from the top of the static score, 0 to 1."""
    samples: int = 50
    """Independent samples of every problem of ``sampling``."""
    permutations: int = 3
    """Permutations of a feature or group of features of ``groups``."""
    seeds: int = 3
    """Training seeds of every setting of ``features``, ``groups`` and ``capacity``."""
    folds: int | None = None
    """Folds of the cross-validation; as configured unless given."""
    rounds: int | None = None
    """Most boosting rounds; as configured unless given."""
    epochs: int | None = None
    """Epochs of the MLP; as configured unless given."""
    members: int = 1
    """Networks of an MLP. Seeds are repeated anyway, so one network each shows more than their average."""
    shapes: int | None = None
    """Base shapes of the training problems to use, drawn at random; all unless given."""
    evaluation_shapes: int | None = None
    """The same of the evaluation problems."""
    configs: Mapping[str, TrainingConfig] = field(default_factory=dict)
    """By family, the configuration that a study varies; that of the shipped ranker where none is given."""

    def __post_init__(self) -> None:
        for item in fields(self):
            value = getattr(self, item.name)
            if isinstance(value, int) and value < 1:
                raise InvalidTraining(f"{item.name} is {value}; it must be at least 1")
            if isinstance(value, tuple) and not value:
                raise InvalidTraining(f"{item.name} is empty; a study needs at least one of them")
        if unknown := [kind for kind in self.kinds if kind not in KINDS]:
            raise InvalidTraining(f"family {unknown[0]!r} is not studied; use {' or '.join(KINDS)}")
        shipped = {kind: shipped_config(kind) for kind in self.kinds if kind not in self.configs}
        object.__setattr__(self, "configs", {**shipped, **self.configs})
        _within("fractions", self.fractions, min(self.fractions) > 0.0 and max(self.fractions) <= 1.0)
        _within("alphas", self.alphas, min(self.alphas) >= 0.0 and max(self.alphas) <= 1.0)
        _within("budgets", self.budgets, min(self.budgets) >= 1)

    def to_json(self) -> dict[str, Any]:
        """Return the options as a JSON object."""
        value = {item.name: getattr(self, item.name) for item in fields(self)}
        return value | {"configs": {kind: config.to_json() for kind, config in self.configs.items()}}

    def training(
        self,
        kind: str,
        seed: int,
        *,
        objective: str | None = None,
        feature_set: str = "full",
        hidden: tuple[int, ...] | None = None,
        depth: int | None = None,
    ) -> TrainingConfig:
        """Return the training configuration of one setting; what is not given stays as configured.

        Parameters
        ----------
        kind
            Model family.
        seed
            Of training and of the folds.
        objective
            Training objective.
        feature_set
            Feature set.
        hidden
            Widths of the hidden layers of an MLP.
        depth
            Depth of the trees.
        """
        base = self.configs[kind]
        given: dict[str, Any] = {"objective": objective, "folds": self.folds}
        trees = {"rounds": self.rounds, "max_depth": depth}
        network = {"epochs": self.epochs, "hidden": hidden, "members": self.members}
        return replace(
            base,
            feature_set=feature_set,
            seed=seed,
            threads=1,
            xgboost=replace(base.xgboost, **_known(trees)),
            mlp=replace(base.mlp, **_known(network)),
            **_known(given),
        )


QUICK: Final[Mapping[str, Any]] = {
    "hidden": ((16, 8), (64, 32), (256, 128)),
    "depths": (2, 6, 12),
    "fractions": (0.25, 0.5, 1.0),
    "draws": 2,
    "budgets": (8, 32, 128),
    "alphas": (0.0, 0.75, 1.0),
    "samples": 10,
    "permutations": 1,
    "seeds": 1,
    "folds": 2,
    "rounds": 32,
    "epochs": 8,
    "shapes": 32,
    "evaluation_shapes": 16,
}
"""Options of a quick look: every study in about a minute of one core. Its numbers show that a study runs, no more."""


def make_options(given: Mapping[str, Any], quick: bool = False) -> Options:
    """Build options: what is given, over those of a quick look if wanted, over the defaults."""
    return Options(**{**(QUICK if quick else {}), **given})


def settings_of(config: TrainingConfig) -> dict[str, Any]:
    """Return what determines a trained model: the configuration without the number of threads."""
    value = config.to_json()
    del value["threads"]
    return value


def _known(values: Mapping[str, Any]) -> dict[str, Any]:
    """Drop what is not given."""
    return {name: value for name, value in values.items() if value is not None}


def _within(name: str, values: Sequence[float], holds: bool) -> None:
    """Refuse values out of range."""
    if not holds:
        raise InvalidTraining(f"{name} holds {', '.join(map(str, values))}, some of it out of range")
