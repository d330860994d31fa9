"""``select_kernel`` and ``rank_kernels``: answers, candidate lists, and every refusal."""

import dataclasses
import math
import random
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from cutlass_ranker import (
    Candidate,
    Decomposition,
    InvalidCandidates,
    InvalidConfig,
    InvalidProblem,
    KernelConfig,
    Launch,
    Problem,
    Raster,
    UnknownHardware,
    UnsupportedProblem,
    rank_kernels,
    select_kernel,
)
from cutlass_ranker.generator import Columns, Epilogue, Schedule, Scheduler, check, enumerate_configs, names, parse_name
from cutlass_ranker.generator import columns as col
from cutlass_ranker.models import Calibration
from cutlass_ranker.selector.display import launch_text

KINDS = ("thin", "long_k", "small", "large")


class Widest:
    """Prefers large tiles, then swizzle 4; a score step of 64 is worth 10% of speed."""

    name = "widest"
    feature_set = "none"

    def __init__(self) -> None:
        curve = (0.95, 0.85, 0.05)
        self.calibration: Calibration | None
        self.calibration = Calibration((0.0, 64.0, 640.0), dict.fromkeys(KINDS, curve), dict.fromkeys(KINDS, 10))
        self.calls = 0

    def score(self, columns: Columns, problem: Problem, hardware: object) -> NDArray[np.float64]:
        self.calls += 1
        return columns["tile_m"] + columns["tile_n"] + 0.5 * (columns["swizzle"] == 4)


def config(tile_m: int, tile_n: int, family: str = "TNT", schedule: Schedule = Schedule.PINGPONG) -> KernelConfig:
    return KernelConfig(tile_m, tile_n, 64, 1, 1, 3, schedule, Epilogue.TMA, family=family)


SMALL, WIDE, TALL = config(64, 64), config(64, 128), config(128, 64)
SHAPE = (4096, 4096, 4096)


def test_the_best_of_a_list_with_its_launch_and_regret() -> None:
    choices = rank_kernels(*SHAPE, candidates=[SMALL, WIDE, TALL], model=Widest())
    # WIDE and TALL tie at 192 and follow each other by name; SMALL is 64 behind.
    assert [c.config for c in choices] == [TALL, WIDE, SMALL]
    assert [c.rank for c in choices] == [1, 2, 3]
    assert [c.score for c in choices] == [192.0, 192.0, 128.0]
    assert {c.launch.swizzle for c in choices} == {4}
    assert [c.relative_speed for c in choices] == pytest.approx([0.95, 0.95, 0.85])
    assert [c.expected_regret for c in choices] == pytest.approx([0.05, 0.05, 0.15])
    assert choices[0].name == TALL.name
    assert choices[0].problem == Problem(*SHAPE)
    assert (choices[0].hardware, choices[0].model) == ("h200", "widest")


def test_select_is_the_first_of_rank() -> None:
    model = Widest()
    one = select_kernel(*SHAPE, candidates=[SMALL, TALL], model=model)
    assert one == rank_kernels(*SHAPE, top_k=1, candidates=[SMALL, TALL], model=model)[0]


def test_a_choice_is_frozen() -> None:
    choice = select_kernel(*SHAPE, candidates=[SMALL], model=Widest())
    with pytest.raises(dataclasses.FrozenInstanceError):
        choice.score = 1.0  # type: ignore[misc]


def test_a_ranker_without_calibration_leaves_the_regret_unknown() -> None:
    model = Widest()
    model.calibration = None
    assert math.isnan(select_kernel(*SHAPE, candidates=[SMALL], model=model).expected_regret)


def test_source_is_the_emitted_program() -> None:
    source = select_kernel(*SHAPE, candidates=[SMALL], model=Widest()).source()
    assert "int main(" in source
    assert "4096" in source
    assert "KernelTmaWarpSpecializedPingpong" in source


