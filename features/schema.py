"""What a feature is: name, unit, group and source."""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

Group = Literal["structural", "work", "memory", "resources", "pipeline", "time"]

PAPER: Final = "arXiv 2609.35587, Table 6"
SCHEDULER: Final = "CUTLASS 4.2 tile_scheduler_params.h"
KERNEL: Final = "CUTLASS 4.2 sm90_gemm_tma_warpspecialized*.hpp"
OWN: Final = "derived here"


class Feature(NamedTuple):
    """One column of the feature matrix."""

    name: str
    """Column name; ``log2_x`` is the base-2 logarithm of x, ``field=level`` a 0/1 column."""
    unit: str
    """Unit of the value (of x for ``log2_x``)."""
    group: Group
    """Group of features it belongs to."""
    source: str
    """Formula and where it comes from."""
