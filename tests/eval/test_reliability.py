"""Calibration of the expected regret on numbers small enough to work out."""

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cutlass_ranker.datasets import Group
from cutlass_ranker.eval import RankerMethod, evaluate
from cutlass_ranker.eval.reliability import calibration, equal_bins, reliability
from cutlass_ranker.features import get_hardware
from cutlass_ranker.generator import Columns, Epilogue, KernelConfig, Launch, Problem, Schedule

H200 = get_hardware("h200")


def test_equal_predictions_share_a_bin():
    # Middles of the runs 0.1 ×4, 0.2 ×1, 0.3 ×3 among 8: 2, 4.5, 6.5; in two bins: 0.5, 1.125, 1.625 -> 0, 1, 1.
    assert equal_bins(np.array([0.1, 0.3, 0.1, 0.2, 0.1, 0.3, 0.1, 0.3]), 2).tolist() == [0, 1, 0, 1, 0, 1, 0, 1]


@given(values=st.lists(st.sampled_from([0.0, 0.01, 0.02, 0.05, 0.1]), min_size=1, max_size=40), bins=st.integers(1, 8))
def test_bins_ascend_without_gaps(values, bins):
    predicted = np.array(values)
    number = equal_bins(predicted, bins)
    assert set(number) == set(range(number.max() + 1))
    assert number.max() < bins
    order = np.argsort(predicted, kind="stable")
    assert (np.diff(number[order]) >= 0).all()
    assert all(len(set(number[predicted == value])) == 1 for value in values)


def test_bins_of_distinct_predictions_hold_equally_many():
    assert np.bincount(equal_bins(np.random.default_rng(0).permutation(40) / 100.0, 10)).tolist() == [4] * 10


def test_expected_calibration_error_by_hand():
    # Bin 1: predicted 0.01, 0.03 -> 0.02, found 0.00, 0.02 -> 0.01; bin 2: predicted 0.10, 0.20 -> 0.15, found 0.2,
    # 0.3 -> 0.25. Error: (2 · 0.01 + 2 · 0.10) / 4 = 0.055; bias: 0.13 - 0.085 = 0.045. The fifth pair is no pair.
    predicted = np.array([0.20, 0.01, 0.03, 0.10, 0.5])
    found = np.array([0.30, 0.00, 0.02, 0.20, np.nan])
    result = reliability(predicted, found, np.arange(5), bins=2)
    assert [one["count"] for one in result["bins"]] == [2, 2]
    assert [one["predicted"] for one in result["bins"]] == pytest.approx([0.02, 0.15])
    assert [one["found"] for one in result["bins"]] == pytest.approx([0.01, 0.25])
    assert result["ece"] == pytest.approx(0.055)
    assert result["bias"] == pytest.approx(0.045)
    assert (result["predicted"], result["found"], result["count"]) == pytest.approx((0.085, 0.13, 4))
    low, high = result["bins"][1]["ci"]
    assert (low, high) == (0.2, 0.3)


def test_a_perfect_prediction_has_no_error():
    values = np.linspace(0, 0.2, 50)
    result = reliability(values, values, np.arange(50))
    assert result["ece"] == pytest.approx(0.0, abs=1e-12)
    assert result["bias"] == pytest.approx(0.0, abs=1e-12)


def test_error_by_chance_is_that_of_a_calibrated_ranker():
    # Found regrets scatter around the predicted 0.1 and 0.2 with standard deviation 0.05, 200 in a bin: the standard
    # error is 0.05 / sqrt(200) = 0.00354, its mean absolute deviation sqrt(2/pi) of that, 0.00282.
    rng = np.random.default_rng(5)
    predicted = np.repeat([0.1, 0.2], 200)
    errors, chance = [], []
    for _ in range(30):
        result = reliability(predicted, predicted + rng.normal(0, 0.05, 400), np.arange(400), bins=2)
        errors.append(result["ece"])
        chance.append(result["ece_by_chance"])
    assert np.mean(chance) == pytest.approx(0.00282, rel=0.05)
    assert np.mean(errors) == pytest.approx(0.00282, rel=0.35)


def test_proposals_of_one_problem_are_no_independent_answers():
    rng = np.random.default_rng(2)
    shared = np.repeat(rng.normal(0.1, 0.05, 30), 8)
    predicted = np.full(240, 0.1)
    careful = reliability(predicted, shared, np.repeat(np.arange(30), 8))
    careless = reliability(predicted, shared, np.arange(240))
    assert careful["ece_by_chance"] == pytest.approx(math.sqrt(8) * careless["ece_by_chance"], rel=0.15)


def test_no_pairs_no_summary():
    assert reliability(np.array([np.nan]), np.array([0.1]), np.arange(1)) == {}


class Halving:
    """Expects that each unit of score halves the speed; its scores are minus the tile's width over 128."""

    name = "halving"
    feature_set = "none"

    class Calibrated:
        def relative_speed(self, gap: np.ndarray, problem: Problem, doubt: float | None = None) -> np.ndarray:
            return 0.9 * 0.5 ** np.asarray(gap)

    calibration: Calibrated | None = Calibrated()

    def score(self, columns: Columns, problem: Problem, hardware: object) -> np.ndarray:
        return -columns["tile_n"] / 128.0


def test_calibration_of_a_ranker(make_group: Callable[..., Group]):
    def config(tile_n: int) -> KernelConfig:
        return KernelConfig(128, tile_n, 64, 1, 1, 3, Schedule.PINGPONG, Epilogue.TMA)

    small = Problem(64, 4096, 4096)
    groups = [
        make_group([(config(128), Launch(), False, 10.0), (config(256), Launch(), False, 20.0)]),
        make_group([(config(128), Launch(), False, 12.5), (config(256), Launch(), False, 10.0)], problem=small),
    ]
    evaluation = evaluate(groups, [RankerMethod(Halving(), H200)])
    result = evaluation.results["halving"]
    # Gaps 0 and 1: expected 1 - 0.9 and 1 - 0.45, for both problems. Found: 0, 0.5 and 0.2, 0.
    assert result.expected[:, :3] == pytest.approx(np.array([[0.1, 0.55, np.nan]] * 2), nan_ok=True)
    assert result.found[:, :3] == pytest.approx(np.array([[0.0, 0.5, np.nan], [0.2, 0.0, np.nan]]), nan_ok=True)
    summary = calibration(evaluation, "halving")
    # Picks: expected 0.1 twice, found 0.1 on average. Proposals: 0.1 -> 0.1, 0.55 -> 0.25: error (0 + 0.3) / 2.
    assert summary["picks"]["ece"] == pytest.approx(0.0, abs=1e-12)
    assert summary["proposals"]["ece"] == pytest.approx(0.15)
    assert summary["slices"]["small_m"]["bias"] == pytest.approx(0.1)
    assert summary["slices"]["large"]["bias"] == pytest.approx(-0.1)


def test_a_ranker_without_calibration_has_none(make_group: Callable[..., Group]):
    class Silent(Halving):
        calibration = None

    config = KernelConfig(128, 128, 64, 1, 1, 3, Schedule.PINGPONG, Epilogue.TMA)
    evaluation = evaluate([make_group([(config, Launch(), False, 10.0)])], [RankerMethod(Silent(), H200)])
    assert evaluation.results["halving"].expected is None
    assert calibration(evaluation, "halving") == {}