@settings(max_examples=25, deadline=None)
@given(st.randoms(use_true_random=False))
def test_the_answer_does_not_depend_on_the_order_or_on_duplicates(source: random.Random) -> None:
    space = enumerate_configs("TNT", "bf16", "paper", Problem(*SHAPE))
    rows = np.random.default_rng(3).choice(col.size(space), 40, replace=False)
    listed: list[KernelConfig | Candidate | str] = [col.config_at(space, int(r), Problem(1, 8, 8).dtype) for r in rows]
    model = Widest()
    expected = rank_kernels(*SHAPE, top_k=6, candidates=listed, model=model)
    shuffled = [entry.name if source.random() < 0.5 else entry for entry in [*listed, *source.choices(listed, k=20)]]  # type: ignore[union-attr]
    source.shuffle(shuffled)
    assert rank_kernels(*SHAPE, top_k=6, candidates=shuffled, model=model) == expected


def test_configs_names_and_candidates_in_one_list() -> None:
    fixed = Candidate(WIDE, Launch(Raster.ALONG_M, 2))
    choices = rank_kernels(*SHAPE, candidates=[SMALL.name, TALL, fixed], model=Widest())
    assert [(c.config, c.launch.swizzle) for c in choices] == [(TALL, 4), (WIDE, 2), (SMALL, 4)]
    assert choices[1].launch == fixed.launch


def test_a_kernel_with_several_fixed_launches_appears_with_each() -> None:
    listed = [Candidate(SMALL, Launch(swizzle=s)) for s in (1, 4, 4)]
    choices = rank_kernels(*SHAPE, candidates=listed, model=Widest())
    assert [c.launch.swizzle for c in choices] == [4, 1]


def test_a_kernel_listed_with_and_without_its_best_launch_counts_once() -> None:
    best = Candidate(TALL, Launch(Raster.HEURISTIC, 4))
    model = Widest()
    free = select_kernel(*SHAPE, candidates=[TALL], model=model)
    choices = rank_kernels(*SHAPE, top_k=2, candidates=[TALL, Candidate(TALL, free.launch), SMALL], model=model)
    assert [c.config for c in choices] == [TALL, SMALL]
    assert select_kernel(*SHAPE, candidates=[best], model=model).launch == best.launch


def test_a_kernel_of_the_swapped_family_is_used_swapped() -> None:
    choice = select_kernel(16, 8192, 8192, candidates=[config(64, 16, "TNN")], model=Widest())
    assert choice.swapped
    assert choice.config.family == "TNN"
    assert not check(Candidate(choice.config, choice.launch, True), Problem(16, 8192, 8192))


def test_a_tnn_problem_is_served_by_both_families() -> None:
    choices = rank_kernels(
        *SHAPE, layout="TNN", candidates=[config(64, 64, "TNN"), config(64, 128, "TNT")], model=Widest()
    )
    assert [(c.config.family, c.swapped) for c in choices] == [("TNT", True), ("TNN", False)]


def test_a_problem_and_its_transposed_one_get_the_same_kernels() -> None:
    class Picky(Widest):
        def score(self, columns: Columns, problem: Problem, hardware: object) -> NDArray[np.float64]:
            sides = np.where(columns["swapped"] == 1, problem.n - problem.m, problem.m - problem.n)
            return columns["swapped"] * 7.0 + columns["tile_m"] * np.sign(sides) + columns["swizzle"] * 0.1

    model = Picky()
    listed = [config(64, 64), config(128, 32), config(64, 64, "TNN"), Candidate(config(192, 32, "TNN"), Launch(), True)]
    turned = [*listed[:3], Candidate(config(192, 32, "TNN"), Launch(), False)]
    rows = rank_kernels(4096, 1024, 512, layout="TNT", candidates=listed, model=model)
    columns = rank_kernels(1024, 4096, 512, layout="TNN", candidates=turned, model=model)
    assert len(rows) == 4
    assert [(c.config, c.launch, c.score) for c in rows] == [(c.config, c.launch, c.score) for c in columns]
    assert [c.swapped for c in rows] == [not c.swapped for c in columns]
    assert all(not check(c.candidate, c.problem) for c in [*rows, *columns])


def test_kernels_that_do_not_fit_are_dropped() -> None:
    misfit = config(64, 64, "NNT")
    choices = rank_kernels(*SHAPE, candidates=[misfit, SMALL], model=Widest())
    assert [c.config for c in choices] == [SMALL]


