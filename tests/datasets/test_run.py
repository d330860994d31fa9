"""The campaign runner, tried on a simulated engine: results, culprits, resuming after kills."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from cutlass_ranker.datasets import records
from cutlass_ranker.datasets.measure import KEY_COLUMNS
from cutlass_ranker.datasets.plan import Plan, write_plan
from cutlass_ranker.datasets.protocol import floor_us, interleave, summarise
from cutlass_ranker.datasets.records import KEY, Phase, Recorder, Status, new_rows, read_baselines, read_raw, read_rows
from cutlass_ranker.datasets.run import Limits, Summary, run_campaign
from cutlass_ranker.datasets.simulation import SimulatedEngine
from cutlass_ranker.datasets.status import NO_KERNEL, State, StatusFile
from cutlass_ranker.generator import MeasurementError, Problem, candidates_for, enumerate_configs, enumerate_launches
from cutlass_ranker.generator import columns as col

SIMULATION = "cutlass_ranker.datasets.simulation:SimulatedEngine"
H200 = {"sm_count": 132, "clock_khz": 1_980_000, "memory_clock_khz": 3_201_000, "memory_bus_bits": 6144}
SHAPES = ((256, 512, 1024), (64, 512, 512), (512, 256, 2048))


def make_plan(directory: Path, kernels_each: int = 20, required: int = 3) -> Plan:
    """A plan of three problems and some kernels of TNT and TNN."""
    problems = [Problem(*shape, "TNT") for shape in SHAPES]
    parts = []
    for layout in ("TNT", "TNN"):
        configs = enumerate_configs(layout)
        rows = np.flatnonzero(
            (configs["tile_m"] <= 128) & (configs["tile_n"] <= 64) & (configs["cluster_m"] * configs["cluster_n"] <= 2)
        )
        parts.append(col.take(configs, np.random.default_rng(1).choice(rows, kernels_each, replace=False)))
    configs = col.concat(parts)
    kernels = pd.DataFrame({name: configs[name] for name in col.CONFIG_COLUMNS})
    kernels.insert(0, "name", [f"kernel{i}" for i in range(len(kernels))])
    kernels.insert(0, "kernel_id", np.arange(100, 100 + len(kernels), dtype=np.int32))
    table = pd.DataFrame(
        [
            (i, p.m, p.n, p.k, "TNT", "bf16", "test", "train", i)
            for i, p in enumerate(problems)
        ],
        columns=["problem_id", "M", "N", "K", "layout", "dtype", "sources", "split", "priority"],
    )  # fmt: skip
    candidates = []
    for i, problem in enumerate(problems):
        columns, origin = candidates_for(configs, problem)
        first = pd.DataFrame({name: columns[name] for name in ("swapped", *col.LAUNCH_COLUMNS)})
        candidates.append(first.assign(problem_id=i, kernel_id=kernels["kernel_id"].to_numpy()[origin], kind=0))
        extra = candidates[-1].iloc[:required].assign(raster=2, swizzle=4, kind=1)
        candidates.append(extra)
    none = pd.DataFrame({"problem_id": np.zeros(0, dtype=np.int32)})
    meta = {"name": "test", "purpose": "main", "seed": 3, "options": {"launches_for_best": 4, "retake_top": 5}}
    plan = Plan(kernels, table, pd.concat(candidates, ignore_index=True), none, none, meta)
    write_plan(plan, directory)
    return plan


def campaign(tmp_path: Path, seconds: float = 120.0, hang_s: float = 2.5, **simulation: object) -> Summary:
    return run_campaign(
        tmp_path / "plan", tmp_path / "build", tmp_path / "out", seconds, ["0"],
        limits=Limits(hang_s=hang_s, setup_s=60.0), simulation=SIMULATION, simulation_options=simulation,
        progress=False,
    )  # fmt: skip


def key_set(frame: pd.DataFrame) -> set[tuple[int, ...]]:
    return set(map(tuple, frame[["problem_id", *KEY_COLUMNS]].astype(int).to_numpy().tolist()))


def test_complete_campaign(tmp_path: Path) -> None:
    plan = make_plan(tmp_path / "plan")
    summary = campaign(tmp_path)
    assert (summary.problems_done, summary.problems, summary.stopped) == (3, 3, False)
    rows = read_rows(tmp_path / "out")
    assert len(rows) == summary.rows
    assert not rows.duplicated(["problem_id", *KEY_COLUMNS]).any()
    assert key_set(plan.candidates) <= key_set(rows)
    for i, shape in enumerate(SHAPES):
        group = rows[rows["problem_id"] == i]
        # Racing: exactly the candidates slower than 1.5 times the best of their phase carry two launches.
        coarse = group["status"] == "coarse"
        assert (group.loc[coarse, "launches"] == 2).all()
        assert (group.loc[~coarse, "launches"] == 10).all()  # the simulation's times are all over 20 us
        first = group.merge(plan.candidates[plan.candidates["kind"] == 0], on=["problem_id", *KEY_COLUMNS])
        best = first["time_us"].min()
        assert (first.loc[first["status"] == "coarse", "time_us"] > 1.35 * best).all()
        assert (first.loc[first["status"] == "ok", "time_us"] < 1.65 * best).all()
        # Retake: the five fastest of the group, with both timers.
        retaken = group[group["retake_us"].notna()]
        assert len(retaken) == 5
        assert retaken["time_us"].max() <= group.loc[group["retake_us"].isna() & ~coarse, "time_us"].min()
        assert np.allclose(retaken["retake_us"], retaken["time_us"], rtol=0.03)
        assert np.allclose(retaken["graph_us"], retaken["retake_us"] + 1.0, rtol=0.03)
        # The launches of the four best kernels are all there.
        best_four = first[first["status"] == "ok"].nsmallest(4, "time_us")["kernel_id"]
        configs = plan.kernels.set_index("kernel_id").loc[best_four]
        columns = {name: configs[name].to_numpy(dtype=np.int32) for name in col.CONFIG_COLUMNS}
        launches, origin = enumerate_launches(columns, Problem(*shape, "TNT"))
        expected = pd.DataFrame({name: launches[name] for name in ("swapped", *col.LAUNCH_COLUMNS)})
        expected = expected.assign(problem_id=i, kernel_id=best_four.to_numpy()[origin])
        assert key_set(expected) <= key_set(group)
    assert rows["probe_ratio"].between(0.9, 1.1).all()
    baselines = read_baselines(tmp_path / "out")
    assert sorted(baselines["method"]) == ["cublaslt_best"] * 3 + ["cublaslt_first"] * 3
    best = baselines.merge(rows.groupby("problem_id", as_index=False)["retake_us"].min())["retake_us"]
    assert best.between(25.0, 45.0).all()
    assert (baselines["launches"] == 180).all()  # those of the final
    pivot = baselines.pivot(index="problem_id", columns="method", values="time_us")
    assert (pivot["cublaslt_best"] <= pivot["cublaslt_first"]).all()
    record = records.read_campaign(tmp_path / "out")
    assert (record["gpu"], record["purpose"], record["operands"], record["workers"]) == (
        "Simulated H200",
        "main",
        "cold",
        1,
    )
    assert record["graph_overhead_us"] == pytest.approx(
        2.5, abs=0.05
    )  # 1.5 us of the null kernel and 1 us of the timer
    assert record["probe_us"] == pytest.approx(90.0, rel=0.01)
    again = campaign(tmp_path)
    assert (again.rows, again.problems_done) == (0, 3)


def test_faults_cost_their_own_row(tmp_path: Path) -> None:
    plan = make_plan(tmp_path / "plan", required=0)
    expected = {
        "wrong": "wrong", "refused": "refused", "launch_failed": "launch_failed", "below_floor": "below_floor",
        "hang": "hang", "lost": "crash", "abort": "crash",
    }  # fmt: skip
    first = plan.candidates[plan.candidates["problem_id"] == 0]["kernel_id"].to_numpy()
    names = plan.kernels.set_index("kernel_id")["name"]
    chosen = dict(zip(first[:: len(first) // len(expected)], expected, strict=False))
    campaign(tmp_path, faults={names[kernel]: fault for kernel, fault in chosen.items()}, missing=[names[first[1]]])
    rows = read_rows(tmp_path / "out")
    assert len(chosen) == len(expected)
    for kernel, fault in chosen.items():
        group = rows[rows["kernel_id"] == kernel]
        assert len(group) == (plan.candidates["kernel_id"] == kernel).sum()
        assert set(group["status"]) == {expected[fault]}
        assert group[["time_us", "spread", "retake_us", "graph_us"]].isna().all(axis=None)
    assert (rows.loc[rows["status"] == "wrong", "wrong"] == 7).all()
    others = rows[~rows["kernel_id"].isin(list(chosen))]
    assert set(others["status"]) <= {"ok", "coarse"}
    built = plan.candidates[plan.candidates["kernel_id"] != first[1]]
    assert key_set(built) <= key_set(rows)
    assert first[1] not in set(rows["kernel_id"])
    assert len(records.done_problems(tmp_path / "out")) == 3


def test_hang_after_the_first_pass_overrules_its_time(tmp_path: Path) -> None:
    plan = make_plan(tmp_path / "plan", required=0)
    kernel = plan.candidates["kernel_id"].iloc[0]
    campaign(tmp_path, faults={plan.kernels.set_index("kernel_id").loc[kernel, "name"]: "retake_hang"})
    rows = read_rows(tmp_path / "out")
    group = rows[rows["kernel_id"] == kernel]
    assert set(group["status"]) <= {"hang", "coarse"}
    assert "hang" in set(group["status"])
    assert set(rows.loc[rows["kernel_id"] != kernel, "status"]) <= {"ok", "coarse"}


@pytest.mark.parametrize("victim", ["supervisor", "worker"])
def test_killed_twice_and_resumed(tmp_path: Path, victim: str) -> None:
    plan = make_plan(tmp_path / "plan")
    out = tmp_path / "out"
    code = (
        "import sys, json\n"
        "from cutlass_ranker.datasets.run import run_campaign\n"
        "options = json.loads(sys.argv[5])\n"
        "run_campaign(*sys.argv[1:4], 120.0, ['0'], simulation=sys.argv[4], simulation_options=options, progress=False)"
    )
    starts = tmp_path / "starts"
    options = json.dumps({"launch_s": 0.0005, "starts": str(starts)})
    command = [
        sys.executable,
        "-c",
        code,
        str(tmp_path / "plan"),
        str(tmp_path / "build"),
        str(out),
        SIMULATION,
        options,
    ]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}

    def wait_for_rows(more_than: int, process: subprocess.Popen[bytes]) -> int:
        limit = time.monotonic() + 60
        while time.monotonic() < limit and process.poll() is None:
            if len(read_raw(out)) > more_than:
                return len(read_raw(out))
            time.sleep(0.01)
        raise AssertionError(f"no rows; exit status {process.poll()}")

    seen = 0
    process = subprocess.Popen(command, env=environment)
    for _ in range(2):
        seen = wait_for_rows(seen, process)
        if victim == "supervisor":
            process.send_signal(signal.SIGKILL)
            process.wait()
            time.sleep(0.2)  # its worker dies with it
            assert len(read_raw(out)) >= seen
            seen = len(read_raw(out))
            process = subprocess.Popen(command, env=environment)
        else:
            os.kill(int(starts.read_text().split()[-1]), signal.SIGKILL)
    assert process.wait(120) == 0
    rows = read_rows(out)
    assert key_set(plan.candidates) <= key_set(rows)
    assert not rows.duplicated(["problem_id", *KEY_COLUMNS]).any()
    # Nobody is blamed for a kill from outside.
    assert set(rows["status"]) == {"ok", "coarse"}
    assert len(starts.read_text().split()) == 3
    assert records.done_problems(out) == {0, 1, 2}


def test_time_budget_stops_between_batches(tmp_path: Path) -> None:
    make_plan(tmp_path / "plan")
    began = time.monotonic()
    summary = campaign(tmp_path, seconds=3.0, launch_s=0.003)
    assert summary.stopped
    assert summary.problems_done < 3
    assert time.monotonic() - began < 10.0
    assert campaign(tmp_path).problems_done == 3


def test_sigterm_ends_cleanly(tmp_path: Path) -> None:
    make_plan(tmp_path / "plan")
    signal.signal(signal.SIGALRM, lambda *_: os.kill(os.getpid(), signal.SIGTERM))
    signal.setitimer(signal.ITIMER_REAL, 3.0)
    began = time.monotonic()
    summary = campaign(tmp_path, launch_s=0.003)
    assert summary.stopped
    assert time.monotonic() - began < 15.0
    assert json.loads((tmp_path / "out" / "campaign-0.json").read_text())["finished"]


def test_problem_that_cannot_be_set_up_is_given_up(tmp_path: Path) -> None:
    make_plan(tmp_path / "plan")
    assert campaign(tmp_path, fail_problem=1).problems_done == 3
    rows = read_rows(tmp_path / "out")
    assert set(rows["problem_id"]) == {0, 2}
    given_up = [note for note in records.read_notes(tmp_path / "out") if "given_up" in note]
    assert [note["problem_id"] for note in given_up] == [1]
    assert "out of memory" in given_up[0]["given_up"]


def test_engine_that_cannot_start_is_an_error(tmp_path: Path) -> None:
    make_plan(tmp_path / "plan")
    with pytest.raises(MeasurementError, match=r"3 problems are not measured.*unexpected keyword"):
        campaign(tmp_path, no_such_option=1)


def test_second_run_into_the_same_directory_is_refused(tmp_path: Path) -> None:
    import fcntl

    make_plan(tmp_path / "plan")
    (tmp_path / "out").mkdir()
    with (tmp_path / "out" / "lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(MeasurementError, match="another run"):
            campaign(tmp_path)


def make_rows(count: int, at_s: float, problem_id: int = 0) -> np.ndarray:
    keys = np.zeros(count, dtype=KEY)
    keys["kernel_id"] = np.arange(count)
    rows = new_rows(problem_id, keys, 0)
    rows["phase"], rows["at_s"], rows["time_us"] = Phase.FIRST, at_s, 10.0 + np.arange(count)
    return rows


def test_partial_record_is_ignored_and_new_files_are_made(tmp_path: Path) -> None:
    Recorder(tmp_path, "a").rows(make_rows(3, 1.0))
    path = tmp_path / "rows-a-0.bin"
    path.write_bytes(path.read_bytes()[:-5])
    assert list(read_raw(tmp_path)["time_us"]) == [10.0, 11.0]
    Recorder(tmp_path, "a").rows(make_rows(1, 2.0, problem_id=1))
    assert sorted(p.name for p in tmp_path.glob("rows*")) == ["rows-a-0.bin", "rows-a-1.bin"]
    assert list(read_raw(tmp_path, 1)["time_us"]) == [10.0]


def test_later_rows_supersede_and_looks_are_dropped(tmp_path: Path) -> None:
    late, early = make_rows(2, 5.0), make_rows(3, 1.0)
    late["time_us"] = [70.0, 80.0]
    late["status"][1] = Status.HANG
    early["phase"][2] = Phase.LOOK
    Recorder(tmp_path, "b").rows(late)
    Recorder(tmp_path, "z").rows(early)
    rows = read_rows(tmp_path).sort_values("kernel_id")
    assert list(rows["kernel_id"]) == [0, 1]
    assert list(rows["status"]) == ["ok", "hang"]
    assert rows["time_us"].iloc[0] == 70.0
    assert np.isnan(rows["time_us"].iloc[1])


def test_half_a_note_is_ignored(tmp_path: Path) -> None:
    Recorder(tmp_path, "a").note("done", problem_id=4)
    with (tmp_path / "notes-a-0.jsonl").open("a") as file:
        file.write('{"kind": "done", "prob')
    assert records.done_problems(tmp_path) == {4}


def test_culprit_is_the_first_item_that_did_not_finish(tmp_path: Path) -> None:
    status = StatusFile(tmp_path / "status", create=True)
    keys = make_rows(4, 0.0)["key"].copy()
    keys["kernel_id"][3] = NO_KERNEL
    status.batch(7, keys)
    other = StatusFile(tmp_path / "status")
    assert other.culprit() is None  # the engine has not begun
    status.advance(2, armed=True)
    culprit = other.culprit()
    assert culprit is not None
    assert culprit["kernel_id"][0] == 2
    assert (other.problem_id, other.state) == (7, State.BATCH)
    status.advance(3, armed=True)
    assert other.culprit() is None  # no candidate
    status.advance(4, armed=True)
    assert other.culprit() is None  # all done
    status.advance(1, armed=True)
    status.slow(7)
    assert other.culprit() is None


def test_summary_of_launches() -> None:
    times = np.array([30.0, 10.0, 20.0, 100.0])
    # Quartiles by linear interpolation: 17.5, 25, 47.5.
    assert summarise(times, small_us=20.0) == (25.0, pytest.approx(30.0 / 25.0))
    # Middle half of eight sorted values 1..8 is 3, 4, 5, 6: mean 4.5; quartiles 2.75 and 6.25.
    value, spread = summarise(np.array([8.0, 1, 7, 2, 6, 3, 5, 4.0]), small_us=20.0)
    assert (value, spread) == (4.5, pytest.approx(3.5 / 4.5))
    skewed = np.array([4.0, 4, 4, 4, 4.256, 4.256, 4.256, 99])
    assert summarise(skewed, small_us=20.0)[0] == pytest.approx((4 + 4 + 4.256 + 4.256) / 4)


def test_roofline_floor() -> None:
    # 2 * 8192^3 FLOP at 132 * 4096 * 1.98e9 FLOP/s = 1.0706e15: 1027 us, less 2%.
    assert floor_us(Problem(8192, 8192, 8192), H200) == pytest.approx(0.98 * 1027.06, rel=1e-4)
    # B alone: 2 * 8192 * 8192 B and A: 2 * 16 * 8192 B at 2 * 3.201e9 * 768 B/s = 4.9167e12: 27.351 us, less 2%.
    assert floor_us(Problem(16, 8192, 8192), H200) == pytest.approx(0.98 * 27.3513, rel=1e-4)


def test_interleaving_visits_every_item_in_each_round() -> None:
    order = interleave(np.array([3, 1, 2]), np.random.default_rng(0))
    assert sorted(order[:3]) == [0, 1, 2]
    assert sorted(order[3:5]) == [0, 2]
    assert list(order[5:]) == [0]


def test_simulated_times_are_reproducible(tmp_path: Path) -> None:
    engine = SimulatedEngine(StatusFile(tmp_path / "status", create=True))
    assert engine.true_us("x") == engine.true_us("x") != engine.true_us("y")
    assert 30.0 <= engine.true_us("x") <= 230.0
