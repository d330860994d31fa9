"""Sampling replayed on recorded times, against hand calculation and closed forms."""

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cutlass_ranker.eval.study.replay import Pool, SamplingCell, draw, make_pool

# 132 SMs and 128×16,896 outputs: tiles of 128×128 make 132 tiles, one full wave; of 128×64 264, two full waves; of
# 128×192 88, two thirds of a wave. Static score = efficiency · stages · √(128 · tile_n · 64).
ROWS = [
    (0, 128, 4, 10.0),  # 1 · 4 · 1024 = 4096
    (1, 64, 6, 8.0),  # 1 · 6 · 724.08 = 4344.5
    (2, 192, 3, 16.0),  # 2/3 · 3 · 1254.14 = 2508.3
    (3, 128, 3, 20.0),  # 1 · 3 · 1024 = 3072
]
TIMES = np.array([time for *_, time in ROWS])


def test_static_score_by_hand(toy_group, study_data):
    pool = make_pool(toy_group(ROWS), study_data.hardware)
    assert pool.time_us.tolist() == [10.0, 8.0, 16.0, 20.0]
    assert pool.score == pytest.approx([4096.0, 6 * np.sqrt(128 * 64 * 64), 2 * np.sqrt(128 * 192 * 64), 3072.0])


def test_top_of_the_static_score_by_hand(toy_group, study_data):
    """In order of the score the times are 8, 10, 20, 16; the oracle is 8, so every budget finds it."""
    data = replace(study_data, training=(toy_group(ROWS),), evaluation=())
    assert SamplingCell(1.0, 1, 3).run(data)["by_sample"] == [0.0] * 3
    slower = [(kernel, tile, stages, 25.0 if kernel == 1 else time) for kernel, tile, stages, time in ROWS]
    data = replace(study_data, training=(toy_group(slower),), evaluation=())
    # Now 25, 10, 20, 16 with oracle 10: the first alone leaves 1 − 10/25.
    found = SamplingCell(1.0, 1, 2).run(data)
    assert found["by_sample"] == [0.6, 0.6]
    assert found["regrets"] == [0.6]
    assert (found["groups"], found["pool"], found["share"]) == (1, 4.0, 0.25)
    assert (found["within_1"], found["within_5"]) == (0.0, 0.0)
    assert SamplingCell(1.0, 2, 2).run(data)["by_sample"] == [0.0, 0.0]


def test_half_from_the_top_half_from_the_other_strata(toy_group, study_data):
    """α = 0.5 of 2 takes the best score (time 8), then one of the other three, from one of their strata."""
    pool = make_pool(toy_group(ROWS), study_data.hardware)
    seen = [tuple(draw(pool, 2, 0.5, np.random.default_rng(seed)).tolist()) for seed in range(200)]
    assert {first for first, _ in seen} == {1}
    assert {second for _, second in seen} == {0, 2, 3}
    # α = 0.75 of 2 rounds to 2 from the top.
    assert draw(pool, 2, 0.75, np.random.default_rng(0)).tolist() == [1, 0]


@pytest.mark.parametrize("budget", [1, 2, 3, 4])
def test_uniform_sampling_has_its_exact_expectation(toy_group, study_data, budget):
    data = replace(study_data, training=(toy_group(ROWS),), evaluation=())
    exact = np.mean([1 - 8.0 / min(sample) for sample in combinations(TIMES, budget)])
    found = SamplingCell(None, budget, 4000).run(data)
    assert np.mean(found["by_sample"]) == pytest.approx(exact, abs=0.01)
    assert (found["by_sample"][0] == 0.0) or budget < 4


def test_every_measured_launch_of_a_kernel_counts(study_data):
    """The whole pool holds the oracle, also where it is an unusual launch."""
    for group in study_data.evaluation:
        pool = make_pool(group, study_data.hardware)
        assert len(pool.time_us) == len(np.unique(group.variant)) < len(group)
        assert pool.time_us.min() == group.oracle_us
    found = SamplingCell(0.5, 10_000, 2).run(study_data)
    assert found["by_sample"] == [0.0, 0.0]
    assert (found["share"], found["within_1"]) == (1.0, 1.0)


def test_strata_are_drawn_in_turn():
    """Strata of 4, 2 and 1 candidates: the first round takes one of each, the second one of both that are left."""
    pool = Pool(np.ones(7), np.zeros(7), np.array([0, 0, 0, 0, 1, 1, 2]))
    for seed in range(20):
        order = pool.stratum[draw(pool, 7, 0.0, np.random.default_rng(seed))].tolist()
        assert sorted(order[:3]) == [0, 1, 2]
        assert sorted(order[3:5]) == [0, 1]
        assert order[5:] == [0, 0]


pools = st.integers(1, 40).flatmap(
    lambda count: st.tuples(
        st.lists(st.integers(0, 5), min_size=count, max_size=count),
        st.lists(st.integers(0, 3), min_size=count, max_size=count),
    )
)


@given(pools, st.integers(1, 50), st.none() | st.floats(0, 1), st.integers(0, 99))
def test_samples_have_no_repeats_and_the_wanted_size(scores_and_strata, budget, alpha, seed):
    scores, strata = (np.array(values) for values in scores_and_strata)
    pool = Pool(np.ones(len(scores)), scores.astype(float), strata)
    rows = draw(pool, budget, alpha, np.random.default_rng(seed))
    assert len(set(rows.tolist())) == len(rows) == min(budget, len(scores))
    if alpha is not None:
        top = min(int(alpha * budget + 0.5), len(scores))
        assert sorted(scores[rows[:top]]) == sorted(scores)[len(scores) - top :]


def test_a_larger_uniform_sample_contains_the_smaller_one():
    pool = Pool(np.ones(30), np.zeros(30), np.zeros(30, dtype=np.intp))
    small, large = (set(draw(pool, count, None, np.random.default_rng(3)).tolist()) for count in (5, 12))
    assert small < large


def test_ties_of_the_static_score_are_broken_at_random():
    pool = Pool(np.ones(8), np.zeros(8), np.arange(8))
    assert len({int(draw(pool, 1, 1.0, np.random.default_rng(seed))[0]) for seed in range(60)}) == 8
