"""Scores, against a small set that was worked by hand.

Two variants. Speed-ups of the turns; (i) marks the target instruction, (u) unknown, x a wrong turn::

    p / one    x      0.50   0.80i  x      0.95i            5 turns
    p / two    0.90u  x                                     2 turns
    q / one    x      x      x      x      x  x  x  1.02i   8 turns
    q / two    0.40i  0.60   1.10                           3 turns
"""

import json
from pathlib import Path

import pytest

from cutlass_ranker import CutlassRankerError
from cutlass_ranker.eval.ptxbench import Gemm, Status, Trace, read_trajectories
from cutlass_ranker.eval.ptxbench.sass import Used
from cutlass_ranker.eval.ptxbench.schema import Correctness, Evaluation, Performance, write_json
from cutlass_ranker.eval.ptxbench.score import Trajectory, Turn, score, write_scores

X = Turn(False, Used.UNKNOWN, 0.0)


def turn(speedup: float, used: Used = Used.NO) -> Turn:
    return Turn(True, used, speedup)


def inst(speedup: float) -> Turn:
    return turn(speedup, Used.YES)


SET = [
    Trajectory("one", "p", (X, turn(0.5), inst(0.8), X, inst(0.95))),
    Trajectory("two", "p", (turn(0.9, Used.UNKNOWN), X)),
    Trajectory("one", "q", (X, X, X, X, X, X, X, inst(1.02))),
    Trajectory("two", "q", (inst(0.4), turn(0.6), turn(1.1))),
]


def band(mean: float, low: float, high: float) -> dict[str, float]:
    return {"mean": pytest.approx(mean), "min": pytest.approx(low), "max": pytest.approx(high)}


def test_turn_correctness() -> None:
    result = score(SET).to_dict()
    # First turns: p has 1 of 2 right, q 1 of 2; with the instruction p 0, q 1.
    assert result["turn_correctness"]["1"] == band(0.5, 0.5, 0.5)
    assert result["target_instruction_correctness"]["1"] == band(0.25, 0.0, 0.5)
    # Up to four: p has 2 + 1 right of 4 + 2 turns, q 0 + 3 of 4 + 3.
    assert result["turn_correctness"]["4"] == band((3 / 6 + 3 / 7) / 2, 3 / 7, 3 / 6)
    assert result["target_instruction_correctness"]["4"] == band((1 / 6 + 1 / 7) / 2, 1 / 7, 1 / 6)
    # All: p 4 of 7, q 4 of 11; with the instruction p 2 of 7, q 2 of 11.
    assert result["turn_correctness"]["8"] == band((4 / 7 + 4 / 11) / 2, 4 / 11, 4 / 7)
    assert result["target_instruction_correctness"]["8"] == band((2 / 7 + 2 / 11) / 2, 2 / 11, 2 / 7)


def test_best_speedup() -> None:
    result = score(SET).to_dict()
    assert result["best_speedup"]["1"] == band(0.65, 0.4, 0.9)
    assert result["best_speedup"]["4"] == band(1.0, 0.9, 1.1)
    assert result["best_speedup"]["8"] == band((0.95 + 1.1) / 2, 0.95, 1.1)
    assert result["best_speedup_with_instruction"]["1"] == band(0.2, 0.0, 0.4)
    assert result["best_speedup_with_instruction"]["4"] == band(0.6, 0.4, 0.8)
    assert result["best_speedup_with_instruction"]["8"] == band((0.95 + 1.02) / 2, 0.95, 1.02)
    assert result["best_speedup_without_instruction"]["1"] == band(0.45, 0.0, 0.9)  # unknown counts as without
    assert result["best_speedup_without_instruction"]["8"] == band(1.0, 0.9, 1.1)


