"""Parallel split-K on a real GPU: right results, the same bits every time, from a workspace that is never cleared."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from cutlass_ranker.datasets.build import FLAGS, find_toolchain
from cutlass_ranker.datasets.run import visible_gpus
from cutlass_ranker.generator import (
    BuildError,
    Candidate,
    Decomposition,
    Epilogue,
    KernelConfig,
    Launch,
    MeasurementError,
    Problem,
    Schedule,
    Scheduler,
    emit_source,
)

pytestmark = [pytest.mark.gpu, pytest.mark.slow]


def run(source: Path, folder: Path, *arguments: str) -> str:
    """Compile a program, run it and return what it printed; fails if either fails or it hangs."""
    try:
        visible_gpus()
        tools = find_toolchain()
    except (BuildError, MeasurementError) as error:
        pytest.skip(str(error))
    flags = [flag for flag in FLAGS if flag not in ("-shared", "--resource-usage")]
    program = folder / "program"
    subprocess.run([tools.nvcc, *flags, *tools.include_flags, str(source), "-o", str(program)], check=True)
    done = subprocess.run([program, *arguments], capture_output=True, text=True, timeout=300, check=False)
    print(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_results_are_right_and_the_same_every_time(tmp_path: Path) -> None:
    # 2 kinds of operands x 4 problems x 4 kernels x 9 splits x 3 decompositions x (1 + 11 + 21) launches, and for the
    # 3 kernels over slices of K 2 x (4 + 1 + 0 + 4) splits that divide 8192, 4104, 2056 and 16384 into multiples of 8.
    assert run(Path(__file__).parent / "split_k_parallel.cu", tmp_path) == "30294 launches, 0 failures\n"


STREAM_K = KernelConfig(128, 64, 64, 1, 1, 6, Schedule.COOPERATIVE, Epilogue.NOSMEM, Scheduler.STREAM_K)
SLICES = KernelConfig(64, 32, 128, 1, 1, 6, Schedule.WARPSPECIALIZED, Epilogue.TMA, Scheduler.SPLIT_K, "TNN", True)


@pytest.mark.parametrize(
    ("config", "decomposition"),
    [
        (STREAM_K, Decomposition.SPLIT_K_PARALLEL),
        (STREAM_K, Decomposition.SPLIT_K_SEPARATE),
        (SLICES, Decomposition.SPLIT_K_SEPARATE),
    ],
)
def test_an_emitted_program_is_right(config: KernelConfig, decomposition: Decomposition, tmp_path: Path) -> None:
    candidate = Candidate(config, Launch(decomposition=decomposition, splits=16), swapped=config.family == "TNN")
    (tmp_path / "gemm.cu").write_text(emit_source(candidate, Problem(200, 256, 8192)))
    assert "0 wrong elements" in run(tmp_path / "gemm.cu", tmp_path)
