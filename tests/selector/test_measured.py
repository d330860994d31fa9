"""Looking up measured times: which row counts, launches that come to the same, and the transposed problem."""

import math
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from cutlass_ranker import Choice, Decomposition, KernelConfig, Launch, Problem, Raster
from cutlass_ranker.datasets import Tables, load
from cutlass_ranker.datasets.tables import conform
from cutlass_ranker.generator import CONFIG_COLUMNS, DataError, Epilogue, Schedule, swap_family
from cutlass_ranker.generator import columns as col
from cutlass_ranker.selector.measured import Measured, look_up

SMALL = KernelConfig(64, 64, 64, 1, 1, 3, Schedule.PINGPONG, Epilogue.TMA)
WIDE = KernelConfig(64, 128, 64, 1, 1, 3, Schedule.PINGPONG, Epilogue.TMA)
THIN = KernelConfig(64, 16, 64, 1, 1, 3, Schedule.WARPSPECIALIZED, Epilogue.NOSMEM, family="TNN")
PROBLEM = Problem(1024, 2048, 512)
NAN = math.nan


def choice(
    config: KernelConfig, launch: Launch | None = None, swapped: bool = False, problem: Problem = PROBLEM
) -> Choice:
    return Choice(problem, config, launch or Launch(), swapped, 1, 0.0, 1.0, "h200", "x")


def row(
    kernel: int, time: float, retake: float = NAN, status: str = "ok", campaign: int = 0, **changes: int
) -> dict[str, object]:
    base: dict[str, object] = {"problem_id": 7, "kernel_id": kernel, "swapped": 0, "status": status, "time_us": time}
    base |= {"raster": 0, "swizzle": 1, "decomposition": 0, "splits": 1, "retake_us": retake, "campaign_id": campaign}
    return base | {"spread": 0.01, "launches": 10, "graph_us": NAN, "probe_ratio": 1.0} | changes


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    configs = [SMALL, WIDE, THIN]
    kernels = pd.DataFrame(
        {name: values for name, values in col.from_configs(configs).items() if name in CONFIG_COLUMNS}
    )
    kernels = kernels.assign(
        kernel_id=[0, 1, 2], name=[c.name for c in configs], registers=168, spill_bytes=0, shared_memory_bytes=1,
        build_status="ok", build_seconds=1.0,
    )  # fmt: skip
    problems = pd.DataFrame({"problem_id": [6, 7], "M": [512, 1024], "N": 2048, "K": 512}).assign(
        layout="TNT", dtype="bf16", sources="x", split="eval"
    )
    measurements = pd.DataFrame(
        [
            row(0, 9.0, 10.0),
            row(0, 8.0, raster=int(Raster.ALONG_N), swizzle=4),
            row(1, 30.0, status="coarse"),
            row(2, 11.0, swapped=1),
            row(1, 1.0, raster=int(Raster.ALONG_M), status="wrong"),
            row(1, 1.0, raster=int(Raster.ALONG_N), campaign=1),
            {**row(1, 2.0), "problem_id": 6},
        ]
    )
    campaigns = pd.DataFrame({"campaign_id": [0, 1], "name": ["a", "b"], "purpose": ["main", "repeat"]}).assign(
        gpu="H200", driver="", cuda="", cutlass="", protocol_version=1, commit="", started="", seconds=1.0, workers=1,
        operands="cold", mode="offline", timer_resolution_us=0.1, probe_us=1.0, graph_overhead_us=1.0,
    )  # fmt: skip
    baselines = pd.DataFrame({"method": ["cublaslt_best", "cublaslt_first"], "time_us": [9.5, 9.75]}).assign(
        problem_id=7, spread=0.0, launches=10, status="ok", algo="", campaign_id=0
    )
    frames = {"kernels": kernels, "problems": problems, "measurements": measurements, "campaigns": campaigns}
    frames["baselines"] = baselines
    return Tables(**{name: conform(name, frame) for name, frame in frames.items()}).write(tmp_path)