def test_all_dropped_says_why() -> None:
    wide = KernelConfig(64, 256, 128, 1, 1, 12, Schedule.PINGPONG, Epilogue.TMA)
    others = [config(64, 16 * i, "TTT") for i in (1, 2, 3)]
    with pytest.raises(InvalidCandidates) as info:
        select_kernel(*SHAPE, candidates=[config(64, 64, "NNT"), wide, *others], model=Widest())
    text = str(info.value)
    assert "none of the 5 candidates can serve 4096x4096x4096 TNT bf16" in text
    assert "family is NNT; a TNT problem needs TNT" in text
    assert "shared memory is" in text
    assert "2 more" in text


def test_the_guard_drops_tiles_twice_as_long_as_the_problem() -> None:
    tall = KernelConfig(256, 64, 64, 1, 1, 3, Schedule.COOPERATIVE, Epilogue.TMA)
    with pytest.raises(InvalidCandidates, match="tile_m is 256; with M = 64 it may be at most 128"):
        select_kernel(64, 4096, 4096, candidates=[tall], model=Widest())


@pytest.mark.parametrize(
    ("candidates", "message"),
    [
        ([], "empty"),
        ((), "empty"),
        (iter([]), "empty"),
        ([3], r"candidates\[0\] is 3"),
        ([SMALL, None], r"candidates\[1\] is None"),
        ([SMALL, ["x"]], r"candidates\[1\] is \['x'\]"),
        ([SMALL, "cutlass3x_sm90_nonsense"], r"candidates\[1\]: 'cutlass3x_sm90_nonsense' is not the procedural name"),
        (SMALL.name, "must be a list .* not str"),
        (SMALL, "must be a list .* not KernelConfig"),
        ({"a": SMALL}, "must be a list .* not dict"),
        (7, "must be a list .* not int"),
    ],
)
def test_bad_candidate_lists(candidates: object, message: str) -> None:
    with pytest.raises(InvalidCandidates, match=message):
        select_kernel(*SHAPE, candidates=candidates, model=Widest())  # type: ignore[arg-type]


def test_candidates_and_space_exclude_each_other() -> None:
    with pytest.raises(InvalidCandidates, match="one or the other"):
        select_kernel(*SHAPE, candidates=[SMALL], space="paper", model=Widest())


def test_a_kernel_of_another_type_is_refused() -> None:
    half = dataclasses.replace(SMALL, dtype="f16")  # type: ignore[arg-type]
    with pytest.raises(InvalidCandidates, match="the kernel computes f16, the problem is bf16"):
        select_kernel(*SHAPE, candidates=[half], model=Widest())
    assert select_kernel(*SHAPE, dtype="torch.float16", candidates=[half, SMALL], model=Widest()).config == half


@pytest.mark.parametrize("space", ["paper", "extended"])
def test_a_whole_space(space: str) -> None:
    choice = select_kernel(*SHAPE, layout="NN", space=space, model=Widest())
    assert (choice.config.tile_m, choice.config.tile_n) == (256, 256)
    assert choice.config.family in ("NNT", "TTN")


def test_an_unknown_space() -> None:
    with pytest.raises(InvalidConfig, match="'huge' is unknown; use one of paper, extended"):
        select_kernel(*SHAPE, space="huge", model=Widest())


@pytest.mark.parametrize(
    ("size", "message"),
    [
        (0, "is 0; it must lie between 1 and 2147483647"),
        (-8, "is -8; it must lie between 1 and 2147483647"),
        (2**31, "is 2147483648; it must lie between"),
        (10**30, "it must lie between"),
        (True, "not a truth value"),
        (np.True_, "not a truth value"),
        (8.0, "must be a whole number"),
        (8.5, "must be a whole number"),
        (Fraction(8), "must be a whole number"),
        (math.nan, "must be a whole number"),
        ("4096", "must be a whole number"),
        (None, "must be a whole number"),
        ([8], "must be a whole number"),
        (np.float64(8), "must be a whole number"),
    ],
)
@pytest.mark.parametrize("place", [0, 1, 2])
def test_bad_sizes_name_the_dimension(size: object, message: str, place: int) -> None:
    sizes: list[object] = [4096, 4096, 4096]
    sizes[place] = size
    with pytest.raises(InvalidProblem, match=f"{'MNK'[place]} is .*{message}|{'MNK'[place]} {message}"):
        select_kernel(*sizes, candidates=[SMALL], model=Widest())  # type: ignore[arg-type]


