"""Static estimates of a kernel, vectorised over columns. Each is computed here and nowhere else.

Sources: the collective builders and kernel layers of CUTLASS 4.2 (``sm90_builder.inl``,
``sm90_gemm_tma_warpspecialized*.hpp``) and arXiv 2609.35587, Table 2.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from .columns import Columns
from .types import FAMILIES, DType, Epilogue, Problem, Raster, Schedule

WARPGROUP_THREADS: Final = 128
SHARED_MEMORY_LIMIT: Final = 232448
"""Bytes of shared memory one CTA can have on SM90 (227 KiB)."""
SHARED_MEMORY_RESERVE: Final = 2048
"""Bytes the paper keeps free for barriers and alignment when it judges validity."""
BARRIER_BYTES: Final = 8

IntArray = NDArray[np.int32]
_CONSUMER_WARPGROUPS: Final[IntArray] = np.array([1, 2, 2], dtype=np.int32)


def consumer_warpgroups(columns: Columns) -> IntArray:
    """Warpgroups that run MMAs per CTA: 1 for plain warpspecialized, 2 for pingpong (a tile each) and cooperative."""
    return np.take(_CONSUMER_WARPGROUPS, columns["schedule"])


def threads_per_cta(columns: Columns) -> IntArray:
    """Threads per CTA: one producer warpgroup and the consumer warpgroups."""
    return (consumer_warpgroups(columns) + 1) * WARPGROUP_THREADS


def accumulator_registers(columns: Columns) -> IntArray:
    """Float32 accumulator registers per consumer thread; cooperative splits one tile over two warpgroups."""
    threads = WARPGROUP_THREADS * np.where(columns["schedule"] == Schedule.COOPERATIVE, 2, 1)
    return np.asarray(columns["tile_m"] * columns["tile_n"] // threads, dtype=np.int32)


def stage_bytes(columns: Columns, dtype: DType) -> IntArray:
    """Bytes of one mainloop stage: an A tile and a B tile."""
    return (columns["tile_m"] + columns["tile_n"]) * columns["tile_k"] * dtype.bytes


def mainloop_bytes(columns: Columns, dtype: DType) -> IntArray:
    """Bytes of shared memory for the mainloop's operand tiles, all stages."""
    return columns["stages"] * stage_bytes(columns, dtype)


def epilogue_tile(columns: Columns, dtype: DType) -> tuple[IntArray, IntArray]:
    """Rows and columns of the subtile that a TMA epilogue moves at once (``EpilogueTileAuto``)."""
    cooperative = columns["schedule"] == Schedule.COOPERATIVE
    rows = np.minimum(np.where(cooperative, 128, 64), columns["tile_m"])
    width = np.where(~cooperative & (columns["tile_n"] % 64 == 0), 64, 32) if dtype.bytes == 1 else 32
    return rows.astype(np.int32), np.gcd(width, columns["tile_n"]).astype(np.int32)


