"""Saved models: a folder with ``manifest.json`` and weights as ``.safetensors`` or XGBoost's JSON, never a pickle.

The weights are in ``model.*``; those of an ensemble in ``member0.*``, ``member1.*`` ..., which the manifest lists.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Mapping, Sequence
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ..features import feature_names, featurize
from ..generator.errors import ModelMismatch
from .base import Floats, Matrix, Rows
from .calibration import Calibration, doubt
from .ensemble import Ensemble
from .network import Network
from .trees import Forest

if TYPE_CHECKING:
    from ..features import Hardware
    from ..generator import Columns, Problem

FORMAT: Final = 1
"""Version of the folder's layout that this code reads and writes."""
MANIFEST: Final = "manifest.json"
TENSORS: Final = ".safetensors"
TREES: Final = ".json.gz"
"""XGBoost's own ``model.json``, compressed."""
PLAIN_TREES: Final = ".json"
"""The same as earlier versions wrote it, and as XGBoost reads it; taken where there is no other."""
CARD: Final = "CARD.md"
_KEYS: Final = ("format", "name", "kind", "objective", "feature_set", "features", "hardware", "confidence")


class Model:
    """A trained ranker. Scoring needs NumPy only.

    Parameters
    ----------
    scorer
        The trees, the network, or several of them.
    manifest
        What is known of the model (see :func:`save_model`), at least ``name``, ``kind``, ``feature_set``,
        ``features`` and ``confidence``.

    Raises
    ------
    ModelMismatch
        If this code does not compute the model's features.
    """

    def __init__(self, scorer: Forest | Network | Ensemble, manifest: Mapping[str, Any]) -> None:
        self.scorer = scorer
        self.manifest = manifest
        self.calibration = Calibration.from_json(manifest["confidence"])
        self._columns = check_features(manifest["name"], manifest["feature_set"], manifest["features"])
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
        return self.scorer.scores(self._own(features))

    def assess(self, columns: Columns, problem: Problem, hardware: Hardware) -> tuple[Floats, float | None]:
        """Return the score of each candidate, shape (rows,), and the doubt about the best (:func:`.calibration.doubt`).

        The doubt is None if the model says nothing about single problems.
        """
        return self.assess_matrix(featurize(columns, problem, hardware, self.feature_set))

    def assess_matrix(self, features: Matrix) -> tuple[Floats, float | None]:
        """Return the scores of feature rows (rows, features) of ``feature_set``, shape (rows,), and the doubt."""
        scores, rows, members = self.scorer.detailed(self._own(features))
        known = len(scores) and self.calibration.doubt
        return scores, doubt(scores[rows], members, self.calibration.unit) if known else None

    def _own(self, features: Matrix) -> Matrix:
        """Return the columns that the model was trained on."""
        # Transposed, so that a matrix as featurize() makes it, column by column, stays one.
        return features if self._columns is None else features.T[self._columns].T

    def expected_regret(self, scores: Floats, problem: Problem, doubt: float | None = None) -> Floats:
        """Return the regret to expect of each candidate of a list from the scores of all of it, shape (candidates,).

        Calibrated on held-out groups, by the gap to the best score, the kind of problem, and if it is given the doubt
        about the best one (:mod:`.calibration`).
        """
        return self.calibration.expected_regret(scores, problem, doubt)

    def save(self, path: str | Path) -> Path:
        """Write the folder (without its card) and return it; existing files of a model there are replaced.

        Raises
        ------
        ValueError
            If this is a forest that was loaded: copy its folder instead.
        """
        parts = self.scorer.members if isinstance(self.scorer, Ensemble) else [self.scorer]
        if any(isinstance(part, Forest) and part.document is None for part in parts):
            raise ValueError("a loaded forest no longer has XGBoost's document; copy its folder instead")
        folder = Path(path)
        folder.mkdir(parents=True, exist_ok=True)
        for pattern in ("model", "member[0-9]*"):
            for suffix in (TENSORS, TREES, PLAIN_TREES):
                for old in folder.glob(pattern + suffix):
                    old.unlink()
        for number, part in enumerate(parts):
            _write(part, folder / (f"member{number}" if isinstance(self.scorer, Ensemble) else "model"))
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


def check_features(name: str, feature_set: str, features: Sequence[Mapping[str, Any]]) -> Rows | None:
    """Find the features that a model was trained on among those that this code computes.

    A model that was trained before a feature was added goes on without it.

    Returns
    -------
    Rows or None
        Columns of the feature set that are the model's features; None if all are.

    Raises
    ------
    ModelMismatch
        If the feature set is unknown, or a feature is unknown or in another place; the message says which.
    """
    try:
        expected = [item["name"] for item in feature_list(feature_set)]
    except ValueError as error:
        raise ModelMismatch(f"model {name!r}: {error}") from error
    given = [str(item["name"]) for item in features]
    if given == expected:
        return None
    if given == [feature for feature in expected if feature in set(given)]:
        return np.array([expected.index(feature) for feature in given], dtype=np.intp)
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
    if manifest["kind"] != "ensemble":
        return Model(_read(manifest["kind"], folder, "model", name), manifest)
    try:
        listed = [(str(member["kind"]), float(member["unit"])) for member in manifest["members"]]
        rescored = int(manifest["rescore"])
    except (KeyError, TypeError, ValueError) as error:
        raise ModelMismatch(f"the members of model {name!r} cannot be read: {error!r}") from error
    members = [_read(kind, folder, f"member{number}", name) for number, (kind, _) in enumerate(listed)]
    return Model(Ensemble(members, [unit for _, unit in listed], rescored), manifest)


def _write(scorer: Forest | Network, path: Path) -> None:
    """Write the weights to a file, whose suffix is added to the path."""
    if isinstance(scorer, Network):
        from safetensors.numpy import save_file

        tensors = {name: np.ascontiguousarray(value) for name, value in scorer.tensors().items()}
        save_file(tensors, f"{path}{TENSORS}")
    else:
        text = json.dumps(scorer.document, separators=(",", ":"))
        Path(f"{path}{TREES}").write_bytes(gzip.compress(text.encode(), mtime=0))


def _read(kind: str, folder: Any, stem: str, name: str) -> Forest | Network:
    """Read the weights of a model or a member."""
    if kind == "xgboost":
        packed = folder / f"{stem}{TREES}"
        return Forest.from_xgboost(_json(packed if packed.is_file() else folder / f"{stem}{PLAIN_TREES}"))
    from safetensors import SafetensorError
    from safetensors.numpy import load

    try:
        tensors = load((folder / f"{stem}{TENSORS}").read_bytes())
    except (OSError, SafetensorError) as error:
        raise ModelMismatch(f"the weights of model {name!r} cannot be read: {error}") from error
    return Network.from_tensors(tensors)


def _json(path: Any) -> dict[str, Any]:
    """Read a JSON object from a file or package resource, compressed or not."""
    try:
        content = path.read_bytes()
        value = json.loads(gzip.decompress(content) if path.name.endswith(".gz") else content)
    except (OSError, EOFError, zlib.error, ValueError) as error:
        raise ModelMismatch(f"{path} cannot be read: {error}") from error
    if not isinstance(value, dict):
        raise ModelMismatch(f"{path} does not hold a JSON object")
    return value
