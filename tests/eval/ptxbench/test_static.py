"""Gate 1: what is found in sources, preprocessed text and objects; and real builds where there is a compiler."""

import shutil
from pathlib import Path

import pytest

from cutlass_ranker.eval.ptxbench import load_solutions
from cutlass_ranker.eval.ptxbench.schema import Solution, Source
from cutlass_ranker.eval.ptxbench.static import (
    Builder,
    check_preprocessed,
    check_sources,
    check_strings,
    check_symbols,
    describe,
    source_hash,
    useful_lines,
    without_comments,
)
from cutlass_ranker.eval.ptxbench.suite import read_expectation

ADVERSARIES = Path(__file__).parent / "adversaries"
NVCC = shutil.which("nvcc") or shutil.which("/usr/local/cuda/bin/nvcc")
needs_nvcc = pytest.mark.skipif(
    NVCC is None or shutil.which("objdump") is None, reason="needs nvcc and binutils to build candidates"
)


def solution(content: str, **changes: object) -> Solution:
    values: dict[str, object] = {
        "name": "s", "definition": "d", "author": "a", "language": "cuda", "target_hardware": ("H200",),
        "entry_point": "k.cu::run", "sources": (Source("k.cu", content),), **changes,
    }  # fmt: skip
    return Solution(**values)  # type: ignore[arg-type]


def test_comments_are_blanked_and_texts_kept() -> None:
    text = 'a /* cublas\n */ b // cudnn \\\n cublas\n"// not /* a comment" \'"\' c'
    assert without_comments(text) == 'a \n  b \n \n"// not /* a comment" \'"\' c'


@pytest.mark.parametrize(
    "line",
    [
        "#include <cublas_v2.h>",
        '# include "cublasLt.h"',
        "cublasHandle_t handle;",
        'auto name = "libcudnn.so.9";',
        "nvrtcProgram program;",
        "my_cublasGemm();",
        "#include <curand_kernel.h>",
    ],
)
def test_libraries_in_the_source(line: str) -> None:
    assert len(check_sources(solution(f"int x;\n{line}\n"))) == 1
    assert check_sources(solution(f"// {line}\n/* {line} */ int x;")) == []


@pytest.mark.parametrize(
    "line", ["CUtensorMap map;", "cuTensorMapEncodeTiled(&map);", "#include <cute/tensor.hpp>", "cudaMalloc(&p, n);"]
)
def test_the_driver_and_cutlass_are_no_libraries(line: str) -> None:
    assert check_sources(solution(line)) == []


def test_nested_includes_are_seen_in_the_preprocessors_output() -> None:
    nested = '# 1 "k.cu"\n# 1 "a.cuh" 1\n# 1 "/opt/x/include/cublas_v2.h" 1 3\nint x;\n# 2 "k.cu" 2\n'
    assert [(finding.where, finding.message) for finding in check_preprocessed(nested)] == [
        ("header", "cublas_v2.h is a library's header")
    ]
    pasted = '# 1 "k.cu"\nvoid f() { cublasCreate(0); }\n'
    assert [finding.where for finding in check_preprocessed(pasted)] == ["preprocessed"]
    system = (
        '# 1 "/usr/local/cuda-13.0/targets/x86_64-linux/include/library_types.h" 1 3\ntypedef int cublasDataType_t;\n'
    )
    assert check_preprocessed(system) == []


@pytest.mark.parametrize(
    ("undefined", "word"),
    [
        ("dlopen", "cannot see"), ("dlsym@GLIBC_2.34", "cannot see"), ("__dprintf_chk@GLIBC_2.8", "opens files"),
        ("cuModuleLoadData", "cannot see"),
        ("cudaLibraryLoadFromFile", "cannot see"), ("fork", "processes"), ("execve", "processes"),
        ("mprotect", "memory"), ("ptrace", "memory"), ("syscall", "memory"), ("kill", "signals"),
        ("fopen64", "files"), ("write", "files"), ("getenv", "environment"), ("cudaProfilerStop", "profiler"),
        ("cublasGemmEx", "library"),
    ],
)  # fmt: skip
def test_symbols_that_reach_past_the_checker(undefined: str, word: str) -> None:
    (finding,) = check_symbols([undefined], [])
    assert word in finding.message


