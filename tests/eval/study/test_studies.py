"""Every study from its plan to the page, on tiny rankers, and the command line."""

import json
import re
from dataclasses import replace
from shutil import copy, copytree
from xml.etree import ElementTree

import numpy as np
import pytest
from typer.testing import CliRunner

from cutlass_ranker.eval.study import STUDIES, Store, make_options, make_page, run_cells
from cutlass_ranker.eval.study import training as training_module
from cutlass_ranker.eval.study.cells import Outcome, key_of
from cutlass_ranker.eval.study.cli import app, duration
from cutlass_ranker.eval.study.exhibits import Column
from cutlass_ranker.eval.study.page import show
from cutlass_ranker.eval.study.scores import difference, pick, score
from cutlass_ranker.features import describe_features, feature_names
from cutlass_ranker.generator import DataError
from cutlass_ranker.models import InvalidTraining

GROUPS = list(dict.fromkeys(feature.group for feature in describe_features("full")))


@pytest.fixture(scope="module")
def finished(tmp_path_factory, study_data, tiny_options):
    """All studies, run in this process, and the page."""
    store = Store(tmp_path_factory.mktemp("study"))
    for name, study in STUDIES.items():
        planned = study.plan(tiny_options, study_data)
        store.write_plan(name, planned, study_data, tiny_options)
        run_cells([item.cell for item in planned], study_data, store)
    return store, make_page(store.root)


def plan(name, options, data):
    return STUDIES[name].plan(options, data)


def test_plan_of_features(tiny_options, study_data):
    planned = plan("features", tiny_options, study_data)
    assert len(planned) == 2 * 3 * 2  # families, objectives, feature sets
    for item in planned:
        assert item.cell.training.kind == item.labels["kind"]
        assert item.cell.training.objective == item.labels["objective"]
        assert item.cell.training.seed == item.labels["seed"]
        assert item.cell.features == feature_names(item.labels["features"])


def test_plan_of_groups_removes_one_group_each(tiny_options, study_data):
    planned = pick(plan("groups", tiny_options, study_data), kind="mlp", seed=0)
    assert [item.labels["without"] for item in planned] == ["nothing", *GROUPS]
    of = {feature.name: feature.group for feature in describe_features("full")}
    assert planned[0].cell.features == feature_names("full")
    for item in planned[1:]:
        assert [of[name] for name in item.cell.features].count(item.labels["without"]) == 0
        assert {of[name] for name in item.cell.features} == set(GROUPS) - {item.labels["without"]}
        dropped = [name for name in of if of[name] == item.labels["without"]]
        assert len(item.cell.features) == len(of) - len(dropped)
    assert [item.cell.permutations for item in planned] == [1] + [0] * len(GROUPS)


def test_plan_of_capacity(tiny_options, study_data):
    planned = plan("capacity", tiny_options, study_data)
    assert {item.cell.training.mlp.hidden for item in pick(planned, kind="mlp")} == {(4,), (8, 4)}
    assert {item.cell.training.xgboost.max_depth for item in pick(planned, kind="xgboost")} == {1, 2}
    assert len(planned) == 2 * 2


def test_plan_of_data(tiny_options, study_data):
    planned = pick(plan("data", tiny_options, study_data), kind="xgboost")
    assert [(item.cell.shapes, item.cell.draw, item.cell.training.seed) for item in planned] == [
        (2, 0, 0), (2, 1, 1), (None, 0, 0), (None, 0, 1),
    ]  # fmt: skip
    # A share of fewer shapes than folds is raised to the folds.
    small = plan("data", replace(tiny_options, fractions=(0.01,)), study_data)
    assert {item.cell.shapes for item in small} == {2}


def test_plan_of_sampling(tiny_options, study_data):
    planned = plan("sampling", tiny_options, study_data)
    assert {(item.cell.alpha, item.cell.budget) for item in planned} == {
        (alpha, budget) for alpha in (None, 0.0, 1.0) for budget in (2, 8)
    }


def test_studies_share_cells(tiny_options, study_data):
    """All shapes of ``data`` are the configured size of ``features``: computed once."""
    keys = {
        name: {key_of(item.cell, study_data) for item in plan(name, tiny_options, study_data)}
        for name in ("features", "data")
    }
    assert len(keys["features"] & keys["data"]) == 2  # families; the second draw has a seed of its own


def test_default_grids_are_those_of_the_question(study_data):
    options = make_options({})
    capacity = plan("capacity", options, study_data)
    assert {(16, 8), (1024, 1024, 512, 256)} <= {item.cell.training.mlp.hidden for item in pick(capacity, kind="mlp")}
    assert {item.cell.training.xgboost.max_depth for item in pick(capacity, kind="xgboost")} == set(range(2, 15, 2))
    assert {item.labels["seed"] for item in capacity} == {0, 1, 2}
    assert (min(options.fractions), max(options.fractions)) == (0.05, 1.0)


def test_everything_is_computed_once(finished, study_data, tiny_options, monkeypatch):
    """A second run of all studies trains nothing."""
    store, _ = finished

    def refuse(*_: object) -> None:
        raise AssertionError("trained again")

    monkeypatch.setattr(training_module, "fit_one", refuse)
    for name in STUDIES:
        assert run_cells([item.cell for item in plan(name, tiny_options, study_data)], study_data, store) == 0


