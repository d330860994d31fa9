"""The baseline's page: traces gathered in one place, and summed up as worked out by hand."""

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from cutlass_ranker.datasets import Tables
from cutlass_ranker.eval import make_report
from cutlass_ranker.eval.ptxbench import (
    Gemm,
    Outcome,
    Solution,
    Status,
    TraceSet,
    load_definition,
    read_gemm,
    write_outcomes,
)
from cutlass_ranker.eval.ptxbench.baseline import summarise
from cutlass_ranker.eval.ptxbench.collect import collect
from cutlass_ranker.eval.ptxbench.correctness import CorrectnessCheck
from cutlass_ranker.eval.ptxbench.sass import InstructionCheck, Used
from cutlass_ranker.eval.ptxbench.schema import Source
from cutlass_ranker.eval.ptxbench.static import Build, Finding, source_hash
from cutlass_ranker.eval.ptxbench.suite import Expectation, SuiteRow, read_expectations, suite_table
from cutlass_ranker.eval.ptxbench.timing import Times, TimingCheck
from cutlass_ranker.generator import Columns, DataError, Problem

SHIPPED = Path(__file__).resolve().parents[3] / "eval" / "ptxbench" / "data"
INFO = {"gpu": "NVIDIA H200", "cupti": 130001}
NAME = (
    "cutlass3x_sm90_tensorop_gemm_bf16_bf16_f32_bf16_bf16_256x128x64_1x2x1_4_tn{}_align8_"
    "warpspecialized_cooperative_epi_tma"
)


def times(trials: tuple[float, ...], spread: float = 0.01, scale: float = 1.0) -> Times:
    middle = sorted(trials)[1]
    return Times(trials, middle, middle, 5.0, 2.0, 0.0, spread, 2.0 * middle * scale, 4.0 * middle * scale, ("kernel",))


def outcome(
    gemm: Gemm, name: str, m: int, ours: tuple[float, ...] = (), theirs: tuple[float, ...] = (), **changes: Any
) -> Outcome:
    """An outcome that passed all gates if it has times, and was refused by the first otherwise."""
    text = f"{changes.pop('first_line', '// ' + name)}\nvoid run() {{}}\n"
    about = changes.pop("about", None)
    solution = Solution(
        name, gemm.definition.name, "us", "cuda", ("H200",), "kernel.cu::run", (Source("kernel.cu", text),),
        description=about,
    )  # fmt: skip
    build = Build("key", source_hash(solution), "run", library="/nowhere/candidate.so", nvcc="13.0", seconds=60.0)
    workload = gemm.workload({"M": m})
    if not ours:
        refused = replace(build, findings=(Finding("source", "cublas belongs to a library"),))
        return Outcome(solution, workload, refused, seconds={"static": 10.0})
    made = Outcome(
        solution, workload, build,
        CorrectnessCheck(Status.PASSED, "all cases are right"),
        InstructionCheck(Used.YES, "executed: GMMA"),
        TimingCheck(True, "timed", times(ours), times(theirs, 0.02, 1.5), 40.0),
        seconds={"static": 60.0, "correct": 1.0, "memcheck": 2.0, "instruction": 3.0, "fast": 4.0},
    )  # fmt: skip
    return replace(made, **changes)


@pytest.fixture(scope="module")
def measured() -> Gemm:
    return read_gemm(load_definition("gemm_n7168_k5120"))


