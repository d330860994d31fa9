"""The page of all studies: HTML, Markdown and JSON from whatever cells are finished, with every plot."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

from ...generator import DataError, MissingDependency
from .exhibits import FORMATS, Column, Exhibit, Table, render
from .registry import STUDIES
from .store import Store

_DIGITS = 6


def make_page(root: str | Path) -> dict[str, Any]:
    """Write ``study.{html,md,json}`` and ``plots/`` for the studies that were begun in a folder.

    No data are needed: everything is drawn from the finished cells on disk.

    Parameters
    ----------
    root
        Folder of the studies.

    Returns
    -------
    dict
        The content of ``study.json``: by study, its data and options, how many of its cells are finished, and tables.

    Raises
    ------
    MissingDependency
        If the ``report`` extra is not installed.
    DataError
        If no cell of any study is finished.
    """
    try:
        import jinja2
    except ImportError as error:
        raise MissingDependency("a page needs jinja2: pip install 'cutlass-ranker[report]'") from error
    store, folder = Store(root), Path(root)
    document: dict[str, Any] = {}
    shown: dict[str, dict[str, Any]] = {}
    for name, study in STUDIES.items():
        plan = store.read_plan(name)
        outcomes, records = store.outcomes(plan) if plan is not None else ([], [])
        if plan is None or not outcomes:
            continue
        exhibit = study.show(outcomes)
        document[name] = {
            "title": study.title,
            "text": study.text,
            "finished": len(outcomes),
            "planned": len(plan["cells"]),
            "seconds": round(sum(record["seconds"] for record in records), 1),
            "commits": sorted({record["commit"] for record in records}),
            "data": plan["data"],
            "options": plan["options"],
            "tables": {table.name: _plain(table) for table in exhibit.tables},
            "plots": {plot.name: plot.caption for plot in exhibit.plots},
        }
        shown[name] = {**document[name], "plots": _drawn(exhibit, folder / "plots"), "tables": exhibit.tables}
    if not document:
        raise DataError(f"{folder} holds no finished cell of a study; run one first, e.g. study features --quick")
    (folder / "study.json").write_text(json.dumps(document, indent=1, allow_nan=False) + "\n", encoding="utf-8")
    templates = files(__package__).joinpath("templates")
    for kind in ("html", "md"):
        environment = jinja2.Environment(
            autoescape=kind == "html", trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined
        )
        environment.filters.update(show=show, data_uri=_data_uri)
        template = environment.from_string(templates.joinpath(f"study.{kind}.j2").read_text(encoding="utf-8"))
        text = template.render(studies=shown, formats=FORMATS)
        (folder / f"study.{kind}").write_text(text.rstrip() + "\n", encoding="utf-8")
    return document


def show(row: Mapping[str, Any], column: Column) -> str:
    """Format a value of a table, and the interval beside it."""
    value = row.get(column.key)
    if value is None:
        return "–"
    if column.kind == "text":
        return str(value)
    if column.kind == "int":
        return f"{value:,.0f}"
    text = _percent(value, column.kind == "points") + "%"
    bounds = row.get(column.interval)
    if bounds is None:
        return text
    return f"{text} ({' to '.join(_percent(bound, column.kind == 'points') for bound in bounds)})"


def _percent(value: float, signed: bool) -> str:
    """Format a fraction in per cent, two decimals."""
    percent = round(100 * value, 2) + 0.0
    return f"{percent:{'+' if signed and percent else ''}.2f}".replace("-", "−")


def _plain(table: Table) -> dict[str, Any]:
    """Return a table for JSON: all values of its rows, shown or not."""
    return {"title": table.title, "note": table.note, "rows": [_rounded(dict(row)) for row in table.rows]}


def _rounded(value: Any) -> Any:
    """Round all numbers and make tuples lists."""
    if isinstance(value, dict):
        return {name: _rounded(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_rounded(item) for item in value]
    return round(float(value), _DIGITS) if isinstance(value, float | np.floating) else value


def _drawn(exhibit: Exhibit, folder: Path) -> dict[str, dict[str, str]]:
    """Draw the plots into files and return caption and SVG of each."""
    return {plot.name: {"caption": plot.caption, "svg": render(plot, folder)} for plot in exhibit.plots}


def _data_uri(svg: str) -> str:
    """Turn an SVG document into the address of an image that a page carries itself."""
    return "data:image/svg+xml;base64," + base64.b64encode(svg.encode()).decode()
