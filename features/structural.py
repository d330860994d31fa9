"""Structural features: the problem, the configuration and the launch as they are stated.

After the structural set of arXiv 2609.35587 (nine numbers, five categories), with the layout of D, the source matrix,
the launch and the swap added.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from ..generator import FAMILIES, Decomposition, Epilogue, Raster, Schedule, Scheduler
from .decomposition import SPLITS_K
from .schema import OWN, Feature
from .terms import Terms, Value

_PAPER: Final = "arXiv 2609.35587, structural set"
_COLUMN_MAJOR: Final = np.array([[letter == "N" for letter in family] for family in FAMILIES]).T

_SIZES: Final = ("tile_m", "tile_n", "tile_k", "cluster_m", "cluster_n")
_CATEGORIES: Final = tuple(
    (f"{column}={level.name.lower()}", column, int(level), source)
    for column, levels, source in (
        ("schedule", (Schedule.WARPSPECIALIZED, Schedule.PINGPONG, Schedule.COOPERATIVE), _PAPER),
        ("epilogue", (Epilogue.TMA,), _PAPER),
        ("epilogue", (Epilogue.TMA_64,), OWN),
        ("scheduler", (Scheduler.STREAM_K,), _PAPER),
        ("scheduler", (Scheduler.SPLIT_K,), OWN),
        ("raster", (Raster.ALONG_M, Raster.ALONG_N), OWN),
        ("decomposition", (Decomposition.DATA_PARALLEL, Decomposition.SPLIT_K, Decomposition.STREAM_K), OWN),
    )
    for level in levels
)
"""Name, column, level and source of each 0/1 column; levels that are left out are those with all of them 0."""

FEATURES: Final = (
    Feature("log2_m", "elements", "structural", f"M as the kernel sees it, N if swapped; {_PAPER}"),
    Feature("log2_n", "elements", "structural", f"N as the kernel sees it, M if swapped; {_PAPER}"),
    Feature("log2_k", "elements", "structural", f"K; {_PAPER}"),
    *(
        Feature(f"log2_{name}", "elements" if name.startswith("tile") else "CTAs", "structural", f"{name}; {_PAPER}")
        for name in _SIZES
    ),
    Feature("log2_max_swizzle", "clusters", "structural", f"max_swizzle_size asked for; {OWN}"),
    Feature("log2_splits", "slices", "structural", f"splits asked for; {OWN}"),
    Feature("stages", "stages", "structural", f"mainloop pipeline stages; {_PAPER}"),
    *(
        Feature(name, "0/1", "structural", f"{column} is {name.split('=')[1]}; {source}")
        for name, column, _, source in _CATEGORIES
    ),
    Feature("layout_a=n", "0/1", "structural", f"the kernel's A is column-major; {_PAPER}"),
    Feature("layout_b=n", "0/1", "structural", f"the kernel's B is column-major; {_PAPER}"),
    Feature("layout_d=n", "0/1", "structural", f"the kernel's D is column-major; {OWN}"),
    Feature("void_c", "0/1", "structural", f"compiled without a source matrix; {OWN}"),
    Feature("swapped", "0/1", "structural", f"the kernel runs the transposed problem; {OWN}"),
)


def compute(terms: Terms) -> dict[str, Value]:
    """Compute the structural features of :data:`FEATURES`."""
    columns = terms.columns
    values: dict[str, Value] = {
        "log2_m": terms.m,
        "log2_n": terms.n,
        "log2_k": float(terms.problem.k),
        "log2_max_swizzle": columns.get("swizzle", 1.0),
        "log2_splits": columns.get("splits", 1.0),
        "stages": terms.stages,
        "void_c": columns["void_c"],
        "swapped": terms.swapped,
    }
    for name in _SIZES:
        values[f"log2_{name}"] = columns[name]
    for name, column, level, _ in _CATEGORIES:
        values[name] = columns[column] == level if column in columns else 0.0
    if "decomposition" in columns:  # whichever way partial sums are added
        values["decomposition=split_k"] = SPLITS_K[columns["decomposition"]]
    for side, column_major in zip("abd", _COLUMN_MAJOR, strict=True):
        values[f"layout_{side}=n"] = column_major[columns["family"]]
    return values
