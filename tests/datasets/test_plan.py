from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from tables_example import BASELINES, CAMPAIGN, ROWS, make_manifest
from typer.testing import CliRunner

from cutlass_ranker import cli
from cutlass_ranker.datasets import groups, plan
from cutlass_ranker.datasets.merging import merge_campaign
from cutlass_ranker.datasets.tables import Tables
from cutlass_ranker.generator import (
    FAMILIES,
    DataError,
    Decomposition,
    Epilogue,
    KernelConfig,
    MissingDependency,
    Schedule,
    Scheduler,
)
from cutlass_ranker.generator import columns as col

SCHEDULES = [
    (Schedule.WARPSPECIALIZED, Scheduler.PERSISTENT), (Schedule.PINGPONG, Scheduler.PERSISTENT),
    (Schedule.COOPERATIVE, Scheduler.PERSISTENT), (Schedule.COOPERATIVE, Scheduler.STREAM_K),
]  # fmt: skip
KERNELS = col.from_configs(
    [
        *(
            KernelConfig(128, 128, 64, 2, 1, 4, schedule, epilogue, scheduler)
            for schedule, scheduler in SCHEDULES
            for epilogue in (Epilogue.NOSMEM, Epilogue.TMA)
        ),
        KernelConfig(64, 16, 128, 1, 1, 8, Schedule.WARPSPECIALIZED, Epilogue.NOSMEM, family="TNN"),
    ]
)
PROBLEMS = pd.DataFrame(
    [
        (4096, 4096, 4096, "TNT", "paper", "eval"),
        (256, 256, 8192, "TNT", "paper", "eval"),
        (8, 4096, 4096, "TNT", "llm", "train"),
        (40, 1032, 1000, "TNT", "random", "train"),
    ],
    columns=["M", "N", "K", "layout", "sources", "split"],
)


def pick(m, n, k, rank=0, splits=1, raster=1, swizzle=1, us=10.0, stages=4):
    return (m, n, k, "TNT", rank, 128, 128, 64, 2, 1, stages, splits, swizzle, raster, us)


PICKS = pd.DataFrame(
    [
        pick(4096, 4096, 4096, raster=1, swizzle=4),
        pick(4096, 4096, 4096, rank=1),
        pick(256, 256, 8192, splits=3, raster=2),
        pick(8, 4096, 4096),
        pick(40, 1032, 1000),
    ],
    columns=list(plan.PICK_COLUMNS),
)


@pytest.fixture
def made():
    return plan.make_plan("test", KERNELS, PROBLEMS, PICKS, seed=3)


def test_first_pass_is_every_kernel_that_serves_the_problem(made):
    first = made.candidates[made.candidates["kind"] == plan.Kind.FIRST_PASS]
    first = first[first["splits"] == 1]
    counts = first.groupby("problem_id").size().to_dict()
    # tile_m = 128 on M = 40 or 8: the guard starts at M = 64. Swapped 64x16 on N=4096, M=8: fine.
    assert counts == {0: 9, 1: 9, 2: 9, 3: 9}
    tnn = first[first["kernel_id"] == 8]
    assert tnn["swapped"].tolist() == [1] * 4
    assert first.loc[first["kernel_id"] != 8, "swapped"].sum() == 0
    assert (first[["raster", "decomposition"]] == 0).all(axis=None)
    assert (first[["swizzle", "splits"]] == 1).all(axis=None)


