import dataclasses
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cutlass_ranker.features import HARDWARE, describe_features, feature_names, featurize
from cutlass_ranker.features.matrix import _CHUNK
from cutlass_ranker.generator import (
    FAMILIES,
    Decomposition,
    Problem,
    UnknownHardware,
    enumerate_configs,
    enumerate_launches,
    swap_family,
)
from cutlass_ranker.generator import columns as col

H200 = HARDWARE["h200"]
PAPER = {layout: enumerate_configs(layout) for layout in ("TNT", "TNN", "NTT")}
SIZES = st.sampled_from([8, 16, 24, 64, 72, 128, 1000, 1024, 4096, 8200, 131072])


def sample(seed, rows, layout="TNT", launches=True, problem=None):
    """Draw rows of a paper space, with random launches if asked."""
    rng = np.random.default_rng(seed)
    space = PAPER[layout]
    columns = col.take(space, rng.choice(col.size(space), rows, replace=False))
    if not launches:
        return columns
    columns, _ = enumerate_launches(columns, problem or Problem(4096, 4096, 4096, layout))
    return col.take(columns, rng.choice(col.size(columns), rows, replace=False))


# -- the table of names --


@pytest.mark.parametrize("feature_set", ["structural", "full"])
def test_descriptions_match_the_matrix(feature_set):
    described = describe_features(feature_set)
    names = feature_names(feature_set)
    assert tuple(f.name for f in described) == names
    assert len(set(names)) == len(names)
    assert featurize(sample(0, 5), Problem(64, 64, 64), H200, feature_set).shape == (5, len(names))
    for feature in described:
        assert feature.unit
        assert len(feature.source) > 10, feature
        assert feature.group in {"structural", "work", "memory", "resources", "pipeline", "time"}


def test_full_begins_with_structural():
    structural = feature_names("structural")
    assert feature_names("full")[: len(structural)] == structural
    columns, problem = sample(1, 50), Problem(512, 512, 512)
    full = featurize(columns, problem, H200)
    np.testing.assert_array_equal(full[:, : len(structural)], featurize(columns, problem, H200, "structural"))


def test_zero_one_columns_are_zero_or_one():
    matrix = featurize(sample(2, 500), Problem(1000, 72, 4096), H200)
    flags = [i for i, f in enumerate(describe_features()) if f.unit == "0/1"]
    assert len(flags) > 10
    assert set(np.unique(matrix[:, flags])) == {0.0, 1.0}


def test_fractions_lie_between_zero_and_one():
    matrix = featurize(sample(3, 500), Problem(1000, 72, 4096), H200)
    fractions = {f.name: i for i, f in enumerate(describe_features()) if f.unit == "fraction"}
    may_pass_one = {"register_use"}
    for name, i in fractions.items():
        assert matrix[:, i].min() >= 0, name
        assert name in may_pass_one or matrix[:, i].max() <= 1 + 1e-6, name


def test_unknown_names():
    with pytest.raises(ValueError, match="use one of structural, full"):
        featurize(sample(0, 5), Problem(64, 64, 64), H200, "fancy")
    with pytest.raises(ValueError, match="use one of structural, full"):
        feature_names("")
    with pytest.raises(UnknownHardware):
        featurize(sample(0, 5), Problem(64, 64, 64), "a100")


# -- properties --


@settings(deadline=None, max_examples=60)
@given(m=SIZES, n=SIZES, k=SIZES, seed=st.integers(0, 2**32), gpu=st.sampled_from(sorted(HARDWARE)))
def test_finite_for_any_problem(m, n, k, seed, gpu):
    assert np.isfinite(featurize(sample(seed, 40), Problem(m, n, k), gpu)).all()


@pytest.mark.parametrize(
    "size", [(1, 8, 8), (8, 2**31 - 8, 8), (2**31 - 1, 8, 8), (8, 8, 2**31 - 8), (2**31 - 8,) * 3], ids=str
)
def test_finite_at_the_extremes(size):
    matrix = featurize(sample(4, 300), Problem(*size), H200)
    assert np.isfinite(matrix).all()
    assert (np.abs(matrix) < 1e4).all()


