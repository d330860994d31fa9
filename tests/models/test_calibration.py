"""Expected regret: by hand, and on held-out synthetic groups."""

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cutlass_ranker.datasets import Group
from cutlass_ranker.features import Hardware
from cutlass_ranker.generator import Problem
from cutlass_ranker.generator.errors import ModelMismatch
from cutlass_ranker.models.calibration import (
    DOUBT_NOISE,
    Calibration,
    doubt,
    fit_calibration,
    kind_of,
    never_rising,
)


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


def test_only_what_may_be_chosen_counts(make_group: Callable[..., Group]) -> None:
    rows = [(0, True, 25.0), (0, False, 20.0), (0, False, 5.0), (1, True, 10.0), (2, True, 40.0), (3, True, 5.0)]
    group = make_group(rows, Problem(4096, 4096, 4096))
    group = replace(group, allowed=group.time_us > 5.0, listed=group.kernel_id != 2)
    # Kernel 0 with its second launch (10 / 20), then kernel 1, the oracle.
    calibration = fit_calibration([group], [np.array([5.0, 6.0, 7.0, 4.0, 9.0, 8.0])])
    assert calibration.gap == (0.0, 1.0)
    assert calibration.speed["large"] == pytest.approx((0.75, 0.75))


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


def improvement(gap: float, sigma: float) -> float:
    """Mean of max(x, 0) for a normal x of mean −gap, by numerical integration."""
    x = np.linspace(-gap - 12 * sigma, -gap + 12 * sigma, 200_001)
    density = np.exp(-0.5 * ((x + gap) / sigma) ** 2) / (sigma * np.sqrt(2 * np.pi))
    return float((np.maximum(x, 0.0) * density).sum() * (x[1] - x[0]))


def test_doubt_is_the_expected_improvement_of_the_runners_up() -> None:
    scores = np.array([1.0, 4.0, 3.0])
    # Gaps in units of 2: 0.5 to row 2, 1.5 to row 0; over the members they vary by 0.5 and by nothing.
    members = np.array([[0.0, 3.0, 3.0], [2.0, 5.0, 3.0]])
    sigmas = np.sqrt(0.5**2 + DOUBT_NOISE**2), DOUBT_NOISE
    expected = np.log(improvement(0.5, sigmas[0]) + improvement(1.5, sigmas[1]) + 1e-6)
    assert doubt(scores, members, 2.0) == pytest.approx(expected, abs=1e-6)
    # Only the best 16 count, and what all members add to all scores does not.
    many = np.concatenate([np.arange(20.0), [30.0]])
    assert doubt(many, many[None], 1.0) == doubt(many[5:], many[None, 5:] + 7.0, 1.0)
    assert doubt(np.array([3.0]), np.array([[3.0]]), 1.0) == pytest.approx(np.log(1e-6))


def test_doubt_curve_by_hand(make_group: Callable[..., Group]) -> None:
    # 16 groups of two kernels: with a gap of 1 the pick is right, with a gap of 0.1 half of the time.
    groups, scores = [], []
    for number in range(16):
        close = number % 2 == 1
        groups.append(make_group([(0, True, 10.0), (1, True, 20.0)]))
        scores.append(np.array([0.1 if close else 1.0, 0.0]) * (-1 if close and number % 4 == 1 else 1))
    calibration = fit_calibration(groups, scores, [score[None] for score in scores])
    far, near = (doubt(np.array([gap, 0.0]), np.array([[gap, 0.0]]), 1.0) for gap in (1.0, 0.1))
    assert calibration.doubt == pytest.approx((far, near))
    assert calibration.pick_regret == pytest.approx((0.0, 0.25))
    problem = groups[0].problem
    assert calibration.relative_speed(0.0, problem, near) == pytest.approx(0.75)
    assert calibration.relative_speed(0.0, problem, far + 9) == pytest.approx(0.75)
    assert calibration.relative_speed(0.0, problem, far - 9) == pytest.approx(1.0)
    # Without a doubt it is the mean of all groups; behind the best one, speeds keep their ratio.
    assert calibration.relative_speed(0.0, problem) == pytest.approx(0.875)
    plain, doubted = calibration.relative_speed(0.5, problem), calibration.relative_speed(0.5, problem, near)
    assert doubted / plain == pytest.approx(0.75 / 0.875)


def test_doubt_tells_problems_apart(
    training_groups: list[Group], held_out_groups: list[Group], hardware: Hardware, time_model: Callable
) -> None:
    def member_scores(group: Group, seed: int) -> np.ndarray:
        """Three imperfect models; of every other problem they know little."""
        truth = -np.log(time_model(group.columns, group.problem, hardware))
        error = np.random.default_rng(seed).standard_normal((3, 1000))[:, group.variant % 1000]
        return truth + (0.01 if seed % 2 else 0.3) * error

    def ask(groups: list[Group], seed: int) -> list[np.ndarray]:
        return [member_scores(group, seed + i) for i, group in enumerate(groups)]

    known = ask(training_groups, 0)
    calibration = fit_calibration(training_groups, [part.mean(axis=0) for part in known], known, 0.1)
    expected, realised = [], []
    for group, members in zip(held_out_groups, ask(held_out_groups, 1000), strict=True):
        first = np.flatnonzero(group.default_launch)
        scores = members.mean(axis=0)[first]
        doubted = doubt(scores, members[:, first], 0.1)
        expected.append(calibration.expected_regret(scores, group.problem, doubted).min())
        realised.append(1 - group.oracle_us / group.time_us[first[scores.argmax()]])
    good, poor = (np.mean(expected[offset::2]) for offset in (1, 0))
    assert good == pytest.approx(np.mean(realised[1::2]), abs=0.03)
    assert poor == pytest.approx(np.mean(realised[0::2]), abs=0.06)
    assert poor > 3 * good


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
    doubted = {**value, "unit": 2.0, "doubt": [-1.0, 1.0], "pick_regret": [0.1, 0.2]}
    assert Calibration.from_json(doubted).to_json() == doubted
    # Models saved before there were doubts load, and say nothing about single problems.
    old = Calibration.from_json({key: value[key] for key in ("gap", "speed", "groups")})
    assert old == calibration
    for damaged in (
        {**value, "gap": [1.0, 0.0]},
        {**value, "gap": [0.0]},
        {**value, "speed": {}},
        {},
        {**doubted, "doubt": [1.0, -1.0]},
        {**doubted, "pick_regret": [0.1]},
    ):
        with pytest.raises(ModelMismatch, match="calibration"):
            Calibration.from_json(damaged)