def test_the_page_has_every_number_from_a_cell(finished, study_data, tiny_options):
    store, document = finished
    assert document == json.loads((store.root / "study.json").read_text())
    assert set(document) == set(STUDIES)
    for name, part in document.items():
        assert part["finished"] == part["planned"] == len(plan(name, tiny_options, study_data))
    # One row of `features`, worked out from its cells.
    (planned,) = pick(plan("features", tiny_options, study_data), kind="mlp", objective="mse", features="full")
    cell = store.read(key_of(planned.cell, study_data))["result"]
    rows = document["features"]["tables"]["features"]["rows"]
    (row,) = [r for r in rows if (r["kind"], r["objective"], r["features"]) == ("MLP", "MSE", "full")]
    assert row["mean"] == pytest.approx(np.mean(cell["regrets"]), abs=1e-6)
    assert row["cross"] == pytest.approx(cell["cross_validation"]["mean_regret"], abs=1e-6)
    assert row["interval"][0] <= row["mean"] <= row["interval"][1]
    # The rise of a left-out group is the difference of two rows.
    rows = document["groups"]["tables"]["left_out"]["rows"]
    complete, without = (
        next(r for r in rows if r["kind"] == "XGBoost" and r["without"] == name) for name in ("nothing", "memory")
    )
    assert without["change"] == pytest.approx(without["mean"] - complete["mean"], abs=2e-6)
    assert without["features"] < complete["features"] == len(feature_names("full"))
    # More candidates never leave more regret in the mean, and all strategies are there.
    rows = document["sampling"]["tables"]["sampling"]["rows"]
    assert len(rows) == 3
    assert all(row["b8"] <= row["b2"] for row in rows)
    sizes = {row["size"]: row["parameters"] for row in document["capacity"]["tables"]["capacity"]["rows"]}
    inputs = len(feature_names("full"))
    assert (sizes["4"], sizes["8x4"]) == (inputs * 4 + 4 + 4 + 1, inputs * 8 + 8 + 8 * 4 + 4 + 4 + 1)


def test_plots_are_files_that_the_page_carries(finished):
    store, document = finished
    names = [plot for part in document.values() for plot in part["plots"]]
    assert len(names) == len(set(names)) == 8
    page = (store.root / "study.html").read_text()
    assert page.count("data:image/svg+xml;base64,") == len(names)
    for name in names:
        ElementTree.fromstring((store.root / "plots" / f"{name}.svg").read_text())
        assert (store.root / "plots" / f"{name}.pdf").read_bytes().startswith(b"%PDF")
        assert (store.root / "plots" / f"{name}.png").read_bytes().startswith(b"\x89PNG")
    markdown = (store.root / "study.md").read_text()
    assert set(re.findall(r"\(plots/(\w+)\.svg\)", markdown)) == set(names)
    lines = [line for line in markdown.splitlines() if line.startswith("|")]
    assert len(lines) > 50
    assert all(line.endswith("|") for line in lines)


def test_plots_are_the_same_every_time(finished, tmp_path):
    store, _ = finished
    copytree(store.root / "cells", tmp_path / "cells")
    (tmp_path / "plans").mkdir()
    copy(store.root / "plans" / "sampling.json", tmp_path / "plans")
    make_page(tmp_path)
    files = [path for path in (tmp_path / "plots").iterdir() if path.suffix in (".svg", ".pdf", ".png")]
    assert len(files) == 6
    assert {path.name: path.read_bytes() for path in files} == {
        path.name: (store.root / "plots" / path.name).read_bytes() for path in files
    }


def test_the_page_of_an_unfinished_study(finished, study_data, tiny_options, tmp_path):
    store, planned = Store(tmp_path), plan("groups", tiny_options, study_data)
    store.write_plan("groups", planned, study_data, tiny_options)
    with pytest.raises(DataError, match="no finished cell"):
        make_page(tmp_path)
    key = key_of(planned[0].cell, study_data)
    store.write(key, finished[0].read(key))
    part = make_page(tmp_path)["groups"]
    assert (part["finished"], part["planned"]) == (1, len(planned))
    assert f"Unfinished: 1 of {len(planned)} cells" in (tmp_path / "study.html").read_text()


def outcome(regrets: list[float], cross: float, clusters: list[int]) -> Outcome:
    evaluation = {"median_regret": float(np.median(regrets)), "within_5": 0.5, "top1": 0.25}
    result = {
        "regrets": regrets, "clusters": clusters, "cross_validation": {"mean_regret": cross}, "evaluation": evaluation,
        "best_of": {"4": 0.01}, "model": {"parameters": 7}, "training": {"shapes": 3},
    }  # fmt: skip
    return Outcome({}, result)