def test_first_pass_holds_the_splits_worth_a_look(made):
    split = made.candidates[(made.candidates["kind"] == plan.Kind.FIRST_PASS) & (made.candidates["splits"] > 1)]
    # Kernels 6 and 7 are the Stream-K ones, 128x128x64 with a cluster of 2x1. 4096x4096 has 1,024 tiles: too many.
    # 256x256x8192: 4 tiles of 128 k-tiles take up to 32 slices of 4 k-tiles. 8x4096x4096: 32 tiles, padded to 64 by
    # the cluster, so that 4 slices make no more than 264. 40x1032x1000: 9 tiles, padded to 18, of 16 k-tiles: 4 too.
    by_kind = {kind: rows.groupby(["problem_id", "kernel_id"]) for kind, rows in split.groupby("decomposition")}
    found = {
        kind: {key: sorted(rows["splits"]) for key, rows in by_candidate} for kind, by_candidate in by_kind.items()
    }
    apart = ((1, [2, 3, 4, 6, 8, 12, 16, 24, 32]), (2, [2, 3, 4]), (3, [2, 3, 4]))
    expected = {
        Decomposition.SPLIT_K: ((1, [2, 4, 8, 16]), (2, [2, 4]), (3, [2, 4])),
        Decomposition.SPLIT_K_PARALLEL: apart,
        Decomposition.SPLIT_K_SEPARATE: apart,
    }
    assert found == {
        int(kind): {(problem, kernel): splits for problem, splits in listed for kernel in (6, 7)}
        for kind, listed in expected.items()
    }


def test_atomic_splits_are_planned_only_when_asked_for(made):
    every = plan.make_plan("test", KERNELS, PROBLEMS, PICKS, seed=3, deterministic=False).candidates
    atomic = every["decomposition"] == Decomposition.SPLIT_K_ATOMIC
    pd.testing.assert_frame_equal(every[~atomic].reset_index(drop=True), made.candidates)
    # As above; 4 tiles of 128 k-tiles take 32 slices of 4 k-tiles each.
    found = {key: sorted(rows["splits"]) for key, rows in every[atomic].groupby(["problem_id", "kernel_id"])}
    assert found == {
        (problem, kernel): splits
        for problem, splits in ((1, [4, 8, 16, 24, 32]), (2, [4]), (3, [4]))
        for kernel in (6, 7)
    }


def test_guards_apply():
    one = PROBLEMS.iloc[[0]].assign(M=4096, N=48, K=512)
    made = plan.make_plan("g", KERNELS, one, PICKS.iloc[:0])
    # tile_n 128 > 2 * 48; the swapped kernel has N = 4096 -> rows 48 < 64 unguarded, columns 4096.
    assert made.candidates["kernel_id"].tolist() == [8]


def test_nvmmh_variants_carry_the_launch_of_the_first_pick(made):
    variants = made.nvmmh_variants.merge(made.kernels, on="kernel_id")
    split = variants[variants["problem_id"] == 1]
    assert set(split["scheduler"]) == {int(Scheduler.STREAM_K)}
    assert len(split) == 2
    assert set(split["splits"]) == {3}
    whole = variants[variants["problem_id"] == 0]
    assert len(whole) == 8
    plain = whole["schedule"] == Schedule.WARPSPECIALIZED
    # Plain kernels have no scheduler, so their launch is the default one; the others keep swizzle 4 along M.
    assert whole.loc[plain, ["raster", "swizzle"]].drop_duplicates().to_numpy().tolist() == [[0, 1]]
    assert whole.loc[~plain, ["raster", "swizzle"]].drop_duplicates().to_numpy().tolist() == [[1, 4]]
    assert set(made.nvmmh_variants["problem_id"]) == {0, 1}


def test_every_variant_is_a_candidate_once(made):
    key = ["problem_id", "kernel_id", "raster", "swizzle", "decomposition", "splits"]
    joined = made.nvmmh_variants.merge(made.candidates, on=key, how="left")
    assert joined["kind"].notna().all()
    assert not made.candidates.duplicated([*key, "swapped"]).any()
    # Six swizzled variants of problem 0 and two split ones (3 slices) of problem 1 are extra.
    assert (made.candidates["kind"] == plan.Kind.REQUIRED).sum() == 8


