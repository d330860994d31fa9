"""A small set of tables, made by merging a hand-written campaign, for several tests."""

from __future__ import annotations

import numpy as np
import pandas as pd

from cutlass_ranker.datasets import plan
from cutlass_ranker.datasets.merging import merge_campaign
from cutlass_ranker.datasets.tables import Tables
from cutlass_ranker.generator import Epilogue, KernelConfig, Schedule
from cutlass_ranker.generator import columns as col

KERNELS = col.from_configs(
    [
        KernelConfig(128, 128, 64, 2, 1, 4, Schedule.COOPERATIVE, Epilogue.TMA),
        KernelConfig(128, 128, 64, 1, 1, 4, Schedule.PINGPONG, Epilogue.NOSMEM),
        KernelConfig(64, 16, 128, 1, 1, 8, Schedule.WARPSPECIALIZED, Epilogue.NOSMEM, family="TNN"),
    ]
)
PROBLEMS = pd.DataFrame(
    [(4096, 4096, 4096, "TNT", "paper", "eval"), (8, 4096, 4096, "TNT", "llm", "train")],
    columns=["M", "N", "K", "layout", "sources", "split"],
)
NO_PICKS = pd.DataFrame(columns=list(plan.PICK_COLUMNS))
CAMPAIGN = {
    "gpu": "NVIDIA H200", "driver": "580.1", "cuda": "13.0", "cutlass": "4.2.0", "protocol_version": 1,
    "commit": "abc", "started": "2026-01-01T00:00:00Z", "seconds": 60.0, "workers": 1, "operands": "cold",
    "mode": "offline", "timer_resolution_us": 0.256, "probe_us": 40.0, "graph_overhead_us": 1.0,
}  # fmt: skip


def make_plan(name: str = "first", kernels: col.Columns = KERNELS, problems: pd.DataFrame = PROBLEMS) -> plan.Plan:
    return plan.make_plan(name, kernels, problems, NO_PICKS)


def make_manifest(made: plan.Plan) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "name": made.kernels["name"], "registers": 168, "spill_bytes": 0, "shared_memory_bytes": 200_000,
            "build_status": "ok", "build_seconds": 3.5,
        }
    )  # fmt: skip


def row(problem_id, kernel_id, time_us, **changes):
    values = {
        "problem_id": problem_id, "kernel_id": kernel_id, "raster": 0, "swizzle": 1, "decomposition": 0, "splits": 1,
        "swapped": int(kernel_id == 2), "status": "ok", "time_us": time_us, "spread": 0.01, "launches": 10,
        "retake_us": np.nan, "graph_us": np.nan, "probe_ratio": 1.0, "phase": "first", "at_s": 1.0,
    }  # fmt: skip
    return values | changes


ROWS = pd.DataFrame(
    [
        row(0, 0, 200.0, retake_us=202.0, graph_us=204.02),
        row(0, 0, 198.0, swizzle=8, raster=2, retake_us=199.0, graph_us=198.0),
        row(0, 1, 198.5),  # not retaken: cannot beat the retaken 199.0
        row(0, 2, 900.0, status="coarse", launches=2, spread=0.2),
        row(1, 0, np.nan, status="hang", launches=0, spread=np.nan),
        row(1, 1, 16.0, retake_us=16.0, graph_us=16.8),
        row(1, 2, 12.0, retake_us=12.5, graph_us=12.5),
    ]
)
BASELINES = pd.DataFrame(
    [
        (0, "cublaslt_first", 180.0, 0.01, 10, "ok", "algo 3"),
        (0, "cublaslt_best", 175.0, 0.01, 10, "ok", "algo 5"),
    ],
    columns=["problem_id", "method", "time_us", "spread", "launches", "status", "algo"],
)


def make_tables(rows: pd.DataFrame = ROWS) -> Tables:
    made = make_plan()
    return merge_campaign(Tables(), made, rows, BASELINES, make_manifest(made), CAMPAIGN)
