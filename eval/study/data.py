"""The measured groups that a study trains and evaluates on, their fingerprint, and draws of base shapes."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import numpy as np

from ...datasets import Group, Tables, groups, load, training_groups
from ...features import Hardware, get_hardware
from ...generator import DataError, Problem, load_catalogue

Shape = tuple[int, int, int]
_TABLES: Final = ("kernels", "problems", "measurements", "campaigns")


def base_shape(problem: Problem) -> Shape:
    """Return (shorter of M and N, longer, K): equal for all layouts of a shape and for the same product transposed."""
    return min(problem.m, problem.n), max(problem.m, problem.n), problem.k


def shape_count(listed: Sequence[Group]) -> int:
    """Number of different base shapes."""
    return len({base_shape(group.problem) for group in listed})


def shape_numbers(listed: Sequence[Group]) -> list[int]:
    """Number the base shape of each group; intervals resample shapes, since layouts of one are not independent."""
    numbers: dict[Shape, int] = {}
    return [numbers.setdefault(base_shape(group.problem), len(numbers)) for group in listed]


def draw_shapes(listed: Sequence[Group], count: int | None, draw: int) -> list[Group]:
    """Return the groups of some base shapes, drawn at random; groups of one shape stay together.

    The shapes of a draw are the first ones of one random order, so a smaller count takes a part of what a larger one
    takes.

    Parameters
    ----------
    listed
        Measured groups.
    count
        Shapes to take; None or more than there are: all.
    draw
        Seed of the order.
    """
    if count is None:
        return list(listed)
    chosen = _draw(sorted({base_shape(group.problem) for group in listed}), count, draw)
    return [group for group in listed if base_shape(group.problem) in chosen]


@dataclass(frozen=True)
class StudyData:
    """Groups to train on and groups to evaluate on."""

    training: tuple[Group, ...]
    evaluation: tuple[Group, ...]
    hardware: Hardware
    """The GPU that they were measured on."""

    @cached_property
    def fingerprint(self) -> str:
        """Hash of all that a result can depend on: candidates, times and order of both lists, and the hardware."""
        digest = hashlib.sha256(json.dumps(asdict(self.hardware), sort_keys=True).encode())
        for listed in (self.training, self.evaluation):
            digest.update(f"{len(listed)} groups".encode())
            for group in listed:
                digest.update(f"{group.problem_id} {group.problem} {len(group)}".encode())
                arrays = [group.kernel_id, group.time_us, group.spread, group.coarse, group.default_launch]
                arrays.append(group.ranked_first)
                for values in (*arrays, *(group.columns[name] for name in sorted(group.columns))):
                    digest.update(np.ascontiguousarray(values).tobytes())
        return digest.hexdigest()[:16]

    @cached_property
    def rows(self) -> dict[int, tuple[int, int]]:
        """By problem_id of a training group, the rows timed in full and the coarse ones."""
        return {g.problem_id: (int((~g.coarse).sum()), int(g.coarse.sum())) for g in self.training}

    def to_json(self) -> dict[str, Any]:
        """Describe the data for a page."""
        return {
            "fingerprint": self.fingerprint,
            "hardware": self.hardware.name,
            "training_groups": len(self.training),
            "training_shapes": shape_count(self.training),
            "training_rows": sum(map(len, self.training)),
            "evaluation_groups": len(self.evaluation),
            "evaluation_shapes": shape_count(self.evaluation),
            "evaluation_rows": sum(map(len, self.evaluation)),
        }


def load_data(
    path: str | Path | None = None,
    hardware: str = "h200",
    shapes: int | None = None,
    evaluation_shapes: int | None = None,
) -> StudyData:
    """Read the tables and build the groups, each as the selector would rank it (``Group.as_deployed``).

    With the shipped tables, what is chosen from is the shipped catalogue.

    Parameters
    ----------
    path
        Folder of the Parquet tables; the shipped ones unless given.
    hardware
        The GPU that they were measured on.
    shapes, evaluation_shapes
        Base shapes to use, drawn at random from the measured ones; all unless given.

    Raises
    ------
    DataError
        If the tables are missing, or hold no group to train or to evaluate on.
    """
    tables = _limited(load(_TABLES, path), {"train": shapes, "eval": evaluation_shapes})
    catalogue = load_catalogue() if path is None else None
    training = tuple(group for group in training_groups(tables, catalogue) if _usable(group))
    built = groups(tables, "eval", catalogue=catalogue)
    evaluation = tuple(group.as_deployed() for group in built if _usable(group))
    for split, listed in (("training", training), ("evaluation", evaluation)):
        if not listed:
            raise DataError(f"the tables hold no measured {split} problem; a study needs both kinds")
    return StudyData(training, evaluation, get_hardware(hardware))


def _usable(group: Group) -> bool:
    """Tell whether a group has an oracle and a kernel with a launch that is ranked first."""
    return bool((~group.coarse).any() and group.ranked_first.any())


def _draw(shapes: Sequence[Shape], count: int, draw: int) -> set[Shape]:
    """Return the first shapes of a random order."""
    order = np.random.default_rng(draw).permutation(len(shapes))
    return {shapes[i] for i in order[:count]}


def _limited(tables: Tables, counts: dict[str, int | None]) -> Tables:
    """Drop the measurements of shapes that are not drawn, before the groups are built."""
    problems = tables.problems[tables.problems["problem_id"].isin(tables.measurements["problem_id"].unique())]
    keep: list[int] = []
    for split, count in counts.items():
        mine = problems[problems["split"] == split]
        sizes = zip(mine["M"].tolist(), mine["N"].tolist(), mine["K"].tolist(), strict=True)
        shape = dict(zip(mine["problem_id"].tolist(), ((min(m, n), max(m, n), k) for m, n, k in sizes), strict=True))
        chosen = _draw(sorted(set(shape.values())), len(shape) if count is None else count, 0)
        keep += [number for number, of in shape.items() if of in chosen]
    return replace(tables, measurements=tables.measurements[tables.measurements["problem_id"].isin(keep)])
