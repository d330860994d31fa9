"""Candidates in a reader's words, and in what two of them differ."""

from __future__ import annotations

from ..generator import SPLIT_K_DECOMPOSITIONS, Columns, Decomposition, Epilogue, Raster, Schedule, Scheduler
from ..generator import columns as col


def describe(columns: Columns, row: int) -> str:
    """Return a candidate in a reader's words, e.g. ``128x256x64 2x1, 4 stages, pingpong/tma, swizzle 8, swapped``."""
    value = _values(columns, row)
    words = [
        f"{_tile(value)} {_cluster(value)}",
        f"{value['stages']} stages",
        f"{_schedule(value)}/{_epilogue(value)}",
    ]
    if value["scheduler"] != Scheduler.PERSISTENT:
        words.append(Scheduler(value["scheduler"]).name.lower())
    if value["raster"] != Raster.HEURISTIC:
        words.append(_raster(value))
    if value["swizzle"] > 1:
        words.append(f"swizzle {value['swizzle']}")
    if value["decomposition"] in SPLIT_K_DECOMPOSITIONS:
        way = Decomposition(value["decomposition"]).name.lower().removeprefix("split_k").replace("_", " ")
        words.append(f"{value['splits']}{way} splits")
    elif value["decomposition"] != Decomposition.HEURISTIC:
        words.append(_decomposition(value))
    if value["swapped"]:
        words.append("swapped")
    return ", ".join(words)


def knobs(columns: Columns, row: int) -> dict[str, str]:
    """Return every knob of a candidate as text, by name."""
    value = _values(columns, row)
    return {
        "tile": _tile(value),
        "cluster": _cluster(value),
        "stages": str(value["stages"]),
        "schedule": _schedule(value),
        "epilogue": _epilogue(value),
        "scheduler": Scheduler(value["scheduler"]).name.lower(),
        "swap": "swapped" if value["swapped"] else "unswapped",
        "decomposition": _decomposition(value),
        "splits": str(value["splits"]),
        "raster": _raster(value),
        "swizzle": str(value["swizzle"]),
    }


def knob_differences(columns: Columns, first: int, second: int) -> dict[str, tuple[str, str]]:
    """Return the knobs in which two candidates differ: name -> (of the first, of the second)."""
    one, other = knobs(columns, first), knobs(columns, second)
    return {name: (one[name], other[name]) for name in one if one[name] != other[name]}


def _values(columns: Columns, row: int) -> dict[str, int]:
    return {name: int(columns[name][row]) for name in col.CANDIDATE_COLUMNS}


def _tile(value: dict[str, int]) -> str:
    return f"{value['tile_m']}x{value['tile_n']}x{value['tile_k']}"


def _cluster(value: dict[str, int]) -> str:
    return f"{value['cluster_m']}x{value['cluster_n']}"


def _schedule(value: dict[str, int]) -> str:
    return Schedule(value["schedule"]).name.lower()


def _epilogue(value: dict[str, int]) -> str:
    return Epilogue(value["epilogue"]).name.lower()


def _raster(value: dict[str, int]) -> str:
    return Raster(value["raster"]).name.lower().replace("_", " ")


def _decomposition(value: dict[str, int]) -> str:
    return Decomposition(value["decomposition"]).name.lower().replace("_", " ")
