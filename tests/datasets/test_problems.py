from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cutlass_ranker.datasets import problems
from cutlass_ranker.generator import Problem


def shapes(frame):
    return [tuple(map(int, row)) for row in frame[["M", "N", "K"]].to_numpy()]


def listed(*rows):
    return pd.DataFrame([(*row[:4], "x", row[4]) for row in rows], columns=list(problems.LIST_COLUMNS))


def test_lists_have_the_published_sizes():
    assert len(problems.paper_shapes()) == 17
    assert problems.paper_shapes()[0] == (2048, 2048, 2048)
    # 153 rows of the file are usable; 1024x700x512 and 3072x1500x1024, both NN, are listed twice.
    usable = [r for r in problems.read_shapes("deepbench_gemm") if r["tma8"] == "1" and r["min_dim_ge32"] == "1"]
    assert len(usable) == 153
    layouts = [problem.layout for problem in problems.deepbench_problems()]
    assert len(layouts) == len(set(problems.deepbench_problems())) == 151
    assert {layout: layouts.count(layout) for layout in set(layouts)} == {"NNN": 97, "TNN": 52, "NTN": 2}


def test_the_file_calls_tma_aligned_what_the_rules_allow():
    for row in problems.read_shapes("deepbench_gemm"):
        assert problems.supported(problems.shape_of(row), row["layout"] + "N") == (row["tma8"] == "1"), row


def blas(buffer_a, buffer_b, op_a, op_b, m, n, k):
    """C as BLAS leaves it in memory: every matrix is column-major, the operators say what is transposed."""
    a = buffer_a.reshape((m, k) if op_a == "N" else (k, m), order="F")
    b = buffer_b.reshape((k, n) if op_b == "N" else (n, k), order="F")
    return ((a if op_a == "N" else a.T) @ (b if op_b == "N" else b.T)).flatten(order="F")


def cutlass(buffer_a, buffer_b, layout, m, n, k):
    """D as CUTLASS leaves it: letters say whether the logical matrices A[M,K], B[K,N], D[M,N] are row-major."""
    order = {"T": "C", "N": "F"}
    a, b = buffer_a.reshape((m, k), order=order[layout[0]]), buffer_b.reshape((k, n), order=order[layout[1]])
    return (a @ b).flatten(order=order[layout[2]])


@pytest.mark.parametrize("operators", ["NN", "TN", "NT", "TT"])
def test_deepbench_letters_are_those_of_cutlass_with_a_column_major_d(operators):
    m, n, k = 2, 3, 4
    a, b = np.arange(m * k), 10 + np.arange(k * n)
    assert cutlass(a, b, operators + "N", m, n, k).tolist() == blas(a, b, *operators, m, n, k).tolist()
    # By hand for NN: column 0 of A.B is [0 2 4 6] . [10 11 12 13] = 148 and [1 3 5 7] . [10 11 12 13] = 194.
    assert blas(a, b, "N", "N", m, n, k)[:2].tolist() == [148, 194]
    # The transposed problem leaves the same memory: what swapped kernels rely on.
    turned = Problem(m, n, k, operators + "N").transposed()
    assert cutlass(b, a, turned.layout, n, m, k).tolist() == blas(a, b, *operators, m, n, k).tolist()


def test_evaluation_problems():
    table = problems.evaluation_problems()
    assert list(table) == list(problems.LIST_COLUMNS)
    assert len(table) == 17 * 4 + 1 + 151
    assert set(table["split"]) == {"eval"}
    assert not table.duplicated(["M", "N", "K", "layout"]).any()
    paper = table[table["sources"] == "paper"]
    assert paper["layout"].value_counts().to_dict() == {"TNT": 17, "TTT": 17, "NNT": 17, "NTT": 17}
    assert table.loc[table["sources"] == "ptxbench", "layout"].tolist() == ["TNT"]
    # DeepBench's 4096x128x4096 is not the paper's: its D is column-major.
    both = table[(table["M"] == 4096) & (table["N"] == 128) & (table["K"] == 4096)]
    assert sorted(both["layout"]) == ["NNN", "NNT", "NTT", "TNN", "TNT", "TTT"]
    assert all(problems.supported(s, layout) for s, layout in zip(shapes(table), table["layout"], strict=True))


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


side = st.sampled_from([4, 5, 6, 7, 8, 9, 12])


@given(st.tuples(side, side, side), st.lists(st.tuples(side, side, side), max_size=4))
def test_near_held_out_is_the_rule_written_out(shape, held):
    def near(other):
        equal = [a == b for a, b in zip(shape, other, strict=True)]
        ratio = max(max(a / b, b / a) for a, b in zip(shape, other, strict=True))
        return sum(equal) >= 2 and ratio <= 1.5

    offended = problems.near_held_out(shape, held)
    assert (offended is not None) == any(near(other) for other in held)
    assert offended is None or (offended in held and near(offended))