@settings(deadline=None, max_examples=40)
@given(m=SIZES, n=SIZES, k=SIZES, seed=st.integers(0, 2**32))
def test_rows_do_not_see_each_other(m, n, k, seed):
    columns, problem = sample(seed, 60), Problem(m, n, k)
    order = np.random.default_rng(seed).permutation(60)[:37]
    np.testing.assert_array_equal(
        featurize(col.take(columns, order), problem, H200), featurize(columns, problem, H200)[order]
    )


def test_chunks_change_nothing():
    columns, problem = col.take(PAPER["TNT"], slice(0, _CHUNK + 5)), Problem(4096, 1000, 512)
    matrix = featurize(columns, problem, H200)
    for rows in (slice(0, 3), slice(_CHUNK - 2, _CHUNK + 5)):
        np.testing.assert_array_equal(matrix[rows], featurize(col.take(columns, rows), problem, H200))


def test_no_rows():
    assert featurize(col.take(PAPER["TNT"], slice(0, 0)), Problem(64, 64, 64), H200).shape == (0, len(feature_names()))


def test_missing_launch_columns_mean_the_default_launch():
    columns, problem = sample(5, 200, launches=False), Problem(1000, 3000, 520)
    np.testing.assert_array_equal(featurize(columns, problem, H200), featurize(col.with_launch(columns), problem, H200))


@settings(deadline=None, max_examples=40)
@given(m=SIZES, n=SIZES, k=SIZES, seed=st.integers(0, 2**32), layout=st.sampled_from(sorted(PAPER)))
def test_a_swapped_candidate_is_the_transposed_problem(m, n, k, seed, layout):
    """Row by row: a kernel run swapped on (M, N, K) is the same kernel run directly on (N, M, K)."""
    problem = Problem(m, n, k, swap_family(layout))
    direct = sample(seed, 50, layout, problem=problem.transposed())
    assert not direct["swapped"].any()
    swapped = direct | {"swapped": np.ones_like(direct["swapped"])}
    left, right = featurize(swapped, problem, H200), featurize(direct, problem.transposed(), H200)
    flag = feature_names().index("swapped")
    assert (left[:, flag] == 1).all()
    np.testing.assert_array_equal(np.delete(left, flag, axis=1), np.delete(right, flag, axis=1))


def values(columns, problem, *names, hardware=H200):
    matrix = featurize(columns, problem, hardware)
    return [matrix[:, feature_names().index(name)] for name in names]


@settings(deadline=None, max_examples=40)
@given(m=SIZES, n=SIZES, k=SIZES, seed=st.integers(0, 2**32))
def test_more_k_takes_longer(m, n, k, seed):
    # Whole tiles only: Stream-K may decide to cut a longer problem better.
    columns = sample(seed, 60, launches=False)
    columns = col.take(columns, columns["scheduler"] == 0)
    names = ("log2_time", "log2_critical_k_tiles", "log2_min_bytes", "log2_l2_bytes")
    for less, more in zip(
        values(columns, Problem(m, n, k), *names), values(columns, Problem(m, n, 2 * k), *names), strict=True
    ):
        assert (more >= less - 1e-5).all()


@settings(deadline=None, max_examples=40)
@given(m=SIZES, n=SIZES, k=SIZES, seed=st.integers(0, 2**32))
def test_a_larger_l2_never_reads_more(m, n, k, seed):
    columns, problem = sample(seed, 60), Problem(m, n, k)
    double = dataclasses.replace(H200, l2_bytes=2 * H200.l2_bytes)
    (small,), (large,) = (values(columns, problem, "log2_dram_ratio", hardware=gpu) for gpu in (H200, double))
    assert (large <= small + 1e-6).all()


