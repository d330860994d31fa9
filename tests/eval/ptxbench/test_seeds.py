"""Seed packs: what is chosen, explained, retrieved and written."""

import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from cutlass_ranker import HARDWARE, Candidate, CutlassRankerError, KernelConfig, Launch, Problem, rank_kernels
from cutlass_ranker.datasets import Group, Tables
from cutlass_ranker.eval.ptxbench import Gemm, TraceSet, make_seeds, write_pack
from cutlass_ranker.eval.ptxbench.rationale import explain, feature_values
from cutlass_ranker.eval.ptxbench.seeds import Neighbour, nearest_problems, seed_source
from cutlass_ranker.generator import Decomposition, Epilogue, Schedule, Scheduler

PINGPONG = KernelConfig(128, 128, 64, 2, 1, 5, Schedule.PINGPONG, Epilogue.TMA)
COOPERATIVE = KernelConfig(256, 128, 64, 1, 1, 4, Schedule.COOPERATIVE, Epilogue.TMA)


def test_seeds_are_the_selectors_answers(gemm: Gemm) -> None:
    seeds, measured = make_seeds(gemm, {"M": 8192}, 3, retrieve=0, neighbours=0)
    assert measured == []
    assert [seed.candidate for seed in seeds] == [choice.candidate for choice in rank_kernels(8192, 7168, 5120, 3)]
    for seed in seeds:
        (source,) = seed.solution.sources
        assert seed.candidate.config.name in source.content
        assert 'extern "C"' in source.content
        assert source.content.startswith("#define CUTLASS_RANKER_NO_MAIN\n")


def test_a_stream_k_seed_asks_for_its_workspace() -> None:
    config = KernelConfig(128, 128, 64, 1, 1, 4, Schedule.COOPERATIVE, Epilogue.TMA, Scheduler.STREAM_K)
    launch = Launch(decomposition=Decomposition.SPLIT_K, splits=4)
    source = seed_source(Candidate(config, launch), Problem(64, 7168, 5120))
    assert "arguments.scheduler.splits = 4;" in source
    entry = source[source.index('extern "C"') :]
    assert "gemm_workspace_size(m, n, k)" in entry
    assert "reserve(workspace, workspace_bytes, gemm_workspace_size(m, n, k));" in entry
    # Flags of parallel split-K are zeroed once, in the caller's stream, and then left zero by every launch.
    assert "reserve(flags, flag_bytes, gemm_flag_bytes(m, n, k));" in entry
    assert "cudaMemsetAsync(memory, 0, bytes, stream);" in entry


def test_explanations_name_the_features(gemm: Gemm) -> None:
    problem = gemm.problem({"M": 8192})
    candidate = Candidate(PINGPONG, Launch(swizzle=4))
    text = explain(candidate, problem, HARDWARE["h200"])
    values = feature_values(candidate, problem, HARDWARE["h200"])
    assert values["tiles"] == pytest.approx((8192 / 128) * (7168 / 128), rel=1e-5)
    assert "3584 tiles of D" in text.tile
    assert "64 FLOP per operand byte" in text.tile  # 2·128·128 / (2·256)
    assert "swizzle 4 asked for" in text.launch
    assert "bound by compute" in text.limit
    assert text.features["k_tiles_per_unit"] == pytest.approx(80.0)
    small = explain(Candidate(PINGPONG, swapped=False), gemm.problem({"M": 8}), HARDWARE["h200"])
    assert "bound by memory" in small.limit
    assert len(text.lines()) == 6


def test_the_nearest_problems_come_first(synthetic_tables: Tables) -> None:
    sizes = synthetic_tables.problems[["M", "N", "K"]].to_numpy(dtype=float)
    asked = Problem(900, 1100, 2100)
    found = nearest_problems(asked, synthetic_tables, 3)
    distances = np.sort(np.linalg.norm(np.log2(sizes / [900.0, 1100.0, 2100.0]), axis=1))
    assert [neighbour.distance for neighbour in found] == pytest.approx(distances[:3].tolist())
    assert all(neighbour.cublaslt_us > 0 for neighbour in found)


