"""Training configuration: what ``train --config FILE`` reads and a saved model records."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import Any, Final, TypeVar, get_type_hints

from ..generator.errors import CutlassRankerError

KINDS: Final = ("xgboost", "mlp", "ridge")
"""Model families."""
OBJECTIVES: Final = ("lambdarank", "ranknet", "mse")
"""Training objectives: listwise with NDCG gains, pairwise, and least squares on log relative speed."""
ALIASES: Final[dict[str, str]] = {
    "rank:ndcg": "lambdarank",
    "ndcg": "lambdarank",
    "rank:pairwise": "ranknet",
    "pairwise": "ranknet",
    "reg:squarederror": "mse",
    "regression": "mse",
}
"""Other names of the objectives."""
LABELS: Final = ("speed", "bands")
"""Relevance for the ranking objectives: a smooth gain of relative speed, or the top noise bands."""


class InvalidTraining(CutlassRankerError, ValueError):
    """A training configuration with an unknown key or a value out of range."""


@dataclass(frozen=True)
class SampleConfig:
    """How measured groups become training rows."""

    coarse_fraction: float = 0.2
    """Fraction of the rows marked coarse (over 3× the best) that is kept, drawn once per group."""
    labels: str = "auto"
    """``speed``, ``bands``, or ``auto``: speed for lambdarank, bands for ranknet. Unused by mse."""
    top_bands: int = 2
    """Bands that count as relevant with ``bands`` labels."""
    speed_floor: float = 0.5
    """Relative speed at and below which the ``speed`` gain is zero."""
    sharpness: float = 5.0
    """``speed`` gain is 2^(sharpness·x) − 1 with x from 0 at the floor to 1 at the oracle."""
    launch_weight: float = 0.25
    """Weight of a group's launch queries together, relative to its query over kernels."""
    regression_floor: float = 0.2
    """Relative speeds below it count as this one in the mse target."""


@dataclass(frozen=True)
class XGBoostConfig:
    """Gradient-boosted trees."""

    rounds: int = 320
    """Most boosting rounds; cross-validation chooses how many of them are kept."""
    learning_rate: float = 0.12
    max_depth: int = 6
    min_child_weight: float = 0.1
    """Least sum of second derivatives in a leaf; those of the ranking losses are far below 1 a row."""
    subsample: float = 0.8
    colsample_bytree: float = 0.4
    reg_lambda: float = 1.0
    reg_alpha: float = 0.0
    gamma: float = 0.0
    max_bin: int = 64
    """Histogram bins a feature; most features have few distinct values."""
    pairs: int = 16
    """Ranking: pairs are formed with the rows that the model ranks this high."""


@dataclass(frozen=True)
class MLPConfig:
    """Multilayer perceptron."""

    hidden: tuple[int, ...] = (256, 128)
    """Widths of the hidden layers."""
    members: int = 1
    """Networks, trained from different seeds, whose scores are averaged."""
    epochs: int = 20
    learning_rate: float = 4e-3
    """Peak of a one-cycle schedule."""
    weight_decay: float = 1e-4
    dropout: float = 0.0
    gradient_clip: float = 1.0
    """Largest gradient norm; 0 leaves it."""
    groups_per_batch: int = 16
    """Problems in a batch, with all their rows."""
    top_pairs: int = 8
    """Pairs with any of this many fastest rows of a query are always kept."""
    random_pairs: int = 4096
    """Further pairs a query, drawn anew for each batch."""


