"""Repeats, conditions and timers on toy measurements."""

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from cutlass_ranker.datasets import Group, Tables
from cutlass_ranker.eval import mode_study, repeatability, timer_bands
from cutlass_ranker.eval.agreement import compare
from cutlass_ranker.generator import Epilogue, KernelConfig, Launch, Schedule

MakeGroup = Callable[..., Group]
WithCampaigns = Callable[..., Tables]
KERNELS = [KernelConfig(128, 16 * n, 64, 1, 1, 3, Schedule.PINGPONG, Epilogue.TMA) for n in range(1, 9)]


def group_of(make_group: MakeGroup, times: dict[int, float], problem_id: int = 0, spread: float = 0.0) -> Group:
    """A group of kernels 0.. with times; all that is not listed was not measured."""
    made = make_group([(KERNELS[i], Launch(), False, time) for i, time in times.items()], problem_id=problem_id)
    size = len(times)
    return replace(made, kernel_id=np.array(list(times), dtype=np.int32), spread=np.full(size, spread))


def test_agreement_by_hand(make_group: MakeGroup):
    first = [
        group_of(make_group, {0: 10.0, 1: 11.0, 2: 20.0, 3: 40.0, 4: 50.0, 5: 60.0}),
        group_of(make_group, {0: 10.0, 1: 10.1}, problem_id=1),
        group_of(make_group, {0: 5.0}, problem_id=2),
    ]
    second = [
        # Ratios 1.1, 0.9, 1.1, 1.1, 1.1: kernel 1 wins now. Kernel 5 was not measured again, kernel 6 never before.
        group_of(make_group, {0: 11.0, 1: 9.9, 2: 22.0, 3: 44.0, 4: 55.0, 6: 70.0}),
        group_of(make_group, {0: 10.1, 1: 10.0}, problem_id=1, spread=0.02),
        group_of(make_group, {7: 1.0}, problem_id=2),
    ]
    found = compare(first, second, ("a", "b"))
    assert (found.first, found.second, found.problems, found.candidates) == ("a", "b", 2, 7)
    # Medians of the ratios 1.1 and (10.1/10 + 10/10.1)/2 = 1.00005.
    assert found.ratio == pytest.approx((1.1 + (1.01 + 10 / 10.1) / 2) / 2)
    # |ratio - 1|: 0.1 five times, 0.01, 0.0099.
    assert found.difference == pytest.approx(0.1)
    # Without the drift of 1.1: 0 four times, 1 - 0.9/1.1 = 0.18; the other problem: 0.00995 twice -> the median is 0.
    assert found.difference_undrifted == pytest.approx(0.0, abs=1e-12)
    # Ranks 1 2 3 4 5 against 2 1 3 4 5: 1 - 6·2 / (5·24) = 0.9; the second problem has too few.
    assert found.spearman == pytest.approx(0.9)
    # Costs: 1 - 9.9/11 = 0.1 and 1 - 10/10.1 = 0.0099; back: 1 - 10/11 and 1 - 10/10.1.
    assert (found.oracle_problems, found.same_oracle) == (2, 0.0)
    assert found.cost == pytest.approx((0.1 + 0.1 / 10.1) / 2)
    assert found.cost_max == pytest.approx(0.1)
    assert found.cost_back == pytest.approx((1 / 11 + 0.1 / 10.1) / 2)
    assert (found.within_1, found.within_2) == (0.5, 0.5)
    # Noise: sigma is at least 0.2%: 2·hypot(0.022, 0.0198) = 0.059 µs < 1.1 µs; with 2% spread (sigma 1.48%):
    # 2·hypot(0.15, 0.148) = 0.42 µs > 0.1 µs.
    assert found.beyond_noise == 0.5


def test_oracles_that_were_not_measured_again_do_not_count(make_group: MakeGroup):
    first = [group_of(make_group, {0: 10.0, 1: 11.0, 2: 12.0})]
    found = compare(first, [group_of(make_group, {1: 11.0, 2: 12.0})], ("a", "b"))
    assert (found.problems, found.candidates, found.oracle_problems) == (1, 2, 0)
    assert math.isnan(found.cost) and math.isnan(found.same_oracle)


def test_nothing_in_common(make_group: MakeGroup):
    found = compare([group_of(make_group, {0: 10.0})], [], ("a", "b"))
    assert (found.problems, found.candidates) == (0, 0)
    assert math.isnan(found.difference) and math.isnan(found.ratio)


def test_coarse_candidates_are_left_out(make_group: MakeGroup):
    rows = [(KERNELS[0], Launch(), False, 10.0), (KERNELS[1], Launch(), False, 40.0)]
    first = make_group(rows, coarse=[False, True])
    assert compare([first], [make_group(rows)], ("a", "b")).candidates == 1