def test_symbols_that_a_kernel_needs() -> None:
    needed = [
        "cudaMalloc", "cudaLaunchKernelExC", "cudaFuncSetAttribute", "cudaGetDriverEntryPointByVersion", "printf",
        "cuTensorMapEncodeTiled", "abort", "exit", "memcpy", "_Znwm", "pthread_create", "_ZNSt6thread6detachEv", "log2",
        "__cudaRegisterFatBinary", "cudaGraphLaunch", "cudaStreamCreateWithFlags", "cudaOccupancyMaxActiveClusters",
    ]  # fmt: skip
    assert check_symbols(needed, ["run", "_Z5helperv", "__fatbinwrap_0123_k_cu"]) == []


@pytest.mark.parametrize("name", ["cudaEventRecord", "cuLaunchKernel", "clock_gettime", "cuptiActivityFlushAll"])
def test_replacing_what_others_call(name: str) -> None:
    (finding,) = check_symbols([], [name])
    assert name in finding.message


def test_texts_in_an_object() -> None:
    content = b"\x00\x01libcublasLt.so.13\x00cuTensorMapEncodeTiled\x00cuModuleLoadData\x00nvFatBinSegment\x00"
    assert [finding.message for finding in check_strings(content)] == [
        "holds the text libcublasLt",
        "holds the text cuModuleLoadData",
    ]


def test_other_languages_and_bindings_are_refused_with_a_reason(tmp_path: Path) -> None:
    for change, word in (({"language": "triton"}, "triton"), ({"binding": "torch"}, "torch")):
        build = Builder(tmp_path).build(solution("int x;", **change))
        assert not build.passed
        assert word in describe(build)


def test_the_hash_is_of_all_files_and_their_names() -> None:
    base = solution("int x;")
    assert source_hash(base) == source_hash(solution("int x;", name="other"))
    assert source_hash(base) != source_hash(solution("int y;"))
    more = (Source("k.cu", "int x;"), Source("a.cuh", "int y;"))
    assert source_hash(base) != source_hash(solution("-", sources=more))


def test_useful_lines_of_a_compilers_output() -> None:
    log = (
        'In file included from x\nk.cu(5): error: identifier "a" is undefined\n\n1 error detected in k.cu\nnoise\n' * 3
    )
    assert useful_lines(log) == ['k.cu(5): error: identifier "a" is undefined', "1 error detected in k.cu"]
    assert useful_lines("ld crashed\n") == ["ld crashed"]


STATIC = sorted(path.stem for path in ADVERSARIES.glob("*.cu") if read_expectation(path).gate == "static")


@needs_nvcc
@pytest.mark.parametrize("name", STATIC)
def test_static_adversaries_are_caught(name: str, tmp_path: Path) -> None:
    (candidate,) = load_solutions(ADVERSARIES / f"{name}.cu", "gemm_n7168_k5120")
    build = Builder(tmp_path).build(candidate)
    assert not build.passed
    assert read_expectation(ADVERSARIES / f"{name}.cu").words.lower() in describe(build).lower()


@needs_nvcc
def test_an_honest_kernel_builds_once(tmp_path: Path) -> None:
    (candidate,) = load_solutions(ADVERSARIES / "wgmma_by_hand.cu", "gemm_n7168_k5120")
    assert [source.path for source in candidate.sources] == ["wgmma_by_hand.cu", "wgmma.cuh"]
    build = Builder(tmp_path).build(candidate)
    assert build.passed, describe(build)
    assert len(build.binary_sha256) == 64
    moved = tmp_path / "carried"
    shutil.copytree(tmp_path / build.key, moved / build.key)
    again = Builder(moved).build(candidate)
    assert again.library == str((moved / build.key / "candidate.so").resolve())
    assert again.seconds == build.seconds


def test_every_adversary_says_what_must_catch_it() -> None:
    gates = [read_expectation(path).gate for path in ADVERSARIES.glob("*.cu")]
    assert len(gates) >= 30
    assert {"static", "correct", "instruction", "fast", "pass"} == set(gates)