def test_sizes_that_are_equal_to_remembered_ones_are_still_refused() -> None:
    model = Widest()
    listed = [config(64, 16), config(64, 16, "TNN")]
    assert select_kernel(1, 8, 8, candidates=listed, model=model).problem == Problem(1, 8, 8)
    for wrong in (True, 1.0, np.float64(1)):
        with pytest.raises(InvalidProblem):
            select_kernel(wrong, 8, 8, candidates=listed, model=model)  # type: ignore[arg-type]
    assert select_kernel(np.int64(1), 8, 8, candidates=listed, model=model).problem == Problem(1, 8, 8)  # type: ignore[arg-type]


@pytest.mark.parametrize("layout", ["XY", "", "T", "TNTN", None, 3, ["TN"]])
def test_bad_layouts(layout: object) -> None:
    with pytest.raises(InvalidProblem, match="layout .* is unknown; use TN, TT, NN or NT"):
        select_kernel(*SHAPE, layout=layout, candidates=[SMALL])  # type: ignore[arg-type]


@pytest.mark.parametrize("dtype", ["int8", "", None, 16, ["bf16"]])
def test_bad_types(dtype: object) -> None:
    with pytest.raises(InvalidProblem, match="dtype .* is not supported; use one of bf16"):
        select_kernel(*SHAPE, dtype=dtype, candidates=[SMALL])


@pytest.mark.parametrize("hardware", ["a100", "", None, 90])
def test_bad_hardware(hardware: object) -> None:
    with pytest.raises(UnknownHardware, match="h200"):
        select_kernel(*SHAPE, hardware=hardware, candidates=[SMALL])  # type: ignore[arg-type]


@pytest.mark.parametrize("top_k", [0, -1, True, 1.0, "8", None])
def test_bad_top_k(top_k: object) -> None:
    with pytest.raises(InvalidCandidates, match="top_k is .* whole number from 1"):
        rank_kernels(*SHAPE, top_k=top_k, candidates=[SMALL])  # type: ignore[arg-type]


def test_more_than_there_are() -> None:
    assert len(rank_kernels(*SHAPE, top_k=50, candidates=[SMALL, WIDE, TALL], model=Widest())) == 3


@pytest.mark.parametrize("spelling", ["tn", "TN", "TNT", "tnt"])
def test_spellings_of_a_layout_mean_the_same(spelling: str) -> None:
    model = Widest()
    assert select_kernel(*SHAPE, layout=spelling, candidates=[SMALL], model=model) == select_kernel(
        *SHAPE, candidates=[SMALL], model=model
    )


def test_tma_rule_names_dimension_rule_and_nearest_sizes() -> None:
    # TN: K is contiguous in A and B, N in D; M is contiguous in nothing, so 8205 may stay.
    with pytest.raises(UnsupportedProblem) as info:
        select_kernel(8205, 5921, 2949)
    text = str(info.value)
    assert "K = 2949" in text
    assert "N = 5921" in text
    assert "M = 8205" not in text
    assert "16 bytes" in text
    assert "2944 or 2952" in text
    assert "5920 or 5928" in text
    assert "8205x5928x2952" in text


@pytest.mark.parametrize(
    ("layout", "bad", "fine"),
    [
        ("TNT", "NK", "M"),
        ("TNN", "MK", "N"),
        ("NNT", "MKN", ""),
        ("TTT", "KN", "M"),
        ("NTN", "MN", "K"),
        ("NTT", "MN", "K"),
    ],
)
def test_tma_rule_per_layout(layout: str, bad: str, fine: str) -> None:
    for place, name in enumerate("MNK"):
        sizes = [64, 64, 64]
        sizes[place] = 65
        listed = [config(64, 16, layout)]
        if name in fine:
            assert select_kernel(*sizes, layout=layout, candidates=listed, model=Widest()).config == listed[0]
        else:
            assert name in bad
            with pytest.raises(UnsupportedProblem, match=rf"{name} = 65 .* nearest sizes that work: 64 or 72"):
                select_kernel(*sizes, layout=layout, candidates=listed, model=Widest())


def test_repeated_calls_do_not_score_again() -> None:
    model = Widest()
    listed = [SMALL, WIDE, TALL]
    first = select_kernel(*SHAPE, candidates=listed, model=model)
    calls = model.calls
    assert select_kernel(*SHAPE, candidates=list(listed), model=model) is first
    assert model.calls == calls
    select_kernel(*SHAPE, hardware="h100_sxm", candidates=listed, model=model)
    assert model.calls > calls


