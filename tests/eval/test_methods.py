"""What each method picks, on groups small enough to work out by hand."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from cutlass_ranker.datasets import Group, Tables, groups
from cutlass_ranker.eval import (
    BaselineMethod,
    NvmmhMethod,
    NvmmhVariants,
    RandomPick,
    RankerMethod,
    StaticBest,
    evaluate,
    propose,
)
from cutlass_ranker.eval.methods import proposals_of
from cutlass_ranker.features import get_hardware
from cutlass_ranker.generator import (
    CONFIG_COLUMNS,
    Columns,
    Decomposition,
    Epilogue,
    KernelConfig,
    Launch,
    Problem,
    Raster,
    Schedule,
    Scheduler,
    ranked_candidates,
)
from cutlass_ranker.generator.columns import candidate_at, size
from cutlass_ranker.models.deployed import choose
from cutlass_ranker.selector import rank_kernels

H200 = get_hardware("h200")
PINGPONG = KernelConfig(128, 128, 64, 1, 1, 4, Schedule.PINGPONG, Epilogue.TMA)
COOPERATIVE = KernelConfig(128, 256, 64, 1, 1, 3, Schedule.COOPERATIVE, Epilogue.TMA)
PLAIN = KernelConfig(64, 64, 128, 1, 1, 4, Schedule.WARPSPECIALIZED, Epilogue.NOSMEM)
SWIZZLED = Launch(Raster.ALONG_M, 4)
MakeGroup = Callable[..., Group]


class TableRanker:
    """Scores looked up by (tile_n, swizzle)."""

    name = "table"
    feature_set = "none"

    def __init__(self, scores: dict[tuple[int, int], float]) -> None:
        self.scores = scores

    def score(self, columns: Columns, problem: Problem, hardware: object) -> np.ndarray:
        pairs = zip(columns["tile_n"].tolist(), columns["swizzle"].tolist(), strict=True)
        return np.array([self.scores[pair] for pair in pairs])


def test_deployed_rule_does_not_look_at_which_launches_were_measured(make_group: MakeGroup):
    # Launches exist only for the truly fastest kernel (128x128). The ranker's best score of all is one of them (9), but
    # its best default-launch score is the other kernel's (5 > 4), so that one is deployed: the leak is not exploited.
    group = make_group(
        [
            (PINGPONG, Launch(), False, 10.0),
            (PINGPONG, SWIZZLED, False, 9.0),
            (COOPERATIVE, Launch(), False, 20.0),
        ]
    )
    ranker = TableRanker({(128, 1): 4.0, (128, 4): 9.0, (256, 1): 5.0})
    assert propose(ranker, group, H200).tolist() == [2]
    assert RankerMethod(ranker, H200).times(group).tolist() == [20.0]
    # Best two kernels: the cooperative one, then the pingpong one with its best-scored launch.
    assert propose(ranker, group, H200, k=2).tolist() == [2, 1]


def test_deployed_rule_takes_the_best_scored_launch_of_the_picked_kernel(make_group: MakeGroup):
    group = make_group(
        [
            (PINGPONG, SWIZZLED, False, 9.0),
            (PINGPONG, Launch(), False, 10.0),
            (COOPERATIVE, Launch(), False, 20.0),
        ]
    )
    assert propose(TableRanker({(128, 1): 6.0, (128, 4): 7.0, (256, 1): 5.0}), group, H200).tolist() == [0]
    assert propose(TableRanker({(128, 1): 6.0, (128, 4): 5.5, (256, 1): 5.0}), group, H200).tolist() == [1]


def test_swapped_use_of_a_kernel_is_another_kernel(make_group: MakeGroup):
    group = make_group(
        [
            (PINGPONG, Launch(), True, 11.0),
            (PINGPONG, Launch(), False, 10.0),
            (PINGPONG, SWIZZLED, True, 8.0),
        ]
    )
    # Equal scores: the unswapped one first, and the launch measured only for the swapped one is not borrowed.
    ranker = TableRanker({(128, 1): 1.0, (128, 4): 2.0})
    assert propose(ranker, group, H200, k=4).tolist() == [1, 2]


def test_ranker_without_a_default_launch_has_no_answer(make_group: MakeGroup):
    group = make_group([(PINGPONG, SWIZZLED, False, 9.0)])
    method = RankerMethod(TableRanker({(128, 4): 1.0}), H200)
    assert method.times(group).size == 0
    assert np.mean(~np.isnan(evaluate([group], [method]).results["table"].time_us)) == 0.0


def test_first_proposal_is_the_choice_that_models_are_validated_by(synthetic_tables: Tables):
    class Noise:
        name = "noise"
        feature_set = "none"

        def score(self, columns: Columns, problem: Problem, hardware: object) -> np.ndarray:
            # Few distinct values, so that ties are common.
            return (7 * columns["tile_n"] + 3 * columns["stages"] * columns["swizzle"] + columns["swapped"]) % 5.0

    for group in groups(synthetic_tables):
        scores = Noise().score(group.columns, group.problem, None)
        rows = propose(Noise(), group, H200, k=5)
        assert rows[0] == choose(group, scores)
        kernels = list(zip(group.kernel_id[rows], group.columns["swapped"][rows], strict=True))
        assert len(set(kernels)) == 5


def test_a_kernel_is_proposed_once_with_its_best_split(make_group: MakeGroup):
    # 64x64x16384 on 64x64x128 tiles: one tile and 128 k-tiles, so splits are worth a look and ranked beside the kernel.
    stream_k = KernelConfig(128, 64, 128, 1, 1, 3, Schedule.COOPERATIVE, Epilogue.TMA, Scheduler.STREAM_K)
    split = {count: Launch(decomposition=Decomposition.SPLIT_K, splits=count) for count in (4, 8)}
    group = make_group(
        [
            (stream_k, Launch(), False, 30.0),
            (stream_k, split[4], False, 12.0),
            (stream_k, split[8], False, 10.0),
            (PLAIN, Launch(), False, 20.0),
        ],
        problem=Problem(64, 64, 16384),
    )
    assert group.ranked_first.all()

    class BySplits:
        name = "splits"
        feature_set = "none"

        def score(self, columns: Columns, problem: Problem, hardware: object) -> np.ndarray:
            return np.where(columns["tile_m"] == 64, 0.5, columns["splits"] / 8.0)

    rows, gaps, _ = proposals_of(BySplits(), group, H200, k=4)
    # Scores 1/8, 1/2, 1 of the Stream-K kernel, 1/2 of the plain one.
    assert rows.tolist() == [2, 3]
    assert gaps == pytest.approx([0.0, 0.5])


def test_column_major_output_is_ranked_as_the_transposed_problem(make_group: MakeGroup):
    seen = []

    class Watching:
        name = "watching"
        feature_set = "none"

        def score(self, columns: Columns, problem: Problem, hardware: object) -> np.ndarray:
            seen.append((problem, columns["swapped"].tolist()))
            return columns["swapped"].astype(float)

    own = KernelConfig(128, 128, 64, 1, 1, 4, Schedule.PINGPONG, Epilogue.TMA, family="TNN")
    group = make_group(
        [(own, Launch(), False, 10.0), (replace(own, family="TNT"), Launch(), True, 20.0)],
        problem=Problem(512, 2048, 1024, "TNN"),
    )
    assert propose(Watching(), group, H200, k=2).tolist() == [0, 1]
    # TNN with M = 512, N = 2048 is TNT with M = 2048, N = 512, for which the TNN kernel is the swapped one.
    assert seen[0] == (Problem(2048, 512, 1024, "TNT"), [1, 0])
    assert group.columns["swapped"].tolist() == [0, 1]


@pytest.mark.parametrize("layout", ["TNT", "TNN"])
@pytest.mark.parametrize(("m", "n", "k"), [(2048, 1024, 4096), (64, 256, 16384), (16, 4096, 4096)])
def test_proposals_are_what_the_selector_deploys(
    make_group: MakeGroup, synthetic_tables: Tables, m: int, n: int, k: int, layout: str
):
    class Scattered:
        """Scores that no two kernels share and that launches do not change, splits excepted."""

        name = "scattered"
        feature_set = "none"

        def score(self, columns: Columns, problem: Problem, hardware: object) -> np.ndarray:
            keys = ("tile_m", "tile_n", "cluster_m", "schedule", "epilogue", "swapped", "splits")
            return np.sin(sum((i + 1.7) * columns[name] for i, name in enumerate(keys)) * (problem.m + 0.3))

    problem = Problem(m, n, k, layout)
    configs = {name: synthetic_tables.kernels[name].to_numpy(dtype=np.int32) for name in CONFIG_COLUMNS}
    found, _ = ranked_candidates(configs, problem)
    listed = [candidate_at(found, row, problem.dtype) for row in range(size(found))]
    group = make_group([(c.config, c.launch, c.swapped, 10.0 + i) for i, c in enumerate(listed)], problem=problem)
    choices = rank_kernels(
        m, n, k, top_k=8, layout=layout, candidates=list(dict.fromkeys(c.config for c in listed)), model=Scattered()
    )
    rows = propose(Scattered(), group, H200, k=8)
    deployed = [(c.config, c.launch.splits, c.swapped) for c in (listed[row] for row in rows)]
    assert deployed == [(c.config, c.launch.splits, c.swapped) for c in choices]


def variants_of(tables: Tables, rows: list[tuple[int, ...]]) -> NvmmhVariants:
    """Variants (problem, kernel, raster, swizzle, decomposition, splits)."""
    keys = ["problem_id", "kernel_id", "raster", "swizzle", "decomposition", "splits"]
    return NvmmhVariants(replace(tables, nvmmh_variants=pd.DataFrame(rows, columns=keys)))


def test_nvmmh_mean_and_best_of_three_variants(make_group: MakeGroup, synthetic_tables: Tables):
    cooperative = replace(PINGPONG, schedule=Schedule.COOPERATIVE)
    group = make_group(
        [
            (PINGPONG, Launch(), False, 11.0),
            (PINGPONG, SWIZZLED, False, 12.5),
            (replace(PINGPONG, epilogue=Epilogue.NOSMEM), SWIZZLED, False, 16.0),
            (cooperative, SWIZZLED, False, 20.0),
            (cooperative, SWIZZLED, True, 5.0),  # the oracle, but swapped: not what nvMMH asked for
            (PLAIN, Launch(), False, 10.0),  # no variant
        ],
        problem_id=3,
    )
    variants = variants_of(synthetic_tables, [(3, kernel, 1, 4, 0, 1) for kernel in (0, 1, 2)])
    assert variants.rows(group)[0].tolist() == [1, 2, 3]
    # Oracle 5 µs. Regrets of 12.5, 16, 20 µs: 0.6, 0.6875, 0.75.
    result = evaluate([group], [NvmmhMethod(variants, best=False), NvmmhMethod(variants, best=True)]).results
    assert result["nvmmh_mean"].scores[0, 0] == pytest.approx((0.6 + 0.6875 + 0.75) / 3)
    # Harmonic mean of the times: 3 / (0.08 + 0.0625 + 0.05) = 3 / 0.1925
    assert result["nvmmh_mean"].time_us[0] == pytest.approx(3 / 0.1925)
    assert result["nvmmh_best"].scores[0, 0] == pytest.approx(0.6)
    assert result["nvmmh_best"].time_us[0] == 12.5


def test_nvmmh_is_charged_with_the_launch_it_asked_for(make_group: MakeGroup, synthetic_tables: Tables):
    group = make_group([(PINGPONG, Launch(), False, 10.0), (PINGPONG, SWIZZLED, False, 12.0)])
    assert variants_of(synthetic_tables, [(0, 0, 0, 1, 0, 1)]).rows(group)[0].tolist() == [0]
    assert variants_of(synthetic_tables, [(0, 0, 1, 4, 0, 1)]).rows(group)[0].tolist() == [1]
    assert variants_of(synthetic_tables, [(0, 0, 2, 4, 0, 1)]).rows(group)[0].tolist() == []


def test_nvmmh_without_a_measured_variant_is_missing_not_dropped(make_group: MakeGroup, synthetic_tables: Tables):
    measured = [make_group([(PLAIN, Launch(), False, 10.0)], problem_id=i) for i in (0, 1, 2)]
    # Problem 0: another kernel was listed; problem 1: measured; problem 2: nvMMH was not asked.
    variants = variants_of(synthetic_tables, [(0, 7, 0, 1, 0, 1), (1, 0, 0, 1, 0, 1)])
    result = evaluate(measured, [NvmmhMethod(variants, best=True)]).results["nvmmh_best"]
    assert np.mean(~np.isnan(result.time_us)) == pytest.approx(1 / 3)
    assert np.isnan(result.time_us).tolist() == [True, False, True]
    assert [variants.rows(group)[1] for group in measured] == [1, 1, 0]


def test_cublaslt_regret_is_negative_where_it_beats_every_candidate(make_group: MakeGroup, synthetic_tables: Tables):
    listed = pd.DataFrame(
        [
            (0, "cublaslt_first", 8.0, "ok", 0),
            (1, "cublaslt_first", 12.5, "ok", 0),
            (2, "cublaslt_first", 9.0, "wrong", 0),
            (1, "cublaslt_best", 10.0, "ok", 0),
            (1, "cublaslt_first", 99.0, "ok", 1),  # of a repeat campaign
        ],
        columns=["problem_id", "method", "time_us", "status", "campaign_id"],
    )
    measured = [make_group([(PLAIN, Launch(), False, 10.0)], problem_id=i) for i in (0, 1, 2)]
    method = BaselineMethod(replace(synthetic_tables, baselines=listed), "cublaslt_first")
    result = evaluate(measured, [method]).results["cublaslt_first"]
    # 1 - 10/8 = -0.25; 1 - 10/12.5 = 0.2; a wrong result is no answer
    assert result.scores[:, 0] == pytest.approx([-0.25, 0.2, np.nan], nan_ok=True)


def test_cublaslt_is_brought_to_the_clock_of_the_groups(make_group: MakeGroup, synthetic_tables: Tables):
    # What the older campaign retook takes 1.2 times as long in the newer one: 10 · 1.2 = 12 and 14, median 13.
    again = synthetic_tables.measurements[lambda t: (t["problem_id"] == 0) & t["retake_us"].notna()]
    newer = again.assign(campaign_id=2, retake_us=1.2 * again["retake_us"])
    campaigns = pd.concat([synthetic_tables.campaigns, synthetic_tables.campaigns.iloc[[0]].assign(campaign_id=2)])
    listed = pd.DataFrame(
        [(0, 10.0, 0), (0, 14.0, 2), (1, 10.0, 0)], columns=["problem_id", "time_us", "campaign_id"]
    ).assign(method="cublaslt_first", status="ok")
    tables = replace(
        synthetic_tables,
        measurements=pd.concat([synthetic_tables.measurements, newer]),
        campaigns=campaigns,
        baselines=listed,
    )
    method = BaselineMethod(tables, "cublaslt_first")
    times = [method.times(make_group([(PLAIN, Launch(), False, 10.0)], problem_id=i)) for i in (0, 1)]
    assert np.concatenate(times) == pytest.approx([13.0, 10.0])


def test_static_best_is_chosen_on_training_groups_and_falls_back(make_group: MakeGroup):
    # Training speeds (oracle/time): PINGPONG 1.0, 0.5, not valid = 1.5 of 3; COOPERATIVE 0.5, 1.0, 0.8 = 2.3; PLAIN
    # only in the third, where it is the oracle: 1.0. So the order is COOPERATIVE, PINGPONG, PLAIN.
    ids = {PINGPONG: 0, COOPERATIVE: 1, PLAIN: 2}

    def group(times: dict[KernelConfig, float]) -> Group:
        made = make_group([(config, Launch(), False, time) for config, time in times.items()])
        return replace(made, kernel_id=np.array([ids[config] for config in times], dtype=np.int32))

    training = [
        group({PINGPONG: 10.0, COOPERATIVE: 20.0}),
        group({PINGPONG: 20.0, COOPERATIVE: 10.0}),
        group({COOPERATIVE: 12.5, PLAIN: 10.0}),
    ]
    method = StaticBest(training)
    assert method.order == [(1, 0), (0, 0), (2, 0)]
    assert method.times(group({PLAIN: 1.0, PINGPONG: 2.0, COOPERATIVE: 3.0})).tolist() == [3.0]
    assert method.times(group({PLAIN: 1.0, PINGPONG: 2.0})).tolist() == [2.0]
    assert StaticBest([]).times(training[0]).size == 0


def test_random_expectation_equals_brute_force(synthetic_tables: Tables):
    for group in groups(synthetic_tables, split="eval"):
        result = evaluate([group], [RandomPick()]).results["random"]
        total, close, count = 0.0, 0, 0
        for time, default in zip(group.time_us, group.default_launch, strict=True):
            if default:
                total += 1 - group.oracle_us / time
                close += group.oracle_us / time >= 0.95
                count += 1
        assert 5 < count < len(group.time_us)
        assert result.scores[0, 0] == pytest.approx(total / count)
        assert result.scores[0, 2] == pytest.approx(close / count)


def test_coarse_time_is_a_valid_pick_but_never_the_oracle(make_group: MakeGroup):
    group = make_group([(PINGPONG, Launch(), False, 10.0), (COOPERATIVE, Launch(), False, 40.0)], coarse=[False, True])
    result = evaluate([group], [RankerMethod(TableRanker({(128, 1): 0.0, (256, 1): 1.0}), H200)]).results["table"]
    assert result.scores[0, 0] == pytest.approx(0.75)
    # Measuring the first two proposals finds the oracle.
    assert result.best_of is not None
    assert result.best_of[0] == pytest.approx([0.75, 0.0, 0.0, 0.0])


def test_methods_need_distinct_names(make_group: MakeGroup):
    with pytest.raises(ValueError, match="distinct"):
        evaluate([make_group([(PLAIN, Launch(), False, 1.0)])], [RandomPick(), RandomPick()])
