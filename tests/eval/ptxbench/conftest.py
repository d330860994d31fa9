"""A definition, and a program that speaks the checker's protocol without a GPU."""

import os
import sys
from pathlib import Path

import pytest

from cutlass_ranker.eval.ptxbench import Gemm, load_definition, processes, read_gemm
from cutlass_ranker.eval.ptxbench.harness_process import Program

HERE = Path(__file__).parent
ADVERSARIES = HERE / "adversaries"


@pytest.fixture
def gemm() -> Gemm:
    return read_gemm(load_definition("gemm_n7168_k5120"))


@pytest.fixture
def fake_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Program:
    """The fake program, run by this Python, whose files another user might not be able to read."""
    monkeypatch.setattr(processes, "NOBODY", os.getuid())
    program = tmp_path / "harness-fake"
    source = (HERE / "fake_harness.py").read_text(encoding="utf-8")
    program.write_text(f"#!{sys.executable}\n" + source.split("\n", 1)[1], encoding="utf-8")
    program.chmod(0o755)
    return Program(program)
