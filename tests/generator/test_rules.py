"""Validity rules: properties, and messages that carry the numbers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cutlass_ranker.generator import (
    DTYPES,
    FAMILIES,
    Candidate,
    Epilogue,
    KernelConfig,
    Problem,
    Schedule,
    Scheduler,
    UnsupportedProblem,
    candidates_for,
    check,
    multicast_mask,
    problem_mask,
    require_supported,
    swap_family,
    valid_mask,
)
from cutlass_ranker.generator import columns as col

GOOD = KernelConfig(128, 256, 64, 2, 1, 3, Schedule.COOPERATIVE, Epilogue.TMA)

configs = st.builds(
    KernelConfig,
    tile_m=st.integers(1, 20).map(lambda i: 32 * i),
    tile_n=st.integers(1, 40).map(lambda i: 8 * i),
    tile_k=st.sampled_from([16, 32, 48, 64, 128, 256, 512, 1024]),
    cluster_m=st.integers(1, 17),
    cluster_n=st.integers(1, 17),
    stages=st.integers(1, 14),
    schedule=st.sampled_from(Schedule),
    epilogue=st.sampled_from(Epilogue),
    scheduler=st.sampled_from(Scheduler),
    family=st.sampled_from(FAMILIES),
    void_c=st.booleans(),
)
sizes = st.integers(1, 4096).map(lambda i: 8 * i)
problems = st.builds(Problem, m=sizes, n=sizes, k=sizes, layout=st.sampled_from(FAMILIES))


def broken(**changes: object) -> list[str]:
    from dataclasses import replace

    return [violation.rule for violation in check(replace(GOOD, **changes))]  # type: ignore[arg-type]


def test_a_good_kernel_breaks_nothing() -> None:
    assert check(GOOD) == []
    assert check(GOOD, Problem(4096, 4096, 4096)) == []


@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        ({"tile_m": 96}, "tile_m"),
        ({"tile_n": 24}, "tile_n"),
        ({"tile_n": 272}, "tile_n"),
        ({"tile_k": 48}, "tile_k"),
        ({"cluster_m": 3}, "cluster_m"),
        ({"cluster_m": 8, "cluster_n": 4}, "cluster_size"),
        ({"stages": 1}, "stages"),
        ({"tile_m": 64}, "cooperative_tile_m"),
        ({"schedule": Schedule.PINGPONG, "scheduler": Scheduler.STREAM_K}, "stream_k_schedule"),
        ({"scheduler": Scheduler.SPLIT_K}, "split_k_source"),
        ({"scheduler": Scheduler.SPLIT_K, "void_c": True, "epilogue": Epilogue.TMA_64}, "split_k_epilogue_columns"),
        ({"epilogue": Epilogue.TMA_64, "tile_n": 96}, "epilogue_columns"),
        ({"epilogue": Epilogue.TMA_64, "family": "TNN"}, "epilogue_columns_layout"),
        ({"stages": 5}, "shared_memory"),
        ({"family": "NNT", "tile_n": 16, "tile_k": 512, "stages": 2}, "tma_box_a"),
    ],
)
def test_each_rule_names_itself(changes: dict[str, object], rule: str) -> None:
    assert rule in broken(**changes)


def test_violation_carries_its_numbers() -> None:
    # 5 stages: 5*(128+256)*64*2 = 245760; epilogue 128x32*2 = 8192 B * 4 stages = 32768; 278528 in all.
    (violation,) = check(KernelConfig(128, 256, 64, 2, 1, 5, Schedule.COOPERATIVE, Epilogue.TMA))
    assert (violation.rule, violation.value, violation.limit) == ("shared_memory", 278528, 230400)
    assert "278528" in violation.message and "230400" in violation.message


def test_guards_follow_the_swap() -> None:
    swapped = Candidate(KernelConfig(64, 64, 64, 1, 1, 4, Schedule.PINGPONG, Epilogue.TMA, family="TNN"), swapped=True)
    assert check(swapped, Problem(32, 4096, 4096)) == []
    found = check(swapped, Problem(24, 4096, 4096))
    assert [(v.rule, v.value, v.limit) for v in found] == [("guard_n", 64, 48)]


def test_plain_kernels_need_a_grid_that_can_be_launched() -> None:
    # 1,048,576 / 16 = 65,536 CTAs along the second axis of the grid, one more than CUDA allows.
    plain = KernelConfig(64, 16, 128, 1, 1, 11, Schedule.WARPSPECIALIZED, Epilogue.NOSMEM, family="TNN")
    problem = Problem(1048576, 768, 256)
    found = check(Candidate(plain, swapped=True), problem)
    assert [(v.rule, v.value, v.limit) for v in found] == [("grid_y", 65536, 65535)]
    assert check(Candidate(plain, swapped=True), Problem(1048560, 768, 256)) == []
    persistent = KernelConfig(64, 16, 128, 1, 1, 11, Schedule.PINGPONG, Epilogue.NOSMEM, family="TNN")
    assert check(Candidate(persistent, swapped=True), problem) == []


def test_wrong_family_and_type() -> None:
    assert [v.rule for v in check(GOOD, Problem(512, 512, 512, "NN"))] == ["family"]
    assert [v.rule for v in check(GOOD, Problem(512, 512, 512, dtype="fp16"))] == ["dtype"]  # type: ignore[arg-type]


@given(config=configs, problem=problems)
def test_check_agrees_with_the_masks(config: KernelConfig, problem: Problem) -> None:
    columns = col.from_configs([config])
    assert (check(config) == []) == bool(valid_mask(columns, DTYPES["bf16"])[0])
    whole = valid_mask(columns, DTYPES["bf16"])[0] and problem_mask(columns, problem)[0]
    assert (check(config, problem) == []) == bool(whole)


@given(config=configs)
def test_fewer_stages_never_invalidate(config: KernelConfig) -> None:
    if check(config) == [] and config.stages > 2:
        from dataclasses import replace

        assert check(replace(config, stages=config.stages - 1)) == []


@given(problem=problems)
def test_swapping_twice_is_the_identity(problem: Problem) -> None:
    assert problem.transposed().transposed() == problem
    assert swap_family(swap_family(problem.layout)) == problem.layout
    require_supported(problem)


@pytest.mark.parametrize(("family", "partner"), [("TNT", "TNN"), ("TTT", "NNN"), ("NNT", "TTN"), ("NTT", "NTN")])
def test_swapped_pairs(family: str, partner: str) -> None:
    assert swap_family(family) == partner and swap_family(partner) == family


def test_sixteen_byte_rule_per_layout() -> None:
    # TN: A and B are contiguous along K, D along N; M is free.
    require_supported(Problem(8205, 5920, 2952, "TN"))
    with pytest.raises(UnsupportedProblem) as caught:
        require_supported(Problem(8205, 5921, 2949, "TN"))
    text = str(caught.value)
    for part in (
        "K = 2949",
        "2944 or 2952",
        "N = 5921",
        "5920 or 5928",
        "16 bytes",
        "8 bf16 elements",
        "8205x5928x2952",
    ):
        assert part in text
    assert "M = 8205" not in text
    # NT: A is contiguous along M, B and D along N; K is free.
    require_supported(Problem(64, 64, 7, "NT"))
    with pytest.raises(UnsupportedProblem, match="M = 12"):
        require_supported(Problem(12, 64, 7, "NT"))
    # Below one unit there is no smaller size to offer.
    with pytest.raises(UnsupportedProblem, match="nearest sizes that work: 8\\."):
        require_supported(Problem(1, 8, 3, "TN"))


def test_operands_beyond_a_tebibyte_are_refused() -> None:
    with pytest.raises(UnsupportedProblem, match="TiB"):
        require_supported(Problem(2**31 - 8, 2**31 - 8, 2**31 - 8))


# Kernels that ended with a misaligned address on every problem on an H200, and neighbours that ran correctly.
FAULTY = ((128, 16, 32, "TTT"), (256, 80, 32, "TTT"), (192, 48, 32, "NNN"), (256, 16, 32, "NTT"), (64, 80, 32, "TTN"))
SOUND = ((128, 32, 32, 16), (128, 96, 32, 16), (128, 16, 64, 16), (128, 80, 64, 16), (128, 16, 32, 8), (128, 48, 32, 8))


@pytest.mark.parametrize(("tile_m", "tile_n", "tile_k", "family"), FAULTY)
def test_multicast_shares_that_faulted(tile_m: int, tile_n: int, tile_k: int, family: str) -> None:
    config = KernelConfig(tile_m, tile_n, tile_k, 16, 1, 2, Schedule.WARPSPECIALIZED, Epilogue.TMA, family=family)
    columns = col.from_configs([config])
    assert valid_mask(columns, DTYPES["bf16"]).all()  # the paper's space counts it
    assert not multicast_mask(columns, DTYPES["bf16"]).any()
    assert [violation.rule for violation in check(config)] == ["multicast_share"]
    assert col.size(candidates_for(columns, Problem(2048, 2048, 2048, family))[0]) == 0


@pytest.mark.parametrize(("tile_m", "tile_n", "tile_k", "cluster_m"), SOUND)
def test_multicast_shares_that_ran(tile_m: int, tile_n: int, tile_k: int, cluster_m: int) -> None:
    config = KernelConfig(tile_m, tile_n, tile_k, cluster_m, 1, 2, Schedule.WARPSPECIALIZED, Epilogue.TMA)
    assert check(config) == []


@given(configs)
def test_multicast_addresses(config: KernelConfig) -> None:
    """Where every CTA's share of a tile starts, counted out."""
    columns = col.from_configs([config])
    shares = (
        (config.tile_m * config.tile_k * 2, config.cluster_n),
        (config.tile_n * config.tile_k * 2, config.cluster_m),
    )
    starts = [whole // ctas * cta for whole, ctas in shares for cta in range(ctas)]
    aligned = all(start % 128 == 0 for start in starts)
    # A single CTA loads the whole tile, which valid tiles fill in steps of 128 bytes.
    if valid_mask(columns, DTYPES["bf16"])[0]:
        assert bool(multicast_mask(columns, DTYPES["bf16"])[0]) == aligned
