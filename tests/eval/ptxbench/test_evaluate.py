"""All gates in order, with programs and tools that are played by others."""

import json
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cutlass_ranker.datasets.protocol import floor_us
from cutlass_ranker.eval.ptxbench import Evaluator, Gemm, Options, Outcome, Solution, Status, TraceSet, write_outcomes
from cutlass_ranker.eval.ptxbench import evaluate as module
from cutlass_ranker.eval.ptxbench.correctness import hidden_sizes, plan_cases, sanitizer_findings
from cutlass_ranker.eval.ptxbench.evaluate import load_solutions, outcome_table
from cutlass_ranker.eval.ptxbench.feedback import feedback, feedback_of_trace
from cutlass_ranker.eval.ptxbench.harness_process import HarnessProcess, Program
from cutlass_ranker.eval.ptxbench.sass import InstructionCheck, Used
from cutlass_ranker.eval.ptxbench.static import Build
from cutlass_ranker.eval.ptxbench.suite import Expectation
from cutlass_ranker.eval.ptxbench.timing import Protocol, _agree, _Side

QUICK = Protocol(warmups=2, launches=6, trials=2, offline_batches=2, server_calls=3)
SANITIZER = """========= COMPUTE-SANITIZER
========= Invalid __global__ write of size 2 bytes
=========     at spill(__nv_bfloat16 *)+0x30
=========     by thread (0,0,0) in block (0,0,0)
=========     Address 0x7f is out of bounds
=========
========= Invalid __global__ write of size 2 bytes
=========     at spill(__nv_bfloat16 *)+0x30
=========
========= ERROR SUMMARY: 2 errors
"""


