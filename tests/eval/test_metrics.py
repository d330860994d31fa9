"""Regret, its summaries, intervals and speed-ups against hand-worked numbers."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cutlass_ranker.eval import best_of_k_regret, bootstrap, harmonic_mean, regret, score_pick, speedup, summarise
from cutlass_ranker.eval.metrics import best_of_k_summary, spearman

TIMES = st.lists(st.floats(0.5, 1e4), min_size=1, max_size=20)


def rows(*values: float) -> np.ndarray:
    """Score rows of deterministic picks with the given regrets."""
    return np.array([score_pick(1.0, np.array([1.0 / (1.0 - value)])) for value in values])


def test_regret_is_the_share_of_time_lost():
    # oracle 10 µs: 10 -> 0; 12.5 -> 1 - 0.8 = 0.2; 20 -> 0.5; 8 µs (faster than the oracle) -> 1 - 1.25 = -0.25
    assert regret(10.0, [10.0, 12.5, 20.0, 8.0]) == pytest.approx([0.0, 0.2, 0.5, -0.25])


def test_summary_of_five_groups():
    # Sorted regrets 0, 0.005, 0.04, 0.08, 0.5: mean 0.625/5 = 0.125, median 0.04;
    # p95 at position 0.95 * 4 = 3.8: 0.08 + 0.8 * (0.5 - 0.08) = 0.416.
    summary = summarise(rows(0.5, 0.005, 0.0, 0.08, 0.04))
    assert summary == pytest.approx(
        {
            "mean_regret": 0.125, "median_regret": 0.04, "p95_regret": 0.416, "max_regret": 0.5,
            "within_1": 2 / 5, "within_5": 3 / 5, "within_10": 4 / 5, "top1": 1 / 5,
        }
    )  # fmt: skip


def test_level_includes_its_bound():
    # 0.99/1 is a regret of exactly 1% up to rounding.
    assert summarise(np.array([score_pick(0.99, np.array([1.0]))]))["within_1"] == 1.0


def test_faster_than_the_oracle_counts_as_top1():
    assert summarise(rows(-0.25))["top1"] == 1.0


def test_group_without_an_answer_is_left_out_of_the_summary():
    scores = np.array([score_pick(10.0, np.array([20.0])), score_pick(10.0, np.empty(0))])
    assert np.isnan(scores[1]).all()
    assert summarise(scores)["mean_regret"] == pytest.approx(0.5)
    assert math.isnan(summarise(scores[1:])["mean_regret"])


def test_equally_likely_outcomes_give_exact_expectations():
    # oracle 10: times 10, 10.4, 20 -> regrets 0, 0.4/10.4 = 0.0385, 0.5; within 1%: 1/3, within 5%: 2/3, top-1: 1/3
    assert score_pick(10.0, np.array([10.0, 10.4, 20.0])) == pytest.approx(
        [(0.4 / 10.4 + 0.5) / 3, 1 / 3, 2 / 3, 2 / 3, 1 / 3]
    )


@given(times=TIMES, oracle=st.floats(0.1, 100.0))
def test_regret_of_the_harmonic_mean_is_the_mean_regret(times, oracle):
    mean = np.mean([1 - oracle / time for time in times])
    assert regret(oracle, harmonic_mean(times)) == pytest.approx(mean, rel=1e-9, abs=1e-9)


def test_harmonic_mean_by_hand():
    # Speeds 1/10 and 1/30: mean 2/30, so 15 µs (the arithmetic mean would be 20).
    assert harmonic_mean([10.0, 30.0]) == pytest.approx(15.0)


def test_bootstrap_interval_of_a_mean_matches_the_normal_one():
    # 1,500 regrets, uniform on 0..0.2: standard error about 0.2/sqrt(12)/sqrt(1500) = 0.00149; mean ± 1.96 of it.
    values = np.random.default_rng(3).uniform(0.0, 0.2, 1500)
    low, high = bootstrap(rows(*values), samples=4000)["mean_regret"]
    half = 1.96 * values.std() / math.sqrt(1500)
    assert low == pytest.approx(values.mean() - half, abs=0.1 * half)
    assert high == pytest.approx(values.mean() + half, abs=0.1 * half)


def test_bootstrap_interval_of_a_share_matches_the_binomial_one():
    # 300 of 1,000 groups are the oracle: 0.3 ± 1.96 * sqrt(0.3 * 0.7 / 1000) = 0.3 ± 0.0284.
    low, high = bootstrap(rows(*[0.0] * 300, *[0.2] * 700), samples=4000)["top1"]
    assert low == pytest.approx(0.3 - 0.0284, abs=0.004)
    assert high == pytest.approx(0.3 + 0.0284, abs=0.004)


def test_bootstrap_repeats_for_a_seed_and_collapses_without_variation():
    scores = rows(0.1, 0.2, 0.4)
    assert bootstrap(scores, seed=1) == bootstrap(scores, seed=1)
    assert bootstrap(rows(0.2, 0.2))["median_regret"] == pytest.approx((0.2, 0.2))
    assert math.isnan(bootstrap(scores[:0])["mean_regret"][0])


def test_speedup_by_hand():
    # Ratios 20/10 = 2, 5/10 = 0.5, 10/10 = 1, 40/10 = 4; geometric mean = (2 * 0.5 * 1 * 4)^(1/4) = sqrt(2);
    # two wins and one tie of four; the fifth problem has no baseline.
    result = speedup([20.0, 5.0, 10.0, 40.0, np.nan], [10.0] * 5)
    assert result["geomean"] == pytest.approx(math.sqrt(2))
    assert (result["win_rate"], result["tie_rate"], result["problems"]) == (0.5, 0.25, 4)
    assert (result["min"], result["max"]) == (0.5, 4.0)
    low, high = result["ci"]
    assert 0.5 <= low < math.sqrt(2) < high <= 4.0


def test_half_a_per_cent_is_a_tie():
    # Ratios 1.006 win, 1.005 and 1/1.005 tie, 1 tie, 1/1.006 loses. Faster by any amount: the first two.
    result = speedup([1.006, 1.005, 1.0, 1.0, 1.0], [1.0, 1.0, 1.0, 1.005, 1.006])
    assert (result["wins"], result["ties"], result["losses"]) == (1, 3, 1)
    assert (result["win_rate"], result["tie_rate"], result["loss_rate"]) == pytest.approx((0.2, 0.6, 0.2))
    assert result["faster_rate"] == pytest.approx(0.4)


def test_layouts_of_a_shape_count_once_in_the_interval():
    once = speedup([1.0, 2.0, 3.0], [1.0, 1.0, 1.0])
    copied = speedup([1.0, 2.0, 3.0] * 4, [1.0] * 12, clusters=[0, 1, 2] * 4)
    assert copied["ci"] == pytest.approx(once["ci"])
    assert bootstrap(rows(0.1, 0.2, 0.4, 0.1, 0.2, 0.4), clusters=[0, 1, 2, 0, 1, 2])["mean_regret"] == pytest.approx(
        bootstrap(rows(0.1, 0.2, 0.4))["mean_regret"]
    )


def test_best_of_k_summary_by_hand():
    # 0, 0.01, 0.05, 0.1 and one without a proposal: mean 0.04, median 0.03, 2 of 4 within 1%, 3 of 4 within 5%.
    summary = best_of_k_summary(np.array([0.0, 0.01, np.nan, 0.05, 0.1]))
    assert summary["mean_regret"] == pytest.approx(0.04)
    assert summary["median_regret"] == pytest.approx(0.03)
    assert (summary["within_1"], summary["within_5"], summary["groups"]) == (0.5, 0.75, 4)
    low, high = summary["ci"]["within_1"]
    assert (low, high) == (0.0, 1.0)
    assert best_of_k_summary(np.array([np.nan])) == {}


def test_spearman_by_hand():
    # Ranks 1 2 3 4 and 1 3 2 4: 1 - 6 · 2 / (4 · 15) = 0.8.
    assert spearman([1.0, 5.0, 9.0, 90.0], [1.0, 4.0, 2.0, 7.0]) == pytest.approx(0.8)
    # Ties: ranks 1.5 1.5 3 against 1 2 3: covariance 1.5, variances 1.5 and 2 -> 1.5 / sqrt(3).
    assert spearman([1.0, 1.0, 2.0], [1.0, 2.0, 3.0]) == pytest.approx(1.5 / math.sqrt(3))
    assert math.isnan(spearman([1.0, 1.0], [1.0, 2.0]))
    assert math.isnan(spearman([], []))


def test_speedup_without_common_problems():
    result = speedup([np.nan], [1.0])
    assert result["problems"] == 0
    assert math.isnan(result["geomean"])


def test_best_of_k_keeps_the_fastest_of_the_first_k():
    proposals = np.array([20.0, 12.5, 40.0, 10.0])
    # k = 1: 1 - 10/20; k = 2 and 3: 1 - 10/12.5; k = 4: the oracle; more than there are: all of them
    assert [best_of_k_regret(10.0, proposals, k) for k in (1, 2, 3, 4, 8)] == pytest.approx([0.5, 0.2, 0.2, 0.0, 0.0])
    assert math.isnan(best_of_k_regret(10.0, np.empty(0), 1))


@given(times=TIMES)
def test_best_of_k_never_grows_with_k(times):
    values = [best_of_k_regret(min(times), np.array(times), k) for k in range(1, len(times) + 1)]
    assert values == sorted(values, reverse=True)
    assert values[-1] == 0.0
