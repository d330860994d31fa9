"""The search spaces are the tables of the paper, and their parameters become training configurations."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from cutlass_ranker.models import InvalidTraining, TrainingConfig
from cutlass_ranker.models.spaces import TOPOLOGIES, Recorded, suggest


class Asked:
    """Notes what is asked for, and answers with given values or the low end."""

    def __init__(self, **answers: Any) -> None:
        self.answers = answers
        self.seen: dict[str, Any] = {}

    def suggest_float(self, name: str, low: float, high: float, *, log: bool = False) -> float:
        self.seen[name] = (low, high, log)
        return self.answers.get(name, low)

    def suggest_int(self, name: str, low: int, high: int, *, log: bool = False) -> int:
        return int(self.suggest_float(name, low, high, log=log))

    def suggest_categorical(self, name: str, choices: Sequence[Any]) -> Any:
        self.seen[name] = tuple(choices)
        return self.answers.get(name, choices[0])


TABLE_10 = {
    "loss": ("ndcg", "pairwise", "mse"),
    "learning_rate": (5e-3, 0.3, True),
    "max_depth": (4, 12, False),
    "min_child_weight": (1, 30, True),
    "subsample": (0.5, 1, False),
    "colsample_bytree": (0.5, 1, False),
    "reg_lambda": (0.01, 20, True),
    "reg_alpha": (1e-4, 10, True),
    "gamma": (0, 5, False),
    "rounds": (300, 1200, False),
}
TABLE_11 = {
    "loss": ("lambdarank", "ranknet", "mse"),
    "learning_rate": (1e-4, 5e-3, True),
    "hidden": TOPOLOGIES,
    "dropout": (0, 0.4, False),
    "weight_decay_used": (False, True),
    "weight_decay": (1e-7, 1e-3, True),
    "epochs": (20, 150, False),
}
RANKING = {
    "groups_per_batch": (32, 256, True),
    "gradient_clip": (0, 0.5, 1, 5, 10),
    "random_pairs": (2048, 65536, True),
}


@pytest.mark.parametrize(
    ("kind", "loss", "table"),
    [
        ("xgboost", "ndcg", TABLE_10 | {"rel_top_bands": (2, 5, False)}),
        ("xgboost", "pairwise", TABLE_10 | {"rel_top_bands": (2, 5, False)}),
        ("xgboost", "mse", TABLE_10),
        ("mlp", "lambdarank", TABLE_11 | RANKING | {"gain": ("linear", "exp")}),
        ("mlp", "ranknet", TABLE_11 | RANKING),
        ("mlp", "mse", TABLE_11 | {"batch": (1024, 8192, True)}),
    ],
)
def test_spaces_are_the_tables(kind: str, loss: str, table: dict[str, Any]) -> None:
    asked = Asked(loss=loss, weight_decay_used=True)
    suggest(asked, TrainingConfig(kind=kind))
    assert asked.seen == table


def test_ten_topologies_of_depth_2_to_4_and_width_32_to_1024() -> None:
    widths = [[int(width) for width in text.split("x")] for text in TOPOLOGIES]
    assert len(widths) == len(set(TOPOLOGIES)) == 10
    assert {len(part) for part in widths} == {2, 3, 4}
    assert min(map(min, widths)) == 32
    assert max(map(max, widths)) == 1024
    assert all(a >= b for part in widths for a, b in pairwise(part))


def test_xgboost_parameters_become_settings() -> None:
    answers = {"loss": "pairwise", "rel_top_bands": 4, "max_depth": 9, "rounds": 700, "gamma": 1.5}
    base = TrainingConfig(kind="xgboost", seed=7, feature_set="structural")
    config = suggest(Asked(**answers), base)
    assert (config.objective, config.labels, config.samples.top_bands) == ("ranknet", "bands", 4)
    assert (config.xgboost.max_depth, config.xgboost.rounds, config.xgboost.gamma) == (9, 700, 1.5)
    assert (config.xgboost.max_bin, config.seed, config.feature_set) == (base.xgboost.max_bin, 7, "structural")


def test_speed_labels_are_kept_if_asked_for() -> None:
    base = TrainingConfig(kind="xgboost")
    base = replace(base, samples=replace(base.samples, labels="speed"))
    asked = Asked(loss="ndcg")
    assert suggest(asked, base).labels == "speed"
    assert "rel_top_bands" not in asked.seen


def test_mlp_parameters_become_settings() -> None:
    answers = {"loss": "lambdarank", "hidden": "512x256x128", "gain": "linear", "gradient_clip": 5.0, "epochs": 33}
    config = suggest(Asked(**answers), TrainingConfig(kind="mlp"))
    assert config.mlp.hidden == (512, 256, 128)
    assert (config.mlp.epochs, config.mlp.gradient_clip, config.mlp.weight_decay) == (33, 5.0, 0.0)
    assert config.samples.gain == "linear"
    decayed = suggest(Asked(**answers, weight_decay_used=True, weight_decay=1e-5), TrainingConfig(kind="mlp"))
    assert decayed.mlp.weight_decay == 1e-5


def test_recorded_parameters_give_the_same_configuration() -> None:
    values = {"loss": "mse", "learning_rate": 0.01, "max_depth": 5, "min_child_weight": 2.0, "subsample": 0.9}
    values |= {"colsample_bytree": 0.6, "reg_lambda": 1.0, "reg_alpha": 0.1, "gamma": 0.0, "rounds": 400}
    base = TrainingConfig(kind="xgboost")
    assert suggest(Recorded(values), base) == suggest(Asked(**values), base)
    del values["gamma"]
    with pytest.raises(InvalidTraining, match="lacks the parameter 'gamma'"):
        suggest(Recorded(values), base)


def test_ridge_has_no_space() -> None:
    with pytest.raises(InvalidTraining, match="no search space for 'ridge'; use one of xgboost, mlp"):
        suggest(Asked(), TrainingConfig(kind="ridge"))