def test_the_retake_counts_and_decides_the_fastest(folder: Path) -> None:
    asked = choice(SMALL)
    found = look_up([asked], folder)
    assert found.choices == {asked.candidate: 10.0}
    # The launch measured at 8 µs was never retaken, so it does not make the oracle.
    assert found.fastest == 10.0
    assert found.cublaslt == 9.75


def test_atomic_adds_are_the_fastest_only_where_allowed(folder: Path) -> None:
    path = folder / "measurements.parquet"
    atomic = pd.DataFrame([row(1, 5.0, 6.0, decomposition=int(Decomposition.SPLIT_K_ATOMIC), splits=8)])
    conform("measurements", pd.concat([pd.read_parquet(path), atomic])).to_parquet(path)
    asked = choice(WIDE, Launch(decomposition=Decomposition.SPLIT_K_ATOMIC, splits=8))
    assert look_up([asked], folder).fastest == 10.0
    found = look_up([asked, choice(WIDE, Launch(decomposition=Decomposition.SPLIT_K, splits=8))], folder, False)
    assert found.fastest == 6.0
    assert found.choices == {asked.candidate: 6.0}


def test_coarse_and_swapped_rows_are_found_wrong_and_repeated_ones_are_not(folder: Path) -> None:
    asked = [choice(WIDE), choice(THIN, swapped=True), choice(WIDE, Launch(Raster.ALONG_M)), choice(THIN)]
    found = look_up(asked, folder)
    assert found.choices == {asked[0].candidate: 30.0, asked[1].candidate: 11.0}


def test_launches_that_come_to_the_same_share_their_time(folder: Path) -> None:
    # 16 x 32 tiles: there are more along N, so the heuristic rasters along M, with swizzle 1 as asked.
    same, other = choice(SMALL, Launch(Raster.ALONG_M)), choice(SMALL, Launch(Raster.ALONG_N))
    assert look_up([same, other], folder).choices == {same.candidate: 10.0}
    four = choice(SMALL, Launch(Raster.ALONG_N, 4))
    assert look_up([four], folder).choices == {four.candidate: 8.0}


def test_the_transposed_problem_finds_the_same_rows(folder: Path) -> None:
    turned = PROBLEM.transposed()
    assert (turned.m, turned.n, turned.layout) == (2048, 1024, swap_family("TNT"))
    direct = choice(THIN, problem=turned)
    swapped = choice(SMALL, swapped=True, problem=turned)
    found = look_up([direct, swapped], folder)
    assert found.choices == {direct.candidate: 11.0, swapped.candidate: 10.0}
    assert found.fastest == 10.0


def test_a_problem_that_is_not_in_the_data(folder: Path) -> None:
    assert look_up([choice(SMALL, problem=Problem(1024, 2048, 520))], folder) == Measured()
    assert look_up([choice(SMALL, problem=Problem(1024, 2048, 512, "TNT", "f16"))], folder) == Measured()  # type: ignore[arg-type]


def test_without_tables_nothing_is_known(tmp_path: Path) -> None:
    assert look_up([choice(SMALL)], tmp_path) == Measured()


def test_damaged_tables_are_an_error(folder: Path) -> None:
    (folder / "kernels.parquet").write_bytes(b"PAR1 no table")
    with pytest.raises(DataError, match="cannot read table kernels"):
        look_up([choice(SMALL)], folder)


def test_a_newer_retake_replaces_an_older_one(folder: Path) -> None:
    tables = load(path=folder)
    newer = tables.campaigns.iloc[[0]].assign(campaign_id=2, name="c")
    again = pd.DataFrame([row(0, 13.0, 12.0, campaign=2), row(0, 9.5, campaign=2)])
    changed = {
        "campaigns": pd.concat([tables.campaigns, newer], ignore_index=True),
        "measurements": conform("measurements", pd.concat([tables.measurements.astype(object), again])),
    }
    replace(tables, **changed).write(folder)
    asked = choice(SMALL)
    found = look_up([asked], folder)
    # 12 is newer than 10, and retaken, unlike 9.5.
    assert found.choices == {asked.candidate: 12.0}
    assert found.fastest == 12.0