def test_missing_kernels_are_counted():
    made = plan.make_plan("m", KERNELS, PROBLEMS, PICKS.assign(stages=5))
    # Stages 5 (163,840 B): the 8 variants of problem 0 and the 2 split ones of problem 1 are valid, none is in KERNELS.
    assert made.meta["options"]["nvmmh_variants_without_kernel"] == 10
    assert len(made.nvmmh_variants) == 0


def test_same_seed_same_plan_and_round_trip(made, tmp_path):
    again = plan.make_plan("test", KERNELS, PROBLEMS, PICKS, seed=3)
    read = plan.read_plan(plan.write_plan(made, tmp_path / "plan"))
    for table in plan.PLAN_TABLES:
        pd.testing.assert_frame_equal(getattr(again, table), getattr(made, table))
        pd.testing.assert_frame_equal(getattr(read, table), getattr(made, table))
    assert read.meta == made.meta
    assert read.meta["purpose"] == "main"
    assert sorted(made.problems["priority"]) == [0, 1, 2, 3]
    assert set(made.problems.loc[made.problems["priority"] < 2, "sources"]) == {"paper"}


def test_a_leak_is_refused():
    leak = pd.concat([PROBLEMS, PROBLEMS.iloc[[2]].assign(M=4096, N=4096, K=5000)])
    with pytest.raises(DataError, match=r"5000.*4096"):
        plan.make_plan("leak", KERNELS, leak, PICKS)


def test_without_nvmmh_given_kernels_are_planned_with_a_warning(monkeypatch):
    def missing(*_args, **_options):
        raise MissingDependency("not installed")

    monkeypatch.setattr(plan, "query", missing)
    with pytest.warns(UserWarning, match="without nvMMH"):
        made = plan.make_plan("alone", KERNELS, PROBLEMS)
    # Whole tiles; split-K; the two kinds whose slices store their partial sums apart.
    assert len(made.candidates) == 36 + 16 + 30 + 30
    assert len(made.nvmmh_variants) == 0


def test_a_broken_plan_directory_is_named(tmp_path):
    with pytest.raises(DataError, match="not a plan directory"):
        plan.read_plan(tmp_path / "nothing")


def test_repeat_plan_draws_measured_rows_evenly(made):
    measured = made.candidates.assign(status="ok")
    measured.loc[measured["problem_id"] == 3, "status"] = "coarse"
    repeat = plan.make_repeat_plan("again", made, measured, problems=2, rows=8, seed=1)
    assert repeat.meta["purpose"] == "repeat"
    assert repeat.candidates.groupby("problem_id").size().tolist() == [4, 4]
    assert 3 not in set(repeat.candidates["problem_id"])
    key = ["problem_id", "kernel_id", "raster", "swizzle", "decomposition", "splits", "swapped"]
    assert len(repeat.candidates.merge(made.candidates, on=key)) == 8
    assert set(repeat.problems["problem_id"]) == set(repeat.candidates["problem_id"])


def test_extra_kernels_are_measured_as_nvmmhs_variants_only():
    stream_k = np.flatnonzero(KERNELS["scheduler"] == Scheduler.STREAM_K)
    others = np.setdiff1d(np.arange(col.size(KERNELS)), stream_k)
    extra = col.take(KERNELS, stream_k)
    made = plan.make_plan("a", col.take(KERNELS, others), PROBLEMS, PICKS, extra=extra)
    whole = plan.make_plan("a", KERNELS, PROBLEMS, PICKS)
    assert len(made.kernels) == len(whole.kernels)
    assert made.meta["options"]["nvmmh_variants_without_kernel"] == 0
    assert len(made.nvmmh_variants) == len(whole.nvmmh_variants)
    ids = set(made.kernels.loc[made.kernels["scheduler"] == Scheduler.STREAM_K, "kernel_id"])
    rows = made.candidates[made.candidates["kernel_id"].isin(ids)]
    # The picks concern the two evaluation problems; both stand for the Stream-K kernels too.
    assert set(rows["kind"]) == {plan.Kind.REQUIRED}
    assert set(rows["problem_id"]) == {0, 1}