def test_fast_p() -> None:
    result = score(SET).to_dict()
    # Best within one turn: p none and 0.9, q none and 0.4.
    assert result["fast_p"]["1"]["0"] == band(0.5, 0.5, 0.5)
    assert result["fast_p"]["1"]["0.75"] == band(0.25, 0.0, 0.5)
    # Within eight: p 0.95 and 0.9, q 1.02 and 1.1. "Above" is strict: 0.95 is not above 0.95.
    assert result["fast_p"]["8"]["0.9"] == band(0.75, 0.5, 1.0)
    assert result["fast_p"]["8"]["0.95"] == band(0.5, 0.0, 1.0)
    assert result["fast_p"]["8"]["1"] == band(0.5, 0.0, 1.0)
    # With the instruction: p 0.95 and none, q 1.02 and 0.4.
    assert result["fast_p_inst"]["8"]["0"] == band(0.75, 0.5, 1.0)
    assert result["fast_p_inst"]["8"]["0.5"] == band(0.5, 0.5, 0.5)
    assert result["fast_p_inst"]["8"]["1"] == band(0.25, 0.0, 0.5)
    assert result["fast_p_inst"]["1"]["0.25"] == band(0.25, 0.0, 0.5)


def test_tables_say_mean_and_band() -> None:
    text = score(SET).markdown()
    assert (
        "| best speed-up over cuBLAS | 0.650× (0.400×–0.900×) | 1.000× (0.900×–1.100×) | 1.025× (0.950×–1.100×) |"
        in text
    )
    assert "| p = 0.9 | 0.0% (0.0%–0.0%) | 50.0% (0.0%–100.0%)" not in text
    assert "4 trajectories, 18 turns, 2 prompt variants" in text


def test_no_correct_turn_scores_nothing() -> None:
    result = score([Trajectory("t", "v", (X, X))]).to_dict()
    assert result["best_speedup"]["8"]["mean"] == 0.0
    assert result["fast_p"]["8"]["0"]["mean"] == 0.0


def test_at_most_eight_turns() -> None:
    with pytest.raises(CutlassRankerError, match="9 turns"):
        Trajectory("t", "v", (X,) * 9)


def trace(gemm: Gemm, speedup: float | None, used: str = "yes") -> Trace:
    log = json.dumps({"gates": {"instruction": {"used": used}}})
    status = Status.TIMEOUT if speedup is None else Status.PASSED
    evaluation = Evaluation(
        status, "H200", {}, "now", log,
        None if speedup is None else Correctness(),
        None if speedup is None else Performance(1.0 / speedup, 1.0, speedup),
    )  # fmt: skip
    return Trace(gemm.definition.name, gemm.workload({"M": 8192}), "s", evaluation)


def test_folders_and_lines_of_traces_are_read(tmp_path: Path, gemm: Gemm) -> None:
    first = tmp_path / "terse" / "a"
    write_json(first / "turn_1" / "trace.json", trace(gemm, None, "unknown").to_dict())
    write_json(first / "turn_3" / "trace.json", trace(gemm, 0.75, "unknown").to_dict())  # turn 2 left nothing
    (tmp_path / "wordy").mkdir()
    lines = [json.dumps(trace(gemm, speedup).to_dict()) for speedup in (0.5, 0.9)]
    (tmp_path / "wordy" / "b.jsonl").write_text("\n".join(lines) + "\n")
    read = {(item.variant, item.name): item.turns for item in read_trajectories(tmp_path)}
    assert read == {
        ("terse", "a"): (X, X, turn(0.75, Used.UNKNOWN)),
        ("wordy", "b"): (inst(0.5), inst(0.9)),
    }


def test_a_turn_that_was_not_evaluated_is_not_guessed(tmp_path: Path) -> None:
    folder = tmp_path / "a" / "turn_1"
    folder.mkdir(parents=True)
    (folder / "kernel.cu").write_text("// a kernel")
    with pytest.raises(CutlassRankerError, match="evaluate it first"):
        read_trajectories(tmp_path)


def test_everything_is_written(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    write_scores(tmp_path, SET)
    files = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*.*")}
    plots = {f"plots/{name}.png" for name in ("fast_p", "fast_p_inst", "correctness", "best_speedup")}
    assert files == {"scores.json", "scores.md", "turns.json", *plots}
    assert len(json.loads((tmp_path / "turns.json").read_text())) == 18
