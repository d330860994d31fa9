"""Problems, configs, launches: what they accept and what they refuse."""

from __future__ import annotations

import numpy as np
import pytest

from cutlass_ranker.generator import (
    CANDIDATE_COLUMNS,
    Candidate,
    Decomposition,
    Epilogue,
    InvalidConfig,
    InvalidProblem,
    KernelConfig,
    Launch,
    Problem,
    Raster,
    Schedule,
    enumerate_configs,
    enumerate_launches,
    parse_dtype,
    parse_layout,
)
from cutlass_ranker.generator import columns as col


@pytest.mark.parametrize(
    "size", [0, -1, 1.5, 64.0, True, np.bool_(True), "64", None, 2**31, 10**30, np.float32(8), [64], float("nan")]
)
@pytest.mark.parametrize("name", ["m", "n", "k"])
def test_senseless_sizes_are_refused(name: str, size: object) -> None:
    sizes: dict[str, object] = {"m": 64, "n": 64, "k": 64, name: size}
    with pytest.raises(InvalidProblem, match=f"{name.upper()} is"):
        Problem(**sizes)  # type: ignore[arg-type]


def test_integers_of_any_kind_are_taken() -> None:
    assert Problem(np.int64(64), np.uint8(64), 64) == Problem(64, 64, 64)  # type: ignore[arg-type]
    assert type(Problem(np.int64(64), 64, 64).m) is int  # type: ignore[arg-type]


@pytest.mark.parametrize("text", ["TN", "tn", "TNT", "tnt", " tn "])
def test_layout_spellings(text: str) -> None:
    assert parse_layout(text) == "TNT"


@pytest.mark.parametrize("text", ["", "T", "TX", "TNTT", "row", None, 3])
def test_unknown_layouts(text: object) -> None:
    with pytest.raises(InvalidProblem, match="use TN, TT, NN or NT"):
        parse_layout(text)


@pytest.mark.parametrize("text", ["bf16", "BF16", "bfloat16", "torch.bfloat16", "cutlass::bfloat16_t"])
def test_dtype_spellings(text: str) -> None:
    assert parse_dtype(text).name == "bf16"


def test_unknown_dtype_lists_the_known() -> None:
    with pytest.raises(InvalidProblem, match=r"bf16 \(bfloat16\), f16"):
        parse_dtype("int3")


def test_hand_worked_flops_and_bytes() -> None:
    problem = Problem(2, 8, 16)
    assert problem.flops == 512  # 2*2*8*16
    assert problem.min_bytes == 352  # 2 B * (2*16 + 16*8 + 2*8) = 2 * 176


@pytest.mark.parametrize(
    "arguments",
    [
        {"swizzle": 3},
        {"splits": 0},
        {"splits": 2},
        {"splits": 1, "decomposition": Decomposition.SPLIT_K},
        {"splits": 1, "decomposition": Decomposition.SPLIT_K_ATOMIC},
        {"splits": 1, "decomposition": Decomposition.SPLIT_K_PARALLEL},
        {"splits": 1, "decomposition": Decomposition.SPLIT_K_SEPARATE},
        {"splits": 2, "decomposition": Decomposition.STREAM_K},
    ],
)
def test_senseless_launches_are_refused(arguments: dict[str, int]) -> None:
    with pytest.raises(InvalidConfig):
        Launch(**arguments)  # type: ignore[arg-type]


@pytest.mark.parametrize("tile_m", [0, -64, True, 64.0, "64"])
def test_senseless_configs_are_refused(tile_m: object) -> None:
    with pytest.raises(InvalidConfig, match="tile_m is"):
        KernelConfig(tile_m, 64, 64, 1, 1, 2, Schedule.PINGPONG, Epilogue.TMA)  # type: ignore[arg-type]


def test_columns_round_trip() -> None:
    configs = enumerate_configs("TN")
    some = col.take(configs, np.arange(0, col.size(configs), 997))
    columns, _ = enumerate_launches(some, Problem(1024, 1024, 1024))
    candidates = [col.candidate_at(columns, row, parse_dtype("bf16")) for row in range(col.size(columns))]
    again = col.from_candidates(candidates)
    for name in CANDIDATE_COLUMNS:
        assert np.array_equal(again[name], columns[name]), name
    assert len(set(candidates)) == len(candidates)


def test_columns_of_nothing() -> None:
    assert col.size(col.from_candidates([])) == 0
    default = col.with_launch(col.from_configs([]))
    assert tuple(default) == CANDIDATE_COLUMNS


def test_candidate_defaults() -> None:
    config = KernelConfig(128, 128, 64, 1, 1, 4, Schedule.PINGPONG, Epilogue.TMA)
    candidate = Candidate(config)
    assert candidate.launch == Launch(Raster.HEURISTIC, 1, Decomposition.HEURISTIC, 1) and not candidate.swapped


def test_only_atomic_adds_are_not_deterministic() -> None:
    # Stored in tables and known to compiled kernels.
    assert (int(Decomposition.SPLIT_K_ATOMIC), int(Decomposition.SPLIT_K_PARALLEL)) == (4, 5)
    assert int(Decomposition.SPLIT_K_SEPARATE) == 6
    for decomposition in Decomposition:
        splits = 8 if decomposition.name.startswith("SPLIT_K") else 1
        launch = Launch(decomposition=decomposition, splits=splits)
        assert launch.deterministic == (decomposition != 4)
