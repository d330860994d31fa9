from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cutlass_ranker.datasets import problems


@pytest.fixture(scope="module")
def training():
    return problems.training_problems(seed=0)


def shapes(frame):
    return [tuple(map(int, row)) for row in frame[["M", "N", "K"]].to_numpy()]


def test_lists_have_the_published_sizes():
    assert len(problems.paper_shapes()) == 17
    assert problems.paper_shapes()[0] == (2048, 2048, 2048)
    # 166 distinct (M, N, K): counted with cut | sort -u over the shipped file.
    assert len(problems.deepbench_shapes()) == 166


def test_deepbench_evaluation_is_spread_and_aligned():
    chosen = problems.deepbench_evaluation(60)
    assert len(set(chosen)) == 60
    flops = [2 * m * n * k for m, n, k in chosen]
    usable = {
        (int(r["M"]), int(r["N"]), int(r["K"]))
        for r in problems.read_shapes("deepbench_gemm")
        if r["tma8"] == "1" and r["min_dim_ge32"] == "1" and int(r["N"]) % 8 == 0 and int(r["K"]) % 8 == 0
    }
    assert set(chosen) < usable
    assert len(usable) == 79
    by_size = sorted(usable, key=lambda s: (s[0] * s[1] * s[2], s))
    assert min(flops) == 2 * np.prod(by_size[0])
    # Surplus 19: dropped are positions 77, 75, ..., 41; so the largest stays, its neighbour goes.
    assert by_size[78] in chosen
    assert by_size[77] not in chosen
    assert by_size[41] not in chosen
    assert set(by_size[:41]) < set(chosen)


def test_evaluation_problems_unite_sources():
    table = problems.evaluation_problems()
    both = table[(table["M"] == 4096) & (table["N"] == 128) & (table["K"] == 4096)]
    assert both["sources"].tolist() == ["paper;deepbench"]
    assert len(table) == 17 + 1 + 60 - 1
    assert set(table["split"]) == {"eval"}


@pytest.mark.parametrize(
    ("shape", "offended"),
    [
        ((4096, 4096, 4096), (4096, 4096, 4096)),
        ((4096, 4096, 6144), (4096, 4096, 4096)),  # exactly 1.5
        ((4096, 4096, 6152), None),  # just beyond
        ((2731, 4096, 4096), (4096, 4096, 4096)),  # 4096 / 2731 = 1.4998
        ((2730, 4096, 4096), None),  # 1.5004
        ((4104, 4104, 4096), None),  # two axes differ
    ],
)
def test_near_held_out(shape, offended):
    assert problems.near_held_out(shape, [(4096, 4096, 4096)]) == offended


@given(st.tuples(*[st.integers(1, 400)] * 3), st.tuples(*[st.integers(1, 400)] * 3))
def test_near_held_out_is_symmetric(a, b):
    assert (problems.near_held_out(a, [b]) is None) == (problems.near_held_out(b, [a]) is None)


def test_training_problems_keep_the_rules(training):
    listed = shapes(training)
    assert len(listed) >= 230
    assert len(set(listed)) == len(listed)
    held = problems.held_out_shapes()
    assert problems.PTXBENCH_SHAPE in held
    for m, n, k in listed:
        assert n % 8 == 0
        assert k % 8 == 0
        assert 2 * (m * k + k * n + m * n) <= 8e9
        for other in held:  # the rule itself, written out
            equal = [(m, n, k)[axis] == other[axis] for axis in range(3)]
            ratio = max(max(a / b, b / a) for a, b in zip((m, n, k), other, strict=True))
            assert not (sum(equal) >= 2 and ratio <= 1.5), (m, n, k, other)


def test_training_problems_cover_the_regimes(training):
    m, n, k = (training[name].to_numpy() for name in "MNK")
    assert (m <= 64).mean() >= 1 / 3
    assert (((n % 32 != 0) | (k % 32 != 0)).mean()) >= 1 / 4
    flops = 2.0 * m * n * k
    assert 1 <= (flops > 8e11).sum() <= 5
    assert m.min() == 1
    assert m.max() > 10_000


def test_training_problems_depend_on_the_seed_only(training):
    assert problems.training_problems(seed=0).equals(training)
    assert not problems.training_problems(seed=1).equals(training)


def test_random_evaluation_problems_keep_away_from_training(training):
    drawn = problems.random_evaluation_problems(3, 40, training)
    assert len(set(shapes(drawn))) == 40
    assert set(drawn["split"]) == {"eval"}
    aligned = drawn[drawn["sources"] == "random_aligned"]
    ragged = drawn[drawn["sources"] == "random_ragged"]
    assert len(aligned) == len(ragged) == 20
    assert (aligned[["N", "K"]] % 32 == 0).all(axis=None)
    assert (ragged[["N", "K"]] % 8 == 0).all(axis=None)
    assert (ragged[["N", "K"]] % 32 != 0).any(axis=1).all()
    used = [*shapes(training), *problems.held_out_shapes()]
    assert all(problems.near_held_out(shape, used) is None for shape in shapes(drawn))
    assert drawn.equals(problems.random_evaluation_problems(3, 40, training))
