"""Training end to end on synthetic measurements: quality, calibration, determinism, the saved folder."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from cutlass_ranker.datasets import Group, Tables
from cutlass_ranker.features import Hardware, featurize
from cutlass_ranker.generator import LAUNCH_COLUMNS, Columns, DataError
from cutlass_ranker.models import AnalyticScore, Model, RandomScore, TrainingConfig, load_model, train, train_and_save
from cutlass_ranker.models.card import render_card
from cutlass_ranker.models.deployed import choose
from cutlass_ranker.models.validation import regret, regrets

SMALL = {
    "xgboost": {
        "kind": "xgboost",
        "folds": 3,
        "threads": 1,
        "xgboost": {"rounds": 80, "max_depth": 4, "learning_rate": 0.2},
    },
    "mlp": {
        "kind": "mlp",
        "folds": 3,
        "threads": 1,
        "mlp": {"hidden": [64, 32], "epochs": 20, "groups_per_batch": 4, "random_pairs": 256},
    },
    "ridge": {"kind": "ridge", "folds": 3, "samples": {"coarse_fraction": 0.0}},
}
FRAMEWORK = {"xgboost": "xgboost", "mlp": "torch", "ridge": "numpy"}

Trained = Callable[[str], Model]


@pytest.fixture(scope="module")
def trained(training_groups: list[Group], held_out_groups: list[Group], hardware: Hardware) -> Trained:
    """Small models of each family, trained once."""
    models: dict[str, Model] = {}

    def get(kind: str) -> Model:
        pytest.importorskip(FRAMEWORK[kind], reason=f"training {kind} needs {FRAMEWORK[kind]}")
        if kind not in models:
            config = TrainingConfig.from_json(SMALL[kind])
            models[kind] = train(training_groups, hardware, config, evaluation=held_out_groups)
        return models[kind]

    return get


def mean_regret(ranker: object, groups: list[Group], hardware: Hardware) -> float:
    """Regret of the deployed rule through the public ``score``."""
    scores = [ranker.score(group.columns, group.problem, hardware) for group in groups]
    return float(regrets(scores, groups).mean())


@pytest.mark.parametrize(("kind", "limit"), [("xgboost", 0.08), ("mlp", 0.08)])
def test_beats_chance_and_the_static_score_on_unseen_shapes(
    trained: Trained, held_out_groups: list[Group], hardware: Hardware, kind: str, limit: float
) -> None:
    model = trained(kind)
    mine = mean_regret(model, held_out_groups, hardware)
    analytic = mean_regret(AnalyticScore(), held_out_groups, hardware)
    assert mine < limit
    assert mine < 0.5 * analytic
    assert analytic < mean_regret(RandomScore(), held_out_groups, hardware)
    assert model.manifest["metrics"]["evaluation"]["mean_regret"] == pytest.approx(mine, abs=1e-9)


def test_ridge_beats_chance(trained: Trained, held_out_groups: list[Group], hardware: Hardware) -> None:
    ridge = mean_regret(trained("ridge"), held_out_groups, hardware)
    assert ridge < 0.7 * mean_regret(RandomScore(), held_out_groups, hardware)


@pytest.mark.parametrize("kind", ["xgboost", "mlp"])
def test_expected_regret_is_near_the_realised_one(
    trained: Trained, held_out_groups: list[Group], hardware: Hardware, kind: str
) -> None:
    model = trained(kind)
    expected, realised = [], []
    for group in held_out_groups:
        matrix = featurize(group.columns, group.problem, hardware)
        scores = model.score_matrix(matrix)
        first, doubt = model.assess_matrix(matrix[group.ranked_first])
        assert doubt is not None
        expected.append(model.expected_regret(first, group.problem, doubt).min())
        realised.append(regret(group, choose(group, scores)))
    assert np.mean(expected) == pytest.approx(np.mean(realised), abs=0.03)
    assert model.manifest["metrics"]["evaluation"]["mean_expected_regret"] == pytest.approx(np.mean(expected))


@pytest.mark.parametrize("kind", ["xgboost", "mlp", "ridge"])
def test_saved_and_loaded_scores_are_the_same(
    trained: Trained, held_out_groups: list[Group], hardware: Hardware, kind: str, tmp_path: Path
) -> None:
    model = trained(kind)
    loaded = load_model(model.save(tmp_path / kind))
    assert loaded.manifest == json.loads(json.dumps(model.manifest))
    assert (loaded.name, loaded.feature_set) == (f"{kind}-{model.manifest['objective']}", "full")
    for group in held_out_groups[:5]:
        ours = model.score(group.columns, group.problem, hardware)
        np.testing.assert_array_equal(loaded.score(group.columns, group.problem, hardware), ours)
        np.testing.assert_array_equal(
            loaded.expected_regret(ours, group.problem), model.expected_regret(ours, group.problem)
        )
    files = {path.name for path in (tmp_path / kind).iterdir()}
    assert files == {"manifest.json", "model.json.gz" if kind == "xgboost" else "model.safetensors"}


def test_the_saved_trees_are_xgboosts_own(
    trained: Trained, held_out_groups: list[Group], hardware: Hardware, tmp_path: Path
) -> None:
    model = trained("xgboost")
    import xgboost

    plain = tmp_path / "plain" / "model.json"
    plain.parent.mkdir()
    plain.write_bytes(gzip.decompress((model.save(tmp_path / "packed") / "model.json.gz").read_bytes()))
    booster = xgboost.Booster(model_file=str(plain))
    group = held_out_groups[0]
    features = featurize(group.columns, group.problem, hardware)
    expected = booster.predict(xgboost.DMatrix(features), output_margin=True)
    np.testing.assert_allclose(model.score_matrix(features), expected, rtol=1e-5, atol=1e-5)
    # What XGBoost reads is read here too, where it is not compressed.
    (plain.parent / "manifest.json").write_bytes((tmp_path / "packed" / "manifest.json").read_bytes())
    np.testing.assert_array_equal(load_model(plain.parent).score_matrix(features), model.score_matrix(features))
    assert booster.num_boosted_rounds() == model.manifest["training"]["rounds"]


@pytest.mark.parametrize("kind", ["xgboost", "mlp"])
def test_same_seed_same_model(training_groups: list[Group], hardware: Hardware, kind: str) -> None:
    pytest.importorskip(FRAMEWORK[kind], reason=f"training {kind} needs {FRAMEWORK[kind]}")
    tiny = {**SMALL[kind], "folds": 2, "xgboost": {"rounds": 8}, "mlp": {"hidden": [16], "epochs": 2}}

    def scores(seed: int) -> tuple[np.ndarray, dict]:
        model = train(training_groups[:12], hardware, TrainingConfig.from_json({**tiny, "seed": seed}))
        group = training_groups[20]
        return model.score(group.columns, group.problem, hardware), model.manifest["metrics"]

    one, again, other = scores(0), scores(0), scores(1)
    np.testing.assert_array_equal(one[0], again[0])
    assert one[1] == again[1]
    assert not np.array_equal(one[0], other[0])


def make_tables(kernels: Columns, groups: list[Group]) -> Tables:
    """Measurement tables that hold the given groups."""
    problems = [
        {
            "problem_id": group.problem_id, "M": group.problem.m, "N": group.problem.n, "K": group.problem.k,
            "layout": group.problem.layout, "dtype": "bf16", "sources": "synthetic", "split": group.split,
        }
        for group in groups
    ]  # fmt: skip
    unknown = {"spread": 0.01, "launches": 10, "retake_us": np.nan, "graph_us": np.nan, "probe_ratio": 1.0}
    measurements = [
        pd.DataFrame(
            {name: group.columns[name] for name in (*LAUNCH_COLUMNS, "swapped")}
            | {"problem_id": group.problem_id, "kernel_id": group.kernel_id, "time_us": group.time_us, "campaign_id": 0}
            | {"status": np.where(group.coarse, "coarse", "ok"), **unknown}
        )
        for group in groups
    ]
    built = {"registers": 168, "spill_bytes": 0, "shared_memory_bytes": 0, "build_status": "ok", "build_seconds": 1.0}
    count = len(kernels["tile_m"])
    campaign = {
        "campaign_id": 0, "name": "made", "purpose": "main", "gpu": "NVIDIA H200", "driver": "1", "cuda": "13.0",
        "cutlass": "4.2.0", "protocol_version": 1, "commit": "c0ffee", "started": "2026-01-02", "seconds": 1.0,
        "workers": 1, "operands": "cold", "mode": "offline", "timer_resolution_us": 0.1, "probe_us": 1.0,
        "graph_overhead_us": 1.0,
    }  # fmt: skip
    return Tables(
        kernels=pd.DataFrame({"kernel_id": range(count), "name": [f"k{i}" for i in range(count)], **kernels, **built}),
        problems=pd.DataFrame(problems),
        measurements=pd.concat(measurements),
        campaigns=pd.DataFrame([campaign]),
    )


def test_train_and_save_from_tables(
    kernels: Columns, training_groups: list[Group], held_out_groups: list[Group], tmp_path: Path
) -> None:
    tables = make_tables(kernels, [*training_groups[:12], *held_out_groups[:4]]).write(tmp_path / "data")
    lines: list[str] = []
    config = TrainingConfig.from_json(SMALL["ridge"])
    train_and_save(tmp_path / "first", config, path=tables, log=lines.append)
    model = load_model(tmp_path / "first")
    assert model.name == "first"
    assert model.manifest["data"]["training_groups"] == 12
    assert model.manifest["data"]["evaluation_groups"] == 4
    assert model.manifest["data"]["campaigns"][0]["gpu"] == "NVIDIA H200"
    assert model.manifest["hardware"] == "h200"
    assert (tmp_path / "first" / "CARD.md").read_text() == render_card(model.manifest)
    assert "12 training groups" in lines[0]


def test_tables_without_training_problems_are_refused(
    kernels: Columns, held_out_groups: list[Group], tmp_path: Path
) -> None:
    tables = make_tables(kernels, held_out_groups[:1]).write(tmp_path / "data")
    with pytest.raises(DataError, match="no measured training problems"):
        train_and_save(tmp_path / "model", TrainingConfig(kind="ridge"), path=tables)


def test_card_says_what_the_manifest_says(trained: Trained) -> None:
    model = trained("ridge")
    campaign = {
        "name": "first", "gpu": "NVIDIA H200", "driver": "1", "cuda": "13.0", "cutlass": "4.2.0",
        "protocol_version": "1", "commit": "c0ffee", "started": "2026-01-02",
    }  # fmt: skip
    metrics = {**model.manifest["metrics"]["evaluation"], "mean_regret": 0.12344, "within_5": 0.625}
    manifest = {
        **model.manifest,
        "data": {**model.manifest["data"], "campaigns": [campaign]},
        "metrics": {"evaluation": metrics},
    }
    card = render_card(manifest)
    assert "| mean regret | 12.34% |" in card
    assert "| within 5% of the fastest | 62.5% |" in card
    assert "48 training problems" in card
    assert "24 evaluation problems" in card
    assert "`first`: NVIDIA H200, driver 1, CUDA 13.0, CUTLASS 4.2.0" in card
    assert "ridge regression" in card
