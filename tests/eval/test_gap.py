"""The catalogue against a uniform sample: bounds against published and brute-force values, counts on toy tables."""

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cutlass_ranker.datasets import Tables
from cutlass_ranker.eval import catalogue_gap
from cutlass_ranker.eval.gap import clopper_pearson_upper

WithGap = Callable[..., Tables]


def test_bound_without_hits_is_the_rule_of_three():
    # 1 - 0.05^(1/n); ln 20 = 2.996, hence "three".
    assert clopper_pearson_upper(0, 600) == pytest.approx(1 - 0.05 ** (1 / 600))
    assert clopper_pearson_upper(0, 600) == pytest.approx(3 / 600, rel=0.005)
    assert clopper_pearson_upper(0, 1) == pytest.approx(0.95)


def test_bound_of_one_hit_in_ten():
    # (1-p)^10 + 10 p (1-p)^9 = 0.05 at p = 0.39416, the textbook value of the one-sided 95% bound.
    assert clopper_pearson_upper(1, 10) == pytest.approx(0.39416, abs=1e-5)
    assert clopper_pearson_upper(10, 10) == 1.0


@given(hits=st.integers(0, 12), more=st.integers(1, 400))
def test_bound_makes_so_few_hits_just_improbable(hits, more):
    draws = hits + more
    bound = clopper_pearson_upper(hits, draws)
    probability = sum(math.comb(draws, i) * bound**i * (1 - bound) ** (draws - i) for i in range(hits + 1))
    assert probability == pytest.approx(0.05, rel=1e-6)


def test_bound_holds_as_often_as_it_says():
    # A share of 2%, 200 draws: the bound fails only if there are too few hits; that must happen in at most 5%.
    hits = np.random.default_rng(4).binomial(200, 0.02, 4000)
    bounds = {count: clopper_pearson_upper(int(count), 200) for count in np.unique(hits)}
    assert np.mean([bounds[count] < 0.02 for count in hits]) <= 0.05


def test_nonsense_counts_are_refused():
    with pytest.raises(ValueError, match="3 hits among 2 draws"):
        clopper_pearson_upper(3, 2)


def test_gap_by_hand(synthetic_tables: Tables, with_gap: WithGap):
    nan = np.nan
    tables = with_gap(
        synthetic_tables,
        [
            (0, 0, "ok", 11.0, 10.0),  # the catalogue's best: its retake counts
            (0, 1, "ok", 12.0, nan),
            (0, 500, "ok", 8.0, nan),  # 25% faster
            (0, 501, "ok", 9.0, 9.95),  # 0.5% faster once measured again
            (0, 502, "ok", 30.0, nan),
            (0, 503, "wrong", nan, nan),
            (1, 0, "ok", 20.0, nan),
            (1, 500, "ok", 21.0, nan),
            (1, 501, "coarse", 99.0, nan),
            (2, 500, "ok", 5.0, nan),  # nothing of the catalogue beside it
        ],
    )
    first, second = catalogue_gap(tables)
    assert (first.problem_id, first.m, first.n, first.k, first.layout) == (0, 2048, 2048, 2048, "TNT")
    assert (first.sampled, first.failed) == (4, 1)
    assert (first.catalogue_us, first.best_us, first.best_name) == (10.0, 8.0, "drawn0")
    assert first.gain == pytest.approx(0.25)
    # Ratios 1.25, 1.005, 0.33, and one draw without a time.
    assert first.faster == {"0.0": 2, "0.01": 1, "0.05": 1}
    # Among four draws: (1-p)^4 + 4p(1-p)^3 = 0.05 at p = 0.75140.
    assert first.share_at_most["0.01"] == pytest.approx(0.75140, abs=1e-5)
    assert (second.sampled, second.failed, second.faster["0.0"]) == (2, 0, 0)
    assert second.gain == pytest.approx(20 / 21 - 1)
    # No hit in two draws: 1 - sqrt(0.05).
    assert second.share_at_most["0.0"] == pytest.approx(1 - math.sqrt(0.05))


def test_kernels_that_join_the_catalogue_later_were_drawn(synthetic_tables: Tables, with_gap: WithGap):
    tables = with_gap(synthetic_tables, [(0, 0, "ok", 10.0, np.nan), (0, 500, "ok", 8.0, np.nan)])
    later = tables.campaigns.iloc[[0]].assign(campaign_id=8, name="later", started="2026-12-03T00:00:00Z")
    row = tables.measurements.tail(1).assign(campaign_id=8)
    tables = replace(
        tables,
        campaigns=pd.concat([tables.campaigns, later], ignore_index=True),
        measurements=pd.concat([tables.measurements, row], ignore_index=True),
    )
    assert catalogue_gap(tables)[0].faster["0.0"] == 1


def test_draws_of_two_campaigns_count_together(synthetic_tables: Tables, with_gap: WithGap):
    tables = with_gap(synthetic_tables, [(0, 0, "ok", 10.0, np.nan), (0, 500, "ok", 8.0, np.nan)])
    # Kernel 500 joins the catalogue; then 501 is drawn, on a GPU at half the clock: 16 / 15 against 500, not 10 / 15.
    last = tables.measurements.tail(1)
    again = pd.concat([last.assign(kernel_id=k, time_us=us) for k, us in ((0, 20.0), (500, 16.0), (501, 15.0))])
    main, gap = tables.campaigns.iloc[[0]], tables.campaigns.tail(1)
    campaigns = [
        main.assign(campaign_id=8, name="later", started="2026-12-03T00:00:00Z"),
        gap.assign(campaign_id=9, name="gap-2", started="2026-12-04T00:00:00Z"),
    ]
    tables = replace(
        tables,
        campaigns=pd.concat([tables.campaigns, *campaigns], ignore_index=True),
        measurements=pd.concat(
            [tables.measurements, last.assign(campaign_id=8), again.assign(campaign_id=9)], ignore_index=True
        ),
    )
    (found,) = catalogue_gap(tables)
    assert (found.sampled, found.failed, found.catalogue_us, found.best_us) == (2, 0, 10.0, 8.0)
    assert found.faster == {"0.0": 2, "0.01": 2, "0.05": 2}  # 1.25 and 1.067
    assert found.gain == pytest.approx(0.25)


def test_no_gap_campaign_no_gap(synthetic_tables: Tables):
    assert catalogue_gap(synthetic_tables) == []
