"""Ask NVIDIA's nvMatmulHeuristics (nvMMH, optional extra ``baselines``) which kernels it would take.

nvMMH names tile, cluster, stages, split-K, swizzle and raster order, never the mainloop schedule, so one answer stands
for all schedule variants of a kernel: :func:`schedule_variants` lists them.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any, Final

import numpy as np
import pandas as pd

from ..generator import columns as col
from ..generator.columns import Columns
from ..generator.errors import MissingDependency
from ..generator.estimates import effective_launch
from ..generator.rules import valid_mask
from ..generator.space import SCHEDULES
from ..generator.types import FAMILIES, Decomposition, Problem, Raster, Scheduler

PICK_COLUMNS: Final = (
    "M", "N", "K", "layout", "rank", "tile_m", "tile_n", "tile_k", "cluster_m", "cluster_n", "stages", "splits",
    "swizzle", "raster", "predicted_us",
)  # fmt: skip

_PRECISION: Final = {"bf16": "TST", "f16": "HSH"}


def query(problems: pd.DataFrame, top: int = 8, dtype: str = "bf16", gpu: str = "H200_SXM") -> pd.DataFrame:
    """Ask nvMMH for its picks on problems as they are, in their own layout.

    A problem with a column-major D is put to it as such (``NN_COL_MAJOR`` ...), the way ``cutlass_library`` does; its
    picks are then kernels of that family, not swapped. For 2-byte types the layout does not change its answer.

    Parameters
    ----------
    problems
        Columns M, N, K (elements) and layout.
    top
        Picks to ask for. Rank 0 is its answer to a request for a single kernel, which is what CUTLASS's own tool takes;
        the others follow in nvMMH's order, which is not the order of predicted time.
    dtype
        ``"bf16"`` or ``"f16"``; ignored by nvMMH as far as the picks go but part of its query.
    gpu
        Name in ``NvMatmulHeuristicsNvidiaGpu``.

    Returns
    -------
    pandas.DataFrame
        ``PICK_COLUMNS``; ``stages`` is 0 where nvMMH leaves the count open, ``raster`` a :class:`Raster` value,
        ``predicted_us`` microseconds.

    Raises
    ------
    MissingDependency
        If nvMatmulHeuristics is not installed.
    """
    try:
        nvmmh: Any = import_module("nvMatmulHeuristics")
    except ImportError as error:
        raise MissingDependency("nvMMH is not installed: pip install 'cutlass-ranker[baselines]'") from error

    # The plain interface class crashes when its handle is destroyed; the Ex class does not.
    handle = nvmmh.NvMatmulHeuristicsInterfaceEx(
        nvmmh.NvMatmulHeuristicsTarget.CUTLASS3,
        flags=nvmmh.NvMatmulHeuristicsFlags.PERF_MODEL_BASED_AUTO_TUNING,
        gpu=nvmmh.NvMatmulHeuristicsNvidiaGpu[gpu],
    )
    rows: list[tuple[Any, ...]] = []
    for m, n, k, layout in problems[["M", "N", "K", "layout"]].itertuples(index=False):
        asked = nvmmh.NvMatmulHeuristicsMatmulLayout[f"{layout[:2]}_{'ROW' if layout[2] == 'T' else 'COL'}_MAJOR"]
        problem = handle.makeNvMatmulHeuristicsProblem(int(m), int(n), int(k), asked, 1)
        picks: dict[tuple[int, ...], float] = {}
        for count in sorted({1, top}):
            for answer in handle.get(problem, count, precision=_PRECISION[dtype]):
                kernel = answer["kernel"]
                pick = (
                    kernel.cta_tile_m, kernel.cta_tile_n, kernel.cta_tile_k, kernel.cluster_m, kernel.cluster_n,
                    kernel.stages, kernel.split_k, kernel.swizzle_factor, _raster(kernel.cta_order),
                )  # fmt: skip
                picks.setdefault(pick, answer["runtime"] * 1e6)
        rows += [(m, n, k, layout, rank, *pick, us) for rank, (pick, us) in enumerate(picks.items())]
    return pd.DataFrame(rows, columns=list(PICK_COLUMNS))


def _raster(cta_order: int) -> int:
    """Translate nvMMH's ``ctaOrder`` the way ``cutlass_library`` does: 0 is along M, 1 along N."""
    return int(Raster.ALONG_M if cta_order == 0 else Raster.ALONG_N)


def schedule_variants(picks: pd.DataFrame, family: str = "TNT") -> Columns:
    """Expand picks into every schedule variant, each with the pick's launch.

    A pick with split-K has Stream-K variants only. Validity (shared memory, cooperative tiles) is not judged here;
    ``stages`` 0 stays 0.

    Parameters
    ----------
    picks
        Rows with the tile, cluster, stages, splits, swizzle and raster columns of :func:`query`.
    family
        Kernel family of the result.

    Returns
    -------
    Columns
        ``CANDIDATE_COLUMNS`` plus ``row``, the position in ``picks`` that each variant comes from.
    """
    parts: list[Columns] = []
    for schedule, epilogue, scheduler in SCHEDULES:
        rows = np.arange(len(picks))
        if scheduler is not Scheduler.STREAM_K:
            rows = rows[(picks["splits"] == 1).to_numpy()]
        chosen = picks.iloc[rows]
        part = {name: chosen[name].to_numpy(dtype=np.int32) for name in _PICKED}
        fixed = {
            "schedule": schedule, "epilogue": epilogue, "scheduler": scheduler, "family": FAMILIES.index(family),
            "void_c": 0, "swapped": 0,
        }  # fmt: skip
        part |= {name: np.full(len(rows), value, dtype=np.int32) for name, value in fixed.items()}
        split = part["splits"] > 1
        part["decomposition"] = np.where(split, Decomposition.SPLIT_K, Decomposition.HEURISTIC).astype(np.int32)
        part["row"] = rows.astype(np.int32)
        parts.append(part)
    result = col.concat(parts)
    return col.take(result, np.argsort(result["row"], kind="stable"))


_PICKED: Final = (
    "tile_m", "tile_n", "tile_k", "cluster_m", "cluster_n", "stages", "splits", "swizzle", "raster",
)  # fmt: skip


def first_pick_variants(picks: pd.DataFrame, problem: Problem) -> Columns:
    """Return the valid schedule variants of a problem's first pick, as candidates.

    A variant that CUTLASS runs just as it would with the default raster and swizzle is given those.

    Parameters
    ----------
    picks
        Picks of this problem: rank and the columns that :func:`schedule_variants` takes.
    problem
        The problem; the variants are of its family and not swapped.

    Returns
    -------
    Columns
        ``CANDIDATE_COLUMNS``.
    """
    variants = schedule_variants(picks[picks["rank"] == 0], problem.layout)
    variants = {name: variants[name] for name in col.CANDIDATE_COLUMNS}
    variants = col.take(variants, valid_mask(variants, problem.dtype))
    default = col.with_launch(variants, swapped=variants["swapped"])
    along_m, log_swizzle = effective_launch(variants, problem)
    default_along_m, default_log_swizzle = effective_launch(default, problem)
    same = (along_m == default_along_m) & (log_swizzle == default_log_swizzle)
    plain = {name: np.where(same, default[name], variants[name]).astype(np.int32) for name in ("raster", "swizzle")}
    return variants | plain
