"""The engine on a real GPU, with a unit of naive kernels, right and faulty (fake_unit.cu)."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from importlib.resources import files
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from cutlass_ranker.datasets.engine import ITEM, NULL_SLOT, PROBE_SLOT, Conditions, CudaEngine, build_engine
from cutlass_ranker.datasets.meter import Meter
from cutlass_ranker.datasets.plan import Plan, write_plan
from cutlass_ranker.datasets.protocol import Options
from cutlass_ranker.datasets.records import Recorder, read_baselines, read_campaign, read_notes, read_rows
from cutlass_ranker.datasets.run import Limits, run_campaign, visible_gpus
from cutlass_ranker.datasets.selfcheck import flush_ratios
from cutlass_ranker.datasets.status import StatusFile
from cutlass_ranker.generator import FAMILIES, MeasurementError, enumerate_configs
from cutlass_ranker.generator import columns as col

KERNELS = (
    "good",
    "good_swapped",
    "wrong",
    "trap",
    "hang",
    "refused",
    "launch_failed",
    "workspace",
    "hang_later",
    "slow",
)
FLAGS = (
    "-std=c++17", "-O3", "-gencode=arch=compute_90a,code=sm_90a", "-shared", "-cudart", "static",
    "-Xcompiler", "-fPIC,-Wall,-Wextra,-Werror,-fvisibility=hidden,-fno-gnu-unique",
)  # fmt: skip

SESSION = """
import sys
from pathlib import Path

import numpy as np

from cutlass_ranker.datasets.engine import ITEM, Conditions, CudaEngine, EngineFailure
from cutlass_ranker.datasets.run import visible_gpus
from cutlass_ranker.datasets.status import StatusFile

build_dir, folder, ending = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
if ending == "at exit":
    visible_gpus()  # the driver is loaded before the engine, so it is unloaded after it
engine = CudaEngine(build_dir, StatusFile(folder / "status.bin", create=True).path)
items = np.zeros(1, dtype=ITEM)
items["unit"], items["index"] = engine.open_kernels(["good"])[0]
items["swizzle"] = items["splits"] = 1
engine.set_problem(64, 64, 64, "TNT", 1)
assert engine.add(items).tolist() == [0]
slots, conditions = np.zeros(4, dtype=np.int32), Conditions(1 << 20)
statuses, wrong, times = engine.verify(slots, conditions)
assert not statuses.any() and not wrong.any() and (times > 0).all()
assert (engine.graph_time(slots, 2, conditions) > 0).all()
if ending == "closed":
    engine.close()
    engine.close()
    try:
        engine.time(slots, conditions)
    except EngineFailure as error:
        assert "not open" in str(error)
    else:
        raise AssertionError("a closed engine measured")