def test_every_layout_gets_the_kernels_that_serve_it_directly_or_swapped():
    families = ("TNT", "TNN", "TTT", "NNN")
    kernels = col.from_configs(
        KernelConfig(128, 64, 64, 1, 1, 4, Schedule.PINGPONG, Epilogue.TMA, family=family) for family in families
    )
    rows = [(512, 512, 1000, layout, "x", "train") for layout in ("TNT", "TNN", "TTT", "NNN", "NNT")]
    made = plan.make_plan("all", kernels, pd.DataFrame(rows, columns=list(PROBLEMS)), PICKS.iloc[:0])
    served = made.candidates.merge(made.problems, on="problem_id").merge(made.kernels, on="kernel_id")
    found = {
        (layout, FAMILIES[family], swapped)
        for layout, family, swapped in served[["layout", "family", "swapped"]].itertuples(index=False)
    }
    assert found == {
        ("TNT", "TNT", 0), ("TNT", "TNN", 1), ("TNN", "TNN", 0), ("TNN", "TNT", 1),
        ("TTT", "TTT", 0), ("TTT", "NNN", 1), ("NNN", "NNN", 0), ("NNN", "TTT", 1),
    }  # fmt: skip
    # Nothing serves NNT, so the problem is left out.
    assert "NNT" not in set(made.problems["layout"])


def test_nvmmh_kernels_are_the_first_picks_variants_in_the_problems_own_family():
    problems = pd.concat([PROBLEMS, PROBLEMS.iloc[:2].assign(layout="NNN")], ignore_index=True)
    picks = pd.concat([PICKS, PICKS.assign(layout="NNN")], ignore_index=True)
    kernels = plan.nvmmh_kernels(problems, picks)
    # Both evaluation problems have 128x128x64, cluster 2x1, 4 stages; the split pick's two are among the eight.
    assert col.size(kernels) == 16
    assert np.bincount(kernels["family"])[[FAMILIES.index("TNT"), FAMILIES.index("NNN")]].tolist() == [8, 8]
    assert list(kernels) == list(col.CONFIG_COLUMNS)


def measured_tables(purpose="main", problems=PROBLEMS):
    """Tables in which three kernels were measured on each problem, the fastest being kernel 1 with swizzle 4."""
    made = plan.make_plan("main", col.take(KERNELS, slice(0, 3)), problems, PICKS.iloc[:0])
    made.meta["purpose"] = purpose
    rows = []
    for number in made.problems["problem_id"]:
        us = 200.0 + number
        times = {(0, 1): us, (1, 1): 0.9 * us, (2, 1): 1.2 * us, (1, 4): 0.8 * us}
        rows += [
            ROWS.iloc[0].to_dict() | {"problem_id": number, "kernel_id": kernel, "swizzle": swizzle, "time_us": time,
                                      "retake_us": time, "graph_us": time}
            for (kernel, swizzle), time in times.items()
        ]  # fmt: skip
    return merge_campaign(Tables(), made, pd.DataFrame(rows), BASELINES.iloc[:0], make_manifest(made), CAMPAIGN)


KEY = ["kernel_id", "swizzle", "splits"]


