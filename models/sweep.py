"""What a trial of a sweep does: train on all folds but one, and take the mean regret on the one left out."""

from __future__ import annotations

import tempfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from .base import Matrix, Scorer
from .config import TrainingConfig
from .heldout import fit_one
from .samples import Samples, build_samples
from .validation import regrets, shape_folds, shape_keys

if TYPE_CHECKING:
    from ..datasets import Group


@dataclass(frozen=True)
class Bench:
    """Training groups with their feature rows."""

    groups: Sequence[Group]
    matrices: Sequence[Matrix]
    """Feature rows of each group."""

    @property
    def fingerprint(self) -> str:
        """Text that differs between other groups, times, features or candidates to choose from."""
        code = 0
        for group, matrix in zip(self.groups, self.matrices, strict=True):
            for values in (group.time_us, group.ranked_first, matrix):
                code = zlib.crc32(values.tobytes(), code)
        return f"{len(self.groups)} groups, {sum(map(len, self.matrices))} rows, {code:08x}"

    def part(self, fraction: float, seed: int) -> Bench:
        """Return the groups of a share of the shapes, above 0 and at most 1, drawn at random."""
        keys = shape_keys(self.groups)
        shapes = sorted(set(keys))
        order = np.random.default_rng(seed).permutation(len(shapes))
        drawn = {shapes[i] for i in order[: round(fraction * len(shapes))]}
        kept = [i for i, key in enumerate(keys) if key in drawn]
        return Bench([self.groups[i] for i in kept], [self.matrices[i] for i in kept])

    def fold_regrets(self, config: TrainingConfig, folds: int, seeds: Sequence[int], first: int = 0) -> Iterator[float]:
        """Yield the mean regret of the deployed rule on each fold, of models that did not see its shapes.

        Parameters
        ----------
        config
            What to train; its seed deals the folds.
        folds
            Folds of :func:`.validation.shape_folds`.
        seeds
            Of the models, trained anew for each; their regrets are averaged.
        first
            Fold to begin with.

        Raises
        ------
        FloatingPointError
            If a model's scores are not finite: training diverged.
        """
        fold = shape_folds(self.groups, folds, config.seed)
        for number in range(first, folds):
            held_out = np.flatnonzero(fold == number).tolist()
            listed = [self.groups[i] for i in held_out]
            means = []
            for seed in seeds:
                seeded = replace(config, seed=seed)
                index = np.flatnonzero(fold != number).tolist()
                scorer = fit_scorer(build_samples(self.groups, self.matrices, seeded, index), seeded)
                scores = [scorer.scores(np.asarray(self.matrices[i])) for i in held_out]
                if not all(np.isfinite(part).all() for part in scores):
                    raise FloatingPointError("the model's scores are not finite")
                means.append(float(regrets(scores, listed).mean()))
            yield float(np.mean(means))

    @contextmanager
    def on_disk(self) -> Iterator[Stored]:
        """Keep the feature rows in a temporary file, from which other processes map them instead of copying them."""
        with tempfile.TemporaryDirectory(prefix="cutlass-ranker-") as folder:
            path = Path(folder) / "features.npy"
            rows, columns = sum(map(len, self.matrices)), self.matrices[0].shape[1]
            stored = np.lib.format.open_memmap(path, "w+", np.float32, (rows, columns))
            np.concatenate(list(self.matrices), out=stored)
            stored.flush()
            del stored
            yield Stored(tuple(self.groups), str(path), tuple(map(len, self.matrices)))


@dataclass(frozen=True)
class Stored:
    """A bench as it is sent to another process."""

    groups: tuple[Group, ...]
    path: str
    rows: tuple[int, ...]
    """Feature rows of each group."""

    def open(self) -> Bench:
        """Map the feature rows."""
        features = np.load(self.path, mmap_mode="r")
        return Bench(self.groups, np.split(features, np.cumsum(self.rows)[:-1]))


def fit_scorer(samples: Samples, config: TrainingConfig) -> Scorer:
    """Fit a model that only has to score; a forest is left to XGBoost, which is quick with the largest, too."""
    if config.kind == "xgboost":
        from .xgb import fit_booster

        return fit_booster(samples, config)
    return fit_one(samples, config)
