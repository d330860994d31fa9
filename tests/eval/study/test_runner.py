"""Resuming: finished cells are kept, killed runs go on, workers give the same results."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from cutlass_ranker.eval.study import Store, StudyData, StudyFailed, run_cells
from cutlass_ranker.eval.study.cells import Work, key_of
from cutlass_ranker.eval.study.replay import SamplingCell
from cutlass_ranker.eval.study.runner import SECONDS_PER_UNIT, Estimate, missing, run_cell
from cutlass_ranker.eval.study.training import TrainingCell


@dataclass(frozen=True)
class Noted:
    """Writes its name into a file whenever it is computed."""

    name: str
    log: str
    units: float = 1.0
    fails: bool = False
    dies: bool = False

    @property
    def label(self) -> str:
        return self.name

    def to_json(self) -> dict:
        return {"name": self.name}

    def work(self, data: StudyData) -> Work:
        return Work("sample", self.units)

    def run(self, data: StudyData) -> dict:
        with Path(self.log).open("a") as file:
            file.write(f"{self.name}\n")
        if self.dies:
            os._exit(9)
        if self.fails:
            raise RuntimeError("no luck")
        return {"value": len(self.name)}


def noted(log: Path) -> list[str]:
    return log.read_text().split() if log.exists() else []


def test_no_cell_is_begun_that_would_end_too_late(study_data, tmp_path):
    store, log = Store(tmp_path), tmp_path / "log"
    second = 1.0 / SECONDS_PER_UNIT["sample"]
    cells = [
        Noted("long", str(log), 1000 * second),
        Noted("short", str(log), second),
        Noted("fair", str(log), 50 * second),
    ]
    assert run_cells(cells, study_data, store, seconds=60.0) == 2
    assert noted(log) == ["fair", "short"]
    assert [cell.label for cell in missing(cells, study_data, store)] == ["long"]


def test_a_second_run_computes_nothing(study_data, tmp_path):
    store, log = Store(tmp_path), tmp_path / "log"
    cells = [Noted(name, str(log)) for name in ("one", "two", "one")]
    assert run_cells(cells, study_data, store) == 2
    assert sorted(noted(log)) == ["one", "two"]
    assert run_cells([*cells, Noted("three", str(log))], study_data, store) == 1
    assert sorted(noted(log)) == ["one", "three", "two"]
    assert store.read(key_of(cells[0], study_data))["result"] == {"value": 3}


def test_a_run_that_breaks_off_keeps_what_was_finished(study_data, tmp_path):
    store, log = Store(tmp_path), tmp_path / "log"
    cells = [Noted("long", str(log), 9.0), Noted("broken", str(log), 5.0, fails=True), Noted("short", str(log), 1.0)]
    with pytest.raises(RuntimeError, match="no luck"):
        run_cells(cells, study_data, store)
    assert noted(log) == ["long", "broken"]  # the longest come first
    repaired = [replace(cell, fails=False) for cell in cells]
    assert run_cells(repaired, study_data, store) == 2
    assert noted(log) == ["long", "broken", "broken", "short"]


def test_other_data_are_another_result(study_data, tmp_path):
    store, log = Store(tmp_path), tmp_path / "log"
    cell = Noted("one", str(log))
    run_cells([cell], study_data, store)
    other = replace(study_data, training=study_data.training[1:])
    assert missing([cell], study_data, store) == []
    assert missing([cell], other, store) == [cell]


def test_damaged_results_are_computed_again(study_data, tmp_path):
    store, cell = Store(tmp_path), Noted("one", str(tmp_path / "log"))
    run_cell(cell, study_data, store)
    path = tmp_path / "cells" / f"{key_of(cell, study_data)}.json"
    path.write_text(path.read_text()[:-9])
    assert run_cells([cell], study_data, store) == 1


def test_keys_follow_settings_but_not_threads(study_data, tiny_options):
    config = tiny_options.training("xgboost", 0)
    cell = TrainingCell(config, ("stages", "log2_m"))
    others = [
        replace(cell, training=replace(config, seed=1)),
        replace(cell, training=replace(config, xgboost=replace(config.xgboost, max_depth=3))),
        replace(cell, features=("stages",)),
        replace(cell, shapes=3),
        replace(cell, shapes=3, draw=1),
        replace(cell, permutations=1),
    ]
    assert len({key_of(item, study_data) for item in (cell, *others)}) == 1 + len(others)
    threaded = replace(cell, training=replace(config, threads=8))
    assert key_of(threaded, study_data) == key_of(cell, study_data)
    assert json.loads(json.dumps(cell.to_json())) == cell.to_json()


def test_estimates_learn_from_finished_cells(study_data, tmp_path):
    store = Store(tmp_path)
    cell = Noted("one", str(tmp_path / "log"), 50.0)
    assert Estimate(study_data, store).seconds(cell) == 50.0 * SECONDS_PER_UNIT["sample"]
    for name, seconds, units in (("a", 3.0, 10.0), ("b", 5.0, 30.0)):
        store.write(name, {"seconds": seconds, "work": ["sample", units], "result": {}})
    assert Estimate(study_data, store).seconds(cell) == pytest.approx(50.0 * 8.0 / 40.0)


def test_workers_give_the_same_results_and_report_failures(study_data, tmp_path):
    cells = [SamplingCell(alpha, budget, 2) for alpha in (None, 1.0) for budget in (2, 8)]
    run_cells(cells, study_data, Store(tmp_path / "here"))
    done: list[str] = []
    count = run_cells(cells, study_data, Store(tmp_path / "there"), 2, lambda cell, record: done.append(cell.label))
    assert count == len(done) == 4
    for cell in cells:
        key = key_of(cell, study_data)
        assert Store(tmp_path / "there").read(key)["result"] == Store(tmp_path / "here").read(key)["result"]
    with pytest.raises(StudyFailed, match="of each problem's candidates” failed: ValueError"):
        run_cells([SamplingCell(None, 0, 2)], study_data, Store(tmp_path / "there"), 1)


def test_a_dying_worker_ends_the_run(study_data, tmp_path):
    with pytest.raises(StudyFailed, match="the worker of “one” died"):
        run_cells([Noted("one", str(tmp_path / "log"), dies=True)], study_data, Store(tmp_path), 1)


KILLED = """
import sys, time
from pathlib import Path
from cutlass_ranker.datasets import load
from cutlass_ranker.eval.study import Store, load_data, run_cells
from cutlass_ranker.eval.study.replay import SamplingCell
cells = [SamplingCell(None, budget, 200 if budget == 1 else 1) for budget in range(1, 4)]
# The budget of 1 has the most work and comes first; after it, this process waits to be killed.
run_cells(cells, load_data(sys.argv[1]), Store(sys.argv[2]), 0, lambda cell, record: time.sleep(600))
"""


def test_a_killed_run_goes_on(synthetic_tables, tmp_path):
    from cutlass_ranker.eval.study import load_data

    synthetic_tables.write(tmp_path / "data")
    process = subprocess.Popen([sys.executable, "-c", KILLED, str(tmp_path / "data"), str(tmp_path / "out")])
    try:
        deadline = time.monotonic() + 300
        while not list((tmp_path / "out").glob("cells/*.json")) and time.monotonic() < deadline:
            assert process.poll() is None
            time.sleep(0.05)
    finally:
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    data, store = load_data(tmp_path / "data"), Store(tmp_path / "out")
    cells = [SamplingCell(None, budget, 200 if budget == 1 else 1) for budget in range(1, 4)]
    assert missing(cells, data, store) == cells[1:]
    assert run_cells(cells, data, store) == 2
    assert missing(cells, data, store) == []