class TestBesideKnown:
    def test_what_is_measured_is_left_out_and_the_best_known_is_retaken(self):
        tables = measured_tables()
        four = col.take(KERNELS, np.array([3, 2, 1, 0]))  # other ids than in the tables; the first is new
        made = plan.make_plan("more", four, PROBLEMS, PICKS.iloc[:0], known=tables, best=2)
        names = made.kernels.set_index("kernel_id")["name"]
        known = tables.kernels.set_index("kernel_id")["name"]
        for _, rows in made.candidates.groupby("problem_id"):
            listed = rows[["kernel_id", "swizzle", "kind"]].itertuples(index=False)
            found = [(names[kernel], swizzle, kind) for kernel, swizzle, kind in listed]
            assert sorted(found) == sorted(
                [
                    (names[0], 1, plan.Kind.FIRST_PASS),  # new
                    (known[1], 4, plan.Kind.FIRST_PASS),  # the fastest known sets the pace
                    (known[1], 1, plan.Kind.REQUIRED),
                ]
            )
        assert len(made.problems) == 4
        assert known[2] not in set(names)

    def test_problems_with_nothing_new_are_left_out(self):
        tables = measured_tables()
        fresh = PROBLEMS.iloc[[0]].assign(layout="TNN")
        problems = pd.concat([PROBLEMS, fresh], ignore_index=True)
        made = plan.make_plan("more", col.take(KERNELS, slice(0, 3)), problems, PICKS.iloc[:0], known=tables)
        assert made.problems["layout"].tolist() == ["TNN"]
        # Swapped, and no known candidates beside them.
        assert made.candidates["swapped"].tolist() == [1, 1, 1]
        assert set(made.candidates["kind"]) == {plan.Kind.FIRST_PASS}

    def test_only_main_campaigns_count_as_measured(self):
        tables = measured_tables(purpose="study")
        made = plan.make_plan("more", col.take(KERNELS, slice(0, 3)), PROBLEMS, PICKS.iloc[:0], known=tables)
        assert len(made.candidates) == 12

    def test_variants_of_known_kernels_stay_variants(self):
        tables = measured_tables()
        made = plan.make_plan("more", col.take(KERNELS, slice(3, 8)), PROBLEMS, PICKS, known=tables)
        # Of the eight variants of problem 0, the three known kernels' and the five new ones' are all listed.
        assert made.meta["options"]["nvmmh_variants_without_kernel"] == 0
        assert (made.nvmmh_variants["problem_id"] == 0).sum() == 8
        assert set(made.nvmmh_variants["kernel_id"]) <= set(made.kernels["kernel_id"])

    def test_merging_such_a_plan_twice_leaves_nothing_to_do(self):
        tables = measured_tables()
        made = plan.make_plan("more", KERNELS, PROBLEMS, PICKS, known=tables)
        rows = made.candidates.assign(
            status="ok", time_us=300.0, spread=0.01, launches=10, retake_us=np.nan, graph_us=np.nan, probe_ratio=1.0
        )
        both = merge_campaign(tables, made, rows, BASELINES.iloc[:0], make_manifest(made), CAMPAIGN)
        again = plan.make_plan("again", KERNELS, PROBLEMS, PICKS, known=both)
        assert len(again.candidates) == 0
        assert len(again.problems) == 0
        assert len(groups(both)) == 4


def test_study_plan_takes_the_best_and_some_others_of_half_and_half():
    tables = measured_tables()
    made = plan.make_study_plan("warm", tables, problems=2, best=2, others=1, seed=4)
    assert made.meta["purpose"] == "study"
    assert sorted(made.problems["split"]) == ["eval", "train"]
    assert set(made.candidates["kind"]) == {plan.Kind.REQUIRED}
    for _, rows in made.candidates.groupby("problem_id"):
        found = list(rows[KEY].itertuples(index=False, name=None))
        assert found[:2] == [(1, 4, 1), (1, 1, 1)]
        assert len(found) == 3
        assert found[2] in {(0, 1, 1), (2, 1, 1)}
    other = plan.make_study_plan("server", tables, problems=2, best=2, others=1, seed=4)
    pd.testing.assert_frame_equal(other.candidates, made.candidates)
    assert set(made.kernels["kernel_id"]) == set(made.candidates["kernel_id"])