def test_a_refusal_is_refused_again() -> None:
    for _ in range(2):
        with pytest.raises(UnsupportedProblem):
            select_kernel(8205, 5921, 2949)


def test_a_returned_list_can_be_changed_without_harm() -> None:
    model = Widest()
    first = rank_kernels(*SHAPE, candidates=[SMALL, TALL], model=model)
    first.clear()
    assert len(rank_kernels(*SHAPE, candidates=[SMALL, TALL], model=model)) == 2


def test_a_model_that_does_not_exist() -> None:
    from cutlass_ranker import CutlassRankerError

    with pytest.raises(CutlassRankerError, match="no-such-model"):
        select_kernel(*SHAPE, candidates=[SMALL], model="no-such-model")


def test_stream_k_kernels_are_ranked_with_their_splits() -> None:
    class Splitter(Widest):
        def score(self, columns: Columns, problem: Problem, hardware: object) -> NDArray[np.float64]:
            return columns["splits"].astype(np.float64)

    stream_k = KernelConfig(128, 16, 128, 1, 1, 4, Schedule.COOPERATIVE, Epilogue.TMA, Scheduler.STREAM_K)
    choice = select_kernel(256, 256, 16384, candidates=[stream_k], model=Splitter())
    # 2 x 16 tiles: 8 slices are 256 units, at most 264 are worth a look.
    assert choice.launch.splits == 8
    assert parse_name(choice.name) == stream_k
    assert names(col.from_configs([stream_k]), stream_k.dtype) == [choice.name]


def test_a_second_kernel_is_chosen_like_any_other_split() -> None:
    class Splitter(Widest):
        def score(self, columns: Columns, problem: Problem, hardware: object) -> NDArray[np.float64]:
            return np.asarray(columns["decomposition"] * 100 + columns["splits"], dtype=np.float64)

    kernel = KernelConfig(128, 128, 64, 1, 1, 4, Schedule.COOPERATIVE, Epilogue.TMA, Scheduler.STREAM_K)
    choice = select_kernel(256, 256, 16384, candidates=[kernel], model=Splitter())
    assert choice.launch == Launch(decomposition=Decomposition.SPLIT_K_SEPARATE, splits=64)
    assert choice.to_dict()["deterministic"] is True
    assert choice.to_dict()["launch"]["decomposition"] == "split_k_separate"
    assert launch_text(choice.launch) == "split_k_separate 64"


def test_atomic_adds_only_when_allowed() -> None:
    class Splitter(Widest):
        def score(self, columns: Columns, problem: Problem, hardware: object) -> NDArray[np.float64]:
            atomic = columns["decomposition"] == Decomposition.SPLIT_K_ATOMIC
            return np.asarray(columns["splits"] + atomic, dtype=np.float64)

    kernel = KernelConfig(128, 128, 64, 1, 1, 4, Schedule.COOPERATIVE, Epilogue.TMA, Scheduler.STREAM_K)
    shape, model = (256, 256, 16384), Splitter()
    choice = select_kernel(*shape, candidates=[kernel], model=model)
    assert choice.launch == Launch(decomposition=Decomposition.SPLIT_K_PARALLEL, splits=64)
    assert choice.to_dict()["deterministic"] is True
    assert launch_text(choice.launch) == "split_k_parallel 64"
    choice = select_kernel(*shape, candidates=[kernel], model=model, deterministic=False)
    assert choice.launch == Launch(decomposition=Decomposition.SPLIT_K_ATOMIC, splits=64)
    assert choice.to_dict()["deterministic"] is False
    assert choice.to_dict()["launch"]["decomposition"] == "split_k_atomic"
    assert launch_text(choice.launch) == "split_k_atomic 64"
    # A candidate with such a launch is left out of a list unless allowed.
    listed = [choice.candidate, Candidate(kernel)]
    assert [c.launch for c in rank_kernels(*shape, candidates=listed, model=model)] == [Launch()]
    allowed = rank_kernels(*shape, candidates=listed, model=model, deterministic=False)
    assert [c.launch for c in allowed] == [choice.launch, Launch()]
    with pytest.raises(InvalidCandidates, match=r"differ from run to run; deterministic=False"):
        select_kernel(*shape, candidates=listed[:1], model=model)
