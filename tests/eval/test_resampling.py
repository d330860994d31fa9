"""Bootstrap by weights against resampling done by hand."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cutlass_ranker.eval.resampling import interval, mean_interval, resample, weighted_mean, weighted_quantiles

ROWS = st.lists(st.tuples(st.floats(-10, 10), st.integers(0, 4)), min_size=1, max_size=12).filter(
    lambda rows: any(count for _, count in rows)
)


@given(rows=ROWS, level=st.floats(0, 1))
def test_weighted_statistics_are_those_of_repeated_values(rows, level):
    values, counts = (np.array(column, dtype=np.float64) for column in zip(*rows, strict=True))
    repeated = np.repeat(values, counts.astype(int))
    weights = counts[None, :]
    assert weighted_mean(values, weights)[0] == pytest.approx(repeated.mean(), abs=1e-9)
    found = weighted_quantiles(values, weights, (level, 0.0, 1.0))
    assert found[0][0] == pytest.approx(np.quantile(repeated, level), abs=1e-9)
    assert (found[1][0], found[2][0]) == (repeated.min(), repeated.max())


def test_nothing_drawn_is_no_number():
    nothing = np.zeros((1, 2))
    assert math.isnan(weighted_mean(np.array([1.0, 2.0]), nothing)[0])
    assert math.isnan(weighted_quantiles(np.array([1.0, 2.0]), nothing, (0.5,))[0][0])


def test_clusters_are_drawn_whole():
    weights = resample(["a", "b", "a", "c"], samples=500, seed=1)
    assert weights.shape == (500, 4)
    assert (weights[:, 0] == weights[:, 2]).all()
    # Three clusters, so three draws each time: a counts twice in the sum over groups.
    assert (weights[:, [0, 1, 3]].sum(axis=1) == 3).all()
    # A cluster is drawn 3 · 1/3 = 1 times on average; binomial(3, 1/3) has the variance 2/3.
    assert weights[:, 0].mean() == pytest.approx(1.0, abs=3 * math.sqrt(2 / 3 / 500))
    assert (resample(["a", "b", "a", "c"], samples=500, seed=1) == weights).all()


def test_copies_of_a_problem_do_not_narrow_its_interval():
    values = np.array([0.0, 0.1, 0.3, 0.4])
    once = mean_interval(values)
    clustered = mean_interval(np.repeat(values, 4), np.repeat(np.arange(4), 4))
    careless = mean_interval(np.repeat(values, 4))
    assert clustered == pytest.approx(once)
    assert careless[1] - careless[0] < 0.7 * (once[1] - once[0])


def test_interval_of_known_values():
    # Quantiles 0.025 and 0.975 of 0..40 lie at positions 1 and 39.
    assert interval(np.arange(41.0)) == pytest.approx((1.0, 39.0))
    assert interval(np.array([np.nan, 2.0])) == (2.0, 2.0)
    assert math.isnan(interval(np.array([np.nan]))[0])
    assert mean_interval(np.array([np.nan, 0.25])) == (0.25, 0.25)
    assert math.isnan(mean_interval(np.array([np.nan]))[1])