def test_study_problems_are_spread_over_the_sizes():
    rows = [(8 * 4**i, 512, 1000, "TNT", "x", "train") for i in range(8)]
    tables = measured_tables(problems=pd.DataFrame(rows, columns=list(PROBLEMS)))
    # No evaluation problems there: half of 8 are training ones, one out of each two neighbours in size.
    made = plan.make_study_plan("s", tables, problems=8, best=1, others=0)
    assert sorted(made.problems["problem_id"] // 2) == [0, 1, 2, 3]


def test_retake_plan_takes_the_best_of_every_problem():
    tables = measured_tables()
    made = plan.make_retake_plan("again", tables, best=3)
    assert (made.meta["purpose"], made.meta["options"]) == ("main", {"launches_for_best": 0})
    assert made.problems.sort_values("priority")["split"].tolist() == sorted(tables.problems["split"])
    assert set(made.candidates["kind"]) == {plan.Kind.REQUIRED}
    for problem_id, rows in made.candidates.groupby("problem_id"):
        group = next(g for g in groups(tables) if g.problem_id == problem_id)
        fastest = np.argsort(group.time_us, kind="stable")[:3]
        assert rows["kernel_id"].tolist() == group.kernel_id[fastest].tolist()
        assert rows["splits"].tolist() == group.columns["splits"][fastest].tolist()
    few = plan.make_retake_plan("repeat", tables, best=1, problems=2, purpose="repeat")
    assert len(few.candidates) == 2
    assert few.meta["purpose"] == "repeat"


def test_retake_plan_from_the_command_line(tmp_path):
    measured_tables().write(tmp_path / "data")
    arguments = ["collect", "plan", str(tmp_path / "again"), "--retake", str(tmp_path / "data")]
    done = CliRunner().invoke(cli.app, arguments)
    assert done.exit_code == 0, done.output
    made = plan.read_plan(tmp_path / "again" / "plan")
    assert made.meta["name"] == "again"
    pd.testing.assert_frame_equal(made.candidates, plan.make_retake_plan("again", measured_tables()).candidates)


def test_atomic_splits_are_retaken_on_top_where_they_are_among_the_best():
    tables = measured_tables()
    problem = int(tables.problems["problem_id"].iloc[0])
    rows = tables.measurements[tables.measurements["problem_id"] == problem]
    first = rows.index[rows["status"] == "ok"][0]
    atomic = rows.loc[[first]].assign(decomposition=int(Decomposition.SPLIT_K_ATOMIC), splits=2)
    times = [(float(rows["time_us"].min()) / 2, True), (float(rows["time_us"].max()) * 2, False)]
    for time_us, wanted in times:
        more = atomic.assign(time_us=np.float32(time_us), retake_us=np.float32(time_us))
        both = replace(tables, measurements=pd.concat([tables.measurements, more], ignore_index=True))
        made = plan.make_retake_plan("again", both, best=2)
        mine = made.candidates[made.candidates["problem_id"] == problem]
        assert (mine["decomposition"] != Decomposition.SPLIT_K_ATOMIC).sum() == 2
        assert (mine["decomposition"] == Decomposition.SPLIT_K_ATOMIC).sum() == wanted


def test_gap_plan_is_the_sample_beside_the_best_known():
    tables = measured_tables()
    sample = col.from_configs([KernelConfig(64, 16, 64, 1, 1, 4, Schedule.PINGPONG, Epilogue.TMA)])
    made = plan.make_gap_plan("gap", tables, sample, best=3)
    assert made.meta["purpose"] == "gap"
    shapes = set(map(tuple, made.problems[["M", "N", "K"]].to_numpy().tolist()))
    assert shapes == set(plan.GAP_SHAPES)
    assert set(made.problems["split"]) == {"eval"}
    # 4096 cubed and 256x256x8192 are measured: three known candidates beside the one of the sample; elsewhere none.
    sizes = made.candidates.groupby("problem_id").size().to_dict()
    known = made.problems["problem_id"][(made.problems["M"] == 4096) | (made.problems["K"] == 8192)].tolist()
    assert sizes == {number: 4 if number in known else 1 for number in range(6)}