@settings(deadline=None, max_examples=40)
@given(m=SIZES, n=SIZES, k=SIZES, seed=st.integers(0, 2**32))
def test_traffic_only_shrinks_downwards(m, n, k, seed):
    """Shared memories take at least what L2 delivers, L2 at least what DRAM delivers, DRAM every operand byte once."""
    multicast, hit, ratio = values(sample(seed, 60), Problem(m, n, k), "log2_multicast", "l2_hit", "log2_dram_ratio")
    assert (multicast >= 0).all()
    assert (hit >= 0).all()
    assert (ratio >= -1e-6).all()


@settings(deadline=None, max_examples=40)
@given(m=SIZES, n=SIZES, k=SIZES, seed=st.integers(0, 2**32))
def test_no_estimate_beats_the_roofline(m, n, k, seed):
    (over,) = values(sample(seed, 60), Problem(m, n, k), "log2_over_roofline")
    assert (over > 0).all()


@settings(deadline=None, max_examples=40)
@given(m=SIZES, n=SIZES, k=SIZES, seed=st.integers(0, 2**32))
def test_useful_fraction_is_all_the_losses(m, n, k, seed):
    """Against the definition: useful multiply-adds over those that all SMs could do while the busiest one works."""
    columns = sample(seed, 60)
    useful, critical = values(columns, Problem(m, n, k), "useful_fraction", "log2_critical_k_tiles")
    volume = np.prod([columns[f"tile_{side}"].astype(float) for side in "mnk"], axis=0)
    np.testing.assert_allclose(useful, m * n * k / (2.0**critical * volume * 132), rtol=1e-5)


def test_split_k_shortens_the_critical_path():
    columns = sample(6, 400, launches=False)
    columns = col.with_launch(col.take(columns, columns["scheduler"] == 1))
    cut = columns | {
        "decomposition": np.full_like(columns["splits"], Decomposition.SPLIT_K),
        "splits": np.full_like(columns["splits"], 2),
    }
    whole = columns | {"decomposition": np.full_like(columns["splits"], Decomposition.DATA_PARALLEL)}
    problem = Problem(64, 16, 65536)  # at most one cluster of 16 tiles, so that two slices still fit in one wave
    (before,), (after,) = (values(c, problem, "log2_critical_k_tiles") for c in (whole, cut))
    assert (after == before - 1).all()


def test_families_differ_only_in_layout_columns_for_equal_shared_memory():
    """No feature beyond the layout flags and the operands' swizzles depends on the family of a nosmem kernel."""
    columns = sample(7, 300, launches=False)
    columns = col.take(columns, columns["epilogue"] == 0)
    other = columns | {"family": np.full_like(columns["family"], FAMILIES.index("NTN"))}
    a, b = (featurize(c, Problem(1024, 512, 256), H200) for c in (columns, other))
    keep = [i for i, name in enumerate(feature_names()) if not (name.startswith("layout_") or "swizzle_bytes" in name)]
    np.testing.assert_array_equal(a[:, keep], b[:, keep])


# -- speed --


def fastest(call, runs):
    """CPU seconds of the quickest of some runs: what the code needs of one core when nothing else runs."""
    taken = []
    for _ in range(runs):
        start = time.process_time()
        call()
        taken.append(time.process_time() - start)
    return min(taken)


def test_speed_of_the_whole_paper_space(record_property):
    columns, problem = PAPER["TNT"], Problem(4096, 4096, 4096)
    assert col.size(columns) == 60795
    seconds = fastest(lambda: featurize(columns, problem, H200), 7)
    record_property("seconds", seconds)
    print(f"60,795 rows: {1e3 * seconds:.1f} ms")
    assert seconds < 0.15, f"{1e3 * seconds:.1f} ms for 60,795 rows"


def test_speed_of_a_short_list(record_property):
    columns, problem = sample(8, 600), Problem(4096, 4096, 4096)
    seconds = fastest(lambda: featurize(columns, problem, H200), 100)
    record_property("seconds", seconds)
    print(f"600 rows: {1e3 * seconds:.2f} ms")
    assert seconds < 0.003, f"{1e3 * seconds:.2f} ms for 600 rows"
