"""C++ emission: one candidate as a self-contained program, and many kernels as one translation unit."""

from __future__ import annotations

import re
from collections.abc import Sequence
from importlib.resources import files
from importlib.resources.abc import Traversable
from string import Template
from typing import Final

from .errors import InvalidConfig
from .estimates import EPILOGUE_COLUMNS
from .rules import check
from .types import Candidate, Decomposition, Epilogue, KernelConfig, Problem, Raster, Schedule, Scheduler

_LAYOUTS: Final = {"T": "cutlass::layout::RowMajor", "N": "cutlass::layout::ColumnMajor"}
_SCHEDULES: Final = {
    Schedule.WARPSPECIALIZED: "cutlass::gemm::KernelTmaWarpSpecialized",
    Schedule.PINGPONG: "cutlass::gemm::KernelTmaWarpSpecializedPingpong",
    Schedule.COOPERATIVE: "cutlass::gemm::KernelTmaWarpSpecializedCooperative",
}
_SCHEDULERS: Final = {
    Scheduler.PERSISTENT: "cutlass::gemm::PersistentScheduler",
    Scheduler.STREAM_K: "cutlass::gemm::StreamKScheduler",
    Scheduler.SPLIT_K: "cutlass::gemm::PersistentScheduler",
}
_PARALLEL_SPLIT_K: Final = "cutlass_ranker::ParallelSplitKScheduler"
"""Stream-K scheduler of ``split_k_parallel.h``, which also knows the decompositions of ``_OWN_HEADERS``."""
_UNIT_SCHEDULERS: Final = {
    Scheduler.PERSISTENT: "sm90::Persistent",
    Scheduler.STREAM_K: "sm90::StreamK",
    Scheduler.SPLIT_K: "sm90::SplitK",
}
"""Their names in the runner's ``unit.h``."""
_OWN_HEADERS: Final = {
    Decomposition.SPLIT_K_PARALLEL: ("split_k_parallel.h",),
    Decomposition.SPLIT_K_SEPARATE: ("split_k_parallel.h", "split_k_sum.h", "split_k_reduction.h"),
}
_SLICE_HEADERS: Final = ("split_k_sum.h", "split_k_slices.h")
_EXTENDED_MMA_SHAPES: Final = "#define CUTE_SM90_EXTENDED_MMA_SHAPES_ENABLED\n"
_USUAL_MMA_N: Final = (8, 16, 32, 64, 96, 128, 192, 256)
"""tile_n for which CUTLASS 4.2 takes a WGMMA of N = tile_n without ``_EXTENDED_MMA_SHAPES``; a tile of any other width
would be built from WGMMAs of N = 8, 16 or 32, at up to twice the time (``cute/arch/mma_sm90.hpp``)."""
_REDUCTION: Final = """
  if (status == cutlass::Status::kSuccess &&
      cutlass_ranker::launch_reduction<GemmKernel>(arguments, kernel.params().scheduler, stream) != cudaSuccess) {
    status = cutlass::Status::kErrorInternal;
  }"""
"""The launch of the second kernel of ``SPLIT_K_SEPARATE`` with a Stream-K kernel."""
_SLICE_BYTES: Final = "cutlass_ranker::slice_bytes(m, n, kSplits)"
_SUM: Final = """
  auto const* slices = static_cast<float const*>(workspace);
  if (status == cutlass::Status::kSuccess &&
      cutlass_ranker::launch_sum_slices(slices, d, m, n, kSplits, stream) != cudaSuccess) {
    status = cutlass::Status::kErrorInternal;
  }"""
"""The same with slices of K."""
_RASTERS: Final = {Raster.HEURISTIC: "Heuristic", Raster.ALONG_M: "AlongM", Raster.ALONG_N: "AlongN"}
_DECOMPOSITIONS: Final = {
    Decomposition.HEURISTIC: "Heuristic",
    Decomposition.DATA_PARALLEL: "DataParallel",
    Decomposition.SPLIT_K: "SplitK",
    Decomposition.STREAM_K: "StreamK",
    Decomposition.SPLIT_K_ATOMIC: "SplitK",
    Decomposition.SPLIT_K_PARALLEL: "SplitK",
    Decomposition.SPLIT_K_SEPARATE: "SplitK",
}


