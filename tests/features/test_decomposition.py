"""Against CUTLASS's own scheduler code: ``data/scheduler.csv`` is what ``data/scheduler.cu`` prints."""

import csv
from pathlib import Path

import numpy as np
import pytest

from cutlass_ranker.features import HARDWARE
from cutlass_ranker.features.decomposition import decompose
from cutlass_ranker.features.terms import build_terms
from cutlass_ranker.generator import (
    Candidate,
    Decomposition,
    Epilogue,
    KernelConfig,
    Launch,
    Problem,
    Schedule,
    Scheduler,
)
from cutlass_ranker.generator import columns as col

with (Path(__file__).parent / "data" / "scheduler.csv").open(newline="") as lines:
    CASES = [{name: int(value) for name, value in row.items()} for row in csv.DictReader(lines)]
H200 = HARDWARE["h200"]


def rows(cases):
    """Candidates of some cases; the cooperative nosmem Stream-K kernel of each tile."""
    base = col.from_configs(
        KernelConfig(
            c["tile_m"], c["tile_n"], c["tile_k"], c["cluster_m"], c["cluster_n"], 3,
            Schedule.COOPERATIVE, Epilogue.NOSMEM, Scheduler.STREAM_K,
        )
        for c in cases
    )  # fmt: skip
    columns = col.with_launch(base)
    for name, key in (("swizzle", "swizzle"), ("decomposition", "decomposition"), ("splits", "asked_splits")):
        columns[name] = np.array([c[key] for c in cases], dtype=np.int32)
    return columns


@pytest.fixture(scope="module", params=sorted({(c["m"], c["n"], c["k"]) for c in CASES}), ids=str)
def computed(request):
    cases = [c for c in CASES if (c["m"], c["n"], c["k"]) == request.param]
    terms = build_terms(rows(cases), Problem(*request.param), H200)
    return cases, terms, decompose(terms)


def expected(cases, key):
    return [c[key] for c in cases]


def test_the_fixture_covers_every_outcome():
    assert {(c["decomposition"], c["splits"] > 1, c["sk_tiles"] > 0) for c in CASES} >= {
        (0, False, False), (0, True, False), (0, False, True), (1, False, False), (2, True, False), (3, False, True),
    }  # fmt: skip


def test_grid(computed):
    cases, terms, _ = computed
    assert list(terms.active) == expected(cases, "grid")


def test_raster_and_swizzle(computed):
    cases, terms, _ = computed
    assert list(terms.along_m) == expected(cases, "along_m")
    assert list(np.log2(terms.swizzle)) == expected(cases, "log_swizzle")


def test_k_tiles_and_splits(computed):
    cases, terms, work = computed
    assert list(terms.k_tiles) == expected(cases, "k_tiles")
    assert list(work.splits) == expected(cases, "splits")


def test_stream_k_tiles(computed):
    cases, _, work = computed
    assert list(work.stream_tiles) == expected(cases, "sk_tiles")
    assert list(work.stream) == [c["sk_tiles"] > 0 for c in cases]


def test_units(computed):
    # CUTLASS counts an output tile as one unit however often split-K slices it; here each slice is one.
    cases, _, work = computed
    assert list(work.units / work.splits) == expected(cases, "units")


def test_workspace(computed):
    # Workspace = float32 partial tiles, then barriers, each rounded up to 128 bytes; none when no tile is split.
    cases, terms, work = computed
    tiles = work.barrier_bytes / 8
    partials = tiles * terms.tile_m * terms.tile_n * 4
    total = np.ceil(partials / 128) * 128 + np.ceil(work.barrier_bytes / 128) * 128
    assert list(total) == expected(cases, "workspace")


def one(m, n, k, launch, **config):
    fields = {"tile_m": 128, "tile_n": 128, "tile_k": 64, "cluster_m": 1, "cluster_n": 1, "stages": 4} | config
    kernel = KernelConfig(
        **fields, schedule=Schedule.COOPERATIVE, epilogue=Epilogue.NOSMEM, scheduler=Scheduler.STREAM_K
    )
    terms = build_terms(col.from_candidates([Candidate(kernel, launch)]), Problem(m, n, k), H200)
    return {name: float(getattr(decompose(terms), name)[0]) for name in decompose(terms).__slots__}


