"""The command line of sweeps, on tiny synthetic groups."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

pytest.importorskip("optuna", reason="sweeps need optuna")
pytest.importorskip("xgboost", reason="the sweep here trains forests")

from cutlass_ranker.datasets import Group
from cutlass_ranker.features import Hardware, featurize
from cutlass_ranker.models import InvalidTraining, TrainingConfig, tune_cli
from cutlass_ranker.models.study import load_study
from cutlass_ranker.models.sweep import Bench


@pytest.fixture
def bench(training_groups: list[Group], hardware: Hardware, monkeypatch: pytest.MonkeyPatch) -> Bench:
    """What the commands load instead of the shipped tables."""
    groups = training_groups[:6]
    made = Bench(groups, [featurize(group.columns, group.problem, hardware, "structural") for group in groups])
    monkeypatch.setattr(tune_cli, "_bench", lambda *_: made)
    return made


def run(*arguments: str) -> str:
    done = CliRunner().invoke(tune_cli.tune, list(arguments), catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout


@pytest.mark.usefixtures("bench")
def test_search_export_and_dump(tmp_path: Path) -> None:
    storage = ("--storage", f"sqlite:///{tmp_path}/study.db")
    base = tmp_path / "base.json"
    base.write_text('{"feature_set": "structural", "folds": 4, "samples": {"coarse_fraction": 0.5}}')
    options = ("--model", "xgboost", "--folds", "2", "--fraction", "0.5", "--config", str(base), *storage)
    assert "study xgboost: 0 of 1 trials" in run(*options, "--trials", "1", "--seconds", "1e-9")
    assert "study xgboost: 1 of 1 trials, best 0." in run(*options, "--trials", "1")
    assert "1 trials" in run("dump", "--out", str(tmp_path / "study.json"), *storage)
    record = load_study(tmp_path / "study.json")
    assert (record.folds, record.seeds, record.fraction, [trial.state for trial in record.trials]) == (
        2,
        1,
        0.5,
        ["complete"],
    )

    run("export", "--out", str(tmp_path / "one.json"), *storage)
    run("export", "--out", str(tmp_path / "two.json"), "--from", str(tmp_path / "study.json"), "--trial", "0")
    exported = TrainingConfig.from_file(tmp_path / "one.json")
    assert exported == record.config(record.best())
    assert (exported.folds, exported.feature_set, exported.samples.coarse_fraction) == (4, "structural", 0.5)
    assert json.loads((tmp_path / "one.json").read_text()) == json.loads((tmp_path / "two.json").read_text())
    with pytest.raises(InvalidTraining, match="no finished trial 7"):
        run("export", "--out", str(tmp_path / "three.json"), "--trial", "7", *storage)


def test_a_family_without_a_space_is_refused() -> None:
    with pytest.raises(InvalidTraining, match="no search space for 'ridge'"):
        run("--model", "ridge")
