"""Saved models: a folder with ``manifest.json`` and ``model.safetensors`` or ``model.json``, never a pickle."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ..features import feature_names, featurize
from ..generator.errors import ModelMismatch
from .base import Floats, Matrix, Scorer
from .calibration import Calibration
from .network import Network
from .trees import Forest

if TYPE_CHECKING:
    from ..features import Hardware
    from ..generator import Columns, Problem

FORMAT: Final = 1
"""Version of the folder's layout that this code reads and writes."""
MANIFEST: Final = "manifest.json"
TENSORS: Final = "model.safetensors"
TREES: Final = "model.json"
CARD: Final = "CARD.md"
_KEYS: Final = ("format", "name", "kind", "objective", "feature_set", "features", "hardware", "confidence")


class Model:
    """A trained ranker. Scoring needs NumPy only.

    Parameters
    ----------
    scorer
        The trees or the network.
    manifest
        What is known of the model (see :func:`save_model`), at least ``name``, ``kind``, ``feature_set``,
        ``features`` and ``confidence``.
    document
        Of a newly trained forest, XGBoost's JSON document, which :meth:`save` writes.

    Raises
    ------
    ModelMismatch
        If the model's features are not those of this code.
    """

    def __init__(
        self, scorer: Forest | Network, manifest: Mapping[str, Any], document: Mapping[str, Any] | None = None
    ) -> None:
        self.scorer: Scorer = scorer
        self.manifest = manifest
        self.document = document
        self.calibration = Calibration.from_json(manifest["confidence"])
        check_features(manifest["name"], manifest["feature_set"], manifest["features"])
        if scorer.features != len(manifest["features"]):
            listed = len(manifest["features"])
            raise ModelMismatch(f"model {self.name!r} lists {listed} features, its weights take {scorer.features}")

    @property
    def name(self) -> str:
        """Name of the model."""
        return str(self.manifest["name"])

    @property
    def feature_set(self) -> str:
        """Feature set that it scores."""
        return str(self.manifest["feature_set"])

    def score(self, columns: Columns, problem: Problem, hardware: Hardware) -> Floats:
        """Return the score of each candidate, shape (rows,), float64; higher is better."""
        return self.score_matrix(featurize(columns, problem, hardware, self.feature_set))

    def score_matrix(self, features: Matrix) -> Floats:
        """Return the scores of feature rows (rows, features) of ``feature_set``, shape (rows,), float64."""
        return self.scorer.scores(features)

    def expected_regret(self, scores: Floats, problem: Problem) -> Floats:
        """Return the regret to expect of each candidate of a list from the scores of all of it, shape (candidates,).

        Calibrated on held-out groups, by the gap to the best score and the kind of problem (:mod:`.calibration`).
        """
        return self.calibration.expected_regret(scores, problem)

    def save(self, path: str | Path) -> Path:
        """Write the folder (without its card) and return it; existing files of a model there are replaced.

        Raises
        ------
        ValueError
            If this is a forest that was loaded: copy its folder instead.
        """
        if isinstance(self.scorer, Forest) and self.document is None:
            raise ValueError("a loaded forest no longer has XGBoost's document; copy its folder instead")
        folder = Path(path)
        folder.mkdir(parents=True, exist_ok=True)
        for name in (TENSORS, TREES):
            (folder / name).unlink(missing_ok=True)
        if isinstance(self.scorer, Network):
            from safetensors.numpy import save_file

            save_file(
                {name: np.ascontiguousarray(value) for name, value in self.scorer.tensors().items()}, folder / TENSORS
            )
        else:
            (folder / TREES).write_text(json.dumps(self.document, separators=(",", ":")), encoding="utf-8")
        text = json.dumps(self.manifest, indent=2, ensure_ascii=False, allow_nan=False)
        (folder / MANIFEST).write_text(text + "\n", encoding="utf-8")
        _load.cache_clear()
        return folder