def test_conditions_are_compared_in_pairs(synthetic_tables: Tables, with_campaigns: WithCampaigns):
    tables = with_campaigns(
        synthetic_tables,
        [
            ("study-warm", "study", "warm", "offline", 0.5),
            ("study-cold", "study", "cold", "offline", 1.0),
            ("study-server", "study", "cold", "server", 1.0),
        ],
    )
    found = mode_study(tables)
    assert [(one.first, one.second) for one in found] == [
        ("earlier main campaigns", "cold, offline"),
        ("cold, offline", "cold, server"),
        ("cold, offline", "warm, offline"),
        ("cold, server", "warm, offline"),
    ]
    # The same times: nothing differs. Halving the fastest half keeps all ranks.
    for one in found:
        assert (one.problems, one.oracle_problems, one.same_oracle, one.cost) == (3, 3, 1.0, 0.0)
        assert one.spearman == pytest.approx(1.0)
    assert found[1].difference == 0.0
    assert found[2].difference_p90 == pytest.approx(0.5)


def test_choosing_by_the_wrong_condition_costs(synthetic_tables: Tables, with_campaigns: WithCampaigns):
    tables = with_campaigns(
        synthetic_tables,
        [("c", "study", "cold", "offline", 1.0), ("w", "study", "warm", "", 100.0)],
        retakes=False,
    )
    cold_warm = mode_study(tables)[1]
    assert (cold_warm.first, cold_warm.second) == ("cold, offline", "warm, offline")
    # The slower half is the faster one when warm: the winner always differs, and the rank correlation is negative.
    assert (cold_warm.same_oracle, cold_warm.beyond_noise) == (0.0, 1.0)
    assert cold_warm.spearman < 0
    costs = []
    for _, rows in synthetic_tables.measurements.query("campaign_id == 0 and status == 'ok'").groupby("problem_id"):
        slower = rows["time_us"][rows["time_us"] > rows["time_us"].median()]
        costs.append(1 - slower.min() / (100 * rows["time_us"].min()))
    assert cold_warm.cost == pytest.approx(np.mean(costs[:3]))


def test_no_study_no_comparison(synthetic_tables: Tables):
    assert mode_study(synthetic_tables) == []


def test_repeat_of_the_synthetic_data(synthetic_tables: Tables):
    (found,) = repeatability(synthetic_tables)
    # Every tenth row again, 1% slower, without retakes. Differences to the main groups, whose retakes scatter by 0.5%.
    assert (found.first, found.second) == ("earlier main campaigns", "again")
    assert found.problems == 12
    assert found.difference == pytest.approx(0.01, abs=0.004)
    assert found.spearman > 0.99
    assert repeatability(replace(synthetic_tables, campaigns=synthetic_tables.campaigns.head(1))) == []


def test_repeats_of_the_same_problems_are_also_compared_together(
    synthetic_tables: Tables, with_campaigns: WithCampaigns
):
    added = [(name, "repeat", "cold", "offline", factor) for name, factor in (("a", 0.5), ("b", 1.0), ("c", 1.0))]
    found = repeatability(with_campaigns(synthetic_tables, added))
    # "again" repeats other rows of twelve problems, the three new ones all rows of three.
    assert [one.second for one in found] == ["again", "a", "b", "c", "a, b, c"]
    alone, together = found[1], found[-1]
    assert (alone.problems, together.problems, alone.candidates) == (3, 3, together.candidates)
    # One of three that halves the fastest half: ranks stay, its own times are 0.5, the median's are not.
    assert alone.difference_p90 == pytest.approx(0.5)
    assert together.difference_p90 == pytest.approx(0.0, abs=1e-9)
    assert together.same_oracle == 1.0


def test_later_main_campaigns_are_no_part_of_what_was_repeated(synthetic_tables: Tables):
    # A later campaign finds a kernel that takes half the time of each problem's best.
    best = synthetic_tables.measurements.query("campaign_id == 0 and status == 'ok'")
    best = best.loc[best.groupby("problem_id")["retake_us"].idxmin()]
    later = best.assign(kernel_id=99, campaign_id=5, time_us=best["time_us"] / 2, retake_us=best["retake_us"] / 2)
    campaign = synthetic_tables.campaigns.head(1).assign(campaign_id=5, name="later", started="2026-12-05T00:00:00Z")
    tables = replace(
        synthetic_tables,
        measurements=pd.concat([synthetic_tables.measurements, later], ignore_index=True),
        campaigns=pd.concat([synthetic_tables.campaigns, campaign], ignore_index=True),
    )
    assert repeatability(tables) == repeatability(synthetic_tables)


def test_timers_by_length(synthetic_tables: Tables):
    rows = synthetic_tables.measurements.query("campaign_id == 0 and status == 'ok'").head(4)
    # Around an empty kernel the graph timer reads 1.5 µs.
    rows = rows.assign(retake_us=[4.0, 4.0, 30.0, 30.0], graph_us=[6.0, 6.0, 33.0, np.nan])
    bands = timer_bands(replace(synthetic_tables, measurements=rows))
    assert [band.rows for band in bands] == [2, 0, 0, 1, 0, 0]
    # 2/4 and (2 - 1.5)/4; 3/30 and (3 - 1.5)/30.
    assert (bands[0].difference, bands[0].corrected) == pytest.approx((0.5, 0.125))
    assert (bands[3].low_us, bands[3].high_us) == (20.0, 50.0)
    assert (bands[3].difference, bands[3].corrected) == pytest.approx((0.1, 0.05))
    assert math.isnan(bands[1].difference)
