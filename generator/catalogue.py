"""Catalogues: named, finite lists of kernels that were compiled, verified and measured."""

from __future__ import annotations

from functools import lru_cache
from importlib.resources import files

from .columns import Columns, from_configs
from .errors import DataError
from .names import parse_name


@lru_cache(maxsize=8)
def load_catalogue(name: str = "default") -> Columns:
    """Return the kernels of a shipped catalogue as columns.

    Parameters
    ----------
    name
        ``"default"``, or the name of a file in ``generator/catalogues`` without its ending.

    Raises
    ------
    DataError
        If there is no such catalogue.
    """
    folder = files(__package__) / "catalogues"
    path = folder / f"{name}.txt"
    if not path.is_file():
        known = sorted(entry.name.removesuffix(".txt") for entry in folder.iterdir()) if folder.is_dir() else []
        raise DataError(f"no catalogue named {name!r}; shipped: {', '.join(known) or 'none'}")
    lines = (line.strip() for line in path.read_text().splitlines())
    columns = from_configs(parse_name(line) for line in lines if line and not line.startswith("#"))
    for values in columns.values():
        values.flags.writeable = False
    return columns