print("measured")
"""


def compiler() -> str:
    found = shutil.which("nvcc") or shutil.which("/usr/local/cuda/bin/nvcc")
    if found is None:
        pytest.skip("no CUDA compiler")
    return found


def build_fake_unit(directory: Path) -> None:
    """Build engine, unit and manifest in ``directory``."""
    nvcc = compiler()
    build_engine(directory, nvcc)
    (directory / "units").mkdir()
    source = Path(__file__).parent / "fake_unit.cu"
    include = f"-I{files('cutlass_ranker.datasets') / 'runner'}"
    subprocess.run([nvcc, *FLAGS, include, str(source), "-o", str(directory / "units" / "fake.so")], check=True)
    manifest = pd.DataFrame(
        {"name": KERNELS, "unit": "fake.so", "index": np.arange(len(KERNELS)), "build_status": "ok", "cutlass": "none"}
    )
    manifest.to_parquet(directory / "manifest.parquet")


@pytest.fixture(scope="module")
def build_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    try:
        visible_gpus()
    except MeasurementError as error:
        pytest.skip(str(error))
    directory = tmp_path_factory.mktemp("build")
    build_fake_unit(directory)
    return directory


@pytest.fixture(scope="module")
def meter(build_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Meter:
    folder = tmp_path_factory.mktemp("engine")
    status = StatusFile(folder / "status.bin", create=True)
    engine = CudaEngine(build_dir, status.path)
    meter = Meter(engine, status, Recorder(folder, "test"), Options(), lambda: False)
    meter.calibrate()
    return meter


def add(meter: Meter, *names: str) -> np.ndarray:
    places = meter.engine.open_kernels(list(names))
    items = np.zeros(len(names), dtype=ITEM)
    items["unit"], items["index"] = places[:, 0], places[:, 1]
    items["swapped"] = [name == "good_swapped" for name in names]
    items["swizzle"] = items["splits"] = 1
    return meter.engine.add(items)


@pytest.mark.slow
def test_everything_compiles_without_warnings(tmp_path: Path) -> None:
    build_fake_unit(tmp_path)
    first = build_engine(tmp_path)
    stamp = first.stat().st_mtime_ns
    assert build_engine(tmp_path) == first
    assert first.stat().st_mtime_ns == stamp


@pytest.mark.slow
def test_records_are_cut_into_launches(tmp_path: Path) -> None:
    runner = files("cutlass_ranker.datasets") / "runner"
    program = tmp_path / "cut"
    sources = [str(Path(__file__).parent / "test_cut.cpp"), str(runner / "trace.cpp")]
    subprocess.run([compiler(), "-std=c++17", f"-I{runner}", *sources, "-o", str(program), "-ldl"], check=True)
    assert subprocess.run([program], check=False).returncode == 0


@pytest.mark.gpu
def test_a_unit_is_not_given_a_decomposition_that_it_does_not_know(meter: Meter) -> None:
    # The unit does not export cr_decompositions, as all units did before there were more than four.
    meter.engine.set_problem(64, 64, 64, "TNT", 1)
    places = meter.engine.open_kernels(["good"] * 6)
    items = np.zeros(6, dtype=ITEM)
    items["unit"], items["index"], items["decomposition"] = places[:, 0], places[:, 1], range(6)
    items["swizzle"] = items["splits"] = 1
    assert meter.engine.add(items).tolist() == [0, 0, 0, 0, 1, 1]


@pytest.mark.gpu
@pytest.mark.parametrize("layout", FAMILIES)
def test_reference_and_cublaslt_in_every_layout(meter: Meter, layout: str) -> None:
    engine = meter.engine
    assert isinstance(engine, CudaEngine)
    engine.set_problem(264, 136, 1032, layout, 5)
    assert engine.check_reference() < 1e-3
    algorithms = engine.add_blas(8)
    assert 1 <= len(algorithms) <= 8
    statuses, wrong, _ = engine.verify(np.arange(len(algorithms), dtype=np.int32), meter.plain)
    assert not statuses.any()
    assert not wrong.any()


@pytest.mark.gpu
def test_verification_counts_wrong_elements(meter: Meter) -> None:
    meter.engine.set_problem(200, 136, 264, "TNT", 1)
    prepared = add(meter, "good", "good_swapped", "wrong", "refused", "launch_failed", "workspace", "good")
    assert prepared.tolist() == [0, 0, 0, 1, 0, 0, 0]
    for conditions in (meter.plain, Conditions(0), Conditions(meter.plain.flush_bytes, np.full(14, 200.0))):
        order = np.tile(np.arange(7, dtype=np.int32), 2)
        statuses, wrong, times = meter.engine.verify(order, conditions)
        # What did not run left the poisoned output: every element is wrong.
        assert wrong.tolist() == [0, 0, 1, 200 * 136, 200 * 136, 0, 0] * 2
        assert statuses.tolist() == [0, 0, 0, 1, 2, 0, 0] * 2
        assert np.isnan(times).tolist() == [False, False, False, True, True, False, False] * 2
    times = meter.engine.time(np.array([0, 4, 0], dtype=np.int32), meter.plain)
    assert np.isnan(times).tolist() == [False, True, False]


@pytest.mark.gpu
@pytest.mark.parametrize("placement", [0, 7])
def test_times_belong_to_their_launches(meter: Meter, placement: int) -> None:
    meter.engine.set_problem(256, 256, 2048, "TNT", 1, placement)
    add(meter, "good", "slow", "workspace")
    order = meter.rng.permutation(np.repeat(np.arange(3, dtype=np.int32), 60)).astype(np.int32)
    verified = meter.engine.verify(order, meter.plain)
    assert not verified[1].any()
    for times in (meter.engine.time(order, meter.plain), verified[2]):
        good, slow, workspace = (np.median(times[order == slot]) for slot in range(3))
        assert 4 < slow / good < 20  # sixteen passes, the first with cold operands
        assert workspace > good + 1.0  # memset and a second kernel
    graph = np.median(meter.engine.graph_time(np.arange(3, dtype=np.int32), 20, meter.plain), axis=0)
    assert np.allclose(graph, [good, slow, workspace], rtol=0.05, atol=6.0)


@pytest.mark.gpu
def test_warm_operands_and_gaps(meter: Meter) -> None:
    meter.engine.set_problem(16, 4096, 4096, "TNT", 1)  # 32 MiB of B: cold it comes from DRAM, warm it is in L2
    slots = np.zeros(40, dtype=np.int32)
    assert meter.engine.add_blas(1)
    cold = np.median(meter.engine.time(slots, meter.plain))
    warm = np.median(meter.engine.time(slots, Conditions(0)))
    assert warm < 0.9 * cold
    graph = np.median(meter.engine.graph_time(slots[:10], 5, Conditions(0)))
    assert warm < graph < warm + 8.0
    began = time.perf_counter()
    server = np.median(meter.engine.time(slots, Conditions(meter.plain.flush_bytes, np.full(40, 5000.0))))
    assert time.perf_counter() - began > 0.2  # forty gaps of 5 ms
    assert 0.8 * cold < server < 2.0 * cold
    with pytest.raises(MeasurementError, match="as many gaps"):
        meter.engine.time(slots, Conditions(0, np.zeros(3)))


@pytest.mark.gpu
def test_flush_of_twice_the_l2_is_as_cold_as_a_larger_one(meter: Meter) -> None:
    assert isinstance(meter.engine, CudaEngine)
    found = flush_ratios(meter.engine, meter)
    print(found)
    for _, ratio, warm in found:
        assert 0.97 < ratio < 1.03
        assert warm < ratio
    assert np.mean([warm for _, _, warm in found]) < 0.9


@pytest.mark.gpu
def test_calibration(meter: Meter) -> None:
    facts = meter.calibrate()
    assert 0 < facts["timer_resolution_us"] < 1.1
    assert 20 < facts["probe_us"] < 500
    assert facts["probe_spread"] < 0.2
    assert 0 < facts["graph_overhead_us"] < 10
    both = np.median(meter.engine.graph_time(np.array([PROBE_SLOT, NULL_SLOT], np.int32), 11, meter.plain), axis=0)
    assert both[0] - both[1] == pytest.approx(facts["probe_us"], rel=0.1, abs=3.0)
    assert facts["dropped_records"] == 0


@pytest.mark.gpu
@pytest.mark.parametrize("ending", ["at exit", "closed"])
def test_a_process_that_measured_ends_without_a_crash(build_dir: Path, tmp_path: Path, ending: str) -> None:
    command = [sys.executable, "-c", SESSION, str(build_dir), str(tmp_path), ending]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout == "measured\n", done.stderr
    assert done.returncode == 0, done.stderr  # -11: a segmentation fault after the last line of Python


@pytest.mark.gpu
def test_campaign_survives_faulty_kernels(build_dir: Path, tmp_path: Path) -> None:
    configs = enumerate_configs("TNT")
    swapped = enumerate_configs("TNN")
    one = np.zeros(1, dtype=np.intp)
    table = {
        name: [(swapped if kernel == "good_swapped" else configs)[name][one][0] for kernel in KERNELS]
        for name in col.CONFIG_COLUMNS
    }
    kernels = pd.DataFrame({"kernel_id": np.arange(len(KERNELS)), "name": KERNELS, **table})
    shapes = ((256, 264, 512), (72, 520, 1024))
    problems = pd.DataFrame(
        [(i, *shape, "TNT", "bf16", "test", "train", i) for i, shape in enumerate(shapes)],
        columns=["problem_id", "M", "N", "K", "layout", "dtype", "sources", "split", "priority"],
    )
    candidates = pd.DataFrame(
        [
            (i, kernel, int(name == "good_swapped"), 0, 1, 0, 1, 0)
            for i in range(2)
            for kernel, name in enumerate(KERNELS)
        ],
        columns=["problem_id", "kernel_id", "swapped", "raster", "swizzle", "decomposition", "splits", "kind"],
    )
    none = pd.DataFrame({"problem_id": np.zeros(0, dtype=np.int32)})
    write_plan(Plan(kernels, problems, candidates, none, none, {"name": "gpu", "seed": 1}), tmp_path / "plan")
    summary = run_campaign(
        tmp_path / "plan",
        build_dir,
        tmp_path / "out",
        300,
        visible_gpus()[:1],
        limits=Limits(4.0, 60.0),
        options={"race": 3.0},  # the kernel with a memset takes twice as long as the others
        progress=False,
    )
    notes = list(read_notes(tmp_path / "out"))
    assert summary.problems_done == 2, notes
    assert not [note for note in notes if "given_up" in note]
    rows = read_rows(tmp_path / "out")
    rows = rows.merge(kernels[["kernel_id", "name"]])
    status = {(int(row.problem_id), row.name): row.status for row in rows[rows["raster"] == 0].itertuples(index=False)}
    for i in range(2):
        found = {name: status[i, name] for name in KERNELS}
        assert found["hang"] == found["hang_later"] == "hang"
        assert found["trap"] == "crash"
        assert (found["wrong"], found["refused"], found["launch_failed"]) == ("wrong", "refused", "launch_failed")
        assert {found[name] for name in ("good", "good_swapped", "workspace")} == {"ok"}
        assert found["slow"] == "coarse"
    assert rows.loc[rows["status"] == "ok", "retake_us"].notna().all()
    assert rows.loc[rows["status"] == "ok", "graph_us"].notna().all()
    assert len(read_baselines(tmp_path / "out")) == 4
    assert "H" in read_campaign(tmp_path / "out")["gpu"]