@pytest.fixture(scope="module")
def place(measured: Gemm, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two values of M, evaluated in three folders, and a suite of three kernels, one of them not caught."""
    root, gemm = tmp_path_factory.mktemp("ptxbench"), measured
    unused = InstructionCheck(Used.NO, "no target instruction in the library")
    retaken = TimingCheck(True, "timed", times((95.0, 95.0, 95.0)), times((100.0, 100.0, 100.0)), 40.0)
    seeds = [
        outcome(gemm, "seed_m64_01_selector", 64, (120.0, 125.0, 130.0), (100.0, 100.0, 104.0),
                about=f"{NAME.format('t')}; along_m, swizzle 4; 64x7168x5120 TNT bf16"),
        outcome(gemm, "seed_m64_02_selector", 64, (98.0, 100.0, 104.0), (98.0, 98.0, 98.0),
                about=f"{NAME.format('n')}; default; 64x7168x5120 TNT bf16"),
        # Faster, but without the target instruction.
        outcome(gemm, "seed_m64_03_selector", 64, (50.0, 50.0, 50.0), (100.0, 100.0, 100.0), instructions=unused),
        outcome(gemm, "seed_m64_04_retrieved", 64, (80.0, 80.0, 80.0), (100.0, 102.0, 104.0), first_timing=retaken),
    ]  # fmt: skip
    write_outcomes(root / "m64", gemm, seeds, INFO)
    write_outcomes(root / "oracle", gemm, [outcome(gemm, "oracle_m64", 64, (64.0,) * 3, (96.0,) * 3)], INFO)
    write_outcomes(root / "m8", gemm, [outcome(gemm, "seed_m8_01_selector", 8)], INFO)
    kernels = [
        outcome(gemm, "honest", 512, (10.0,) * 3, (5.0,) * 3, first_line="// expect: pass"),
        outcome(gemm, "blas", 512, first_line="// expect: static, cublas"),
        outcome(gemm, "slips", 512, (10.0,) * 3, (5.0,) * 3, first_line="// expect: correct, not written (at all)"),
    ]
    write_outcomes(root / "suite", gemm, kernels, INFO)
    (root / "suite" / "suite.md").write_text("as the command leaves it")
    # Evaluated once more into the same folder: the last trace counts.
    write_outcomes(root / "suite", gemm, kernels[:1], INFO)
    assert collect([root / name for name in ("m64", "suite", "oracle", "m8")], root / "data") == {
        "baseline": 6, "suite": 3,
    }  # fmt: skip
    return root / "data"


def test_speedups_are_those_worked_out_by_hand(place: Path) -> None:
    section = summarise(place)
    assert (section["hardware"], section["libs"]) == (["NVIDIA H200"], ["cupti 130001, nvcc 13.0"])
    small, large = section["sizes"]
    assert (small["m"], large["m"], large["n"], large["k"]) == (8, 64, 7168, 5120)
    picks = {pick["key"]: pick for pick in large["picks"]}
    first = picks["first"]
    # Medians 100 and 125; trials 100 / 120, 100 / 125, 104 / 130.
    assert (first["latency_us"], first["cublas_us"], first["speedup"]) == (125.0, 100.0, 0.8)
    assert first["speedup_range"] == [0.8, 0.8333]
    assert (first["spread"], first["cublas_spread"]) == (0.01, 0.02)
    # Back to back 2 * 1.5 * 100 over 2 * 125, idle 4 * 1.5 * 100 over 4 * 125.
    assert (first["offline"], first["server"]) == (1.2, 1.2)
    # The third would be the fastest, were it not for the target instruction.
    assert (picks["best"]["origin"], picks["best"]["title"]) == ("retrieved", "best of 4")
    assert (picks["retrieved"]["speedup"], picks["retrieved"]["timed_again"]) == (1.275, True)
    assert picks["retrieved"]["name"] == picks["best"]["name"]
    second = next(one for one in large["candidates"] if one["rank"] == 2)
    assert (second["speedup"], second["speedup_range"]) == (0.98, [0.9423, 1.0])
    assert (picks["oracle"]["speedup"], picks["oracle"]["rank"]) == (1.5, None)
    # cuBLAS took 100, 98, 100, 102 and 96 µs beside the five.
    assert (large["cublas_us"], large["cublas_range_us"], large["floor_us"]) == (100.0, [96.0, 102.0], 40.0)
    third = next(one for one in large["candidates"] if one["rank"] == 3)
    assert third["gates"] == {"static": True, "correct": True, "fast": True, "instruction": "no"}
    assert (third["failed_gate"], third["speedup"]) == ("instruction", 2.0)


def test_kernels_are_told_in_words(place: Path) -> None:
    one, two, three, *_ = summarise(place)["sizes"][1]["candidates"]
    assert one["kernel"] == "256x128x64 1x2, 4 stages, cooperative/tma, along_m, swizzle 4"
    assert two["kernel"] == "256x128x64 1x2, 4 stages, cooperative/tma, swapped"
    assert three["kernel"] == ""


def test_a_refused_candidate_has_no_time(place: Path) -> None:
    (pick,) = summarise(place)["sizes"][0]["picks"]
    assert (pick["key"], pick["failed_gate"], pick["reason"]) == (
        "first", "static", "source: cublas belongs to a library",
    )  # fmt: skip
    assert pick["gates"] == {"static": False, "correct": None, "fast": None, "instruction": None}
    assert [pick[name] for name in ("latency_us", "cublas_us", "speedup", "spread", "server")] == [None] * 5
    assert pick["speedup_range"] == [None, None]
    assert summarise(place)["sizes"][0]["cublas_us"] is None


def test_seconds_by_gate(place: Path) -> None:
    small, large = (size["seconds"] for size in summarise(place)["sizes"])
    assert large == {"static": 60.0, "correct": 1.0, "memcheck": 2.0, "instruction": 3.0, "fast": 4.0, "all": 70.0}
    assert (small["static"], small["fast"], small["all"]) == (10.0, None, 10.0)


def test_which_gate_caught_what(place: Path) -> None:
    suite = summarise(place)["suite"]
    assert (suite["kernels"], suite["met"]) == (3, 2)
    assert suite["gates"] == {
        "static": ["blas"], "correct": [], "instruction": [], "fast": [], "pass": ["honest", "slips"],
    }  # fmt: skip
    slips = next(row for row in suite["rows"] if row["kernel"] == "slips")
    assert (slips["expected"], slips["met"]) == ("correct (not written (at all))", False)
    # 10 s, and 70 s each of the two that passed.
    assert suite["seconds"]["all"] == 50.0
    assert not (place / "suite" / "solutions").exists()


def test_expectations_survive_their_table() -> None:
    expected = {
        "a": Expectation("static", "cublas"), "b": Expectation("pass", ""), "c": Expectation("fast", "as (b) is"),
    }  # fmt: skip
    rows = [SuiteRow(name, one, "static", 1.25, "source: cublas | twice") for name, one in expected.items()]
    table = suite_table(rows)
    assert table.splitlines()[2] == "| a | static (cublas) | static | yes | 1.2 | source: cublas / twice |"
    assert table.endswith("1 of 3 as expected")
    assert read_expectations(table) == expected


def test_what_was_gathered_before_is_replaced(place: Path, measured: Gemm, tmp_path: Path) -> None:
    write_outcomes(tmp_path / "new", measured, [outcome(measured, "seed_m8_01_selector", 8)], INFO)
    write_outcomes(tmp_path / "old", measured, [outcome(measured, "seed_m8_02_selector", 8)], INFO)
    into = tmp_path / "data"
    collect([tmp_path / "old"], into)
    (into / "FINDINGS.md").write_text("What limits the gap.\n")
    collect([tmp_path / "new"], into)
    assert [trace.solution for trace in TraceSet(into / "baseline").traces()] == ["seed_m8_01_selector"]
    assert [one.name for one in TraceSet(into / "baseline").solutions()] == ["seed_m8_01_selector"]
    assert len(TraceSet(into / "baseline").workloads()) == 1
    assert (summarise(into)["findings"], summarise(into)["suite"]) == ("What limits the gap.", {})


def test_what_does_not_belong_together_is_refused(measured: Gemm, tmp_path: Path) -> None:
    one = outcome(measured, "seed_m8_01_selector", 8)
    other = replace(one.solution, sources=(Source("kernel.cu", "// another\n"),))
    write_outcomes(tmp_path / "one", measured, [one], INFO)
    write_outcomes(tmp_path / "other", measured, [replace(one, solution=other)], INFO)
    with pytest.raises(DataError, match="different solution named seed_m8_01_selector"):
        collect([tmp_path / "one", tmp_path / "other"], tmp_path / "data")
    with pytest.raises(DataError, match="made from another source"):
        collect([tmp_path / "other"], tmp_path / "data")
    with pytest.raises(DataError, match="holds no traces"):
        collect([tmp_path / "missing"], tmp_path / "data")
    for path in (tmp_path / "one" / "solutions").rglob("*.json"):
        path.unlink()
    with pytest.raises(DataError, match="no solution seed_m8_01_selector"):
        collect([tmp_path / "one"], tmp_path / "data")
    assert not (tmp_path / "data").exists()


def test_a_table_of_another_suite_is_refused(place: Path, tmp_path: Path) -> None:
    shutil.copytree(place, tmp_path / "data")
    table = tmp_path / "data" / "suite" / "suite.md"
    table.write_text(table.read_text().replace("| blas |", "| blast |"))
    with pytest.raises(DataError, match="gather the suite again"):
        summarise(tmp_path / "data")


def test_nothing_committed_is_no_section(tmp_path: Path) -> None:
    assert summarise(tmp_path) == {}


class LargeTiles:
    """A ranker that is good enough for a report."""

    name, feature_set, calibration = "tiles", "none", None

    def score(self, columns: Columns, problem: Problem, hardware: object) -> np.ndarray:
        return columns["tile_m"] * columns["tile_n"] - columns["swizzle"]


def test_the_report_has_the_section(place: Path, synthetic_tables: Tables, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    shutil.copytree(place, tmp_path / "data")
    findings = "Limited by the <b>epilogue</b>:\n\n- 3% of a tile"
    (tmp_path / "data" / "FINDINGS.md").write_text(findings + "\n")
    report = make_report(tmp_path, synthetic_tables, [LargeTiles()], ptxbench=tmp_path / "data")
    assert report["ptxbench"] == summarise(tmp_path / "data")
    assert json.loads((tmp_path / "report.json").read_text())["ptxbench"] == report["ptxbench"]
    text = (tmp_path / "report.md").read_text()
    section = text.split("## PTXBench GEMM\n")[1].split("\n## ")[0]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in section.splitlines() if line[:1] == "|"]
    kernel = "256x128x64 1x2, 4 stages, cooperative/tma"
    assert [
        "64", "selector's first", f"{kernel}, along_m, swizzle 4", "125.00", "100.00", "0.800× (0.800–0.833)", "1.00%",
        "2.00%", "1.200×", "1.200×", "yes", "–",
    ] in rows  # fmt: skip
    assert ["64", "retrieved (again)", "", "80.00", "102.00", "1.275× (1.250–1.300)"] in [row[:6] for row in rows]
    assert ["8", "selector's first", "", *["–"] * 8, "static"] in rows
    assert ["static", "1", "blas"] in rows
    assert findings in section
    for block in re.findall(r"(?:^\|.*\|[ ]*$\n?)+", section, re.MULTILINE):
        assert len({line.count("|") for line in block.strip().splitlines()}) == 1, block
    html = (tmp_path / "report.html").read_text()
    assert '<td>0.800×<span class="ci">0.800–0.833</span></td>' in html
    assert '<div class="verbatim">Limited by the &lt;b&gt;epilogue&lt;/b&gt;:' in html
    assert "2 of 3 were refused by the gate meant for them" in html
    assert html.count("data:image/svg+xml;base64,") == len(list((tmp_path / "plots").glob("*.svg"))) == 7
    assert ElementTree.parse(tmp_path / "plots" / "ptxbench.svg").getroot().tag.endswith("svg")


def test_the_plot_shows_what_counts(place: Path) -> None:
    pytest.importorskip("matplotlib")
    import matplotlib as mpl
    from matplotlib.figure import Figure

    from cutlass_ranker.eval.drawing import STYLE, svg
    from cutlass_ranker.eval.ptxbench.plot import draw_baseline

    section = summarise(place)
    ax = Figure().subplots(1, 1)
    draw_baseline(ax, section)
    drawn = {str(line.get_label()): np.asarray(line.get_ydata()).tolist() for line in ax.lines}
    assert drawn["the selector's first"] == [0.8]
    assert drawn["the best seed"] == [1.275]
    assert drawn["best retrieved"] == [1.275]
    assert drawn["oracle of the catalogue"] == [1.5]
    # Two of the selector's, the retrieved one and the oracle, each with the range of its trials.
    dots = [np.asarray(line.get_ydata()).tolist() for line in ax.lines if line.get_color() == "#7da7cf"]
    assert dots == [[0.8], [0.98], [1.275], [1.5], []]
    assert [tick.get_text() for tick in ax.get_xticklabels()] == ["M = 8", "M = 64"]
    with mpl.rc_context(STYLE):
        first, second = (svg((8.4, 3.8), lambda axes: draw_baseline(axes[0], section)) for _ in range(2))
    assert first == second


shipped = pytest.mark.skipif(not (SHIPPED / "baseline").is_dir(), reason="no baseline was measured yet")


@shipped
def test_the_report_of_the_shipped_baseline(synthetic_tables: Tables, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    report = make_report(tmp_path, synthetic_tables, [LargeTiles()], ptxbench=SHIPPED)
    text, html = ((tmp_path / f"report.{kind}").read_text() for kind in ("md", "html"))
    for size in report["ptxbench"]["sizes"]:
        for pick in size["picks"]:
            assert f"| {size['m']} | {pick['title']}" in text
            assert f"{pick['speedup']:.3f}×" in html


@shipped
def test_the_shipped_baseline_is_whole() -> None:
    section = summarise(SHIPPED)
    assert [size["m"] for size in section["sizes"]] == [64, 512, 2048, 8192]
    for size in section["sizes"]:
        assert sorted(one["rank"] for one in size["candidates"] if one["rank"] is not None) == list(range(1, 9))
        assert [pick["key"] for pick in size["picks"]] == ["first", "best", "retrieved", "oracle"]
    traces = TraceSet(SHIPPED / "baseline")
    hashes = {one.name: source_hash(one) for one in traces.solutions()}
    for trace in traces.traces():
        assert trace.evaluation is not None
        assert hashes[str(trace.solution)] in trace.evaluation.log
    assert sum(path.stat().st_size for kind in ("baseline", "suite") for path in (SHIPPED / kind).rglob("*.*")) < 1.5e6
    adversaries = Path(__file__).parent / "adversaries"
    assert {row["kernel"] for row in section["suite"]["rows"]} <= {path.stem for path in adversaries.glob("*.cu")}