@dataclass(frozen=True)
class TrainingConfig:
    """Everything that determines a trained model, besides the data."""

    kind: str = "xgboost"
    """One of ``KINDS``."""
    objective: str = "lambdarank"
    """One of ``OBJECTIVES`` or ``ALIASES``; ridge knows ``mse`` only."""
    feature_set: str = "full"
    seed: int = 0
    folds: int = 5
    """Folds of the shape-grouped cross-validation."""
    threads: int = 2
    """CPU threads of the training framework. On a machine that is busy otherwise, 1 is faster than 2."""
    samples: SampleConfig = field(default_factory=SampleConfig)
    xgboost: XGBoostConfig = field(default_factory=XGBoostConfig)
    mlp: MLPConfig = field(default_factory=MLPConfig)
    ridge_penalty: float = 1.0
    """λ of ridge on standardised features, per training row of average weight."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "objective", ALIASES.get(self.objective, self.objective))
        if self.kind == "ridge":
            object.__setattr__(self, "objective", "mse")
        _one_of("kind", self.kind, KINDS)
        _one_of("objective", self.objective, OBJECTIVES)
        _one_of("samples.labels", self.samples.labels, ("auto", *LABELS))
        if self.folds < 2:
            raise InvalidTraining(f"folds is {self.folds}; cross-validation needs at least 2")
        for part in (self.samples, self.xgboost, self.mlp):
            for name, value in asdict(part).items():
                if isinstance(value, int | float) and value < 0:
                    raise InvalidTraining(f"{name} is {value}; it must not be negative")

    @property
    def labels(self) -> str:
        """Relevance that the ranking objective uses: ``speed`` or ``bands``."""
        if self.samples.labels != "auto":
            return self.samples.labels
        return "bands" if self.objective == "ranknet" else "speed"

    def to_json(self) -> dict[str, Any]:
        """Return a JSON object that :meth:`from_json` reads; only the chosen family's settings are in it."""
        value = asdict(self)
        value["mlp"]["hidden"] = list(self.mlp.hidden)
        for other in {"xgboost", "mlp"} - {self.kind}:
            del value[other]
        if self.kind != "ridge":
            del value["ridge_penalty"]
        return value

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> TrainingConfig:
        """Read a configuration; what is missing keeps its default.

        Raises
        ------
        InvalidTraining
            If a key is unknown or a value has the wrong type.
        """
        return _build(cls, value, "")

    @classmethod
    def from_file(cls, path: str | Path) -> TrainingConfig:
        """Read a configuration from a ``.json`` or ``.toml`` file.

        Raises
        ------
        InvalidTraining
            If the file cannot be read or parsed, or holds an invalid configuration.
        """
        try:
            text = Path(path).read_text(encoding="utf-8")
            value = tomllib.loads(text) if str(path).endswith(".toml") else json.loads(text)
        except (OSError, ValueError) as error:
            raise InvalidTraining(f"cannot read the training configuration {path}: {error}") from error
        if not isinstance(value, dict):
            raise InvalidTraining(f"{path} must hold one object with the keys of a training configuration")
        return cls.from_json(value)


T = TypeVar("T")


def _build(cls: type[T], value: Mapping[str, Any], prefix: str) -> T:
    """Build a configuration dataclass from a mapping, checking names and types."""
    hints = get_type_hints(cls)
    known = {item.name for item in fields(cls)}  # type: ignore[arg-type]
    arguments: dict[str, Any] = {}
    for name, given in value.items():
        if name not in known:
            raise InvalidTraining(
                f"unknown key {prefix + name!r} in the training configuration; known: {', '.join(sorted(known))}"
            )
        hint = hints[name]
        if is_dataclass(hint):
            if not isinstance(given, Mapping):
                raise InvalidTraining(f"{prefix + name} must be an object")
            arguments[name] = _build(hint, given, f"{prefix}{name}.")  # type: ignore[arg-type]
        elif hint in (int, float, str):
            accepted = (int, float) if hint is float else hint
            if isinstance(given, bool) or not isinstance(given, accepted):
                raise InvalidTraining(f"{prefix + name} is {given!r}; it must be of type {hint.__name__}")
            arguments[name] = hint(given)
        else:
            if not isinstance(given, list | tuple) or not all(type(item) is int and item > 0 for item in given):
                raise InvalidTraining(f"{prefix + name} is {given!r}; it must be a list of positive whole numbers")
            arguments[name] = tuple(given)
    return cls(**arguments)


def _one_of(name: str, value: str, known: tuple[str, ...]) -> None:
    """Refuse a value that is not in the list."""
    if value not in known:
        raise InvalidTraining(f"{name} {value!r} is unknown; use one of {', '.join(known)}")
