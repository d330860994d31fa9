"""Names as cutlass_library prints them.

The fixture was made with nvidia-cutlass 4.2.0.0 by
``python tests/generator/library_names.py > tests/generator/fixtures/cutlass_library_names.csv``.
"""

from __future__ import annotations

import sys
from dataclasses import astuple, fields

import numpy as np

from cutlass_ranker.generator import DTYPES, FAMILIES, Epilogue, KernelConfig, Schedule, Scheduler, enumerate_configs
from cutlass_ranker.generator import columns as col


def library_name(config: KernelConfig) -> str:
    """Ask cutlass_library for the procedural name of the same operation."""
    import cutlass_library as lib
    from cutlass_library.gemm_operation import GemmOperation

    layouts = {"T": lib.LayoutType.RowMajor, "N": lib.LayoutType.ColumnMajor}
    element = {"bf16": lib.DataType.bf16, "f16": lib.DataType.f16}[config.dtype.name]
    source = lib.DataType.void if config.void_c else element
    instruction = lib.MathInstruction(
        [0, 0, 0], element, element, lib.DataType.f32, lib.OpcodeClass.TensorOp, lib.MathOperation.multiply_add
    )
    tile = [config.tile_m, config.tile_n, config.tile_k]
    cluster = (config.cluster_m, config.cluster_n, 1)
    description = lib.TileDescription(tile, config.stages, [0, 0, 0], instruction, 90, 90, cluster_shape=cluster)
    a, b, d = (layouts[letter] for letter in config.family)
    schedules = (
        lib.KernelScheduleType.TmaWarpSpecialized,
        lib.KernelScheduleType.TmaWarpSpecializedPingpong,
        lib.KernelScheduleType.TmaWarpSpecializedCooperative,
    )
    cooperative = config.schedule is Schedule.COOPERATIVE
    kinds = lib.EpilogueScheduleType
    tma = kinds.TmaWarpSpecializedCooperative if cooperative else kinds.TmaWarpSpecialized
    persistent, stream_k = lib.TileSchedulerType.Persistent, lib.TileSchedulerType.StreamK
    result = lib.DataType.f32 if config.scheduler is Scheduler.SPLIT_K else element
    operation = GemmOperation(
        lib.GemmKind.Universal3x, 90, description,
        lib.TensorDescription(element, a, 8), lib.TensorDescription(element, b, 8), lib.TensorDescription(source, d, 8),
        lib.DataType.f32, kernel_schedule=schedules[config.schedule],
        epilogue_schedule=(kinds.NoSmemWarpSpecialized, tma, tma)[config.epilogue],
        tile_scheduler=(persistent, stream_k, persistent)[config.scheduler],
        D=lib.TensorDescription(result, d, 8),
    )  # fmt: skip
    own = "_n64" if config.epilogue is Epilogue.TMA_64 else ""  # the library has no epilogue tiles of 64 columns
    return str(operation.procedural_name()) + own


if __name__ == "__main__":
    keys = [field.name for field in fields(KernelConfig)]
    sys.stdout.write(",".join([*keys, "name"]) + "\n")
    random = np.random.default_rng(0)
    for family in FAMILIES:
        columns = enumerate_configs(family, space="extended")
        for row in random.choice(col.size(columns), 20, replace=False).tolist():
            config = col.config_at(columns, row, DTYPES["bf16" if row % 4 else "f16"])
            values = [int(value) if not isinstance(value, str) else value for value in astuple(config)[:-1]]
            sys.stdout.write(",".join(map(str, [*values, config.dtype.name, library_name(config)])) + "\n")
