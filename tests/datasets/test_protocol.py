"""Formulas of the measurement protocol, and the course of a problem under other conditions, on a simulated engine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cutlass_ranker.datasets.engine import PROBE_SLOT, Conditions
from cutlass_ranker.datasets.measure import Kernels, ProblemRun
from cutlass_ranker.datasets.meter import Meter
from cutlass_ranker.datasets.plan import Plan, write_plan
from cutlass_ranker.datasets.protocol import Options, draw_gaps, final_launches, final_times, floor_us
from cutlass_ranker.datasets.records import KEY, ROW, Phase, Recorder, read_baselines, read_campaign, read_raw
from cutlass_ranker.datasets.run import run_campaign
from cutlass_ranker.datasets.simulation import SERVER_US, WARM, SimulatedEngine
from cutlass_ranker.datasets.status import StatusFile
from cutlass_ranker.generator import MeasurementError, Problem, enumerate_configs
from cutlass_ranker.generator import columns as col

PROBLEM = Problem(256, 512, 1024)
KERNELS = 24
SIMULATION = "cutlass_ranker.datasets.simulation:SimulatedEngine"
SMALL = {"launches_for_best": 2, "retake_top": 12}


class Watched(SimulatedEngine):
    """A simulated engine that keeps what it was asked for."""

    def __init__(self, status: StatusFile, **options: Any) -> None:
        super().__init__(status, **options)
        self.timed: list[tuple[list[int], Conditions]] = []
        self.placements: list[int] = []
        self.graphs = 0

    def set_problem(self, m: int, n: int, k: int, layout: str, seed: int, placement: int = 0) -> None:
        super().set_problem(m, n, k, layout, seed, placement)
        self.placements.append(placement)

    def time(self, slots: np.ndarray, conditions: Conditions) -> np.ndarray:
        self.timed.append((slots.tolist(), conditions))
        return super().time(slots, conditions)

    def graph_time(self, slots: np.ndarray, rounds: int, conditions: Conditions) -> np.ndarray:
        self.graphs += 1
        return super().graph_time(slots, rounds, conditions)


def kernel_table() -> pd.DataFrame:
    configs = enumerate_configs("TNT")
    rows = np.flatnonzero((configs["tile_m"] == 64) & (configs["tile_n"] <= 64))
    configs = col.take(configs, np.random.default_rng(1).choice(rows, KERNELS, replace=False))
    table = pd.DataFrame({name: configs[name] for name in col.CONFIG_COLUMNS})
    table.insert(0, "name", [f"kernel{i}" for i in range(KERNELS)])
    table.insert(0, "kernel_id", np.arange(KERNELS, dtype=np.int32))
    return table


def measure(tmp_path: Path, options: Options, **simulation: Any) -> tuple[Watched, np.ndarray]:
    """Measure one problem; returns the engine and all records."""
    status = StatusFile(tmp_path / "status", create=True)
    engine = Watched(status, **simulation)
    meter = Meter(engine, status, Recorder(tmp_path, "test"), options, lambda: False)
    meter.calibrate()
    engine.graphs = 0
    keys = np.zeros(KERNELS, dtype=KEY)
    keys["kernel_id"], keys["swizzle"], keys["splits"] = np.arange(KERNELS), 1, 1
    run = ProblemRun(meter, Kernels.from_table(kernel_table()), 5, PROBLEM, np.zeros(0, dtype=ROW))
    run.run(keys, keys[:0])
    return engine, read_raw(tmp_path)


def last(rows: np.ndarray, phase: Phase) -> np.ndarray:
    return rows[rows["phase"] == phase]


def test_unknown_conditions_are_refused() -> None:
    with pytest.raises(MeasurementError, match="'tepid' is unknown; use one of cold, warm"):
        Options(operands="tepid")
    with pytest.raises(MeasurementError, match="mode 'online'"):
        Options(mode="online")


def test_launch_counts() -> None:
    # 20 launches under 20 us, but only within 1.5 times the best.
    counts = Options().launch_counts(np.array([8.0, 12.0, 12.1, 19.0, 25.0]), best_us=8.0)
    assert counts.tolist() == [20, 20, 10, 10, 10]
    assert Options().launch_counts(np.array([20.0, 21.0]), best_us=20.0).tolist() == [10, 10]


def test_flush_of_an_h200() -> None:
    assert Options().flush_bytes(62_914_560) == 138_412_032  # 132 MiB


def test_seconds_of_a_launch() -> None:
    times, l2_bytes = np.array([10.0, 1000.0]), 62_914_560
    flush = 138_412_032 / 3.8e12  # 36.4 us
    assert np.allclose(Options().launch_seconds(times, l2_bytes), [10e-6 + flush + 12e-6, 1e-3 + flush + 12e-6])
    assert np.allclose(Options(operands="warm").launch_seconds(times, l2_bytes), [38e-6, 2018e-6])
    # Mean of a log-uniform value: (b - a) / ln(b / a) = 9.9 ms / 4.605.
    server = Options(mode="server").launch_seconds(times, l2_bytes) - Options().launch_seconds(times, l2_bytes)
    assert np.allclose(server, 9.9e-3 / 4.60517, rtol=1e-5)


def test_gaps_are_log_uniform() -> None:
    gaps = draw_gaps(20_000, np.random.default_rng(0))
    assert 100.0 <= gaps.min() < 101.0
    assert 9_900.0 < gaps.max() <= 10_000.0
    assert np.median(gaps) == pytest.approx(1000.0, rel=0.05)  # the geometric mean of the ends
    assert (gaps < 10**2.5).mean() == pytest.approx(0.25, abs=0.02)


def test_roofline_floor_of_warm_operands() -> None:
    # Operands in L2: 2 * 16 * 8192^2 FLOP at 132 * 4096 * 1.98e9 FLOP/s take 2.006 us, less 2%.
    info = {"sm_count": 132, "clock_khz": 1_980_000, "memory_clock_khz": 3_201_000, "memory_bus_bits": 6144}
    assert floor_us(Problem(16, 8192, 8192), info, "warm") == pytest.approx(0.98 * 2.006, rel=1e-3)


def test_launches_of_the_final() -> None:
    assert [final_launches(us) for us in (5.0, 49.9, 50.0, 499.0, 500.0, 1e5)] == [180, 180, 45, 45, 30, 15]


def test_final_takes_out_drift_and_outliers() -> None:
    # Ratios 1, 1.01, 1.04 to the middle one; blocks drift by 30%, one launch is disturbed.
    true = np.array([10.0, 10.1, 10.4])
    drift = np.linspace(1.0, 1.3, 20)
    times = (drift[:, None] * true).reshape(2, 10, 3)
    times[1, 4, 0] *= 5.0
    values, noise, placed = final_times(times, before_us=np.array([10.0, 10.2, 10.2]))
    assert np.allclose(values / values[0], true / true[0])
    # Scaled so that the median of values / before is 1: before scaling 1, 0.990, 1.020 of the same factor.
    assert np.allclose(values, true)
    assert noise == pytest.approx(0.0, abs=1e-12)
    assert placed == pytest.approx(0.0, abs=1e-12)


def test_final_tells_the_noise_of_blocks_from_that_of_placements() -> None:
    rng = np.random.default_rng(0)
    shape = (40, 60, 9)
    noise_only = np.exp(0.01 * rng.standard_normal(shape))
    _, noise, placed = final_times(noise_only, np.ones(9))
    # A normal sample's mean has 0.01 / sqrt(60) = 0.129%. Trimming costs 3%; that a finalist is in its block's median,
    # or is it (1 in 9), saves more.
    assert 0.00110 < noise < 0.00135
    assert placed == pytest.approx(noise, rel=0.15)
    moved = noise_only * np.exp(0.006 * rng.standard_normal((40, 1, 9)))
    assert final_times(moved, np.ones(9))[2] == pytest.approx(0.006, rel=0.2)
    assert np.isnan(final_times(noise_only[:1], np.ones(9))[2])


@given(
    st.lists(st.floats(1.0, 100.0), min_size=2, max_size=6),
    st.integers(1, 3),
    st.integers(1, 12),
    st.floats(0.5, 2.0),
)
def test_final_of_exact_times_gives_them_back(true: list[float], placements: int, blocks: int, clock: float) -> None:
    before = np.array(true)
    values, _, _ = final_times(np.broadcast_to(clock * before, (placements, blocks, len(true))), before)
    assert np.allclose(values, before)


def test_final_decides_between_the_best(tmp_path: Path) -> None:
    engine, rows = measure(tmp_path, Options(race=3.0, **SMALL))
    retaken, final = last(rows, Phase.RETAKE), last(rows, Phase.FINAL)
    assert len(retaken) == 12
    best = retaken["retake_us"].min()
    near = np.sort(retaken["key"][retaken["retake_us"] <= 1.04 * best]["kernel_id"])
    assert np.sort(final["key"]["kernel_id"]).tolist() == near.tolist()
    assert engine.placements == [0, 0, 1, 2]
    # Three parts, each of a third of the launches for every finalist and cuBLASLt's first and best.
    parts = [slots for slots, _ in engine.timed if PROBE_SLOT not in slots][-3:]
    baselines = read_baselines(tmp_path)
    blas = 2 - int(baselines["algo"].nunique() == 1)
    each = final_launches(best) // 3
    for slots in parts:
        assert sorted(np.unique(slots, return_counts=True)[1]) == [each] * (len(final) + blas)
    note = next(json.loads(line) for line in (tmp_path / "notes-test-0.jsonl").open() if '"final"' in line)
    assert note["finalists"] == len(final) + blas
    assert 0 < note["noise"] < 0.01
    assert (baselines["launches"] == 3 * each).all()


def test_looks_count_among_the_launches(tmp_path: Path) -> None:
    engine, rows = measure(tmp_path, Options(race=100.0, **SMALL))
    first = last(rows, Phase.FIRST)
    assert (first["launches"] == 10).all()
    assert (last(rows, Phase.LOOK)["launches"] == 2).all()
    slots, _ = next(part for part in engine.timed if PROBE_SLOT not in part[0])
    assert np.unique(slots, return_counts=True)[1].tolist() == [8] * KERNELS


def test_a_failing_launch_leaves_the_retake_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = Watched.time

    def failing(self: Watched, slots: np.ndarray, conditions: Conditions) -> np.ndarray:
        times = plain(self, slots, conditions)
        if len(self.placements) > 1 and PROBE_SLOT not in slots:
            times[0] = np.nan
        return times

    monkeypatch.setattr(Watched, "time", failing)
    _, rows = measure(tmp_path, Options(**SMALL))
    retake = {row["key"].tobytes(): row["retake_us"] for row in last(rows, Phase.RETAKE)}
    for row in last(rows, Phase.FINAL):
        assert row["retake_us"] == retake[row["key"].tobytes()]
    assert "final was left out" in (tmp_path / "notes-test-0.jsonl").read_text()


@pytest.mark.parametrize("mode", ["offline", "server"])
@pytest.mark.parametrize("operands", ["cold", "warm"])
def test_conditions_reach_every_launch(tmp_path: Path, operands: str, mode: str) -> None:
    engine, rows = measure(tmp_path, Options(operands=operands, mode=mode, **SMALL))
    for slots, conditions in engine.timed:
        probe = PROBE_SLOT in slots
        assert conditions.flush_bytes == (0 if operands == "warm" and not probe else 138_412_032)
        assert (conditions.gaps_us is not None) == (mode == "server" and not probe)
        if conditions.gaps_us is not None:
            assert conditions.gaps_us.shape == (len(slots),)
            assert len(np.unique(conditions.gaps_us)) == len(slots)
    ok = last(rows, Phase.FIRST)[:5]
    for row in ok:
        launch = tuple(int(row["key"][name]) for name in ("swapped", "raster", "swizzle", "decomposition", "splits"))
        true = engine.true_us(f"{(256, 512, 1024)}kernel{row['key']['kernel_id']}{launch}")
        expected = true * (WARM if operands == "warm" else 1.0) + (SERVER_US if mode == "server" else 0.0)
        assert row["time_us"] == pytest.approx(expected, rel=0.03)
    assert engine.graphs == (0 if mode == "server" else 1)
    assert np.isnan(last(rows, Phase.RETAKE)["graph_us"]).all() == (mode == "server")


def test_conditions_of_a_campaign_are_recorded_and_kept(tmp_path: Path) -> None:
    kernels = kernel_table()
    problems = pd.DataFrame(
        [(0, 256, 512, 1024, "TNT", "bf16", "test", "train", 0)],
        columns=["problem_id", "M", "N", "K", "layout", "dtype", "sources", "split", "priority"],
    )
    launch = {"swapped": 0, "raster": 0, "swizzle": 1, "decomposition": 0, "splits": 1, "kind": 0}
    candidates = kernels[["kernel_id"]].assign(problem_id=0, **launch)
    none = pd.DataFrame({"problem_id": np.zeros(0, dtype=np.int32)})
    meta = {"name": "warm", "seed": 1, "options": {"operands": "warm", "dtype": "bf16"} | SMALL}
    write_plan(Plan(kernels, problems, candidates, none, none, meta), tmp_path / "plan")

    def run(**options: Any) -> None:
        run_campaign(
            tmp_path / "plan", tmp_path / "build", tmp_path / "rows", 60.0, ["0"],
            options=options, simulation=SIMULATION, progress=False,
        )  # fmt: skip

    run(mode="server")
    written = json.loads((tmp_path / "rows" / "campaign-0.json").read_text())
    assert (written["operands"], written["mode"], written["protocol_version"]) == ("warm", "server", 4)
    assert written["options"]["launches_for_best"] == 2
    campaign = read_campaign(tmp_path / "rows")
    assert (campaign["operands"], campaign["mode"]) == ("warm", "server")
    with pytest.raises(MeasurementError, match="measured with mode server, this run has offline"):
        run()
    with pytest.raises(MeasurementError, match="operands 'hot' is unknown"):
        run(operands="hot")
    del written["mode"], written["options"]  # as protocol 2 wrote it
    (tmp_path / "rows" / "campaign-0.json").write_text(json.dumps(written | {"protocol_version": 2}))
    assert read_campaign(tmp_path / "rows")["mode"] == "offline"
    with pytest.raises(MeasurementError, match="protocol_version 2, this run has 4"):
        run(mode="server")
