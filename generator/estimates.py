"""Static estimates of a kernel, vectorised over columns. Each is computed here and nowhere else.

Sources: the collective builders and kernel layers of CUTLASS 4.2 (``sm90_builder.inl``,
``sm90_gemm_tma_warpspecialized*.hpp``) and arXiv 2609.35587, Table 2.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .columns import Columns
from .types import FAMILIES, SWIZZLES, DType, Epilogue, Problem, Raster, Schedule, Scheduler

WARPGROUP_THREADS: Final = 128
SHARED_MEMORY_LIMIT: Final = 232448
"""Bytes of shared memory one CTA can have on SM90 (227 KiB)."""
SHARED_MEMORY_RESERVE: Final = 2048
"""Bytes the paper keeps free for barriers and alignment when it judges validity."""
BARRIER_BYTES: Final = 8
ACCUMULATOR_BYTES: Final = 4
"""Bytes of a partial sum, which is float32."""

IntArray = NDArray[np.int32]
FloatArray = NDArray[np.float64]
_CONSUMER_WARPGROUPS: Final[IntArray] = np.array([1, 2, 2], dtype=np.int32)
D_ROW_MAJOR: Final = np.array([family[2] == "T" for family in FAMILIES])
"""True for the families, by code, with a row-major D."""
EPILOGUE_COLUMNS: Final = 64
"""Columns of the epilogue tile of ``Epilogue.TMA_64``."""
_SWIZZLES: Final = np.array(SWIZZLES, dtype=np.float64)
_SWIZZLE_TILES: Final = np.array([2, 3, 6])
"""Tiles that the smaller side of the grid needs for a swizzle of 2, 4 and 8."""


def consumer_warpgroups(columns: Columns) -> IntArray:
    """Warpgroups that run MMAs per CTA: 1 for plain warpspecialized, 2 for pingpong (a tile each) and cooperative."""
    return np.take(_CONSUMER_WARPGROUPS, columns["schedule"])


def threads_per_cta(columns: Columns) -> IntArray:
    """Threads per CTA: one producer warpgroup and the consumer warpgroups."""
    return (consumer_warpgroups(columns) + 1) * WARPGROUP_THREADS


def accumulator_registers(columns: Columns) -> IntArray:
    """Float32 accumulator registers per consumer thread; cooperative splits one tile over two warpgroups."""
    threads = WARPGROUP_THREADS * np.where(columns["schedule"] == int(Schedule.COOPERATIVE), 2, 1)
    return np.asarray(columns["tile_m"] * columns["tile_n"] // threads, dtype=np.int32)


def stage_bytes(columns: Columns, dtype: DType) -> IntArray:
    """Bytes of one mainloop stage: an A tile and a B tile."""
    return (columns["tile_m"] + columns["tile_n"]) * columns["tile_k"] * dtype.bytes


def mainloop_bytes(columns: Columns, dtype: DType) -> IntArray:
    """Bytes of shared memory for the mainloop's operand tiles, all stages."""
    return columns["stages"] * stage_bytes(columns, dtype)


class _Staging(NamedTuple):
    """How a tile of D passes through shared memory in a TMA epilogue; int32 arrays of shape (rows,)."""

    rows: IntArray
    """Rows of the subtile that is moved at once (``EpilogueTileAuto``, or that of ``Epilogue.TMA_64``)."""
    width: IntArray
    """Columns of the subtile."""
    stages_c: IntArray
    """Stages of C that a source would have."""
    bytes: IntArray
    """Bytes of all buffers, each rounded up to 128; 0 for ``nosmem``."""


def _d_bytes(columns: Columns, dtype: DType) -> IntArray:
    """Bytes per element of D as the kernel stores it: slices of K are float32."""
    return np.where(columns["scheduler"] == int(Scheduler.SPLIT_K), ACCUMULATOR_BYTES, dtype.bytes).astype(np.int32)


