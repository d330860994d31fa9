from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from tables_example import BASELINES, CAMPAIGN, ROWS, make_manifest

from cutlass_ranker.datasets import choice, plan
from cutlass_ranker.datasets.merging import merge_campaign
from cutlass_ranker.datasets.problems import evaluation_problems
from cutlass_ranker.datasets.tables import Tables
from cutlass_ranker.generator import (
    DTYPES,
    FAMILIES,
    DataError,
    Epilogue,
    KernelConfig,
    MissingDependency,
    Problem,
    Schedule,
    Scheduler,
    accumulator_registers,
    load_catalogue,
    names,
    valid_mask,
)
from cutlass_ranker.generator import columns as col

BF16 = DTYPES["bf16"]
SCHEDULES = [
    (Schedule.WARPSPECIALIZED, Scheduler.PERSISTENT), (Schedule.PINGPONG, Scheduler.PERSISTENT),
    (Schedule.COOPERATIVE, Scheduler.PERSISTENT), (Schedule.COOPERATIVE, Scheduler.STREAM_K),
]  # fmt: skip
KERNELS = col.from_configs(
    [
        *(
            KernelConfig(128, 128, 64, 2, 1, 4, schedule, epilogue, scheduler)
            for schedule, scheduler in SCHEDULES
            for epilogue in Epilogue
        ),
        KernelConfig(64, 16, 128, 1, 1, 8, Schedule.WARPSPECIALIZED, Epilogue.NOSMEM, family="TNN"),
    ]
)
PROBLEMS = pd.DataFrame(
    [
        (4096, 4096, 4096, "paper", "eval"),
        (256, 256, 8192, "paper", "eval"),
        (8, 4096, 4096, "llm", "train"),
        (40, 1032, 1000, "random", "train"),
    ],
    columns=["M", "N", "K", "sources", "split"],
)


def pick(m, n, k, rank=0, splits=1, raster=1, swizzle=1, us=10.0, stages=4):
    return (m, n, k, rank, 128, 128, 64, 2, 1, stages, splits, swizzle, raster, us)


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
    counts = first.groupby("problem_id").size().to_dict()
    # tile_m = 128 on M = 40 or 8: the guard starts at M = 64. Swapped 64x16 on N=4096, M=8: fine.
    assert counts == {0: 9, 1: 9, 2: 9, 3: 9}
    tnn = first[first["kernel_id"] == 8]
    assert tnn["swapped"].tolist() == [1] * 4
    assert first.loc[first["kernel_id"] != 8, "swapped"].sum() == 0
    assert (first[["raster", "decomposition"]] == 0).all(axis=None)
    assert (first[["swizzle", "splits"]] == 1).all(axis=None)


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
    # Six swizzled variants of problem 0 and two split ones of problem 1 are extra.
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
    assert len(made.candidates) == 36
    assert len(made.nvmmh_variants) == 0
    with pytest.raises(MissingDependency):
        plan.make_plan("alone", problems=PROBLEMS)


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


class TestChoice:
    def test_deepest_by_hand(self):
        one = KernelConfig(128, 128, 64, 1, 1, 4, Schedule.COOPERATIVE, Epilogue.NOSMEM)
        big = KernelConfig(256, 256, 256, 1, 1, 4, Schedule.COOPERATIVE, Epilogue.NOSMEM)
        # 128x128x64: 32 KiB a stage, 232448 - 2048 = 230400 B: 7 stages. 256x256x256: 256 KiB a stage: none.
        assert choice.deepest(col.from_configs([one, big])).tolist() == [7, 0]

    def test_static_score_by_hand(self):
        configs = col.from_configs(
            [
                KernelConfig(128, 128, 64, 1, 1, 7, Schedule.COOPERATIVE, Epilogue.NOSMEM),
                KernelConfig(128, 128, 64, 4, 1, 7, Schedule.COOPERATIVE, Epilogue.NOSMEM),
                KernelConfig(64, 16, 128, 1, 1, 5, Schedule.PINGPONG, Epilogue.NOSMEM, family="TNN"),
            ]
        )
        score = choice.static_score(configs, [Problem(16, 1200, 512), Problem(1280, 1408, 512)])
        # 128x128: 1x10 tiles in one wave of 132, 10x11 = 110 in one wave. Cluster 4x1 pads to 12x11 = 132: one wave.
        side = 7 * np.sqrt(128 * 128 * 64)
        assert score[0] == pytest.approx((10 / 132 + 110 / 132) / 2 * side)
        assert score[1] == pytest.approx(score[0])
        # Swapped 64x16 sees (1200, 16): 19x1 tiles; (1408, 1280): 22x80 = 1760 tiles, 14 waves.
        small = 5 * np.sqrt(64 * 16 * 128)
        assert score[2] == pytest.approx((19 / 132 + 1760 / (14 * 132)) / 2 * small)


