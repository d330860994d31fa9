"""The report on synthetic data: keys, determinism, content."""

import json
import re
import sys
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from cutlass_ranker.datasets import Tables, groups
from cutlass_ranker.eval import make_report, regimes_of
from cutlass_ranker.generator import Columns, DataError, MissingDependency, Problem

STATISTICS = {
    "mean_regret", "median_regret", "p95_regret", "max_regret", "within_1", "within_5", "within_10", "top1",
}  # fmt: skip
BASELINES = {"nvmmh_mean", "nvmmh_best", "cublaslt_first", "cublaslt_best", "static_best"}


class PreferTile:
    """A ranker that likes tiles near a size."""

    feature_set = "none"

    def __init__(self, name: str, area: float) -> None:
        self.name = name
        self.area = area

    def score(self, columns: Columns, problem: Problem, hardware: object) -> np.ndarray:
        area = np.minimum(columns["tile_m"], problem.m) * np.minimum(columns["tile_n"], problem.n)
        return -np.abs(np.log(area / self.area)) - 0.01 * columns["swizzle"]


RANKERS = [PreferTile("xgboost", 128 * 128), PreferTile("mlp", 64 * 16)]


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory, synthetic_tables: Tables) -> tuple[dict, Path]:
    out = tmp_path_factory.mktemp("report")
    return make_report(out, synthetic_tables, RANKERS), out


def test_json_has_the_promised_keys(report):
    _, out = report
    data = json.loads((out / "report.json").read_text())
    assert set(data["methods"]) == {"xgboost", "mlp", "analytic", "random", *BASELINES}
    for method in data["methods"].values():
        assert set(method) >= STATISTICS
        assert all(isinstance(method[name], float) and method[name] <= 1.0 for name in STATISTICS)
        for name in STATISTICS:
            low, high = method["ci"][name]
            assert low <= method[name] + 1e-6
            assert method[name] <= high + 1e-6
    assert set(data["speedup"]) == BASELINES
    for values in data["speedup"].values():
        assert set(values) >= {"geomean", "win_rate", "problems"}
    assert data["evaluation"]["groups"] == data["evaluation"]["listed_problems"] == 8


def test_json_agrees_with_a_direct_calculation(report, synthetic_tables):
    data, _ = report
    regrets, ratios = [], []
    cublas = synthetic_tables.baselines.query("method == 'cublaslt_first'").set_index("problem_id")["time_us"]
    for group in groups(synthetic_tables, split="eval"):
        scores = np.where(group.default_launch, RANKERS[0].score(group.columns, group.problem, None), -np.inf)
        tied = np.flatnonzero(scores == scores.max())
        # Ties go to the lowest kernel id; the ranker prefers swizzle 1, so the kernel keeps its default launch.
        best = min(tied, key=lambda row: (group.kernel_id[row], group.columns["swapped"][row]))
        regrets.append(1 - group.oracle_us / group.time_us[best])
        ratios.append(cublas[group.problem_id] / group.time_us[best])
    assert data["methods"]["xgboost"]["mean_regret"] == pytest.approx(np.mean(regrets), rel=1e-5)
    assert data["methods"]["xgboost"]["max_regret"] == pytest.approx(np.max(regrets), rel=1e-5)
    assert data["speedup"]["cublaslt_first"]["geomean"] == pytest.approx(np.exp(np.mean(np.log(ratios))), rel=1e-5)
    assert data["speedup"]["cublaslt_first"]["win_rate"] == pytest.approx(np.mean(np.array(ratios) > 1))
    listed = [row["methods"]["xgboost"]["regret"] for row in data["problems"]]
    assert listed == pytest.approx(regrets, rel=1e-4, abs=1e-5)


def test_missing_answers_are_counted(report):
    data, _ = report
    # nvMMH's pick for 16x8192x8192 was never measured.
    assert data["methods"]["nvmmh_best"]["groups"] == 7
    assert data["methods"]["nvmmh_best"]["coverage"] == pytest.approx(7 / 8)
    assert data["speedup"]["nvmmh_best"]["problems"] == 7
    row = next(row for row in data["problems"] if row["m"] == 16)
    assert row["methods"]["nvmmh_best"] == {"time_us": None, "regret": None}


