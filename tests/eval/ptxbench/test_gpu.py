"""The checker against its adversaries on a real GPU; their traces are committed."""

import shutil
from pathlib import Path

import pytest

from cutlass_ranker.eval.ptxbench import Evaluator, Options, load_definition, read_gemm
from cutlass_ranker.eval.ptxbench.correctness import find_tool
from cutlass_ranker.eval.ptxbench.suite import SuiteResult, read_expectation, run_suite

ADVERSARIES = Path(__file__).parent / "adversaries"
TOOLS = ("ncu", "compute-sanitizer", "cuobjdump")

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(
        shutil.which("nvidia-smi") is None or not all(find_tool(tool) for tool in TOOLS),
        reason=f"needs an NVIDIA Hopper GPU and {', '.join(TOOLS)}",
    ),
]


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, SuiteResult]:
    gemm = read_gemm(load_definition("gemm_n7168_k5120"))
    evaluator = Evaluator(gemm, tmp_path_factory.mktemp("builds"), Options(jobs=8, call_seconds=20.0))
    found = run_suite(ADVERSARIES, gemm, {"M": 512}, evaluator)
    return {result.outcome.solution.name: result for result in found}


@pytest.mark.parametrize("name", sorted(path.stem for path in ADVERSARIES.glob("*.cu")))
def test_each_is_caught_by_the_gate_meant_for_it(results: dict[str, SuiteResult], name: str) -> None:
    result = results[name]
    expected = read_expectation(ADVERSARIES / f"{name}.cu")
    assert result.met, f"expected {expected}, got {result.outcome.failed_gate}: {result.outcome.reason}"