def _epilogue(config: KernelConfig) -> str:
    if config.epilogue is Epilogue.NOSMEM:
        return "cutlass::epilogue::NoSmemWarpSpecialized"
    suffix = "Cooperative" if config.schedule is Schedule.COOPERATIVE else ""
    return f"cutlass::epilogue::TmaWarpSpecialized{suffix}"


def _epilogue_tile(config: KernelConfig) -> str:
    """C++ type of the epilogue tile."""
    if config.epilogue is not Epilogue.TMA_64:
        return "cutlass::epilogue::collective::EpilogueTileAuto"
    rows = 128 if config.schedule is Schedule.COOPERATIVE else 64
    return f"cute::Shape<cute::_{rows}, cute::_{EPILOGUE_COLUMNS}>"


def _defines(configs: Sequence[KernelConfig]) -> str:
    """Macros to define before CUTLASS is included; none where none is needed, as the larger headers cost seconds."""
    return "" if all(config.tile_n in _USUAL_MMA_N for config in configs) else _EXTENDED_MMA_SHAPES


def _require_valid(config: KernelConfig) -> None:
    broken = check(config)
    if broken:
        raise InvalidConfig(f"{config.name} cannot be compiled: " + "; ".join(v.message for v in broken))


def _support(templates: Traversable, headers: Sequence[str]) -> str:
    """Text of this project's headers, without what only a file of its own needs."""
    text = "\n".join((templates / name).read_text() for name in headers)
    return re.sub(r"#pragma once\n|#include \"split_k_\w+\.h\"\n", "", text) + "\n"


def emit_source(candidate: Candidate | KernelConfig, problem: Problem | None = None) -> str:
    """Return a self-contained CUDA C++ program for one candidate.

    It needs only the CUTLASS 4.2 headers; what else parallel split-K takes is part of the text. It offers
    ``gemm(m, n, k, A, B, D, workspace, workspace_bytes, stream, flags)`` on device pointers in the caller's layout
    (operands are exchanged inside if the candidate is swapped), and a ``main`` that runs the problem, checks it against
    a float32 reference on the device and prints the time.

    Parameters
    ----------
    candidate
        The candidate, or a bare config with the default launch.
    problem
        Sizes that ``main`` uses without arguments; 1024 x 1024 x 1024 in the candidate's layout if not given.

    Raises
    ------
    InvalidConfig
        If the configuration is not a valid kernel.
    """
    candidate = Candidate(candidate) if isinstance(candidate, KernelConfig) else candidate
    config, launch = candidate.config, candidate.launch
    _require_valid(config)
    m, n, k = (problem.m, problem.n, problem.k) if problem is not None else (1024, 1024, 1024)
    layout_a, layout_b, layout_d = (_LAYOUTS[letter] for letter in config.family)
    raster = f"cutlass::gemm::kernel::detail::RasterOrderOptions::{_RASTERS[launch.raster]}"
    scheduling = [
        f"arguments.scheduler.max_swizzle_size = {launch.swizzle};",
        f"arguments.scheduler.raster_order = {raster};",
    ]
    scheduler, support, reduction = _SCHEDULERS[config.scheduler], "", ""
    slices = config.scheduler is Scheduler.SPLIT_K
    templates = files(__package__) / "templates"
    if slices:
        if launch.decomposition is not Decomposition.SPLIT_K_SEPARATE:
            raise InvalidConfig(f"{config.name} splits K: its launches are those with SPLIT_K_SEPARATE, not {launch}")
        scheduling.append("cutlass_ranker::slice_k(arguments, kSplits, reinterpret_cast<float*>(d));")
        support, reduction = f"{_support(templates, _SLICE_HEADERS)}constexpr int kSplits = {launch.splits};\n\n", _SUM
    if config.scheduler is Scheduler.STREAM_K:
        mode = _DECOMPOSITIONS[launch.decomposition]
        order = "Deterministic" if launch.deterministic else "Nondeterministic"
        scheduling += [
            f"arguments.scheduler.splits = {launch.splits};",
            "arguments.scheduler.decomposition_mode =",
            f"    cutlass::gemm::kernel::detail::PersistentTileSchedulerSm90StreamKParams::DecompositionMode::{mode};",
            f"arguments.scheduler.reduction_mode = cutlass::gemm::kernel::detail::ReductionMode::{order};",
        ]
        if launch.decomposition in _OWN_HEADERS:
            scheduling += ["arguments.scheduler.parallel_reduction = true;", "arguments.scheduler.flags = flags;"]
            scheduler = _PARALLEL_SPLIT_K
            support = _support(templates, _OWN_HEADERS[launch.decomposition])
        if launch.decomposition is Decomposition.SPLIT_K_SEPARATE:
            scheduling.append("arguments.scheduler.separate_reduction = true;")
            reduction = _REDUCTION
    template = Template((templates / "gemm.cu.in").read_text())
    return template.substitute(
        name=config.name,
        defines=_defines([config]),
        swapped="true" if candidate.swapped else "false",
        element=config.dtype.cpp,
        result="float" if slices else "Element", result_alignment="4" if slices else "kAlignment",
        set_d="" if slices else "  arguments.epilogue.ptr_D = d;\n",
        workspace=f" + {_SLICE_BYTES}" if slices else "", no_flags=f" - {_SLICE_BYTES}" if slices else "",
        d_argument="static_cast<Element*>(workspace)" if slices else "d",
        source="void" if config.void_c else config.dtype.cpp,
        layout_a=layout_a, layout_b=layout_b, layout_d=layout_d,
        tile=f"cute::Shape<cute::_{config.tile_m}, cute::_{config.tile_n}, cute::_{config.tile_k}>",
        cluster=f"cute::Shape<cute::_{config.cluster_m}, cute::_{config.cluster_n}, cute::_1>",
        stages=config.stages,
        schedule=_SCHEDULES[config.schedule], epilogue=_epilogue(config), epilogue_tile=_epilogue_tile(config),
        scheduler=scheduler,
        support=support, reduction=reduction,
        scheduling="\n  ".join(scheduling),
        m=m, n=n, k=k,
    )  # fmt: skip


