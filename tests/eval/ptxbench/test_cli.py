"""The commands that need no GPU."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cutlass_ranker import CutlassRankerError
from cutlass_ranker.eval.ptxbench.cli import app
from cutlass_ranker.eval.ptxbench.schema import write_json

RUN = CliRunner()


def invoke(*arguments: object) -> str:
    result = RUN.invoke(app, [str(argument) for argument in arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def test_seed(tmp_path: Path) -> None:
    options = ("--m", 256, "--top", 2, "--retrieve", 0, "--neighbours", 0, "--out", tmp_path)
    assert "2 seeds" in invoke("seed", "gemm_n4096_k4096", *options)
    assert len(list((tmp_path / "solutions").rglob("*.json"))) == 2
    assert "256×4096×4096" in (tmp_path / "PACK.md").read_text()


def test_score_and_feedback(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    turns = [{"correct": False}, {"correct": True, "instruction": "yes", "speedup": 0.5}]
    write_json(tmp_path / "set.json", {"trajectories": [{"name": "a", "turns": turns}]})
    text = invoke("score", tmp_path / "set.json", "--out", tmp_path / "scores")
    assert "| turn correctness | 0.0% (0.0%–0.0%) | 50.0% (50.0%–50.0%) | 50.0% (50.0%–50.0%) |" in text
    static = {"passed": False, "findings": [{"where": "source", "message": "cublas"}], "errors": []}
    evidence = {
        "definition": "d", "axes": {"M": 8}, "status": "COMPILE_ERROR", "failed_gate": "static", "reason": "r",
        "gates": {"static": static},
    }  # fmt: skip
    write_json(tmp_path / "evidence.json", evidence)
    told = json.loads(invoke("feedback", tmp_path / "evidence.json"))
    assert told["build"]["refused_because"] == ["source: cublas"]


def test_collect_needs_what_was_evaluated(tmp_path: Path) -> None:
    with pytest.raises(CutlassRankerError, match="holds no traces"):
        invoke("collect", tmp_path, "--into", tmp_path / "data")


def test_a_folder_without_solutions(tmp_path: Path) -> None:
    with pytest.raises(CutlassRankerError, match="holds no solution"):
        invoke("evaluate", tmp_path, "--out", tmp_path / "out")
