"""Saved models: what is refused, what is found, what is imported."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from cutlass_ranker.features import feature_names
from cutlass_ranker.generator import Problem
from cutlass_ranker.generator.errors import ModelMismatch
from cutlass_ranker.models import Model, load_model, model_names
from cutlass_ranker.models.base import Standardizer
from cutlass_ranker.models.calibration import KINDS
from cutlass_ranker.models.network import Network
from cutlass_ranker.models.store import feature_list
from cutlass_ranker.models.trees import Forest

FEATURES = len(feature_names("structural"))


def manifest(**changes: object) -> dict:
    """The least manifest of a linear model on the structural features."""
    return {
        "format": 1,
        "name": "made",
        "kind": "ridge",
        "objective": "mse",
        "feature_set": "structural",
        "features": feature_list("structural"),
        "hardware": "h200",
        "confidence": {
            "gap": [0.0, 1.0],
            "speed": {kind: [0.9, 0.5] for kind, _ in KINDS},
            "groups": {kind: 1 for kind, _ in KINDS},
        },
        **changes,
    }


def network(features: int = FEATURES) -> Network:
    weight = np.arange(features, dtype=np.float32)[None, :]
    zero, one = np.zeros(features, np.float32), np.ones(features, np.float32)
    return Network(Standardizer(zero, one, np.zeros(features, bool)), [[(weight, np.array([0.5], np.float32))]])


def edit(folder: Path, **changes: object) -> Path:
    """Change fields of a saved manifest; None removes one."""
    value = json.loads((folder / "manifest.json").read_text()) | changes
    value = {key: item for key, item in value.items() if item is not None}
    (folder / "manifest.json").write_text(json.dumps(value))
    return folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A saved model."""
    return Model(network(), manifest()).save(tmp_path / "made")


def test_round_trip(folder: Path) -> None:
    model = load_model(folder)
    row = np.ones((1, FEATURES), dtype=np.float32)
    assert model.score_matrix(row).tolist() == [0.5 + FEATURES * (FEATURES - 1) / 2]
    assert load_model(str(folder)).manifest == model.manifest == manifest()
    assert model.expected_regret(np.array([2.0, 1.5]), Problem(64, 64, 64)) == pytest.approx([0.1, 0.3])


def test_a_model_is_read_once_until_it_is_saved_again(folder: Path) -> None:
    model = load_model(folder)
    assert load_model(folder) is model
    Model(network(), manifest(name="other")).save(folder)
    assert load_model(folder).name == "other"


def test_levels_are_part_of_the_feature_list() -> None:
    described = {item["name"]: item for item in feature_list("full")}
    levels = [item for item in described.values() if "level" in item]
    assert len(levels) >= 5
    assert all(item["name"] == f"{item['field']}={item['level']}" for item in levels)


def test_other_features_are_refused_by_name(folder: Path) -> None:
    features = feature_list("structural")
    renamed = [{"name": "phase_of_moon"}, *features[1:]]
    with pytest.raises(ModelMismatch, match="unknown here: phase_of_moon") as caught:
        load_model(edit(folder, features=renamed))
    assert f"not in the model: {features[0]['name']}" in str(caught.value)


def test_a_model_goes_on_without_a_feature_that_was_added_later(tmp_path: Path) -> None:
    listed = feature_list("structural")
    older = Model(network(FEATURES - 1), manifest(features=[*listed[:2], *listed[3:]]))
    row = (np.arange(FEATURES, dtype=np.float32) % 8)[None, :]
    # The weights are 0, 1, 2 ...; the value at position 2 is left out.
    expected = [0.5 + sum(i * ((i + (i >= 2)) % 8) for i in range(FEATURES - 1))]
    assert older.score_matrix(row).tolist() == expected
    loaded = load_model(older.save(tmp_path / "older"))
    assert loaded.score_matrix(row).tolist() == loaded.assess_matrix(row)[0].tolist() == expected


def test_another_order_is_refused(tmp_path: Path) -> None:
    features = feature_list("structural")
    features[2], features[3] = features[3], features[2]
    with pytest.raises(ModelMismatch, match="another order from position 2"):
        Model(network(), manifest(features=features))


def test_weights_of_another_width_are_refused() -> None:
    with pytest.raises(ModelMismatch, match=f"lists {FEATURES} features, its weights take 3"):
        Model(network(3), manifest())


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"format": 2}, "format 2; this version reads format 1"),
        ({"hardware": None}, "lacks hardware"),
        ({"feature_set": "secret"}, "secret"),
        ({"confidence": {}}, "calibration"),
        ({"kind": "xgboost"}, r"model\.json cannot be read"),
    ],
)
def test_damaged_manifests_are_refused(folder: Path, changes: dict, words: str) -> None:
    with pytest.raises(ModelMismatch, match=words):
        load_model(edit(folder, **changes))


def test_damaged_files_are_refused(folder: Path) -> None:
    (folder / "model.safetensors").write_bytes(b"nothing of the kind")
    with pytest.raises(ModelMismatch, match="weights"):
        load_model(folder)
    (folder / "manifest.json").write_text("{")
    with pytest.raises(ModelMismatch, match=r"manifest\.json cannot be read"):
        load_model(folder)
    (folder / "manifest.json").write_text("[]")
    with pytest.raises(ModelMismatch, match="does not hold a JSON object"):
        load_model(folder)


def test_an_unknown_name_lists_what_is_shipped() -> None:
    with pytest.raises(ModelMismatch, match="no model 'nonsense'") as caught:
        load_model("nonsense")
    assert all(name in str(caught.value) for name in model_names())


def test_a_loaded_forest_is_not_saved_without_its_document(tmp_path: Path) -> None:
    forest = Forest([], 0.0, FEATURES)
    with pytest.raises(ValueError, match="copy its folder"):
        Model(forest, manifest(kind="xgboost")).save(tmp_path)


def test_loading_and_scoring_import_neither_framework(folder: Path) -> None:
    code = (
        "import sys; from cutlass_ranker.models import load_model; from cutlass_ranker.generator import *\n"
        "from cutlass_ranker.features import HARDWARE\n"
        "config = KernelConfig(128, 128, 64, 1, 1, 4, Schedule.PINGPONG, Epilogue.TMA)\n"
        "from cutlass_ranker.generator import columns\n"
        f"model = load_model({str(folder)!r})\n"
        "assert model.score(columns.from_configs([config]), Problem(64, 64, 64), HARDWARE['h200']).shape == (1,)\n"
        "print(sorted({'torch', 'xgboost', 'sklearn', 'pandas', 'scipy'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
