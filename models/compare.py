"""Training configurations against each other: regret on the same folds with the same seeds, with paired intervals.

Every model that is trained is kept in a folder by configuration and seed, so that a comparison resumes where it
stopped, and an ensemble of models that were compared before costs nothing.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from .base import Floats
from .config import TrainingConfig
from .heldout import HeldOut, cross_validate_one, held_out
from .spawn import SPAWN, choose_gpu, library_threads
from .sweep import Bench, Stored
from .validation import regrets, shape_keys, summarise

DRAWS: Final = 2000
"""Bootstrap draws of an interval."""


@dataclass(frozen=True)
class Compared:
    """What was found for one configuration."""

    name: str
    regrets: Floats
    """Of each seed and group, shape (seeds, groups)."""
    difference: float
    """Mean regret − that of the first configuration."""
    low: float
    """2.5% point of the difference, from a bootstrap over shapes."""
    high: float
    """97.5% point."""

    def to_json(self) -> dict[str, Any]:
        """Return a summary as a JSON object; regrets are fractions."""
        return {
            "name": self.name,
            **summarise(self.regrets.mean(axis=0)),
            "by_seed": self.regrets.mean(axis=1).tolist(),
            "difference": self.difference,
            "interval": [self.low, self.high],
        }


def compare(
    configs: Mapping[str, TrainingConfig],
    bench: Bench,
    folder: Path,
    folds: int = 5,
    seeds: int = 3,
    workers: int = 1,
    threads: int = 1,
    watch: Callable[[str], None] = lambda _: None,
) -> list[Compared]:
    """Cross-validate configurations on the same folds.

    Parameters
    ----------
    configs
        By name; the first is what the others are compared with. Their folds, seeds and threads are those given here.
    bench
        Training groups and their features, of the feature set of all configurations.
    folder
        Keeps the scores of every trained configuration.
    folds
        Folds of each cross-validation.
    seeds
        Cross-validations of each, from seeds 0, 1, ...; a seed deals the folds, too.
    workers, threads
        Processes, and threads of each.
    watch
        Takes a line of progress now and then.
    """
    folder.mkdir(parents=True, exist_ok=True)
    seeded = {
        (name, seed): replace(config, folds=folds, seed=seed, threads=threads)
        for name, config in configs.items()
        for seed in range(seeds)
    }
    singles = {_key(one, bench): one for config in seeded.values() for one in config.members or (config,)}
    todo = {key: one for key, one in singles.items() if not (folder / f"{key}.npz").exists()}
    watch(f"{len(singles)} cross-validations, {len(singles) - len(todo)} of them done before")
    with (
        bench.on_disk() as stored,
        library_threads(threads),
        ProcessPoolExecutor(workers, SPAWN, initializer=_begin, initargs=(stored,)) as pool,
    ):
        running = {pool.submit(_train, one, str(folder / f"{key}.npz")): one for key, one in todo.items()}
        for future in as_completed(running):
            one = running[future]
            watch(f"{one.kind} {one.objective}, seed {one.seed}: mean regret {future.result():.4f}")

    def kept(config: TrainingConfig) -> HeldOut:
        return _load(folder / f"{_key(config, bench)}.npz", bench)

    found = {name: np.array([_regrets(bench, seeded[name, seed], kept) for seed in range(seeds)]) for name in configs}
    base = next(iter(found.values())).mean(axis=0)
    shapes = shape_keys(bench.groups)
    result = []
    for name, values in found.items():
        gain = values.mean(axis=0) - base
        result.append(Compared(name, values, float(gain.mean()), *paired_interval(gain, shapes)))
    return result


def paired_interval(difference: Floats, clusters: Sequence[object], seed: int = 0) -> tuple[float, float]:
    """Return the 95% interval of a mean from a bootstrap that draws whole clusters.

    Parameters
    ----------
    difference
        Shape (groups,).
    clusters
        Cluster of each group; groups of one shape are not independent.
    seed
        Of the draws.
    """
    order = {key: number for number, key in enumerate(dict.fromkeys(clusters))}
    index = np.array([order[key] for key in clusters])
    count, total = np.bincount(index), np.bincount(index, weights=difference)
    drawn = np.random.default_rng(seed).integers(0, len(order), (DRAWS, len(order)))
    means = total[drawn].sum(axis=1) / count[drawn].sum(axis=1)
    low, high = np.quantile(means, [0.025, 0.975])
    return float(low), float(high)


def _regrets(bench: Bench, config: TrainingConfig, kept: Callable[[TrainingConfig], HeldOut]) -> Floats:
    """Return the regret on each group, from scores that are kept."""
    return regrets(held_out(bench.groups, bench.matrices, config, single=kept).scores, bench.groups)


def _key(config: TrainingConfig, bench: Bench) -> str:
    """Name what determines a cross-validation's result."""
    value = {name: item for name, item in config.to_json().items() if name != "threads"}
    text = json.dumps([bench.fingerprint, value], sort_keys=True)
    return f"{config.kind}-{config.objective}-{config.seed}-{hashlib.sha256(text.encode()).hexdigest()[:12]}"


def _load(path: Path, bench: Bench) -> HeldOut:
    """Read a cross-validation's scores."""
    with np.load(path) as file:
        members, unit, rounds = file["members"], float(file["unit"]), int(file["rounds"])
    parts = np.split(members, np.cumsum([len(group) for group in bench.groups])[:-1], axis=1)
    return HeldOut([part.mean(axis=0) for part in parts], parts, unit, rounds or None)


_bench: Bench | None = None
"""Of a worker."""


def _begin(stored: Stored) -> None:
    """Prepare a worker."""
    global _bench
    _bench = stored.open()


def _train(config: TrainingConfig, path: str) -> float:
    """Cross-validate one configuration, keep its scores, and return the mean regret."""
    assert _bench is not None
    if config.kind == "mlp":
        choose_gpu()
    held = cross_validate_one(_bench.groups, _bench.matrices, config, lambda _: None)
    members = np.concatenate(held.member_scores, axis=1)
    partial = Path(f"{path}.partial.npz")
    np.savez(partial, members=members, unit=held.unit, rounds=held.rounds or 0)
    partial.rename(path)
    return float(regrets(held.scores, _bench.groups).mean())