def test_times_of_calls_that_find_the_gpu_idle_come_first(synthetic_tables: Tables) -> None:
    row = synthetic_tables.problems.iloc[0]
    problem = Problem(int(row["M"]), int(row["N"]), int(row["K"]), row["layout"])
    (before,) = nearest_problems(problem, synthetic_tables, 1)
    own = synthetic_tables.measurements
    served = own[(own["problem_id"] == row["problem_id"]) & own["retake_us"].notna()].head(5)
    served = served.assign(campaign_id=10, retake_us=[9.0, 8.0, 7.0, 6.0, 5.0])
    campaign = synthetic_tables.campaigns.iloc[[0]].assign(campaign_id=10, purpose="study")

    def nearest(mode: str) -> Neighbour:
        campaigns = pd.concat([synthetic_tables.campaigns, campaign.assign(mode=mode)], ignore_index=True)
        rows = pd.concat([own, served], ignore_index=True)
        (found,) = nearest_problems(problem, replace(synthetic_tables, campaigns=campaigns, measurements=rows), 1)
        return found

    assert before.cublaslt_us > 0
    assert nearest("offline").best(3) == before.best(3)
    idle = nearest("server")
    assert sorted(idle.group.time_us.tolist()) == [5.0, 6.0, 7.0, 8.0, 9.0]
    assert idle.group.kernel_id[np.argmin(idle.group.time_us)] == served["kernel_id"].iloc[-1]
    assert math.isnan(idle.cublaslt_us)  # cuBLASLt was not measured in that mode


def test_a_neighbours_best_kernels(make_group: Callable[..., Group]) -> None:
    rows = [
        (PINGPONG, Launch(), False, 30.0),
        (PINGPONG, Launch(swizzle=4), False, 20.0),
        (COOPERATIVE, Launch(), False, 10.0),
        (COOPERATIVE, Launch(), True, 5.0),
    ]
    neighbour = Neighbour(make_group(rows, coarse=[False, False, False, True]), 0.5, math.nan)
    assert neighbour.best(5) == [(Candidate(COOPERATIVE), 10.0), (Candidate(PINGPONG, Launch(swizzle=4)), 20.0)]
    assert neighbour.time_of(Candidate(PINGPONG)) == 20.0
    assert neighbour.time_of(Candidate(COOPERATIVE, swapped=True)) is None


def test_a_pack_is_a_trace_set_with_explanations(gemm: Gemm, synthetic_tables: Tables, tmp_path: Path) -> None:
    seeds, measured = make_seeds(gemm, {"M": 64}, 3, retrieve=1, neighbours=2, tables=synthetic_tables)
    assert [seed.origin for seed in seeds] == ["selector", "selector", "retrieved"]
    best = [candidate for neighbour in measured for candidate, _ in neighbour.best(4)]
    assert seeds[2].candidate in best
    text = write_pack(tmp_path, gemm, {"M": 64}, seeds, measured).read_text(encoding="utf-8")
    assert "64×7168×5120" in text
    solutions = {solution.name: solution for solution in TraceSet(tmp_path).solutions()}
    assert list(solutions) == [seed.solution.name for seed in seeds]
    for name, solution in solutions.items():
        assert (tmp_path / "seeds" / name / "kernel.cu").read_text() == solution.sources[0].content
        assert "**limit**" in (tmp_path / "seeds" / name / "RATIONALE.md").read_text()
    pack = json.loads((tmp_path / "pack.json").read_text())
    assert [item["origin"] for item in pack["seeds"]] == ["selector", "selector", "retrieved"]
    assert len(pack["nearest"]) == 2
    assert TraceSet(tmp_path).workloads() == [gemm.workload_trace({"M": 64})]


def test_nothing_asked_for(gemm: Gemm) -> None:
    with pytest.raises(CutlassRankerError, match="at least one seed"):
        make_seeds(gemm, {"M": 64}, 0, retrieve=0)