@pytest.fixture(scope="module")
def first():
    pytest.importorskip("nvMatmulHeuristics", reason="optional extra baselines")
    return plan.make_plan("first")


class TestFirstCatalogue:
    def test_size_validity_and_tiles(self, first):
        kernels = {name: first.kernels[name].to_numpy(dtype=np.int32) for name in col.CONFIG_COLUMNS}
        assert len(first.kernels) == 640
        assert first.kernels["name"].is_unique
        assert valid_mask(kernels, BF16).all()
        tiles = first.kernels[["family", "tile_m", "tile_n", "tile_k"]].drop_duplicates()
        assert len(tiles) <= 40
        assert set(tiles["family"]) == {FAMILIES.index("TNT"), FAMILIES.index("TNN")}
        assert 1 <= (accumulator_registers(kernels) >= 256).sum() <= 32
        assert 1 <= (kernels["cluster_m"] * kernels["cluster_n"] == 16).sum() <= 16

    def test_every_evaluation_problem_has_all_variants_of_the_first_pick(self, first):
        assert first.meta["options"]["nvmmh_variants_without_kernel"] == 0
        evaluation = first.problems[first.problems["split"] == "eval"]
        assert len(evaluation) == len(evaluation_problems())
        assert set(first.nvmmh_variants["problem_id"]) == set(evaluation["problem_id"])

    def test_the_shipped_catalogue_comes_from_it(self, first):
        try:
            shipped = names(load_catalogue(), BF16)
        except DataError:
            pytest.skip("no catalogue is shipped")
        assert set(shipped) <= set(first.kernels["name"])


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


def test_split_plan_holds_every_split_worth_a_look_and_the_best_known():
    stream_k = KernelConfig(128, 128, 64, 1, 1, 4, Schedule.COOPERATIVE, Epilogue.TMA, Scheduler.STREAM_K)
    pingpong = KernelConfig(128, 128, 64, 1, 1, 4, Schedule.PINGPONG, Epilogue.TMA)
    problems = pd.DataFrame(
        [(256, 256, 1024, "a", "eval"), (4096, 4096, 4096, "b", "eval")], columns=["M", "N", "K", "sources", "split"]
    )
    planned = plan.make_plan("main", col.from_configs([stream_k, pingpong]), problems, PICKS.iloc[:0])
    rows = ROWS.iloc[[0, 2, 5, 6]].assign(problem_id=[0, 0, 1, 1], kernel_id=[0, 1, 0, 1], swapped=0)
    tables = merge_campaign(Tables(), planned, rows, BASELINES.iloc[:0], make_manifest(planned), CAMPAIGN)
    made = plan.make_split_plan("splits", tables)
    # 256x256x1024: 4 tiles of 16 k-tiles; slices of at least 4 k-tiles allow 2 and 4. 4096x4096 has 1,024 tiles: none.
    assert made.problems["problem_id"].tolist() == [0]
    splits = made.candidates[made.candidates["splits"] > 1]
    assert splits["kernel_id"].tolist() == [0, 0]
    assert splits["splits"].tolist() == [2, 4]
    known = made.candidates[made.candidates["splits"] == 1]
    assert sorted(known["kernel_id"]) == [0, 1]
    assert made.meta["purpose"] == "main"