def test_slices_and_noise(report):
    data, _ = report
    counts = {key: value["groups"] for key, value in data["regimes"].items()}
    # small M: 64, 16, 32; long K: 32x128x8192 only (4096 < 4 * 2056); large: the first two and PTXBench's;
    # skinny: 2056x136 and 512x8192; ragged: 2056x136
    assert counts == {
        "small_m": 3, "long_k": 1, "large": 3, "skinny": 2, "ragged": 1,
        "source:deepbench": 5, "source:paper": 3, "source:ptxbench": 1,
    }  # fmt: skip
    # The repeat is 1% slower than the first pass, and every spread is 1.1%.
    assert data["noise"]["repeat"] == pytest.approx(0.01, abs=1e-4)
    assert data["noise"]["spread"] == pytest.approx(0.011, abs=1e-6)
    assert data["noise"]["oracles_retaken"] == 1.0
    assert data["provenance"]["campaigns"][0]["rows"]["hang"] == 1


def test_regimes_of_a_problem():
    assert regimes_of(Problem(64, 4096, 4096)) == ("small_m",)
    assert regimes_of(Problem(2056, 136, 4096)) == ("skinny", "ragged")
    assert regimes_of(Problem(8192, 7168, 5120)) == ("large",)
    assert regimes_of(Problem(256, 256, 16384)) == ("long_k",)
    assert regimes_of(Problem(300, 304, 320)) == ("ragged",)


def test_same_data_give_the_same_bytes(report, synthetic_tables, tmp_path):
    _, out = report
    make_report(tmp_path, synthetic_tables, RANKERS)
    written = sorted(path.relative_to(out) for path in out.rglob("*") if path.is_file())
    assert len(written) == 8
    for path in written:
        assert (tmp_path / path).read_bytes() == (out / path).read_bytes(), path


def test_html_carries_the_numbers_and_everything_it_needs(report):
    data, out = report
    html = (out / "report.html").read_text()
    for method in data["methods"].values():
        row = re.search(rf"<tr[^>]*><td>{re.escape(method['title'])}</td>(.*?)</tr>", html, re.DOTALL)
        assert row is not None, method["title"]
        assert f"{100 * method['mean_regret']:.1f}%".replace("-", "−") in row.group(1)
    assert "8192×7168×5120" in html
    assert not re.search(r'(src|href)="(?!data:|#)', html)
    assert html.count("data:image/svg+xml;base64,") == 5


def test_markdown_tables_are_well_formed(report):
    _, out = report
    blocks = re.findall(r"(?:^\|.*\|[ ]*$\n?)+", (out / "report.md").read_text(), re.MULTILINE)
    assert len(blocks) == 6
    for block in blocks:
        lines = block.strip().splitlines()
        assert len({line.count("|") for line in lines}) == 1, lines[0]
        assert len(lines) >= 3
        assert set(lines[1]) <= set("|- ")


def test_plots_are_xml(report):
    _, out = report
    for path in (out / "plots").glob("*.svg"):
        assert ElementTree.parse(path).getroot().tag.endswith("svg")


def test_no_evaluation_problem_is_an_error(synthetic_tables, tmp_path):
    training = replace(synthetic_tables, problems=synthetic_tables.problems.query("split == 'train'"))
    with pytest.raises(DataError, match="no evaluation problem"):
        make_report(tmp_path, training, RANKERS)


def test_every_shipped_model_is_evaluated_the_default_first(synthetic_tables, tmp_path, monkeypatch):
    shipped = {"mlp": RANKERS[1], "xgboost": RANKERS[0], "default": RANKERS[0]}
    monkeypatch.setattr("cutlass_ranker.eval.report.load_model", shipped.__getitem__)
    monkeypatch.setattr("cutlass_ranker.eval.report.model_names", lambda: ["mlp", "xgboost"])
    data = make_report(tmp_path, synthetic_tables)
    assert data["default_model"] == "xgboost"
    assert [name for name, method in data["methods"].items() if method["kind"] == "ranker"] == ["xgboost", "mlp"]


def test_missing_extra_is_named(synthetic_tables, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(MissingDependency, match=r"jinja2.*cutlass-ranker\[report\]"):
        make_report(tmp_path, synthetic_tables, RANKERS)


def test_no_model_is_an_error(synthetic_tables, tmp_path):
    with pytest.raises(DataError, match="at least one"):
        make_report(tmp_path, synthetic_tables, [])