def test_split_k_by_hand():
    # 256×256×16384 on 128×128×64: 4 tiles of 256 k-tiles. 5 splits: 20 units on 132 CTAs, one wave; the longest slice
    # has ceil(256/5) = 52 k-tiles. Partial sums: 4 of each tile's 5 slices write one, 16 in all. Barriers: 4 tiles of
    # 8 bytes.
    work = one(256, 256, 16384, Launch(decomposition=Decomposition.SPLIT_K, splits=5))
    assert work == {
        "splits": 5, "stream": 0, "stream_tiles": 0, "units": 20, "waves": 1, "k_tiles_per_unit": 52,
        "critical_k_tiles": 52, "partial_tiles": 16, "atomic": 0, "parallel": 0, "separate": 0, "fixup_steps": 5,
        "fixup_tiles": 5, "barrier_bytes": 32,
    }  # fmt: skip
    # The order of adding does not change who computes what: store, adds, load are three steps.
    atomic = one(256, 256, 16384, Launch(decomposition=Decomposition.SPLIT_K_ATOMIC, splits=5))
    assert atomic == work | {"atomic": 1, "fixup_steps": 3, "fixup_tiles": 3}
    # Four slices store their tiles, the fifth reads them. Who has seen a flag lowers it: nothing is left to be zeroed.
    parallel = one(256, 256, 16384, Launch(decomposition=Decomposition.SPLIT_K_PARALLEL, splits=5))
    assert parallel == work | {"parallel": 1, "fixup_steps": 2, "barrier_bytes": 0}
    # For a second kernel all five slices of each tile store theirs, at once; then 132 SMs share the loads of all 20.
    separate = one(256, 256, 16384, Launch(decomposition=Decomposition.SPLIT_K_SEPARATE, splits=5))
    assert separate == parallel | {"separate": 1, "partial_tiles": 20, "fixup_tiles": pytest.approx(1 + 20 / 132)}


def test_a_second_kernel_adds_no_padding():
    # 384×384 on 128×128: 9 tiles, which a 2×1 cluster makes 4×3 = 12. 4 splits: 48 units, but only the 36 of real tiles
    # store their partial sums; with one kernel 3 of the 4 slices of all 12 do.
    kinds = Decomposition.SPLIT_K_PARALLEL, Decomposition.SPLIT_K_SEPARATE
    works = [one(384, 384, 16384, Launch(decomposition=kind, splits=4), cluster_m=2) for kind in kinds]
    assert [(work["units"], work["partial_tiles"], work["barrier_bytes"]) for work in works] == [(48, 36, 0)] * 2
    works = [one(384, 384, 16384, Launch(decomposition=kind, splits=5), cluster_m=2) for kind in kinds]
    assert [(work["units"], work["partial_tiles"]) for work in works] == [(60, 48), (60, 45)]
    assert works[1]["fixup_tiles"] == pytest.approx(1 + 45 / 132)


def test_a_k_of_one_tile_needs_no_second_kernel():
    work = one(256, 256, 64, Launch(decomposition=Decomposition.SPLIT_K_SEPARATE, splits=5))
    names = ("splits", "units", "separate", "partial_tiles", "fixup_steps", "fixup_tiles", "barrier_bytes")
    assert [work[name] for name in names] == [1, 4, 0, 0, 0, 0, 0]


@pytest.mark.parametrize(
    ("tile_n", "splits", "steps", "tiles"),
    [
        # A 128×128 tile is 64 KiB, the limit 128 KiB. 6 slices in groups of 3: 2 + 1 slots instead of 5 spare one
        # (64 KiB). 8 slices: groups 0-2, 3-5, 6-7, so 2 + 2 instead of 7 spare three: two stores and loads.
        (128, 6, 2, 6),
        (128, 8, 3, 6),
        # 16 slices in four groups of four: 3 + 3 instead of 15.
        (128, 16, 3, 8),
        # 8 KiB tiles: 9 of them spared are 72 KiB. 32 slices: six groups, 5 + 5 instead of 31 spare 21, 168 KiB.
        (16, 16, 2, 16),
        (16, 32, 3, 12),
    ],
)
def test_parallel_split_k_adds_groups_first_where_that_is_quicker(tile_n, splits, steps, tiles):
    launch = Launch(decomposition=Decomposition.SPLIT_K_PARALLEL, splits=splits)
    work = one(128, tile_n, 65536, launch, tile_n=tile_n)
    assert (work["fixup_steps"], work["fixup_tiles"]) == (steps, tiles)


def test_stream_k_by_hand():
    # 2048×2048×4096: 256 tiles, 64 k-tiles each, on 132 CTAs: one full wave and 124 tiles. With at most two waves all
    # tiles are cut: 256·64 = 16384 k-tiles over 132 units, the longest 125 (124.12). A data-parallel run needs 2·64.
    launch = Launch(decomposition=Decomposition.STREAM_K)
    work = one(2048, 2048, 4096, launch)
    assert (work["stream_tiles"], work["units"], work["critical_k_tiles"]) == (256, 132, 125)
    # By its heuristic CUTLASS leaves this alone: the last wave is more than half full (124 of 132).
    assert one(2048, 2048, 4096, Launch())["critical_k_tiles"] == 128


def test_stream_k_keeps_whole_waves_data_parallel():
    # 8192×4096×4096: 2048 tiles = 15·132 + 68. 14 waves stay whole, 2048 − 1848 = 200 tiles are cut over 132 units:
    # ceil(200·64/132) = 97 k-tiles. Busiest CTA: 14·64 + 97 = 993, against 16·64 = 1024 without cutting.
    work = one(8192, 4096, 4096, Launch(decomposition=Decomposition.STREAM_K))
    assert (work["stream_tiles"], work["units"], work["critical_k_tiles"]) == (200, 1848 + 132, 993)
    assert one(8192, 4096, 4096, Launch(decomposition=Decomposition.DATA_PARALLEL))["critical_k_tiles"] == 1024