def _epilogue_stages(columns: Columns, dtype: DType) -> tuple[IntArray, IntArray, IntArray]:
    """Subtile bytes (rounded up to 128), stages of C that a source would have, stages of D, of a TMA epilogue."""
    rows, width = epilogue_tile(columns, dtype)
    subtiles = -(-columns["tile_m"] // rows) * -(-columns["tile_n"] // width)
    stages_d = np.minimum(subtiles, 2)
    stages_c = np.minimum(subtiles, 4)
    if dtype.bytes > 1:
        # D reuses the buffers of C, which needs one more stage than D; without C the count is not raised.
        stages_c = np.where(columns["void_c"] == 1, stages_c, np.maximum(stages_c, stages_d + 1))
    subtile = -(-rows * width * dtype.bytes // 128) * 128
    return subtile.astype(np.int32), stages_c.astype(np.int32), stages_d.astype(np.int32)


def epilogue_bytes(columns: Columns, dtype: DType) -> IntArray:
    """Bytes of shared memory for the epilogue's staging buffers; 0 for ``nosmem``."""
    subtile, stages_c, stages_d = _epilogue_stages(columns, dtype)
    with_source = stages_c if dtype.bytes > 1 else stages_c + stages_d
    buffers = np.where(columns["void_c"] == 1, stages_d, with_source)
    return np.where(columns["epilogue"] == Epilogue.TMA, subtile * buffers, 0).astype(np.int32)


def tensor_bytes(columns: Columns, dtype: DType) -> IntArray:
    """Bytes of operand and staging buffers: a sum, but the larger of both for plain warpspecialized (a union)."""
    main, epilogue = mainloop_bytes(columns, dtype), epilogue_bytes(columns, dtype)
    union = columns["schedule"] == Schedule.WARPSPECIALIZED
    return np.where(union, np.maximum(main, epilogue), main + epilogue)


def ceil_div(a: NDArray[np.integer] | int, b: NDArray[np.integer] | int) -> NDArray[np.int64]:
    """Integer division rounded up, in 64 bits."""
    return -(-np.asarray(a, dtype=np.int64) // np.asarray(b, dtype=np.int64))


def effective_sizes(columns: Columns, problem: Problem) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """M and N as each row's kernel sees them: exchanged where the candidate is swapped."""
    if "swapped" not in columns:
        rows = len(columns["tile_m"])
        return np.full(rows, problem.m, dtype=np.int64), np.full(rows, problem.n, dtype=np.int64)
    swapped = columns["swapped"] == 1
    return np.where(swapped, problem.n, problem.m), np.where(swapped, problem.m, problem.n)


def tile_counts(columns: Columns, problem: Problem) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """CTA tiles along M and N, rounded up to whole clusters as the tile schedulers do."""
    m, n = effective_sizes(columns, problem)
    cluster_m, cluster_n = columns["cluster_m"], columns["cluster_n"]
    tiles_m = ceil_div(ceil_div(m, columns["tile_m"]), cluster_m) * cluster_m
    tiles_n = ceil_div(ceil_div(n, columns["tile_n"]), cluster_n) * cluster_n
    return tiles_m, tiles_n


def effective_launch(columns: Columns, problem: Problem) -> tuple[NDArray[np.bool_], NDArray[np.int32]]:
    """What CUTLASS makes of raster and swizzle: whether tiles are rastered along M, and log2 of the swizzle used.

    The scheduler lowers the swizzle when the smaller side has fewer than 2, 3 or 6 tiles, and its heuristic rasters
    along M when there are more tiles along N (``tile_scheduler_params.h``). Plain warpspecialized kernels, which have
    no persistent scheduler, always read as along N, swizzle 1.
    """
    tiles_m, tiles_n = tile_counts(columns, problem)
    rows = len(tiles_m)
    wanted = columns.get("swizzle", np.ones(rows, dtype=np.int32))
    raster = columns.get("raster", np.zeros(rows, dtype=np.int32))
    smaller = np.minimum(tiles_m, tiles_n)
    log_swizzle = np.select(
        [(wanted >= 8) & (smaller >= 6), (wanted >= 4) & (smaller >= 3), (wanted >= 2) & (smaller >= 2)], [3, 2, 1], 0
    )
    unit_m, unit_n = columns["cluster_m"] << log_swizzle, columns["cluster_n"] << log_swizzle
    padded_m, padded_n = ceil_div(tiles_m, unit_m) * unit_m, ceil_div(tiles_n, unit_n) * unit_n
    along_m = np.where(raster == Raster.HEURISTIC, padded_n > padded_m, raster == Raster.ALONG_M)
    scheduled = columns["schedule"] != Schedule.WARPSPECIALIZED
    return along_m & scheduled, np.where(scheduled, log_swizzle, 0).astype(np.int32)


def shared_memory_bytes(columns: Columns, dtype: DType) -> IntArray:
    """Bytes of dynamic shared memory the kernel asks for: ``sizeof(SharedStorage)`` of its kernel layer, exactly.

    Besides the tensors (:func:`tensor_bytes`) it holds two 8-byte barriers per mainloop stage and per stage of C, the
    ordering barriers of its warpgroups, and padding to the alignment of the epilogue's swizzle.
    """
    schedule, tma = columns["schedule"], columns["epilogue"] == Epilogue.TMA
    subtile_rows, subtile_columns = epilogue_tile(columns, dtype)
    d_row_major = np.array([family[2] == "T" for family in FAMILIES])[columns["family"]]
    line = np.where(d_row_major, subtile_columns, subtile_rows) * dtype.bytes
    # A shared-memory swizzle of 2^i x 16-byte lines needs 8 lines of alignment: 32 -> 256, 64 -> 512, 128 -> 1024.
    unit = np.where(tma, np.clip(line & -line, 16, 128) * 8, 128)
    _, stages_c, _ = _epilogue_stages(columns, dtype)
    pair = 2 * BARRIER_BYTES
    pipelines = pair * (columns["stages"] + np.where(tma, stages_c, 1))
    # Load order and scheduler storage, and for pingpong the order of the two math warpgroups (2 x 2 barriers).
    ordering = np.array([0, 2 * pair + 2 * pair, 2 * pair], dtype=np.int32)[schedule]
    head = ceil_div(pipelines + ordering, unit) * unit
    # The epilogue's (empty) fusion storage is padded to the same alignment.
    epilogue = epilogue_bytes(columns, dtype) + unit
    main = mainloop_bytes(columns, dtype)
    tensors = np.where(schedule == Schedule.WARPSPECIALIZED, np.maximum(main, epilogue), main + epilogue)
    return (ceil_div(head + tensors, unit) * unit).astype(np.int32)