def feature_list(feature_set: str) -> list[dict[str, Any]]:
    """Describe the columns of a feature set for a manifest: ``name``; of a 0/1 column also ``field`` and ``level``."""
    described: list[dict[str, Any]] = []
    for name in feature_names(feature_set):
        field, equals, level = name.partition("=")
        described.append({"name": name, "field": field, "level": level} if equals else {"name": name})
    return described


def check_features(name: str, feature_set: str, features: Sequence[Mapping[str, Any]]) -> None:
    """Refuse a model that was trained on other features than this code computes.

    Raises
    ------
    ModelMismatch
        If the feature set is unknown, or a feature is missing, new, or in another place; the message says which.
    """
    try:
        expected = [item["name"] for item in feature_list(feature_set)]
    except ValueError as error:
        raise ModelMismatch(f"model {name!r}: {error}") from error
    given = [str(item["name"]) for item in features]
    if given == expected:
        return
    gone = [feature for feature in given if feature not in set(expected)]
    new = [feature for feature in expected if feature not in set(given)]
    parts = [
        f"{what}: {', '.join(names)}" for what, names in (("unknown here", gone), ("not in the model", new)) if names
    ]
    if not parts:
        place = next(i for i, pair in enumerate(zip(given, expected, strict=False)) if pair[0] != pair[1])
        parts = [f"another order from position {place}: {given[place]} where this code has {expected[place]}"]
    raise ModelMismatch(
        f"model {name!r} was trained on other features of the set {feature_set!r} ({'; '.join(parts)}); train it anew"
    )


def model_names() -> list[str]:
    """Return the names of the shipped models."""
    folder = files(__package__) / "data"
    if not folder.is_dir():
        return []
    return sorted(entry.name for entry in folder.iterdir() if (entry / MANIFEST).is_file())


def load_model(name_or_path: str | Path = "default") -> Model:
    """Load a model: ``default``, the name of a shipped one, or a folder. A model is read once per process.

    A name that is shipped means the shipped model, even where a folder of that name exists (write ``./name`` for that).

    Raises
    ------
    ModelMismatch
        If there is no such model, or it is damaged or does not match this code.
    """
    return _load(str(name_or_path.absolute() if isinstance(name_or_path, Path) else name_or_path))


@lru_cache(maxsize=16)
def _load(name: str) -> Model:
    shipped = files(__package__) / "data"
    if name == "default":
        pointer = shipped / "default.txt"
        if not pointer.is_file():
            raise ModelMismatch("this installation ships no default model; pass the folder of a trained one")
        name = pointer.read_text(encoding="utf-8").strip()
    folder = shipped / name if name in model_names() else Path(name)
    if not (folder / MANIFEST).is_file():
        known = ", ".join(model_names()) or "none"
        raise ModelMismatch(
            f"no model {name!r}: neither a folder with {MANIFEST} nor a shipped model (shipped: {known})"
        )
    manifest = _json(folder / MANIFEST)
    if missing := [key for key in _KEYS if key not in manifest]:
        raise ModelMismatch(f"the manifest of model {name!r} lacks {', '.join(missing)}")
    if manifest["format"] != FORMAT:
        raise ModelMismatch(f"model {name!r} has format {manifest['format']!r}; this version reads format {FORMAT}")
    if manifest["kind"] == "xgboost":
        return Model(Forest.from_xgboost(_json(folder / TREES)), manifest)
    from safetensors import SafetensorError
    from safetensors.numpy import load

    try:
        tensors = load((folder / TENSORS).read_bytes())
    except (OSError, SafetensorError) as error:
        raise ModelMismatch(f"the weights of model {name!r} cannot be read: {error}") from error
    return Model(Network.from_tensors(tensors), manifest)


def _json(path: Any) -> dict[str, Any]:
    """Read a JSON object from a file or package resource."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ModelMismatch(f"{path} cannot be read: {error}") from error
    if not isinstance(value, dict):
        raise ModelMismatch(f"{path} does not hold a JSON object")
    return value
