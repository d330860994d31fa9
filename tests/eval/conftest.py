"""A small synthetic data set, and hand-made groups."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from cutlass_ranker.datasets import Group, Tables
from cutlass_ranker.generator import (
    CANDIDATE_COLUMNS,
    CONFIG_COLUMNS,
    LAUNCH_COLUMNS,
    Candidate,
    Epilogue,
    KernelConfig,
    Launch,
    Problem,
    Raster,
    Schedule,
    Scheduler,
    candidates_for,
    columns,
    names,
)

Row = tuple[KernelConfig, Launch, bool, float]
SCHEDULES = [
    (Schedule.WARPSPECIALIZED, Epilogue.TMA, Scheduler.PERSISTENT),
    (Schedule.PINGPONG, Epilogue.TMA, Scheduler.PERSISTENT),
    (Schedule.PINGPONG, Epilogue.NOSMEM, Scheduler.PERSISTENT),
    (Schedule.COOPERATIVE, Epilogue.TMA, Scheduler.PERSISTENT),
    (Schedule.COOPERATIVE, Epilogue.NOSMEM, Scheduler.STREAM_K),
]
TILES = [(64, 16, 128), (64, 64, 128), (128, 64, 64), (128, 128, 64), (128, 256, 64), (256, 128, 64)]
PROBLEMS = [
    (2048, 2048, 2048, "paper", "eval"),
    (1024, 4096, 4096, "paper", "eval"),
    (64, 4096, 4096, "paper;deepbench", "eval"),
    (16, 8192, 8192, "deepbench", "eval"),
    (32, 128, 8192, "deepbench", "eval"),
    (2056, 136, 4096, "deepbench", "eval"),
    (512, 8192, 1024, "deepbench", "eval"),
    (8192, 7168, 5120, "ptxbench", "eval"),
    (4096, 4096, 1024, "llm", "train"),
    (8, 4096, 4096, "llm", "train"),
    (128, 2048, 8192, "random", "train"),
    (768, 1536, 1024, "random", "train"),
]
CAMPAIGN = {
    "gpu": "NVIDIA H200", "driver": "580.1", "cuda": "13.0", "cutlass": "4.2.0", "protocol_version": 1,
    "commit": "0123456789abcdef", "started": "2026-11-30T12:00:00Z", "seconds": 600.0, "workers": 1, "operands": "cold",
    "mode": "offline", "timer_resolution_us": 0.256, "probe_us": 25.0, "graph_overhead_us": 1.5,
}  # fmt: skip


@pytest.fixture(scope="session")
def make_group() -> Callable[..., Group]:
    """A factory of groups: rows of (config, launch, swapped, time in µs), kernel ids in order of first appearance."""

    def make(
        rows: Sequence[Row], problem: Problem | None = None, problem_id: int = 0, coarse: Sequence[bool] | None = None
    ) -> Group:
        order = list(dict.fromkeys(config for config, *_ in rows))
        return Group(
            problem_id=problem_id,
            problem=problem or Problem(1024, 1024, 1024),
            split="eval",
            sources=("paper",),
            columns=columns.from_candidates(Candidate(config, launch, swapped) for config, launch, swapped, _ in rows),
            kernel_id=np.array([order.index(config) for config, *_ in rows], dtype=np.int32),
            time_us=np.array([time for *_, time in rows], dtype=np.float64),
            spread=np.full(len(rows), 0.01),
            coarse=np.array([False] * len(rows) if coarse is None else coarse, dtype=bool),
            default_launch=np.array([launch == Launch() for _, launch, *_ in rows], dtype=bool),
        )

    return make


@pytest.fixture(scope="session")
def synthetic_tables() -> Tables:
    """Tables of 100 kernels on 12 problems, with times from a crude roofline and seeded noise."""
    rng = np.random.default_rng(7)
    configs = [
        KernelConfig(*tile, cluster, 1, 4 if tile[0] * tile[1] < 2**15 else 3, *schedule, family)
        for family in ("TNT", "TNN")
        for tile in TILES
        for cluster in (1, 2)
        for schedule in SCHEDULES
        if schedule[0] is not Schedule.COOPERATIVE or tile[0] >= 128
    ]
    table = columns.from_configs(configs)
    kernels = pd.DataFrame({"kernel_id": np.arange(len(configs)), "name": names(table, configs[0].dtype)}).assign(
        **{name: table[name] for name in CONFIG_COLUMNS},
        registers=168, spill_bytes=0, shared_memory_bytes=100_000, build_status="ok", build_seconds=3.0,
    )  # fmt: skip
    problems = pd.DataFrame(PROBLEMS, columns=["M", "N", "K", "sources", "split"])
    problems = problems.assign(problem_id=np.arange(len(problems)), layout="TNT", dtype="bf16")

    rows, baselines, variants = [], [], []
    for p in problems.itertuples():
        problem = Problem(p.M, p.N, p.K)
        found, origin = candidates_for(table, problem)
        part = pd.DataFrame({"kernel_id": origin, **{name: found[name] for name in (*LAUNCH_COLUMNS, "swapped")}})
        part["time_us"] = _times(found, problem) * rng.lognormal(0, 0.05, len(part))
        best = part.nsmallest(8, "time_us")
        best = best[table["schedule"][best["kernel_id"]] != Schedule.WARPSPECIALIZED]
        best["time_us"] *= rng.uniform(0.97, 1.05, len(best))
        best = best.assign(raster=int(Raster.ALONG_M), swizzle=2)
        part = pd.concat([part, best], ignore_index=True).assign(problem_id=p.problem_id)
        part["status"] = np.where(part["time_us"] > 3 * part["time_us"].min(), "coarse", "ok")
        part["retake_us"] = (part["time_us"] * rng.normal(1, 0.005, len(part))).where(part["time_us"].rank() <= 32)
        part["graph_us"] = part["retake_us"] * rng.normal(1.01, 0.005, len(part))
        rows.append(part)
        for method, factor in (("cublaslt_first", 1.0), ("cublaslt_best", 0.97)):
            baselines.append((p.problem_id, method, part["time_us"].min() * factor * rng.uniform(0.9, 1.2)))
        wanted = (found["tile_m"] == (128 if p.M > 64 else 64)) & (found["tile_n"] == 64) & (found["cluster_m"] == 1)
        picked = origin[wanted & (found["swapped"] == 0)] if p.M != 16 else [10_000]  # 16: its pick was never measured
        variants += [(p.problem_id, kernel, 0, 1, 0, 1) for kernel in picked]

    main = pd.concat(rows, ignore_index=True).assign(spread=0.011, launches=10, probe_ratio=1.0, campaign_id=0)
    untimed = {"time_us": np.nan, "retake_us": np.nan, "graph_us": np.nan}
    failed = main.head(3).assign(kernel_id=9_000 + np.arange(3), status=["wrong", "hang", "refused"], **untimed)
    again = main[main["status"] == "ok"].iloc[::10].assign(campaign_id=1, retake_us=np.nan, graph_us=np.nan)
    again["time_us"] *= 1.01
    return Tables(
        kernels=kernels,
        problems=problems,
        measurements=pd.concat([main, failed, again], ignore_index=True),
        baselines=pd.DataFrame(baselines, columns=["problem_id", "method", "time_us"]).assign(
            spread=0.01, launches=10, status="ok", algo="", campaign_id=0
        ),
        nvmmh_variants=pd.DataFrame(variants, columns=["problem_id", "kernel_id", *LAUNCH_COLUMNS]),
        campaigns=pd.DataFrame(
            [
                {"campaign_id": 0, "name": "first", "purpose": "main", **CAMPAIGN},
                {"campaign_id": 1, "name": "again", "purpose": "repeat", **CAMPAIGN},
            ]
        ),
    )


@pytest.fixture(scope="session")
def with_gap() -> Callable[..., Tables]:
    """A function that adds a gap campaign to tables."""
    return _with_gap


@pytest.fixture(scope="session")
def with_campaigns() -> Callable[..., Tables]:
    """A function that adds copies of the main campaign to tables."""
    return _with_campaigns


def _with_gap(tables: Tables, rows: list[tuple[int, int, str, float, float]]) -> Tables:
    """Add a gap campaign of rows (problem, kernel, status, time, retake), and kernels 500.. that no campaign had."""
    extra = tables.kernels.head(6).assign(kernel_id=np.arange(500, 506), name=[f"drawn{i}" for i in range(6)])
    campaign = tables.campaigns.iloc[[0]].assign(
        campaign_id=7, name="gap", purpose="gap", started="2026-12-02T00:00:00Z"
    )
    measured = pd.DataFrame(rows, columns=["problem_id", "kernel_id", "status", "time_us", "retake_us"])
    measured = measured.assign(
        raster=0,
        swizzle=1,
        decomposition=0,
        splits=1,
        swapped=0,
        graph_us=np.nan,
        spread=0.01,
        launches=10,
        probe_ratio=1.0,
        campaign_id=7,
    )
    return replace(
        tables,
        kernels=pd.concat([tables.kernels, extra], ignore_index=True),
        campaigns=pd.concat([tables.campaigns, campaign], ignore_index=True),
        measurements=pd.concat([tables.measurements, measured], ignore_index=True),
    )


def _with_campaigns(tables: Tables, added: list[tuple[str, str, str, str, float]], retakes: bool = True) -> Tables:
    """Copy the evaluation rows of the main campaign into others: name, purpose, operands, mode, time factor.

    The factor applies to the fastest half of a problem's candidates; the others keep their times.
    """
    main = tables.measurements.query("campaign_id == 0 and status == 'ok' and problem_id < 3")
    fast = main["time_us"] <= main.groupby("problem_id")["time_us"].transform("median")
    campaigns, rows = [tables.campaigns], [tables.measurements]
    for number, (name, purpose, operands, mode, factor) in enumerate(added, start=10):
        campaigns.append(
            tables.campaigns.iloc[[0]].assign(
                campaign_id=number, name=name, purpose=purpose, operands=operands, mode=mode
            )
        )
        scaled = {column: main[column] * np.where(fast, factor, 1.0) for column in ("time_us", "retake_us")}
        rows.append(main.assign(campaign_id=number, **scaled))
        if not retakes:
            rows[-1] = rows[-1].assign(retake_us=np.nan)
    return replace(
        tables,
        campaigns=pd.concat(campaigns, ignore_index=True),
        measurements=pd.concat(rows, ignore_index=True),
    )


def _times(found: columns.Columns, problem: Problem) -> np.ndarray:
    """Waves of tiles, each as slow as its arithmetic or its bytes, µs."""
    assert set(CANDIDATE_COLUMNS) <= set(found)
    m = np.where(found["swapped"] == 1, problem.n, problem.m)
    n = np.where(found["swapped"] == 1, problem.m, problem.n)
    waves = np.ceil(np.ceil(m / found["tile_m"]) * np.ceil(n / found["tile_n"]) / 132)
    area = found["tile_m"] * found["tile_n"]
    tile = np.maximum(area / 6e6, (found["tile_m"] + found["tile_n"]) / 3e4) * problem.k
    return 2.0 + waves * tile * np.array([1.15, 1.0, 1.03])[found["schedule"]]