def test_scores_by_hand():
    one = score([outcome([0.0, 0.2, 0.4], 0.3, [0, 1, 2]), outcome([0.2, 0.2, 0.2], 0.1, [0, 1, 2])])
    assert one.mean == pytest.approx(0.2)
    assert one.by_seed == pytest.approx((0.2, 0.2))
    assert one.regrets == pytest.approx([0.1, 0.2, 0.3])
    assert (one.cross, one.cross_by_seed) == (pytest.approx(0.2), (0.3, 0.1))
    assert one.median == pytest.approx(0.2)
    assert (one.within_5, one.top1, one.best_of_4, one.parameters, one.shapes) == (0.5, 0.25, 0.01, 7, 3)
    # 27 equally likely resamples of 0.1, 0.2, 0.3: each end, all thrice the same, has probability 1/27 > 2.5%.
    assert one.interval == pytest.approx((0.1, 0.3))
    shifted = score([outcome([0.15, 0.25, 0.35], 0.2, [0, 1, 2])])
    change, interval = difference(shifted, one)
    assert change == pytest.approx(0.05)
    assert interval == pytest.approx((0.05, 0.05))
    # Problems of one shape are drawn together: with a single shape there is nothing to resample.
    assert score([outcome([0.0, 0.4], 0.1, [5, 5])]).interval == pytest.approx((0.2, 0.2))


def test_values_in_the_readers_words():
    assert show({"x": 0.01234}, Column("x", "")) == "1.23%"
    assert show({"x": -0.01234}, Column("x", "", "points")) == "−1.23%"
    assert show({"x": 0.5, "i": (0.4, 0.6)}, Column("x", "", "points", "i")) == "+50.00% (+40.00 to +60.00)"
    assert show({"x": 12345.6}, Column("x", "", "int")) == "12,346"
    assert show({}, Column("x", "")) == "–"
    assert [duration(seconds) for seconds in (5.4, 600, 9000)] == ["5 s", "10 min", "2.5 h"]


@pytest.mark.parametrize(
    "given",
    [{"seeds": 0}, {"kinds": ("forest",)}, {"fractions": (0.0, 0.5)}, {"alphas": (1.5,)}, {"budgets": ()}],
)
def test_senseless_options_are_refused(given):
    with pytest.raises(InvalidTraining):
        make_options(given)


def test_quick_options_yield_to_what_is_given():
    options = make_options({"seeds": 2}, quick=True)
    assert (options.seeds, options.rounds, options.shapes) == (2, 32, 32)
    assert options.training("xgboost", 0).xgboost.rounds == 32
    assert make_options({}).training("xgboost", 0).xgboost.rounds == options.configs["xgboost"].xgboost.rounds


def call(*arguments):
    return CliRunner().invoke(app, list(map(str, arguments)))


def test_command_line(synthetic_tables, tmp_path):
    synthetic_tables.write(tmp_path / "data")
    sampling = ["sampling", "--out", tmp_path / "out", "--data", tmp_path / "data", "--budget", 4, "--alpha", 0.5]
    dry = call(*sampling, "--dry-run")
    assert dry.exit_code == 0, dry.output
    assert "sampling: 2 cells, 2 to run" in dry.output
    assert not (tmp_path / "out").exists()
    first = call(*sampling)
    assert first.exit_code == 0, first.output
    assert (tmp_path / "out" / "study.html").is_file()
    assert "sampling: 2 cells, 0 to run, about 0 s" in call(*sampling, "--dry-run").output
    (tmp_path / "out" / "study.json").unlink()
    again = call("report", "--out", tmp_path / "out")
    assert again.exit_code == 0, again.output
    assert list(json.loads((tmp_path / "out" / "study.json").read_text())) == ["sampling"]


def test_commands_take_only_the_options_that_they_read():
    assert call("sampling", "--out", "x", "--epochs", 3).exit_code == 2
    assert call("capacity", "--out", "x", "--budget", 3).exit_code == 2
    everything = call("all", "--help").output
    assert all(name in everything for name in ("--hidden", "--depth", "--fraction", "--budget", "--permutations"))


def test_training_through_the_command_line(synthetic_tables, tmp_path):
    """Another base configuration, one family, two depths; `all` plans what each study would."""
    synthetic_tables.write(tmp_path / "data")
    config = tmp_path / "mine.json"
    config.write_text(json.dumps({"kind": "xgboost", "folds": 2, "xgboost": {"rounds": 2, "learning_rate": 0.3}}))
    options = ["--out", tmp_path / "out", "--data", tmp_path / "data", "--config", config, "--kind", "xgboost"]
    made = call("capacity", *options, "--depth", 1, "--depth", 2, "--seeds", 1)
    assert made.exit_code == 0, made.output
    rows = json.loads((tmp_path / "out" / "study.json").read_text())["capacity"]["tables"]["capacity"]["rows"]
    assert [row["size"] for row in rows] == ["depth 1", "depth 2"]
    (record,) = [r for r in Store(tmp_path / "out").records() if r["cell"]["training"]["xgboost"]["max_depth"] == 1]
    assert record["cell"]["training"]["xgboost"]["learning_rate"] == 0.3
    planned = call("all", *options, "--depth", 1, "--depth", 2, "--seeds", 1, "--dry-run").output
    assert "capacity: 2 cells, 0 to run" in planned
    assert all(f"{name}: " in planned for name in STUDIES)