def _staging(columns: Columns, dtype: DType) -> _Staging:
    """Work out subtile and stages of the epilogue."""
    tile_m, tile_n, void_c = columns["tile_m"], columns["tile_n"], columns["void_c"] == 1
    cooperative = columns["schedule"] == int(Schedule.COOPERATIVE)
    rows = np.minimum(np.where(cooperative, 128, 64), tile_m)
    width = np.gcd(np.where(~cooperative & (tile_n % 64 == 0), 64, 32) if dtype.bytes == 1 else 32, tile_n)
    width = np.where(columns["epilogue"] == int(Epilogue.TMA_64), EPILOGUE_COLUMNS, width)
    subtiles = -(-tile_m // rows) * -(-tile_n // width)
    stages_d = np.minimum(subtiles, 2)
    stages_c = np.minimum(subtiles, 4)
    if dtype.bytes > 1:
        # D reuses the buffers of C, which needs one more stage than D; without C the count is not raised.
        stages_c = np.where(void_c, stages_c, np.maximum(stages_c, stages_d + 1))
    with_source = stages_c if dtype.bytes > 1 else stages_c + stages_d
    buffers = np.where(columns["epilogue"] != int(Epilogue.NOSMEM), np.where(void_c, stages_d, with_source), 0)
    subtile = -(-rows * width * _d_bytes(columns, dtype) // 128) * 128
    return _Staging(*(values.astype(np.int32) for values in (rows, width, stages_c, subtile * buffers)))


def epilogue_bytes(columns: Columns, dtype: DType) -> IntArray:
    """Bytes of shared memory for the epilogue's staging buffers; 0 for ``nosmem``."""
    return _staging(columns, dtype).bytes


def tensor_bytes(columns: Columns, dtype: DType) -> IntArray:
    """Bytes of operand and staging buffers: a sum, but the larger of both for plain warpspecialized (a union)."""
    main, epilogue = mainloop_bytes(columns, dtype), epilogue_bytes(columns, dtype)
    union = columns["schedule"] == int(Schedule.WARPSPECIALIZED)
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


class Grid(NamedTuple):
    """The grid of tiles that a launch runs, and how it is walked through; arrays of shape (rows,)."""

    along_m: NDArray[np.bool_]
    """Tiles are rastered along M; never said of plain warpspecialized kernels, which have no persistent scheduler."""
    swizzle: FloatArray
    """Swizzle really used: 1, 2, 4 or 8."""
    padded_m: FloatArray
    """Tiles along M that run: rounded up to whole clusters times the swizzle."""
    padded_n: FloatArray


def launch_grid(columns: Columns, tiles_m: NDArray[np.number], tiles_n: NDArray[np.number]) -> Grid:
    """What CUTLASS makes of raster and swizzle on a grid of so many tiles, each array of shape (rows,).

    The scheduler lowers the swizzle when the smaller side has fewer than 2, 3 or 6 tiles, and its heuristic rasters
    along M when there are more tiles along N (``tile_scheduler_params.h``).
    """
    cluster_m, cluster_n = columns["cluster_m"], columns["cluster_n"]
    smaller = np.minimum(np.ceil(tiles_m / cluster_m) * cluster_m, np.ceil(tiles_n / cluster_n) * cluster_n)
    scheduled = columns["schedule"] != int(Schedule.WARPSPECIALIZED)
    most = _SWIZZLES[np.searchsorted(_SWIZZLE_TILES, smaller, side="right")]
    swizzle = np.where(scheduled, np.minimum(columns.get("swizzle", 1), most), 1.0)
    unit_m, unit_n = cluster_m * swizzle, cluster_n * swizzle
    padded_m, padded_n = np.ceil(tiles_m / unit_m) * unit_m, np.ceil(tiles_n / unit_n) * unit_n
    raster = columns.get("raster", int(Raster.HEURISTIC))
    along_m = np.where(raster == int(Raster.HEURISTIC), padded_n > padded_m, raster == int(Raster.ALONG_M))
    return Grid(along_m & scheduled, swizzle, padded_m, padded_n)


def effective_launch(columns: Columns, problem: Problem) -> tuple[NDArray[np.bool_], NDArray[np.int32]]:
    """Whether tiles are rastered along M, and log2 of the swizzle used, as :func:`launch_grid` has them."""
    grid = launch_grid(columns, *tile_counts(columns, problem))
    return grid.along_m, np.log2(grid.swizzle).astype(np.int32)


def shared_memory_bytes(columns: Columns, dtype: DType) -> IntArray:
    """Bytes of dynamic shared memory the kernel asks for: ``sizeof(SharedStorage)`` of its kernel layer, exactly.

    Besides the tensors (:func:`tensor_bytes`) it holds two 8-byte barriers per mainloop stage and per stage of C, the
    ordering barriers of its warpgroups, and padding to the alignment of the epilogue's swizzle. Columns that have been
    through :func:`with_shared_memory` know the answer.
    """
    if "shared_memory" in columns:
        return columns["shared_memory"]
    schedule, tma = columns["schedule"], columns["epilogue"] != int(Epilogue.NOSMEM)
    staging = _staging(columns, dtype)
    line = np.where(D_ROW_MAJOR[columns["family"]], staging.width, staging.rows) * _d_bytes(columns, dtype)
    # A shared-memory swizzle of 2^i x 16-byte lines needs 8 lines of alignment: 32 -> 256, 64 -> 512, 128 -> 1024.
    unit = np.where(tma, np.clip(line & -line, 16, 128) * 8, 128)
    pair = 2 * BARRIER_BYTES
    pipelines = pair * (columns["stages"] + np.where(tma, staging.stages_c, 1))
    # Load order and scheduler storage, and for pingpong the order of the two math warpgroups (2 x 2 barriers).
    ordering = np.array([0, 2 * pair + 2 * pair, 2 * pair], dtype=np.int32)[schedule]
    head = ceil_div(pipelines + ordering, unit) * unit
    # The epilogue's (empty) fusion storage is padded to the same alignment.
    epilogue = staging.bytes + unit
    main = mainloop_bytes(columns, dtype)
    tensors = np.where(schedule == int(Schedule.WARPSPECIALIZED), np.maximum(main, epilogue), main + epilogue)
    return (ceil_div(head + tensors, unit) * unit).astype(np.int32)


def with_shared_memory(columns: Columns, dtype: DType) -> Columns:
    """Note the shared memory of kernels that are ranked time and again, which takes long to compute, in a column."""
    return {**columns, "shared_memory": shared_memory_bytes(columns, dtype)}
