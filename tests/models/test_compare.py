"""Comparing configurations: paired intervals, and cross-validations that are kept."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from cutlass_ranker.datasets import Group
from cutlass_ranker.features import Hardware, featurize
from cutlass_ranker.models import InvalidTraining, TrainingConfig, tune_cli
from cutlass_ranker.models.compare import compare, paired_interval
from cutlass_ranker.models.heldout import held_out
from cutlass_ranker.models.sweep import Bench
from cutlass_ranker.models.validation import regrets

WEAK = TrainingConfig(kind="ridge", feature_set="structural", ridge_penalty=1e6)
GOOD = replace(WEAK, ridge_penalty=0.01)
BOTH = TrainingConfig(kind="ensemble", feature_set="structural", members=(WEAK, GOOD))


@pytest.fixture(scope="module")
def bench(training_groups: list[Group], hardware: Hardware) -> Bench:
    groups = training_groups[:12]
    return Bench(groups, [featurize(group.columns, group.problem, hardware, "structural") for group in groups])


def test_interval_by_hand() -> None:
    assert paired_interval(np.array([0.25, 0.25, 0.25]), ["a", "a", "b"]) == (0.25, 0.25)
    # Two clusters of means 0 and 1: a draw has mean 0, 1/2 or 1, each outer one a quarter of the time.
    assert paired_interval(np.array([0.0, 1.0]), ["a", "b"]) == (0.0, 1.0)
    # One cluster: nothing varies, whatever is inside.
    assert paired_interval(np.array([0.0, 1.0]), ["a", "a"]) == (0.5, 0.5)
    rng = np.random.default_rng(0)
    values = rng.normal(0.1, 1.0, 400)
    low, high = paired_interval(values, range(400))
    assert (high - low) / 2 == pytest.approx(1.96 * values.std() / 20, rel=0.1)
    assert (high + low) / 2 == pytest.approx(values.mean(), abs=0.01)


def test_comparison_resumes_and_ensembles_are_free(bench: Bench, tmp_path: Path) -> None:
    lines: list[str] = []
    first = compare({"weak": WEAK, "good": GOOD}, bench, tmp_path, folds=3, seeds=2, watch=lines.append)
    assert lines[0] == "4 cross-validations, 0 of them done before"
    assert len(lines) == 5
    lines.clear()
    again = compare({"weak": WEAK, "good": GOOD, "both": BOTH}, bench, tmp_path, folds=3, seeds=2, watch=lines.append)
    assert lines == ["4 cross-validations, 4 of them done before"]
    for one, other in zip(first, again[:2], strict=True):
        assert np.array_equal(one.regrets, other.regrets)
    weak, good, both = again
    assert (weak.difference, weak.low, weak.high) == (0.0, 0.0, 0.0)
    assert good.difference == pytest.approx((good.regrets - weak.regrets).mean())
    assert good.low <= good.difference <= good.high
    for seed in (0, 1):
        config = replace(BOTH, folds=3, seed=seed)
        direct = regrets(held_out(bench.groups, bench.matrices, config).scores, bench.groups)
        assert both.regrets[seed] == pytest.approx(direct, abs=1e-6)
    # Other data is trained on anew.
    lines.clear()
    compare({"good": GOOD}, Bench(bench.groups[:9], bench.matrices[:9]), tmp_path, 3, 1, watch=lines.append)
    assert lines[0] == "1 cross-validations, 0 of them done before"


def test_command(bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tune_cli, "_bench", lambda *_: bench)
    files = []
    for name, config in (("weak", WEAK), ("good", GOOD)):
        files += ["--config", str(tmp_path / f"{name}.json")]
        (tmp_path / f"{name}.json").write_text(json.dumps(config.to_json()))
    arguments = ["compare", *files, "--out", str(tmp_path / "out"), "--folds", "2", "--seeds", "1"]
    arguments += ["--vary", "costly:ridge_penalty=0.01,samples.cost_weight=0.5"]
    done = CliRunner().invoke(tune_cli.tune, arguments, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    assert "good: mean regret 0." in done.stdout
    found = json.loads((tmp_path / "out" / "comparison.json").read_text())
    assert [item["name"] for item in found] == ["weak", "good", "costly"]
    assert found[2]["mean_regret"] != found[0]["mean_regret"]
    assert found[1]["difference"] == pytest.approx(found[1]["mean_regret"] - found[0]["mean_regret"])
    with pytest.raises(InvalidTraining, match="different names"):
        CliRunner().invoke(tune_cli.tune, [*arguments, *files[:2]], catch_exceptions=False)


def test_variations() -> None:
    base = TrainingConfig(kind="mlp")
    name, config = tune_cli._varied(base, "wide:mlp.hidden=[64,32],mlp.epochs=9,objective=mse,samples.labels=bands")
    assert name == "wide"
    assert config == replace(
        base,
        objective="mse",
        mlp=replace(base.mlp, hidden=(64, 32), epochs=9),
        samples=replace(base.samples, labels="bands"),
    )
    for text, words in (
        ("mlp.epochs=3", "written NAME:KEY=VALUE"),
        ("wide:mlp.epochs", "written NAME:KEY=VALUE"),
        ("wide:tree.depth=3", "'tree.depth' is no setting"),
        ("wide:mlp.depth=3", "unknown key 'mlp.depth'"),
    ):
        with pytest.raises(InvalidTraining, match=words):
            tune_cli._varied(base, text)