@pytest.fixture
def evaluator(gemm: Gemm, fake_program: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Evaluator:
    """An evaluator whose candidates are texts that say how they behave, with the tools left out."""

    def build(self: Any, solution: Solution) -> Build:
        library = tmp_path / f"{solution.name}.txt"
        library.write_text(solution.sources[0].content)
        return Build("key", "0" * 64, "run", library=str(library), binary_sha256="1" * 64, nvcc="13.0")

    def no_memcheck(*_: Any) -> tuple[Status, str, dict[str, Any]]:
        return Status.PASSED, "memcheck found nothing", {"findings": []}

    monkeypatch.setattr(module.Builder, "build", build)
    monkeypatch.setattr(module, "build_harness", lambda _: fake_program.path)
    monkeypatch.setattr(module, "check_memory", no_memcheck)
    monkeypatch.setattr(module, "disassemble", lambda _: None)
    monkeypatch.setattr(module, "check_instructions", lambda *_: InstructionCheck(Used.YES, "executed: GMMA"))
    return Evaluator(gemm, tmp_path / "cache", Options(call_seconds=3.0, protocol=QUICK, seed=1))


def candidates(folder: Path, *behaviours: str) -> list[Solution]:
    folder.mkdir(exist_ok=True)
    for behaviour in behaviours:
        (folder / f"{behaviour.replace(' ', '_')}.cu").write_text(behaviour)
    return load_solutions(folder, "gemm_n7168_k5120")


@pytest.mark.parametrize(
    ("behaviour", "gate", "status", "words"),
    [
        ("honest", None, Status.PASSED, "all gates passed"),
        ("wrong", "correct", Status.INCORRECT_NUMERICAL, "the given size"),
        ("cached", "correct", Status.INCORRECT_NUMERICAL, "the given size"),
        ("overwrites", "correct", Status.RUNTIME_ERROR, "inputs were overwritten"),
        ("spills", "correct", Status.RUNTIME_ERROR, "around the matrices"),
        ("dies", "correct", Status.RUNTIME_ERROR, "ended in the middle"),
        ("hangs", "correct", Status.TIMEOUT, "time limit"),
        ("forges", "correct", Status.RUNTIME_ERROR, "pipe"),
        ("second stream", "fast", Status.RUNTIME_ERROR, "timers disagree"),
        ("stray", "fast", Status.RUNTIME_ERROR, "outside of the timed call"),
        ("stale", "fast", Status.RUNTIME_ERROR, "7 rows of the output"),
        ("too fast", "fast", Status.RUNTIME_ERROR, "roofline floor"),
    ],
)
def test_each_gate_catches_its_own(
    evaluator: Evaluator, tmp_path: Path, behaviour: str, gate: str | None, status: Status, words: str
) -> None:
    (outcome,) = evaluator.run(candidates(tmp_path / "c", behaviour), {"M": 8192})
    assert (outcome.failed_gate, outcome.status) == (gate, status), outcome.reason
    assert words in outcome.reason
    assert Expectation(gate or "pass", words).met_by(outcome)
    assert not Expectation("static", words).met_by(outcome)


def test_a_foreign_kernel_is_refused(evaluator: Evaluator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from cutlass_ranker.eval.ptxbench.sass import Disassembly

    monkeypatch.setattr(module, "disassemble", lambda _: Disassembly({"GMMA": 1}, ("kernel",), ("sm_90a",)))
    honest, foreign = sorted(
        evaluator.run(candidates(tmp_path / "c", "honest", "foreign"), {"M": 8192}),
        key=lambda outcome: outcome.failed_gate or "",
    )
    assert honest.failed_gate is None
    assert "foreign_kernel" in foreign.reason


def test_the_winner_is_timed_again_and_written_with_its_evidence(
    evaluator: Evaluator, gemm: Gemm, tmp_path: Path
) -> None:
    outcomes = evaluator.run(candidates(tmp_path / "c", "honest", "wrong"), {"M": 8192})
    best = next(outcome for outcome in outcomes if outcome.solution.name == "honest")
    assert best.first_timing is not None
    assert best.timing is not None
    assert best.timing.speedup == pytest.approx(0.9, rel=0.02)  # the fake cuBLAS takes 900 µs, the candidate 1000
    write_outcomes(tmp_path / "out", gemm, outcomes, evaluator.info)
    traces = {trace.solution: trace for trace in TraceSet(tmp_path / "out").traces()}
    performance = traces["honest"].evaluation.performance  # type: ignore[union-attr]
    assert performance is not None
    assert performance.latency_ms == pytest.approx(1.0, rel=0.02)
    assert performance.speedup_factor == pytest.approx(performance.reference_latency_ms / performance.latency_ms)
    evidence = json.loads((tmp_path / "out" / "evidence" / "honest-m8192.json").read_text())
    assert set(evidence["gates"]) == {"static", "correct", "instruction", "fast"}
    assert evidence["gates"]["fast"]["before_retake"]["passed"]
    assert feedback_of_trace(traces["honest"])["timing"]["speedup"]["latency"] == pytest.approx(0.9, rel=0.02)
    assert "| honest |" in outcome_table(outcomes)


@pytest.mark.parametrize(
    ("span_us", "event_us", "gap_us", "agree"),
    [
        # 5% of 50 µs is 2.5 µs; the events may add the gap to it, and never take anything off.
        (50.0, 52.4, 0.0, True), (50.0, 52.6, 0.0, False), (50.0, 76.0, 24.0, True), (50.0, 77.0, 24.0, False),
        (50.0, 47.4, 24.0, False),
        # Under 40 µs the 2 µs that are always allowed are more.
        (20.0, 21.9, 0.0, True), (20.0, 22.1, 0.0, False),
    ],
)  # fmt: skip
def test_events_may_enclose_the_gap_of_a_launch(span_us: float, event_us: float, gap_us: float, agree: bool) -> None:
    assert _agree({"span_us": span_us, "event_us": event_us}, gap_us) is agree


def test_the_allowed_gap_is_that_of_trusted_launches(fake_program: Program, tmp_path: Path) -> None:
    with HarnessProcess(fake_program, "reference", tmp_path, trace=True) as process:
        side = _Side(process, random.Random(1), 3.0, trusted=True)
        # 0, 1, ... 20 µs: 95% of them are at most 19 µs.
        side.launches = [{"span_us": 50.0, "event_us": 50.0 + added} for added in range(21)]
        assert side.gap_us() == pytest.approx(19.0)
        side.launches = [{"span_us": 50.0, "event_us": 49.0}]
        assert side.gap_us() == 0.0


def test_outcomes_are_handed_over_as_they_are_finished(
    evaluator: Evaluator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    finished: list[tuple[str, str | None]] = []
    options = replace(evaluator.options, finished=lambda o: finished.append((o.solution.name, o.failed_gate)))
    monkeypatch.setattr(evaluator, "options", options)
    evaluator.run(candidates(tmp_path / "c", "honest", "stray", "wrong"), {"M": 8192})
    # The honest one is the fastest and is timed twice.
    assert finished == [("wrong", "correct"), ("honest", None), ("stray", "fast"), ("honest", None)]


def test_a_correct_kernel_without_the_instruction_is_timed(
    evaluator: Evaluator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "check_instructions", lambda *_: InstructionCheck(Used.UNKNOWN, "no permission"))
    (outcome,) = evaluator.run(candidates(tmp_path / "c", "honest"), {"M": 8192})
    assert outcome.status is Status.PASSED
    assert not outcome.uses_instruction
    assert outcome.failed_gate == "instruction"
    assert outcome.timing is not None
    assert outcome.timing.passed


def test_cases_cover_hidden_sizes_and_reuse_buffers(gemm: Gemm) -> None:
    cases = plan_cases(gemm, {"M": 8192}, random.Random(5))
    public, hidden = cases[:3], cases[3:]
    assert [(case.values["M"], case.buffers) for case in public] == [(8192, 0), (8192, 1), (8192, 0)]
    assert all(case.hidden and case.values["M"] != 8192 for case in hidden)
    assert len({case.values["M"] for case in hidden}) == 3
    seeds = [draw.seed for case in cases for draw in (case.a, case.b)]
    assert len(set(seeds)) == len(seeds)
    assert plan_cases(gemm, {"M": 8192}, random.Random(6))[0].a != cases[0].a


def test_hidden_sizes_keep_what_a_matrix_is_contiguous_along_aligned(gemm: Gemm) -> None:
    rng = random.Random(1)
    free = {hidden_sizes(gemm, {"M": 512}, 1, 63, rng)["M"] % 8 for _ in range(50)}
    assert len(free) > 4
    turned = replace(gemm, layout="NNT")  # A is stored with M contiguous
    assert {hidden_sizes(turned, {"M": 512}, 1, 63, rng)["M"] % 8 for _ in range(50)} == {0}


def test_what_the_sanitizer_says() -> None:
    assert sanitizer_findings(SANITIZER) == [
        {"what": "Invalid __global__ write of size 2 bytes", "where": "at spill(__nv_bfloat16 *)+0x30", "count": 2}
    ]
    assert sanitizer_findings("========= COMPUTE-SANITIZER\n========= ERROR SUMMARY: 0 errors\n") == []


def test_the_floor_is_the_roofline(gemm: Gemm) -> None:
    info = {"sm_count": 132, "clock_khz": 1980000, "memory_clock_khz": 3201000, "memory_bus_bits": 6144}
    # 2*8192*7168*5120 FLOP over 132 SMs * 4096 FLOP/clock * 1.98 GHz, less 2%.
    expected = 0.98e6 * 2 * 8192 * 7168 * 5120 / (132 * 4096 * 1.98e9)
    assert floor_us(gemm.problem({"M": 8192}), info) == pytest.approx(expected)


def outcome_with(evaluator: Evaluator, tmp_path: Path, behaviour: str) -> Outcome:
    return evaluator.run(candidates(tmp_path / "c", behaviour), {"M": 8192})[0]


def test_feedback_shows_wrong_elements_of_the_given_size(evaluator: Evaluator, tmp_path: Path) -> None:
    told = feedback(outcome_with(evaluator, tmp_path, "wrong").evidence())
    case = told["correctness"]["wrong_case"]
    assert case["size"] == {"M": 8192}
    assert case["first_wrong"] == [{"row": 1, "column": 2, "got": 3.0, "expected": 4.0}]
    assert told["failed_gate"] == "correct"
    assert "timing" not in told


def test_feedback_hides_hidden_cases(evaluator: Evaluator, gemm: Gemm, tmp_path: Path) -> None:
    evidence = outcome_with(evaluator, tmp_path, "honest").evidence()
    hidden = next(case for case in evidence["gates"]["correct"]["cases"] if case["hidden"])
    hidden.update(wrong=5, first=[{"row": 777, "column": 2, "got": 0.0, "expected": 1.0}])
    hidden["axes"] = {"M": 777}
    text = json.dumps(feedback(evidence))
    assert "777" not in text
    assert "not shown" in text
    assert "seed" not in text


def test_feedback_trims_the_compilers_output() -> None:
    log = "a.cu(3): error: expected a ';'\n" + "noise\n" * 500
    build = Build("k", "0" * 64, "run", failed=True, log=log)
    solution = Solution("s", "gemm_n7168_k5120", "a", "cuda", ("H200",), "k.cu::run", load_sources())
    from cutlass_ranker.eval.ptxbench import load_definition, read_gemm

    workload = read_gemm(load_definition("gemm_n7168_k5120")).workload({"M": 8192})
    told = feedback(Outcome(solution, workload, build).evidence())
    assert told["build"]["errors"] == ["a.cu(3): error: expected a ';'"]
    assert told["status"] == "COMPILE_ERROR"


def load_sources() -> tuple[Any, ...]:
    from cutlass_ranker.eval.ptxbench.schema import Source

    return (Source("k.cu", "x"),)
