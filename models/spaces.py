"""The search spaces of ``tune``: Tables 10 and 11 of arXiv 2609.35587, turned into training configurations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol

from .config import InvalidTraining, TrainingConfig

TUNED_KINDS: Final = ("xgboost", "mlp")
"""Families that have a space."""

TOPOLOGIES: Final = (
    "32x32", "64x32", "128x64", "256x128", "512x256", "1024x512", "128x64x32", "256x128x64", "512x256x128",
    "1024x512x256x128",
)  # fmt: skip
"""Hidden layers to choose from: ten of depth 2 to 4 and width 32 to 1024."""


class Asks(Protocol):
    """Where values come from: an Optuna trial, or the record of one."""

    def suggest_float(self, name: str, low: float, high: float, *, log: bool = False) -> float:
        """Return a number from low to high."""
        ...

    def suggest_int(self, name: str, low: int, high: int, *, log: bool = False) -> int:
        """Return a whole number from low to high."""
        ...

    def suggest_categorical(self, name: str, choices: Sequence[Any]) -> Any:
        """Return one of the choices."""
        ...


@dataclass(frozen=True)
class Real:
    """A real number from ``low`` to ``high``."""

    low: float
    high: float
    log: bool = False

    def ask(self, name: str, source: Asks) -> Any:
        """Get a value."""
        return source.suggest_float(name, self.low, self.high, log=self.log)


@dataclass(frozen=True)
class Whole:
    """A whole number from ``low`` to ``high``."""

    low: int
    high: int
    log: bool = False

    def ask(self, name: str, source: Asks) -> Any:
        """Get a value."""
        return source.suggest_int(name, self.low, self.high, log=self.log)


@dataclass(frozen=True)
class OneOf:
    """One of some values."""

    choices: tuple[str | float, ...]

    def ask(self, name: str, source: Asks) -> Any:
        """Get a value."""
        return source.suggest_categorical(name, self.choices)


@dataclass(frozen=True)
class ZeroOr:
    """Zero, or a positive real number from ``low`` to ``high`` by its logarithm; asked as two parameters."""

    low: float
    high: float

    def ask(self, name: str, source: Asks) -> Any:
        """Get a value."""
        if source.suggest_categorical(f"{name}_used", (False, True)):
            return source.suggest_float(name, self.low, self.high, log=True)
        return 0.0


@dataclass(frozen=True)
class Parameter:
    """One row of a table."""

    name: str
    values: Real | Whole | OneOf | ZeroOr
    losses: tuple[str, ...] = ()
    """Losses that it is asked for; all if there are none."""


XGBOOST_SPACE: Final = (
    Parameter("loss", OneOf(("ndcg", "pairwise", "mse"))),
    Parameter("learning_rate", Real(5e-3, 0.3, log=True)),
    Parameter("max_depth", Whole(4, 12)),
    Parameter("min_child_weight", Real(1.0, 30.0, log=True)),
    Parameter("subsample", Real(0.5, 1.0)),
    Parameter("colsample_bytree", Real(0.5, 1.0)),
    Parameter("reg_lambda", Real(0.01, 20.0, log=True)),
    Parameter("reg_alpha", Real(1e-4, 10.0, log=True)),
    Parameter("gamma", Real(0.0, 5.0)),
    Parameter("rounds", Whole(300, 1200)),
    Parameter("rel_top_bands", Whole(2, 5), ("ndcg", "pairwise")),
)
"""Table 10."""
MLP_SPACE: Final = (
    Parameter("loss", OneOf(("lambdarank", "ranknet", "mse"))),
    Parameter("learning_rate", Real(1e-4, 5e-3, log=True)),
    Parameter("hidden", OneOf(TOPOLOGIES)),
    Parameter("dropout", Real(0.0, 0.4)),
    Parameter("weight_decay", ZeroOr(1e-7, 1e-3)),
    Parameter("epochs", Whole(20, 150)),
    Parameter("batch", Whole(1024, 8192, log=True), ("mse",)),
    Parameter("groups_per_batch", Whole(32, 256, log=True), ("lambdarank", "ranknet")),
    Parameter("gradient_clip", OneOf((0.0, 0.5, 1.0, 5.0, 10.0)), ("lambdarank", "ranknet")),
    Parameter("random_pairs", Whole(2048, 65536, log=True), ("lambdarank", "ranknet")),
    Parameter("gain", OneOf(("linear", "exp")), ("lambdarank",)),
)
"""Table 11. Pairs are those drawn besides the ones that touch a group's fastest rows, which are always kept."""


def suggest(source: Asks, base: TrainingConfig) -> TrainingConfig:
    """Fill a configuration with values of the space of its family.

    Parameters
    ----------
    source
        An Optuna trial, or :class:`Recorded` parameters.
    base
        Gives the family and everything that is not searched. If its labels are ``speed``, the ranking losses of
        XGBoost keep them, and ``rel_top_bands`` is not asked for; otherwise they learn from noise bands.

    Raises
    ------
    InvalidTraining
        If the family has no space, or a recorded parameter is missing.
    """
    require_tuned(base.kind)
    bands = base.samples.labels != "speed"
    values: dict[str, Any] = {}
    for parameter in XGBOOST_SPACE if base.kind == "xgboost" else MLP_SPACE:
        if parameter.losses and values["loss"] not in parameter.losses:
            continue
        if parameter.name != "rel_top_bands" or bands:
            values[parameter.name] = parameter.values.ask(parameter.name, source)
    samples = base.samples
    if "rel_top_bands" in values:
        samples = replace(samples, labels="bands", top_bands=values.pop("rel_top_bands"))
    if "gain" in values:
        samples = replace(samples, gain=values.pop("gain"))
    config = replace(base, objective=values.pop("loss"), samples=samples)
    if base.kind == "xgboost":
        return replace(config, xgboost=replace(base.xgboost, **values))
    hidden = tuple(int(width) for width in values.pop("hidden").split("x"))
    return replace(config, mlp=replace(base.mlp, hidden=hidden, **values))


@dataclass(frozen=True)
class Recorded:
    """Parameters of a finished trial, given back as they are asked for."""

    values: Mapping[str, Any]

    def suggest_float(self, name: str, low: float, high: float, *, log: bool = False) -> float:
        """Return the recorded number."""
        return float(self._get(name))

    def suggest_int(self, name: str, low: int, high: int, *, log: bool = False) -> int:
        """Return the recorded whole number."""
        return int(self._get(name))

    def suggest_categorical(self, name: str, choices: Sequence[Any]) -> Any:
        """Return the recorded choice."""
        return self._get(name)

    def _get(self, name: str) -> Any:
        if name not in self.values:
            raise InvalidTraining(f"the recorded trial lacks the parameter {name!r}; it belongs to another space")
        return self.values[name]


def require_tuned(kind: str) -> None:
    """Refuse a family without a space."""
    if kind not in TUNED_KINDS:
        raise InvalidTraining(f"there is no search space for {kind!r}; use one of {', '.join(TUNED_KINDS)}")
