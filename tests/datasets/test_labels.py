from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cutlass_ranker.datasets import Group, labels
from cutlass_ranker.generator import Problem


def group(time, spread, coarse=None):
    time = np.array(time, dtype=np.float64)
    return Group(
        0, Problem(512, 512, 512), "train", ("x",), {}, np.arange(len(time), dtype=np.int32), time,
        np.array(spread, dtype=np.float64),
        np.zeros(len(time), dtype=bool) if coarse is None else np.array(coarse),
        np.ones(len(time), dtype=bool),
    )  # fmt: skip


def test_sigma_converts_the_interquartile_range():
    # A normal distribution's quartiles lie 0.6745 sigma from the mean, so IQR = 1.349 sigma.
    values = labels.sigma(group([10, 10, 10, 10], [0.02698, 0.0, np.nan, 0.01349]))
    assert values == pytest.approx([0.02, 0.002, 0.01, 0.01])


def test_bands_by_hand():
    # sigma 1%: 100 and 102.8 differ by 2.8 <= 2 sqrt(1 + 1.057) = 2.868: one band; 102.9: 2.9 > 2.870: the next.
    time = np.array([102.9, 100.0, 102.8, 150.0])
    assert labels.bands(time, np.full(4, 0.01)).tolist() == [1, 0, 0, 2]


def test_a_chain_of_neighbours_is_not_one_band():
    # Each differs from the next by 1%, well inside the noise, but the band is measured from its fastest row.
    time = 100 * 1.01 ** np.arange(10)
    # 1.01**2 = 1.0201 <= 1 + 0.0285; 1.01**3 = 1.0303 > 1 + 0.0287: bands of three.
    assert labels.bands(time, np.full(10, 0.01)).tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 2, 3]


def test_grades_and_relevance_by_hand():
    g = group([100, 101, 110, 120, 130], [0.01349] * 5)
    assert labels.grades(g).tolist() == [31, 31, 30, 29, 28]
    assert labels.relevance(g).tolist() == [2, 2, 1, 0, 0]
    assert labels.relevance(g, top_bands=3).tolist() == [3, 3, 2, 1, 0]
    assert labels.relative_speed(g) == pytest.approx([1, 100 / 101, 100 / 110, 100 / 120, 100 / 130])


def test_grades_do_not_fall_below_zero():
    g = group(1.5 ** np.arange(40), [0.001] * 40)
    assert labels.grades(g)[[0, 1, 31, 32, 39]].tolist() == [31, 30, 0, 0, 0]


def test_oracle_ignores_coarse_rows_unless_all_are():
    assert group([5, 4], [0, 0], [False, True]).oracle_us == 5
    assert group([5, 4], [0, 0], [True, True]).oracle_us == 4


@given(st.lists(st.tuples(st.floats(1, 1e4), st.floats(0.001, 0.2)), min_size=1, max_size=60))
def test_bands_follow_the_order_of_time(rows):
    time = np.array([t for t, _ in rows])
    sigma = np.array([s for _, s in rows])
    found = labels.bands(time, sigma)
    order = np.argsort(time, kind="stable")
    assert (np.diff(found[order]) >= 0).all()
    assert set(found) == set(range(found.max() + 1))
    for band in range(found.max() + 1):
        members = [row for row in order if found[row] == band]
        leader = members[0]
        for row in members[1:]:
            limit = 2 * np.sqrt((sigma[leader] * time[leader]) ** 2 + (sigma[row] * time[row]) ** 2)
            assert time[row] - time[leader] <= limit * (1 + 1e-12)
