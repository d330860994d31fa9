"""Cells: the units of work of all studies, as plain data that say what to compute and where its result belongs."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from .data import StudyData

Labels = Mapping[str, str | int | float]
"""Where a cell stands in its study: names of axes and the cell's values on them."""


class Work(NamedTuple):
    """How much there is to compute."""

    kind: str
    """What is computed; one kind has one speed."""
    units: float
    """Amount, proportional to the time that it takes."""


class Cell(Protocol):
    """One result to compute. Cells are frozen, hashable, and travel between processes."""

    @property
    def label(self) -> str:
        """What is computed, in a line."""
        ...

    def to_json(self) -> dict[str, Any]:
        """Return everything that determines the result, besides the data."""
        ...

    def work(self, data: StudyData) -> Work:
        """Estimate the work."""
        ...

    def run(self, data: StudyData) -> dict[str, Any]:
        """Compute the result, a JSON object; the same cell and data give the same one."""
        ...


@dataclass(frozen=True)
class Planned:
    """A cell and its place in a study."""

    labels: Labels
    cell: Cell


@dataclass(frozen=True)
class Outcome:
    """A finished cell of a study."""

    labels: Labels
    result: Mapping[str, Any]


def key_of(cell: Cell, data: StudyData) -> str:
    """Return the name under which a result is kept: a hash of the cell and the data."""
    content = json.dumps({"cell": cell.to_json(), "data": data.fingerprint}, sort_keys=True)
    return hashlib.sha256(content.encode()).hexdigest()[:20]
