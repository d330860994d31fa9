"""``cutlass_library`` procedural names, both ways; their form is in :mod:`.naming`."""

from __future__ import annotations

import re
from typing import Final

from .columns import Columns
from .errors import InvalidConfig
from .naming import EPILOGUES, SCHEDULERS, SCHEDULES, format_name
from .types import DTYPES, FAMILIES, DType, Epilogue, KernelConfig, Schedule, Scheduler

_PATTERN: Final = re.compile(
    r"cutlass3x_sm90_tensorop_gemm_(?P<a>\w+?)_(?P<b>\w+?)_f32_(?P<c>\w+?)_(?P<d>\w+?)"
    r"_(?P<tile>\d+x\d+x\d+)_(?P<cluster>\d+x\d+x1)_(?P<stages>\d+)_(?P<layout>[tn]{3})_align(?P<align>\d+)"
    r"(?P<scheduler>_stream_k)?(?P<schedule>_warpspecialized(?:_pingpong|_cooperative)?)(?P<epilogue>_epi_nosmem|_epi_tma(?:_n64)?)"
)


def procedural_name(config: KernelConfig) -> str:
    """Return the name that ``cutlass_library`` gives this kernel, as :attr:`KernelConfig.name` does."""
    return config.name


def names(columns: Columns, dtype: DType) -> list[str]:
    """Return the procedural name of every row."""
    keys = ("void_c", "tile_m", "tile_n", "tile_k", "cluster_m", "cluster_n", "stages", "family", "scheduler",
            "schedule", "epilogue")  # fmt: skip
    rows = zip(*(columns[key].tolist() for key in keys), strict=True)
    element, size = dtype.name, dtype.bytes
    return [
        format_name(element, size, void_c, (tm, tn, tk), (cm, cn), stages, FAMILIES[family], scheduler, schedule, end)
        for void_c, tm, tn, tk, cm, cn, stages, family, scheduler, schedule, end in rows
    ]


def parse_name(name: str) -> KernelConfig:
    """Return the config behind a procedural name.

    Raises
    ------
    InvalidConfig
        If the name is not that of an SM90 dense GEMM with one element type for A, B and D, float32 accumulation, an
        explicit stage count and explicit schedules.
    """
    match = _PATTERN.fullmatch(name) if isinstance(name, str) else None
    if match is None:
        raise InvalidConfig(
            f"{name!r} is not the procedural name of an SM90 dense GEMM with explicit schedules, such as "
            "cutlass3x_sm90_tensorop_gemm_bf16_bf16_f32_bf16_bf16_128x256x64_2x1x1_4_tnt_align8_warpspecialized_cooperative_epi_tma"
        )
    element = match["a"]
    if (
        element not in DTYPES
        or match["b"] != element
        or match["d"] not in (element, "f32")
        or match["c"] not in (element, "void")
    ):
        raise InvalidConfig(
            f"{name!r}: A, B and D must share one type out of {', '.join(DTYPES)}, and C that or void; "
            "D is f32 in kernels that split K"
        )
    dtype = DTYPES[element]
    tile_m, tile_n, tile_k = map(int, match["tile"].split("x"))
    cluster_m, cluster_n, _ = map(int, match["cluster"].split("x"))
    scheduler = Scheduler.SPLIT_K if match["d"] == "f32" else Scheduler(SCHEDULERS.index(match["scheduler"] or ""))
    config = KernelConfig(
        tile_m, tile_n, tile_k, cluster_m, cluster_n, int(match["stages"]),
        Schedule(SCHEDULES.index(match["schedule"])), Epilogue(EPILOGUES.index(match["epilogue"])),
        scheduler, match["layout"].upper(), match["c"] == "void", dtype,
    )  # fmt: skip
    if procedural_name(config) != name:
        raise InvalidConfig(f"{name!r} is not in canonical form; it would be {procedural_name(config)}")
    return config
