"""Results on disk: one file a finished cell, so that nothing is computed twice and a killed run loses little."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from .cells import Outcome, Planned, key_of
from .data import StudyData
from .options import Options


class Store:
    """A folder of results.

    ``cells/<key>.json`` is a finished cell, ``plans/<study>.json`` says which cells a study consists of.

    Parameters
    ----------
    root
        The folder; made when something is written.
    """

    def __init__(self, root: str | Path) -> None:
        self.root = Path(root)

    def read(self, key: str) -> dict[str, Any] | None:
        """Return a finished cell's record: ``cell``, ``data``, ``result``, ``seconds``, ``work``, ``commit``."""
        return _read(self.root / "cells" / f"{key}.json")

    def has(self, key: str) -> bool:
        """Tell whether a cell is finished."""
        return self.read(key) is not None

    def write(self, key: str, record: Mapping[str, Any]) -> None:
        """Keep a finished cell, in one step: no reader ever sees half of it."""
        _write(self.root / "cells" / f"{key}.json", record)

    def records(self) -> list[dict[str, Any]]:
        """Return all finished cells, whatever study or data they belong to."""
        found = (_read(path) for path in sorted((self.root / "cells").glob("*.json")))
        return [record for record in found if record is not None]

    def write_plan(self, study: str, planned: Sequence[Planned], data: StudyData, options: Options) -> None:
        """Keep which cells a study consists of; an earlier plan of it is replaced, its finished cells stay."""
        cells = [{"key": key_of(item.cell, data), "labels": dict(item.labels)} for item in planned]
        _write(
            self.root / "plans" / f"{study}.json",
            {"study": study, "data": data.to_json(), "options": options.to_json(), "cells": cells},
        )

    def read_plan(self, study: str) -> dict[str, Any] | None:
        """Return the plan of a study, None if it was never begun."""
        return _read(self.root / "plans" / f"{study}.json")

    def outcomes(self, plan: Mapping[str, Any]) -> tuple[list[Outcome], list[dict[str, Any]]]:
        """Return the finished cells of a plan, in its order, and their records."""
        found = [(item["labels"], self.read(item["key"])) for item in plan["cells"]]
        finished = [(labels, record) for labels, record in found if record is not None]
        return [Outcome(labels, record["result"]) for labels, record in finished], [record for _, record in finished]


def _read(path: Path) -> dict[str, Any] | None:
    """Read a JSON object; None if the file is missing or damaged."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return value if isinstance(value, dict) else None


def _write(path: Path, value: Mapping[str, Any]) -> None:
    """Write a JSON object in one step."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    part.write_text(json.dumps(value, allow_nan=False) + "\n", encoding="utf-8")
    part.replace(path)
