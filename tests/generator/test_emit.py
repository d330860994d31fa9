"""Emitted C++: the configuration's numbers reach the text, and (slow) it compiles."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path

import pytest

from cutlass_ranker.datasets.build import find_toolchain
from cutlass_ranker.generator import (
    Candidate,
    Decomposition,
    Epilogue,
    InvalidConfig,
    KernelConfig,
    Launch,
    Problem,
    Raster,
    Schedule,
    Scheduler,
    emit_source,
    emit_unit,
)

STREAM_K = KernelConfig(128, 32, 128, 2, 1, 4, Schedule.COOPERATIVE, Epilogue.TMA, Scheduler.STREAM_K, "TNN")
PINGPONG = KernelConfig(64, 128, 64, 1, 4, 5, Schedule.PINGPONG, Epilogue.NOSMEM, void_c=True)
SLICES = KernelConfig(64, 32, 128, 1, 1, 6, Schedule.WARPSPECIALIZED, Epilogue.NOSMEM, Scheduler.SPLIT_K, void_c=True)
CANDIDATE = Candidate(STREAM_K, Launch(Raster.ALONG_M, 4, Decomposition.SPLIT_K, 8), swapped=True)
EXTENDED = "CUTE_SM90_EXTENDED_MMA_SHAPES_ENABLED"

needs_nvcc = pytest.mark.skipif(
    shutil.which("nvcc") is None or importlib.util.find_spec("cutlass_library") is None,
    reason="needs nvcc and the CUTLASS headers (extra gpu)",
)


def test_source_carries_config_launch_and_problem() -> None:
    text = emit_source(CANDIDATE, Problem(16, 4096, 8192))
    for part in (
        STREAM_K.name,
        "cute::Shape<cute::_128, cute::_32, cute::_128>",
        "cute::Shape<cute::_2, cute::_1, cute::_1>",
        "StageCount<4>",
        "KernelTmaWarpSpecializedCooperative>",
        "TmaWarpSpecializedCooperative>::CollectiveOp",
        "StreamKScheduler",
        "max_swizzle_size = 4;",
        "RasterOrderOptions::AlongM;",
        "splits = 8;",
        "DecompositionMode::SplitK;",
        "ReductionMode::Deterministic;",
        "kSwapped = true",
        "LayoutD = cutlass::layout::ColumnMajor",
        "int m = 16, n = 4096, k = 8192;",
    ):
        assert part in text, part
    assert not re.search(r"\$\{|\$\w", text.replace("$CUTLASS/", "")), "a placeholder was left"


def test_source_of_atomic_split_k() -> None:
    launch = Launch(decomposition=Decomposition.SPLIT_K_ATOMIC, splits=32)
    text = emit_source(Candidate(STREAM_K, launch, swapped=True))
    for part in ("splits = 32;", "DecompositionMode::SplitK;", "ReductionMode::Nondeterministic;"):
        assert part in text, part


def parallel_source(decomposition: Decomposition, splits: int, *parts: str) -> str:
    """Emit a split-K whose slices store their sums apart, and check what each kind of it needs, and ``parts``."""
    text = emit_source(Candidate(STREAM_K, Launch(decomposition=decomposition, splits=splits), swapped=True))
    for part in (
        f"splits = {splits};",
        "DecompositionMode::SplitK;",
        "ReductionMode::Deterministic;",
        "arguments.scheduler.parallel_reduction = true;",
        "CollectiveEpilogue, cutlass_ranker::ParallelSplitKScheduler>",
        "struct TileSchedulerSelector<cutlass_ranker::ParallelSplitKScheduler",
        *parts,
    ):
        assert part in text, part
    return text


def test_source_of_parallel_split_k_carries_its_scheduler() -> None:
    text = parallel_source(Decomposition.SPLIT_K_PARALLEL, 12, "scheduler.flags = flags;")
    assert "pragma once" not in text
    # Neither a second kernel nor its launch.
    assert not re.search(r"launch_reduction<|reduce_slices|separate_reduction = true", text)
    # Everything else is emitted as plain CUTLASS.
    assert "cutlass_ranker::" not in emit_source(CANDIDATE)


def test_source_of_split_k_with_a_second_kernel_carries_and_launches_it() -> None:
    text = parallel_source(Decomposition.SPLIT_K_SEPARATE, 24, "arguments.scheduler.separate_reduction = true;")
    # Both headers are part of the text, once each, the scheduler first.
    templates = files("cutlass_ranker.generator") / "templates"
    headers = [(templates / f"split_k_{name}.h").read_text() for name in ("parallel", "sum", "reduction")]
    bodies = [header[header.index("namespace cutlass_ranker {") :] for header in headers]
    assert [text.count(body) for body in bodies] == [1, 1, 1]
    assert not re.search(r'#include "split_k|pragma once', text)
    # The second kernel comes behind the GEMM.
    places = [text.index(part) for part in (*bodies, "kernel.run(stream)", "launch_reduction<GemmKernel>(arguments")]
    assert places == sorted(places)
    assert not re.search(r"\$\{|\$\w", text.replace("$CUTLASS/", "")), "a placeholder was left"


def test_source_of_split_k_over_slices_of_k() -> None:
    text = emit_source(Candidate(SLICES, Launch(decomposition=Decomposition.SPLIT_K_SEPARATE, splits=12)))
    for part in (
        "constexpr int kSplits = 12;",
        "ElementC, LayoutD, kAlignment, float, LayoutD,\n    4, ",  # the slices' float32 D
        "cutlass_ranker::slice_k(arguments, kSplits, reinterpret_cast<float*>(d));",
        "make_arguments(m, n, k, a, b, static_cast<Element*>(workspace), flags)",
    ):
        assert text.count(part) == 1, part
    places = [
        text.index(part) for part in ("sum_slices(float const*", "kernel.run(stream)", "launch_sum_slices(slices")
    ]
    assert places == sorted(places)
    assert not re.search(r'#include "split_k|pragma once|ptr_D = d;', text)
    assert not re.search(r"\$\{|\$\w", text.replace("$CUTLASS/", "")), "a placeholder was left"
    for launch in (Launch(), Launch(decomposition=Decomposition.SPLIT_K_PARALLEL, splits=2)):
        with pytest.raises(InvalidConfig, match="SPLIT_K_SEPARATE"):
            emit_source(Candidate(SLICES, launch))


def test_source_of_an_epilogue_tile_of_64_columns() -> None:
    pingpong = KernelConfig(128, 128, 64, 1, 1, 4, Schedule.PINGPONG, Epilogue.TMA_64)
    assert "    cute::Shape<cute::_64, cute::_64>, float, float, ElementC" in emit_source(pingpong)
    cooperative = KernelConfig(256, 128, 64, 1, 1, 2, Schedule.COOPERATIVE, Epilogue.TMA_64)
    assert "    cute::Shape<cute::_128, cute::_64>, float, float, ElementC" in emit_source(cooperative)
    assert "TmaWarpSpecializedCooperative, cute::Shape<cute::_128, cute::_64>, sm90::Persistent>" in emit_unit(
        [cooperative]
    )


def test_source_without_c_and_without_stream_k() -> None:
    text = emit_source(PINGPONG)
    assert "using ElementC = void;" in text and "kSwapped = false" in text
    assert "decomposition_mode" not in text and "splits" not in text


def test_unit_lists_every_kernel_once() -> None:
    text = emit_unit([STREAM_K, PINGPONG])
    assert text.count("struct K") == 2
    assert f'sm90::entry<K0>("{STREAM_K.name}")' in text and f'sm90::entry<K1>("{PINGPONG.name}")' in text
    assert "CR_ABI_VERSION, 2, kernels" in text
    # All launches of a Stream-K kernel are in one compiled kernel.
    assert text.count("sm90::StreamK>") == text.count("sm90::Persistent>") == 1


@pytest.mark.slow
def test_every_tile_gets_a_wgmma_of_its_width(compile_on_host: Callable[..., Path]) -> None:
    def wgmma_n(*flags: str) -> dict[int, int]:
        program = compile_on_host("wgmma_n.cpp", "-O0", *flags)
        printed = subprocess.run([program], capture_output=True, text=True, check=True).stdout
        numbers = map(int, printed.split())
        return dict(zip(numbers, numbers, strict=True))

    plain, extended = wgmma_n(), wgmma_n(f"-D{EXTENDED}")
    for tile_n in range(16, 257, 16):
        config = KernelConfig(64, tile_n, 64, 1, 1, 2, Schedule.WARPSPECIALIZED, Epilogue.NOSMEM)
        defined = f"#define {EXTENDED}\n" in emit_source(config)
        assert (extended if defined else plain)[tile_n] == tile_n
        assert defined == (plain[tile_n] != tile_n), "larger headers for nothing"


def test_extended_wgmma_shapes_are_enabled_before_cutlass_is_included() -> None:
    odd = KernelConfig(128, 112, 64, 1, 1, 4, Schedule.PINGPONG, Epilogue.TMA)
    for text in (emit_source(odd), emit_unit([PINGPONG, odd])):
        assert text.index(f"#define {EXTENDED}\n") < text.index("#include")
    assert EXTENDED not in emit_source(PINGPONG) and EXTENDED not in emit_unit([PINGPONG, STREAM_K])


def test_invalid_kernels_are_not_emitted() -> None:
    wrong = KernelConfig(64, 128, 64, 1, 1, 4, Schedule.COOPERATIVE, Epilogue.TMA)
    with pytest.raises(InvalidConfig, match="multiple of 128"):
        emit_source(wrong)
    with pytest.raises(InvalidConfig, match="multiple of 128"):
        emit_unit([PINGPONG, wrong])
    with pytest.raises(InvalidConfig, match="at least one"):
        emit_unit([])


@pytest.mark.slow
@needs_nvcc
def test_source_compiles(tmp_path: Path) -> None:
    tools = find_toolchain()
    (tmp_path / "gemm.cu").write_text(emit_source(CANDIDATE))
    flags = ["-std=c++17", "-O1", "-DNDEBUG", "--expt-relaxed-constexpr", "-gencode=arch=compute_90a,code=sm_90a"]
    subprocess.run([tools.nvcc, *flags, *tools.include_flags[:2], "gemm.cu", "-o", "gemm"], cwd=tmp_path, check=True)
    assert (tmp_path / "gemm").is_file()