def test_held_out_shapes_count_deepbench_both_ways_round():
    held = problems.held_out_shapes()
    assert problems.PTXBENCH_SHAPE in held
    assert set(problems.paper_shapes()) <= held
    # DeepBench's 35x8457x2560 (of those that TMA cannot take) as it is and turned.
    assert {(35, 8457, 2560), (8457, 35, 2560)} <= held
    assert (7168, 8192, 5120) not in held


def test_leaks_look_at_the_same_computation_in_another_layout():
    # 32x20000x4096 TNT is what 20000x32x4096 TNN computes; 48 is within a factor 1.5 of 32, 56 is not.
    table = listed(
        (20000, 32, 4096, "TNN", "eval"),
        (32, 20000, 4096, "TTT", "train"),
        (48, 20000, 4096, "TNT", "train"),
        (56, 20000, 4096, "TNT", "train"),
        (20000, 48, 4096, "NNN", "train"),
    )
    found = problems.leaks(table)
    assert set(found) == {1, 2, 4}
    assert found[2] == ((48, 20000, 4096), (32, 20000, 4096))
    # Without the evaluation problem nothing is wrong; DeepBench's own shapes are held out even so.
    assert problems.leaks(table[1:]) == {}
    assert problems.leaks(listed((32, 4096, 4096, "TTT", "train"))) == {0: ((32, 4096, 4096), (32, 4096, 4096))}


@pytest.mark.parametrize(
    ("layout", "contiguous"), [("TNT", "KKN"), ("TTT", "KNN"), ("NNT", "MKN"), ("NTT", "MNN"), ("NNN", "MKM")]
)
def test_supported_asks_for_multiples_of_8_where_an_operand_is_contiguous(layout, contiguous):
    # Hand-listed: A is contiguous along K if row-major, else M; B along N or K; D along N or M.
    for position, side in enumerate("MNK"):
        shape = [64, 64, 64]
        shape[position] = 60
        assert problems.supported(tuple(shape), layout) == (side not in contiguous)
    assert problems.m_is_contiguous(layout) == ("M" in contiguous)


def test_random_evaluation_problems_keep_away_from_all_in_use():
    used = listed(*((64, n, 512, "TNT", "train") for n in range(1000, 9000, 8)), (4096, 16, 1024, "NNN", "train"))
    counts = {"TNT": 20, "NNT": 20}
    drawn = problems.random_evaluation_problems(3, counts, used)
    assert drawn["layout"].value_counts().to_dict() == counts
    assert len(set(shapes(drawn))) == 40
    assert set(drawn["split"]) == {"eval"}
    aligned = drawn[drawn["sources"] == "random_aligned"]
    ragged = drawn[drawn["sources"] == "random_ragged"]
    assert aligned["layout"].value_counts().to_dict() == ragged["layout"].value_counts().to_dict()
    assert (aligned[["N", "K"]] % 32 == 0).all(axis=None)
    assert (ragged[["N", "K"]] % 8 == 0).all(axis=None)
    # A of NNT is contiguous along M.
    assert (aligned.loc[aligned["layout"] == "NNT", "M"] % 32 == 0).all()
    mine = ragged[ragged["layout"] == "NNT"]
    assert (mine["M"] % 8 == 0).all()
    assert ((mine[["M", "N", "K"]] % 32) != 0).any(axis=1).all()
    mine = ragged[ragged["layout"] == "TNT"]
    assert ((mine[["N", "K"]] % 32) != 0).any(axis=1).all()
    assert (2.0 * drawn["M"] * drawn["N"] * drawn["K"] <= 8e11).all()
    held = [*shapes(used), (16, 4096, 1024), *problems.held_out_shapes()]
    for number, shape in enumerate(shapes(drawn)):
        assert problems.near_held_out(shape, [*held, *shapes(drawn)[:number]]) is None
    assert drawn.equals(problems.random_evaluation_problems(3, counts, used))


def test_random_shapes_span_the_range_evenly():
    rng = np.random.default_rng(0)
    drawn = np.array([problems.random_shape(rng, "TNT", ragged=bool(i % 2)) for i in range(2000)])
    assert drawn.min(axis=0)[0] == 1
    assert (drawn.max(axis=0) <= (16_384, 32_768, 32_768)).all()
    # Log-uniform: half of M below sqrt(16384) = 128, half of N and K below sqrt(64 * 32768) = 1448; 2,000 draws.
    assert (drawn < (128, 1448, 1448)).mean(axis=0) == pytest.approx([0.5] * 3, abs=0.035)
    large = [problems.random_shape(rng, "TNT", False, least_flops=1e11) for _ in range(5)]
    assert all(2 * m * n * k >= 1e11 for m, n, k in large)
