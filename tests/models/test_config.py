"""Training configurations."""

import json
from importlib.resources import files
from pathlib import Path

import pytest

from cutlass_ranker.models import InvalidTraining, TrainingConfig


@pytest.mark.parametrize(
    ("name", "objective"),
    [("rank:ndcg", "lambdarank"), ("pairwise", "ranknet"), ("reg:squarederror", "mse"), ("lambdarank", "lambdarank")],
)
def test_objectives_have_the_names_of_xgboost_too(name: str, objective: str) -> None:
    assert TrainingConfig(objective=name).objective == objective


def test_ridge_is_least_squares() -> None:
    assert TrainingConfig(kind="ridge").objective == "mse"


@pytest.mark.parametrize("kind", ["xgboost", "mlp", "ridge"])
def test_json_round_trip_keeps_the_settings_of_the_family_only(kind: str) -> None:
    config = TrainingConfig.from_json(
        {"kind": kind, "seed": 3, "mlp": {"hidden": [64, 32]} if kind == "mlp" else {}, "samples": {"sharpness": 4}}
    )
    value = json.loads(json.dumps(config.to_json()))
    assert {"xgboost", "mlp", "ridge_penalty"} & set(value) == {{"ridge": "ridge_penalty"}.get(kind, kind)}
    assert TrainingConfig.from_json(value) == config
    assert config.samples.sharpness == 4.0


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ({"kind": "svm"}, "kind 'svm' is unknown"),
        ({"objective": "hinge"}, "objective 'hinge' is unknown"),
        ({"sede": 1}, "unknown key 'sede'"),
        ({"xgboost": {"depth": 3}}, "unknown key 'xgboost.depth'"),
        ({"xgboost": 3}, "xgboost must be an object"),
        ({"seed": "1"}, "seed is '1'; it must be of type int"),
        ({"seed": True}, "must be of type int"),
        ({"xgboost": {"rounds": 1.5}}, "must be of type int"),
        ({"mlp": {"hidden": [0]}}, "list of positive whole numbers"),
        ({"mlp": {"dropout": -0.1}}, "dropout is -0.1"),
        ({"folds": 1}, "at least 2"),
        ({"samples": {"labels": "times"}}, "samples.labels 'times' is unknown"),
    ],
)
def test_mistakes_are_named(value: dict, words: str) -> None:
    with pytest.raises(InvalidTraining, match=words):
        TrainingConfig.from_json(value)


def test_files(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text('kind = "mlp"\n[mlp]\nhidden = [8, 4]\n')
    (tmp_path / "a.json").write_text('{"kind": "mlp", "mlp": {"hidden": [8, 4]}}')
    assert TrainingConfig.from_file(tmp_path / "a.toml") == TrainingConfig.from_file(tmp_path / "a.json")
    assert TrainingConfig.from_file(tmp_path / "a.json").mlp.hidden == (8, 4)
    (tmp_path / "list.json").write_text("[]")
    (tmp_path / "broken.toml").write_text("kind = ")
    for name in ("list.json", "broken.toml", "missing.json"):
        with pytest.raises(InvalidTraining, match=name):
            TrainingConfig.from_file(tmp_path / name)


@pytest.mark.parametrize("path", sorted(files("cutlass_ranker.models").joinpath("configs").iterdir()), ids=str)
def test_shipped_configurations_are_valid(path: Path) -> None:
    config = TrainingConfig.from_file(path)
    assert TrainingConfig.from_json(config.to_json()) == config