def emit_unit(configs: Sequence[KernelConfig]) -> str:
    """Return one translation unit that holds many kernels and exports them to the runner as ``cr_unit``.

    It includes ``unit.h``, which lies beside the runner's sources and needs ``templates/split_k_*.h``. Kernels
    that share a tile compile faster together.

    Raises
    ------
    InvalidConfig
        If the list is empty or a configuration is not a valid kernel.
    """
    if not configs:
        raise InvalidConfig("a unit needs at least one kernel")
    types, entries = [], []
    for i, config in enumerate(configs):
        _require_valid(config)
        c, element = config, config.dtype.cpp
        elements = f"{element}, {'void' if c.void_c else element}"
        layouts = ", ".join(_LAYOUTS[letter] for letter in c.family)
        shape = f"{c.tile_m}, {c.tile_n}, {c.tile_k}, {c.cluster_m}, {c.cluster_n}, {c.stages}"
        scheduler = _UNIT_SCHEDULERS[c.scheduler]
        kinds = f"{_SCHEDULES[c.schedule]}, {_epilogue(c)}, {_epilogue_tile(c)}, {scheduler}"
        types.append(f"struct K{i} : sm90::Gemm<{elements}, {layouts}, {shape}, {kinds}>::Kernel {{}};")
        entries.append(f'      sm90::entry<K{i}>("{c.name}"),')
    lines = [
        _defines(configs) + '#include "unit.h"',
        "",
        "namespace {",
        *types,
        "}  // namespace",
        "",
        'extern "C" __attribute__((visibility("default"))) CrUnit const* cr_unit() {',
        "  static CrKernel const kernels[] = {",
        *entries,
        "  };",
        f"  static CrUnit const unit = {{CR_ABI_VERSION, {len(configs)}, kernels}};",
        "  return &unit;",
        "}",
        "",
    ]
    return "\n".join(lines)
