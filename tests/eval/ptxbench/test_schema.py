"""FlashInfer-Trace: our reading and writing, against its own models where they are installed."""

import json
from pathlib import Path

import pytest

from cutlass_ranker import CutlassRankerError
from cutlass_ranker.eval.ptxbench import (
    Definition,
    Evaluation,
    Gemm,
    Solution,
    Status,
    Trace,
    TraceSet,
    load_definition,
)
from cutlass_ranker.eval.ptxbench.schema import Correctness, Performance, Source

SOLUTION = Solution(
    name="by_hand",
    definition="gemm_n7168_k5120",
    author="a person",
    language="cuda",
    target_hardware=("H200",),
    entry_point="kernel.cu::run",
    sources=(Source("kernel.cu", "// nothing"),),
    description="an example",
)


def evaluation(status: Status = Status.PASSED) -> Evaluation:
    measured = status in (Status.PASSED, Status.INCORRECT_NUMERICAL)
    return Evaluation(
        status=status,
        hardware="NVIDIA_H200",
        libs={"cublaslt": "130000"},
        timestamp="2026-01-02T03:04:05+00:00",
        log="{}",
        correctness=Correctness(float("inf"), 0.5, {"cases": 3}) if measured else None,
        performance=Performance(0.8, 0.7, 0.875) if status is Status.PASSED else None,
    )


def filled(folder: Path, gemm: Gemm) -> TraceSet:
    traces = TraceSet(folder)
    traces.add_definition(gemm.definition)
    traces.add_solution(gemm.definition, SOLUTION)
    workload = gemm.workload_trace({"M": 8192})
    statuses = (Status.PASSED, Status.INCORRECT_NUMERICAL, Status.COMPILE_ERROR, Status.TIMEOUT)
    evaluated = [Trace(gemm.definition.name, workload.workload, "by_hand", evaluation(status)) for status in statuses]
    traces.add_traces(gemm.definition, [workload, *evaluated])
    return traces


def test_what_is_written_is_read_back(tmp_path: Path, gemm: Gemm) -> None:
    traces = filled(tmp_path, gemm)
    assert traces.definitions() == {"gemm_n7168_k5120": gemm.definition}
    assert traces.solutions() == [SOLUTION]
    assert [trace.workload.axes for trace in traces.workloads()] == [{"M": 8192}]
    read = traces.traces()
    assert [trace.evaluation.status.value for trace in read if trace.evaluation] == [
        "PASSED", "INCORRECT_NUMERICAL", "COMPILE_ERROR", "TIMEOUT",
    ]  # fmt: skip
    assert read[0].evaluation == evaluation()


def test_files_lie_where_flashinfer_trace_has_them(tmp_path: Path, gemm: Gemm) -> None:
    filled(tmp_path, gemm)
    files = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()}
    assert files == {
        "definitions/gemm/gemm_n7168_k5120.json",
        "workloads/gemm/gemm_n7168_k5120.jsonl",
        "solutions/gemm/gemm_n7168_k5120/by_hand.json",
        "traces/gemm/gemm_n7168_k5120.jsonl",
    }


def test_the_shipped_definition_is_the_benchmarks() -> None:
    definition = load_definition("gemm_n7168_k5120")
    assert definition.axes == {"M": None, "N": 7168, "K": 5120}
    assert definition.inputs["B"].shape == ("N", "K")
    assert {tensor.dtype for tensor in definition.inputs.values()} == {"bfloat16"}


def test_a_workloads_uuid_depends_on_its_sizes_alone(gemm: Gemm) -> None:
    first, again, other = (gemm.workload({"M": m}).uuid for m in (64, 64, 65))
    assert first == again != other


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"axes": {"M": {"type": "var"}}}, "has the axis"),
        ({"reference": "def go(A, B): return A"}, "no function named run"),
        ({"reference": "def run(:"}, "no Python"),
        ({"axes": {"M": {"type": "free"}, "N": {"type": "var"}, "K": {"type": "var"}}}, "must be one of const, var"),
        ({"inputs": {"A": {"shape": ["M", "K"], "dtype": "bf16"}}}, "must be one of float32"),
        ({"name": ""}, "not empty"),
    ],
)
def test_a_definition_that_makes_no_sense(change: dict[str, object], message: str) -> None:
    values = {**load_definition("gemm_n7168_k5120").to_dict(), **change}
    with pytest.raises(CutlassRankerError, match=message):
        Definition.from_dict(values)


@pytest.mark.parametrize("path", ["/etc/passwd", "../kernel.cu", "a/../../b.cu", ""])
def test_sources_stay_inside_the_solution(path: str) -> None:
    with pytest.raises(CutlassRankerError, match="source path|source.path"):
        Source(path, "x")


def test_performance_belongs_to_passed_evaluations_only() -> None:
    with pytest.raises(CutlassRankerError, match="not allowed"):
        Evaluation(Status.TIMEOUT, "H200", {}, "now", performance=Performance(1.0, 1.0, 1.0))


def test_flashinfer_benchs_own_models_read_our_files_and_we_read_theirs(tmp_path: Path, gemm: Gemm) -> None:
    models = pytest.importorskip("flashinfer_bench.data", reason="flashinfer-bench is not installed")
    filled(tmp_path, gemm)
    theirs = models.TraceSet.from_path(str(tmp_path))
    assert theirs.definitions["gemm_n7168_k5120"].const_axes == {"N": 7168, "K": 5120}
    assert theirs.solutions["gemm_n7168_k5120"][0].get_entry_symbol() == "run"
    assert [trace.is_successful() for trace in theirs.traces["gemm_n7168_k5120"]] == [True, False, False, False]
    assert theirs.workloads["gemm_n7168_k5120"][0].workload.axes == {"M": 8192}
    for trace in theirs.traces["gemm_n7168_k5120"]:
        Trace.from_dict(json.loads(trace.model_dump_json()))
    dumped = json.loads(theirs.definitions["gemm_n7168_k5120"].model_dump_json())
    assert Definition.from_dict(dumped).axes == gemm.definition.axes
    assert Solution.from_dict(json.loads(theirs.solutions["gemm_n7168_k5120"][0].model_dump_json())) == SOLUTION
