"""Expected regret: by hand, and on held-out synthetic groups."""

from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cutlass_ranker.datasets import Group
from cutlass_ranker.features import Hardware
from cutlass_ranker.generator import Problem
from cutlass_ranker.generator.errors import ModelMismatch
from cutlass_ranker.models.calibration import Calibration, fit_calibration, kind_of, never_rising


def test_kinds() -> None:
    assert kind_of(Problem(64, 8192, 65536)) == "thin"
    assert kind_of(Problem(8192, 8, 8192)) == "thin"
    assert kind_of(Problem(256, 256, 1024)) == "long_k"
    assert kind_of(Problem(1024, 1024, 1024)) == "small"
    assert kind_of(Problem(2048, 2048, 2048)) == "large"


def test_one_group_by_hand(make_group: Callable[..., Group]) -> None:
    # Gaps by default launch 0, 1, 3; kernel 0's best-scored launch took 20 µs, the oracle is kernel 1 with 10 µs.
    group = make_group([(0, True, 25.0), (0, False, 20.0), (1, True, 10.0), (2, True, 40.0)], Problem(4096, 4096, 4096))
    calibration = fit_calibration([group], [np.array([5.0, 6.0, 4.0, 2.0])])
    assert calibration.gap == (0.0, 1.0, 3.0)
    # Speeds 0.5, 1.0, 0.25; the first two are out of order and pooled to their mean, where all weights are equal.
    for kind in ("large", "thin"):
        assert calibration.speed[kind] == pytest.approx((0.75, 0.75, 0.25))
    assert calibration.groups == {"thin": 0, "long_k": 0, "small": 0, "large": 1}
    regret = calibration.expected_regret(np.array([2.0, 4.0, 3.5, -9.0]), group.problem)
    assert regret == pytest.approx([0.5, 0.25, 0.25, 0.75])


def test_a_group_of_one_kernel_gives_one_point(make_group: Callable[..., Group]) -> None:
    group = make_group([(0, True, 10.0)])
    calibration = fit_calibration([group], [np.array([3.0])])
    assert calibration.gap == (0.0,)
    assert calibration.expected_regret(np.array([1.0, 0.0]), group.problem) == pytest.approx([0.0, 0.0])


@given(st.lists(st.tuples(st.floats(0, 1), st.integers(1, 5)), min_size=1, max_size=7))
def test_never_rising_is_the_least_squares_fit(points: list[tuple[float, int]]) -> None:
    values, weights = (np.array(part, dtype=np.float64) for part in zip(*points, strict=True))
    fit = never_rising(values, weights)
    assert all(a >= b - 1e-12 for a, b in pairwise(fit))
    # Max-min formula of isotonic regression, by brute force.
    size = len(values)
    for i in range(size):
        best = min(
            max(np.average(values[a : b + 1], weights=weights[a : b + 1]) for b in range(i, size)) for a in range(i + 1)
        )
        assert fit[i] == pytest.approx(best, abs=1e-9)


def noisy_scores(group: Group, time: np.ndarray, seed: int) -> np.ndarray:
    """Scores of an imperfect model: log of the true speed, disturbed per kernel."""
    rng = np.random.default_rng(seed)
    error = 0.08 * rng.standard_normal(1000)
    return -np.log(time) + error[group.variant % 1000]


def test_expected_equals_realised_on_other_groups(
    training_groups: list[Group], held_out_groups: list[Group], hardware: Hardware, time_model: Callable
) -> None:
    def scores_of(group: Group, seed: int) -> np.ndarray:
        return noisy_scores(group, time_model(group.columns, group.problem, hardware), seed)

    calibration = fit_calibration(training_groups, [scores_of(group, i) for i, group in enumerate(training_groups)])
    expected, realised, picks = [], [], []
    for i, group in enumerate(held_out_groups):
        first = np.flatnonzero(group.default_launch)
        scores = scores_of(group, 1000 + i)[first]
        expected.append(calibration.expected_regret(scores, group.problem))
        realised.append(1 - np.minimum(group.oracle_us / group.time_us[first], 1))
        picks.append(int(np.argmax(scores)))
    pick_expected = np.mean([e[p] for e, p in zip(expected, picks, strict=True)])
    pick_realised = np.mean([r[p] for r, p in zip(realised, picks, strict=True)])
    assert 0.01 < pick_realised < 0.2
    assert pick_expected == pytest.approx(pick_realised, abs=0.03)
    flat_expected, flat_realised = np.concatenate(expected), np.concatenate(realised)
    for part in np.array_split(np.argsort(flat_expected, kind="stable"), 6):
        assert flat_expected[part].mean() == pytest.approx(flat_realised[part].mean(), abs=0.1)


def test_json_round_trip_and_damage(make_group: Callable[..., Group]) -> None:
    calibration = fit_calibration([make_group([(0, True, 10.0), (1, True, 20.0)])], [np.array([3.0, 1.0])])
    value = calibration.to_json()
    assert Calibration.from_json(value) == calibration
    for damaged in ({**value, "gap": [1.0, 0.0]}, {**value, "gap": [0.0]}, {**value, "speed": {}}, {}):
        with pytest.raises(ModelMismatch, match="calibration"):
            Calibration.from_json(damaged)
