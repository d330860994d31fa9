"""Training configuration: what ``train --config FILE`` reads and a saved model records."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, is_dataclass, replace
from pathlib import Path
from typing import Any, Final, TypeVar, get_type_hints

from ..generator.errors import CutlassRankerError

KINDS: Final = ("xgboost", "mlp", "ridge", "ensemble")
"""Model families; an ensemble averages members of the others."""
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
"""Relevance for the ranking objectives: a smooth function of relative speed, or the top noise bands."""
GAINS: Final = ("exp", "linear")
"""Gains of a relevance in NDCG."""
DEVICES: Final = ("auto", "cpu", "cuda")
"""Where a network is trained; ``auto`` is a GPU where there is one."""


class InvalidTraining(CutlassRankerError, ValueError):
    """A training configuration with an unknown key or a value out of range."""


@dataclass(frozen=True)
class SampleConfig:
    """How measured groups become training rows."""

    coarse_fraction: float = 0.2
    """Fraction of the rows marked coarse (``Group.coarse``) that is kept, drawn once per group."""
    labels: str = "auto"
    """``speed``, ``bands``, or ``auto``: speed for lambdarank, bands for ranknet. Unused by mse."""
    top_bands: int = 2
    """Bands that count as relevant with ``bands`` labels."""
    speed_floor: float = 0.5
    """Relative speed at and below which the ``speed`` gain is zero."""
    sharpness: float = 5.0
    """``speed`` relevance is sharpness·x with x from 0 at the floor to 1 at the oracle."""
    gain: str = "exp"
    """Gain that lambdarank makes of a relevance r: ``exp`` for 2^r − 1, ``linear`` for r."""
    launch_weight: float = 0.25
    """Weight of a group's launch queries together, relative to its query over kernels."""
    cost_weight: float = 0.0
    """Share, 0 to 1, of a query's weight that follows what a mistake costs in it (:func:`.samples.mistake_cost`)."""
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
    """Of Adam; peak of a one-cycle schedule."""
    weight_decay: float = 1e-4
    """Decoupled from the gradient (AdamW)."""
    dropout: float = 0.0
    gradient_clip: float = 1.0
    """Largest gradient norm; 0 leaves it."""
    batch: int = 4096
    """mse: rows in a batch."""
    groups_per_batch: int = 16
    """Ranking: problems in a batch, with all their rows."""
    top_pairs: int = 8
    """Pairs with any of this many fastest rows of a query are always kept."""
    random_pairs: int = 4096
    """Further pairs of a group's kernels, drawn anew for each batch; of its launches at most as many as exist."""
    regression_weight: float = 0.0
    """Ranking: weight of the mse loss that is added to the ranking loss."""
    device: str = "auto"
    """One of ``DEVICES``. The same seed gives the same network on the same device."""


@dataclass(frozen=True)
class TrainingConfig:
    """Everything that determines a trained model, besides the data.

    Of an ensemble only kind, feature set, seed, folds, threads, members and rescore matter.
    """

    kind: str = "xgboost"
    """One of ``KINDS``."""
    objective: str = "lambdarank"
    """One of ``OBJECTIVES`` or ``ALIASES``; ridge knows ``mse`` only."""
    feature_set: str = "full"
    seed: int = 0
    folds: int = 5
    """Folds of the shape-grouped cross-validation."""
    threads: int = 1
    """CPU threads of the training framework. More help only on a machine that does nothing else: two trainings of two
    threads on two cores took ten times as long as two of one thread."""
    samples: SampleConfig = field(default_factory=SampleConfig)
    xgboost: XGBoostConfig = field(default_factory=XGBoostConfig)
    mlp: MLPConfig = field(default_factory=MLPConfig)
    ridge_penalty: float = 1.0
    """λ of ridge on standardised features, per training row of average weight."""
    members: tuple[TrainingConfig, ...] = ()
    """Models of an ensemble, at least two; they share its feature set, seed, folds and threads."""
    rescore: int = 0
    """Of an ensemble: how many candidates the first member shortlists for the others; 0 if all score everything."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "objective", ALIASES.get(self.objective, self.objective))
        if self.kind == "ridge":
            object.__setattr__(self, "objective", "mse")
        _one_of("kind", self.kind, KINDS)
        if self.kind == "ensemble" and (len(self.members) < 2 or any(m.kind == "ensemble" for m in self.members)):
            raise InvalidTraining("an ensemble needs at least two members, none of them an ensemble")
        if self.rescore < 0:
            raise InvalidTraining(f"rescore is {self.rescore}; it must not be negative")
        if self.kind != "ensemble" and self.members:
            raise InvalidTraining(f"only an ensemble has members; the kind is {self.kind!r}")
        shared = {name: getattr(self, name) for name in ("feature_set", "seed", "folds", "threads")}
        object.__setattr__(self, "members", tuple(replace(member, **shared) for member in self.members))
        _one_of("objective", self.objective, OBJECTIVES)
        _one_of("samples.labels", self.samples.labels, ("auto", *LABELS))
        _one_of("samples.gain", self.samples.gain, GAINS)
        _one_of("mlp.device", self.mlp.device, DEVICES)
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
        value["members"] = [member.to_json() for member in self.members]
        unused = {"xgboost", "mlp", "ridge_penalty", "members", "rescore"}
        if self.kind == "ensemble":
            unused = unused - {"members", "rescore"} | {"objective", "samples"}
        else:
            unused.remove("ridge_penalty" if self.kind == "ridge" else self.kind)
        return {name: item for name, item in value.items() if name not in unused}

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
        elif hint == tuple[TrainingConfig, ...]:
            if not isinstance(given, list | tuple) or not all(isinstance(item, Mapping) for item in given):
                raise InvalidTraining(f"{prefix + name} must be a list of objects")
            arguments[name] = tuple(_build(TrainingConfig, item, f"{prefix}{name}.") for item in given)
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
