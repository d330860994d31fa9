"""The deployed rule, regret, and folds."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cutlass_ranker.datasets import Group
from cutlass_ranker.generator import Problem
from cutlass_ranker.models import InvalidTraining
from cutlass_ranker.models.deployed import choose, choose_launches, order_kernels
from cutlass_ranker.models.validation import (
    CrossValidation,
    cross_validate,
    regret,
    regrets,
    shape_folds,
    summarise,
)

MakeGroup = Callable[..., Group]


def test_kernel_by_default_launch_then_its_best_launch(make_group: MakeGroup) -> None:
    group = make_group([(0, True, 10.0), (0, False, 9.0), (1, True, 8.0), (1, False, 7.0), (1, False, 6.0)])
    # Kernel 0 has the best-scored row of all (row 1), but kernel 1's default launch scores higher than kernel 0's.
    assert choose(group, np.array([1.0, 9.0, 2.0, 0.5, 1.5])) == 2
    assert choose(group, np.array([1.0, 9.0, 2.0, 0.5, 3.0])) == 4
    assert choose(group, np.array([3.0, 2.0, 2.0, 0.5, 3.5])) == 0


def test_swapped_use_is_another_kernel(make_group: MakeGroup) -> None:
    group = make_group([(0, True, 10.0), (0, False, 9.0), (0, True, 5.0)])
    group.columns["swapped"][2] = 1
    assert choose(group, np.array([1.0, 5.0, 2.0])) == 2
    assert choose(group, np.array([3.0, 5.0, 2.0])) == 1


def test_a_split_worth_a_look_is_another_kernel(make_group: MakeGroup) -> None:
    group = make_group([(0, True, 10.0), (0, False, 9.0), (0, False, 5.0)])
    changes = {"scheduler": [1, 1, 1], "decomposition": [0, 0, 2], "splits": [1, 1, 4], "raster": [0, 1, 0]}
    columns = {**group.columns, **{name: np.array(values, dtype=np.int32) for name, values in changes.items()}}
    columns["swizzle"] = np.ones(3, dtype=np.int32)
    # One tile and 128 k-tiles of the kernel: four slices are worth a look.
    columns |= {
        name: np.full(3, size, dtype=np.int32) for name, size in (("tile_m", 128), ("tile_n", 128), ("tile_k", 64))
    }
    group = replace(group, columns=columns, problem=Problem(128, 128, 8192))
    assert group.ranked_first.tolist() == [True, False, True]
    assert choose(group, np.array([1.0, 9.0, 2.0])) == 2
    assert choose(group, np.array([3.0, 9.0, 2.0])) == 1
    # On a grid of many tiles it is only a launch of the kernel.
    many = replace(group, problem=Problem(4096, 4096, 8192))
    assert many.ranked_first.tolist() == [True, False, False]
    assert choose(many, np.array([1.0, 2.0, 3.0])) == 2


def test_ties_go_to_the_lower_kernel_id(make_group: MakeGroup) -> None:
    group = make_group([(7, True, 10.0), (3, True, 9.0), (3, False, 8.0)])
    assert choose(group, np.zeros(3)) == 1


def test_ties_go_to_fewer_splits_then_the_lower_id_then_unswapped_then_the_earlier_row(make_group: MakeGroup) -> None:
    rows = [(3, True, 10.0), (2, True, 10.0), (2, True, 10.0), (2, False, 10.0), (1, False, 10.0)]
    group = make_group(rows, Problem(128, 128, 8192))
    changes = {
        "swapped": [0, 1, 0, 0, 0], "splits": [1, 1, 1, 1, 4], "decomposition": [0, 0, 0, 0, 2],
        "raster": [0, 0, 0, 2, 0], "scheduler": [1] * 5, "swizzle": [1] * 5,
        "tile_m": [128] * 5, "tile_n": [128] * 5, "tile_k": [64] * 5,
    }  # fmt: skip
    columns = {**group.columns, **{name: np.array(values, dtype=np.int32) for name, values in changes.items()}}
    group = replace(group, columns=columns)
    assert group.ranked_first.tolist() == [True, True, True, False, True]
    rows, scores = order_kernels(group, np.array([0.0, 0.0, 0.0, 0.0]))
    assert rows.tolist() == [2, 1, 0, 4]
    assert scores.tolist() == [0.0] * 4
    assert choose_launches(group, rows, lambda members: np.zeros(len(members))).tolist() == [2, 1, 0, 4]
    # With a column-major output the transposed problem is ranked, where the second row is the unswapped one.
    turned = replace(group, problem=Problem(128, 128, 8192, "TNN"))
    assert order_kernels(turned, np.array([0.0, 0.0, 0.0, 0.0]))[0].tolist() == [1, 2, 0, 4]
    assert (choose(group, np.zeros(5)), choose(turned, np.zeros(5))) == (2, 1)


def test_only_listed_kernels_and_allowed_rows_are_chosen(make_group: MakeGroup) -> None:
    group = make_group([(0, True, 9.0), (1, True, 10.0), (1, False, 8.0), (1, False, 5.0), (2, True, 4.0)])
    allowed = np.array([True, True, True, False, False])
    group = replace(group, listed=np.array([False, True, True, True, True]), allowed=allowed)
    # Kernel 0 is not in the list, kernel 2 and the fastest launch of kernel 1 are not allowed.
    scores = np.array([9.0, 1.0, 2.0, 7.0, 8.0])
    assert choose(group, scores) == 2
    assert regrets([scores], [group]).tolist() == [0.0]
    assert regrets([-scores], [group]) == pytest.approx([1 - 8 / 10])
    # A kernel outside the list may be the oracle.
    assert regret(replace(group, time_us=np.array([4.0, 10.0, 8.0, 5.0, 4.0])), 2) == pytest.approx(0.5)
    assert replace(group, coarse=allowed).oracle_us == 8.0


def test_regret_by_hand(make_group: MakeGroup) -> None:
    group = make_group([(0, True, 10.0), (1, True, 8.0), (2, True, 30.0)], coarse=[False, False, True])
    assert regret(group, 0) == pytest.approx(0.2)
    assert regret(group, 1) == 0.0
    assert regret(group, 2) == pytest.approx(1 - 8 / 30)
    assert regrets([np.array([2.0, 1, 0]), np.array([0.0, 1, 2])], [group, group]) == pytest.approx([0.2, 1 - 8 / 30])


def test_summary_by_hand() -> None:
    summary = summarise(np.array([0.0, 0.01, 0.04, 0.10, 0.5]))
    assert summary["groups"] == 5
    assert summary["mean_regret"] == pytest.approx(0.13)
    assert summary["median_regret"] == pytest.approx(0.04)
    assert summary["p95_regret"] == pytest.approx(0.1 + 0.8 * 0.4)
    assert summary["max_regret"] == 0.5
    assert (summary["top1"], summary["within_1"], summary["within_5"], summary["within_10"]) == (0.2, 0.4, 0.6, 0.8)


sizes = st.sampled_from([8, 64, 512, 4096])
problems = st.builds(Problem, sizes, sizes, sizes, st.sampled_from(["TNT", "TTT", "TNN"]))


@given(st.lists(problems, min_size=1, max_size=40), st.integers(2, 5), st.integers(0, 99))
def test_no_shape_is_on_two_sides(listed: list[Problem], folds: int, seed: int) -> None:
    class Stub:
        def __init__(self, problem: Problem) -> None:
            self.problem = problem

    groups = [Stub(problem) for problem in listed]
    shapes = {(frozenset((p.m, p.n)), p.k) for p in listed}
    if len(shapes) < folds:
        with pytest.raises(InvalidTraining, match="different shapes"):
            shape_folds(groups, folds, seed)
        return
    fold = shape_folds(groups, folds, seed)
    assert len({(frozenset((p.m, p.n)), p.k, f) for p, f in zip(listed, fold.tolist(), strict=True)}) == len(shapes)
    assert set(fold.tolist()) == set(range(folds))
    assert fold.tolist() == shape_folds(groups, folds, seed).tolist()


def test_folds_share_kinds_of_problem_evenly() -> None:
    class Stub:
        def __init__(self, m: int, n: int) -> None:
            self.problem = Problem(m, n, 1024)

    groups = [Stub(8, 1024 + 8 * i) for i in range(20)] + [Stub(4096, 4096 + 8 * i) for i in range(20)]
    fold = shape_folds(groups, 4, 0)
    assert np.bincount(fold[:20]).tolist() == [5, 5, 5, 5]
    assert np.bincount(fold[20:]).tolist() == [5, 5, 5, 5]


def test_cross_validation_scores_only_what_was_left_out(make_group: MakeGroup) -> None:
    rows = [(0, True, 10.0), (1, True, 5.0)]
    groups = [replace(make_group(rows, Problem(64 * (i + 1), 64, 64)), problem_id=i) for i in range(6)]
    matrices = [np.full((2, 1), i, dtype=np.float32) for i in range(6)]

    class Remembers:
        """Scores 1 for rows of groups it was trained on; its second stage prefers the faster row."""

        def __init__(self, seen: set[int], stage: int) -> None:
            self.seen, self.stage = seen, stage

        def scores(self, features: np.ndarray) -> np.ndarray:
            assert int(features[0, 0]) not in self.seen
            return np.array([0.0, 1.0]) if self.stage else np.array([1.0, 0.0])

        def member_scores(self, features: np.ndarray) -> np.ndarray:
            return np.array([self.scores(features) - 1.0, self.scores(features) + 1.0])

    cross = cross_validate(
        lambda index, fold: [Remembers(set(index.tolist()), stage) for stage in (0, 1)], groups, matrices, 3, 0
    )
    assert cross.regrets.tolist() == [[0.5] * 6, [0.0] * 6]
    assert cross.best_stage == 1
    assert cross.member_scores[1][0].tolist() == [[-1.0, 0.0], [1.0, 2.0]]


def test_best_stage_ignores_a_lucky_one() -> None:
    means = np.array([0.9, 0.5, 0.9, 0.6, 0.58, 0.6, 0.9])
    assert CrossValidation(np.zeros(1, int), [], means[:, None]).best_stage == 4
