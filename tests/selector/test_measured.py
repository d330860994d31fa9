"""Looking up measured times: which row counts, launches that come to the same, and the transposed problem."""

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from cutlass_ranker import Choice, Decomposition, KernelConfig, Launch, Problem, Raster
from cutlass_ranker.datasets import Tables, groups, load
from cutlass_ranker.datasets.tables import conform
from cutlass_ranker.eval.methods import BaselineMethod
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
    # Not retaken: as much slower as the retaken row was in its retake, 10/9.
    assert found.choices == pytest.approx({asked[0].candidate: 300 / 9, asked[1].candidate: 110 / 9})


def test_launches_that_come_to_the_same_share_their_time(folder: Path) -> None:
    # 16 x 32 tiles: there are more along N, so the heuristic rasters along M, with swizzle 1 as asked.
    same, other = choice(SMALL, Launch(Raster.ALONG_M)), choice(SMALL, Launch(Raster.ALONG_N))
    assert look_up([same, other], folder).choices == {same.candidate: 10.0}
    four = choice(SMALL, Launch(Raster.ALONG_N, 4))
    # 8 · 10/9 would beat the best retake.
    assert look_up([four], folder).choices == {four.candidate: 10.0}


def test_the_transposed_problem_finds_the_same_rows(folder: Path) -> None:
    turned = PROBLEM.transposed()
    assert (turned.m, turned.n, turned.layout) == (2048, 1024, swap_family("TNT"))
    direct = choice(THIN, problem=turned)
    swapped = choice(SMALL, swapped=True, problem=turned)
    found = look_up([direct, swapped], folder)
    assert found.choices == pytest.approx({direct.candidate: 110 / 9, swapped.candidate: 10.0})
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


def with_rows(
    folder: Path, rows: list[dict[str, object]], baselines: list[float], protocols: Sequence[int] = (1, 1, 1)
) -> Tables:
    """Add these rows, campaigns from number 2 on and a baseline of each to the tables, and read them again."""
    tables = load(path=folder)
    added = range(2, 2 + len(baselines))
    one = tables.campaigns.iloc[[0]]
    more = [
        one.assign(campaign_id=i, name=f"c{i}", protocol_version=version)
        for i, version in zip(added, protocols, strict=False)
    ]
    first = tables.baselines[tables.baselines["method"] == "cublaslt_first"]
    extra = [first.assign(campaign_id=i, time_us=time) for i, time in zip(added, baselines, strict=True)]
    changed = {
        "campaigns": pd.concat([tables.campaigns, *more], ignore_index=True),
        "measurements": conform("measurements", pd.concat([tables.measurements.astype(object), pd.DataFrame(rows)])),
        "baselines": pd.concat([tables.baselines, *extra], ignore_index=True),
    }
    return load(path=replace(tables, **changed).write(folder))


def test_older_campaigns_are_brought_to_the_newest_clock(folder: Path) -> None:
    with_rows(folder, [row(0, 13.0, 12.0, campaign=2), row(1, 39.0, 36.0, campaign=2)], [11.9])
    asked = [choice(SMALL), choice(WIDE), choice(THIN, swapped=True)]
    found = look_up(asked, folder)
    # 12 / 10 from the older clock to the newer one, for the row that was never retaken after its own drift of 10/9.
    assert found.choices == pytest.approx(
        dict(zip([c.candidate for c in asked], (12.0, 36.0, 11 * 10 / 9 * 1.2), strict=True))
    )
    assert found.fastest == pytest.approx(12.0)
    assert found.cublaslt == pytest.approx((9.75 * 1.2 + 11.9) / 2)


@pytest.mark.parametrize("seed", range(6))
def test_it_knows_the_times_of_the_groups(folder: Path, seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows = []
    for campaign in rng.permutation([2, 3, 4]).tolist()[: 1 + seed % 3]:
        for number in range(2):
            for swizzle in (1, 2, 4, 8):
                first, again = 10 * rng.uniform(1, 2, 2)
                retake = again if rng.random() < 0.4 else NAN
                status = "coarse" if math.isnan(retake) and rng.random() < 0.3 else "ok"
                rows.append(row(number, first, retake, status, campaign, swizzle=swizzle))
    tables = with_rows(folder, rows, [9.0, 10.0, 11.0], protocols=rng.integers(1, 4, 3).tolist())
    (group,) = (group for group in groups(tables) if group.problem_id == 7)
    asked = [
        Choice(PROBLEM, candidate.config, candidate.launch, candidate.swapped, 1, 0.0, 1.0, "h200", "x")
        for candidate in (col.candidate_at(group.columns, i, PROBLEM.dtype) for i in range(len(group)))
    ]
    found = look_up(asked, folder)
    times = dict(zip((choice.candidate for choice in asked), group.time_us.tolist(), strict=True))
    assert found.choices == pytest.approx(times)
    assert found.fastest == pytest.approx(group.oracle_us)
    assert found.cublaslt == pytest.approx(BaselineMethod(tables, "cublaslt_first").times(group)[0])
