"""Every formula against numbers worked out by hand, on the H200's description as it was when they were worked out."""

import math

import numpy as np
import pytest

from cutlass_ranker.features import HARDWARE, Hardware, describe_features, feature_names, featurize
from cutlass_ranker.generator import (
    Candidate,
    Decomposition,
    Epilogue,
    KernelConfig,
    Launch,
    Problem,
    Raster,
    Schedule,
    Scheduler,
    shared_memory_bytes,
)
from cutlass_ranker.generator import columns as col

MIB = 2**20
GPU = Hardware(
    name="hand", sm_count=132, shared_memory_per_sm=233472, registers_per_sm=65536, l2_bytes=60 * MIB,
    dram_bandwidth=4.3e12, peak_flops={"bf16": 790e12, "f16": 790e12}, clock_hz=1.755e9,
    active_clusters={1: 132, 2: 66, 4: 30, 8: 15, 16: 7}, source="test", measured=False,
)  # fmt: skip


def features(candidate, problem, hardware=GPU):
    matrix = featurize(col.from_candidates([candidate]), problem, hardware)
    return dict(zip(feature_names(), matrix[0].tolist(), strict=True))


def check(got, expected, rel=1e-5):
    """Compare; the expected value of a ``log2_x`` feature is written as x."""
    for name, value in expected.items():
        want = math.log2(value) if name.startswith("log2_") else value
        assert got[name] == pytest.approx(want, rel=rel, abs=2e-6), name


BIG = KernelConfig(128, 256, 64, 2, 1, 4, Schedule.COOPERATIVE, Epilogue.NOSMEM)
CUBE = Problem(4096, 4096, 4096)


@pytest.fixture(scope="module")
def big():
    return features(Candidate(BIG), CUBE)


def test_structural(big):
    check(big, {
        "log2_m": 4096, "log2_n": 4096, "log2_k": 4096, "log2_tile_m": 128, "log2_tile_n": 256, "log2_tile_k": 64,
        "log2_cluster_m": 2, "log2_cluster_n": 1, "stages": 4, "schedule=warpspecialized": 0, "schedule=pingpong": 0,
        "schedule=cooperative": 1, "epilogue=tma": 0, "epilogue=tma_64": 0, "scheduler=stream_k": 0,
        "scheduler=split_k": 0, "layout_a=n": 0, "layout_b=n": 1,
        "layout_d=n": 0, "void_c": 0, "swapped": 0, "log2_max_swizzle": 1, "log2_splits": 1, "raster=along_m": 0,
        "raster=along_n": 0, "decomposition=data_parallel": 0, "decomposition=split_k": 0, "decomposition=stream_k": 0,
    })  # fmt: skip


def test_an_epilogue_tile_of_64_columns_is_said_and_stores_like_any_tma_epilogue():
    auto, wide = (
        features(Candidate(KernelConfig(128, 128, 64, 1, 1, 4, Schedule.PINGPONG, epilogue)), CUBE)
        for epilogue in (Epilogue.TMA, Epilogue.TMA_64)
    )
    assert (wide["epilogue=tma"], wide["epilogue=tma_64"]) == (0, 1)
    assert wide["log2_epilogue_ratio"] == auto["log2_epilogue_ratio"]


def test_work(big):
    check(big, {
        "log2_tiles": 512,  # ceil(4096/128) · ceil(4096/256) = 32 · 16
        "log2_tiles_m": 32, "log2_tiles_n": 16, "log2_m_per_tile": 32, "log2_n_per_tile": 16,
        "log2_alignment_m": 128, "log2_alignment_n": 128, "log2_alignment_k": 128,
        "efficiency_m": 1, "efficiency_n": 1, "efficiency_k": 1, "padding_efficiency": 1,
        "wave_efficiency": 512 / 528,  # ceil(512/132) = 4 waves of 132
        "stream_k_applicability": 16 / 528,
        "active_wave_efficiency": 512 / 528,  # 66 clusters of 2: all 132 SMs
        "log2_waves": 512 / 132, "waves": 4, "busy_sms": 1,
        "log2_k_tiles": 64, "log2_k_tiles_per_unit": 64,
        "log2_critical_k_tiles": 256,  # 4 waves · 64
        "log2_effective_splits": 1, "stream_tile_fraction": 0, "useful_fraction": 512 / 528,
    })  # fmt: skip


def test_memory(big):
    # A and B are 4096² · 2 = 32 MiB each, so is D. Raster: no more tiles along N (16) than along M (32), so along N.
    # 66 clusters of 2×1 in flight on a grid of 16 × 16 clusters: floor(66/16) = 4 whole strips of 16: 4 clusters
    # (1024 rows) by 16 (4096 columns). Along N runs B (32 MiB); the strip's A panels are 32 · 4/16 = 8 MiB. A pass is
    # made for each of 16/4 = 4 strips. Usable L2: 30 MiB. B kept: (30 − 8)/32 = 0.6875, so DRAM reads B
    # 1 + 3 · 0.3125 = 1.9375 times and A once: 94 MiB in all.
    check(big, {
        "log2_min_bytes": 96 * MIB,
        "log2_intensity": 2 * 4096**3 / (96 * MIB),  # 1365.3 FLOP/byte
        "log2_tile_intensity": 2 * 128 * 256 / (2 * 384),
        "log2_cluster_intensity": 2 * 128 * 256 / (2 * (128 + 256 / 2)),  # B comes once for two CTAs
        "log2_compute_time": 137438953472 / 790e12,  # 174.0 µs
        "log2_memory_time": 96 * MIB / 4.3e12,  # 23.4 µs
        "log2_balance": 7.4315,  # 173.973 / 23.410
        "log2_restreaming": (16 * 32 + 32 * 32) / 64,  # 24
        "log2_resident_panel": 128 * 4096 * 2 / (60 * MIB),  # 1/60
        "log2_operands_per_l2": 64 / 60,
        "log2_wave_panels_per_l2": (8 + 32) / 60,
        "log2_sm_bytes": (16 * 32 + 32 * 32) * MIB,
        "log2_l2_bytes": (16 * 32 + 16 * 32) * MIB,  # 16 columns and 16 rows of clusters: 1 GiB
        "log2_multicast": 1.5,
        "log2_dram_ratio": 94 / 64,
        "l2_hit": 1 - 94 / 1024,
        "log2_passes": 4, "along_m": 0, "log2_swizzle": 1,
        "log2_wave_aspect": 1024 / 4096,
        "partial_ratio": 0, "workspace_memset": 0, "output_share": 1 / 3,
    }, rel=2e-5)  # fmt: skip


def test_resources(big):
    # 128·256 accumulators over 256 consumer threads: 128 each, of a budget of 232.
    memory = int(shared_memory_bytes(col.from_configs([BIG]), CUBE.dtype)[0])
    check(big, {
        "accumulator_registers": 128, "register_use": (128 + 24) / 232, "spilled_registers": 0,
        "register_proxy": 128 * 256 / 384, "threads": 384, "resident_ctas": 1, "log2_cluster": 2, "active_sms": 1,
        "shared_memory_use": memory / 233472, "resident_memory_use": memory / 233472,
        "log2_extra_memory": 1 + (memory - 4 * 49152) / 1024,  # a stage is (128 + 256) · 64 · 2 = 49152 bytes
    })  # fmt: skip


def test_pipeline(big):
    mma = 2 * 128 * 256 * 64 / (790e12 / 132)  # 700.8 ns; its shared-memory reads take 365 ns (below)
    fill = 49152 / (64 * 1.755e9)  # 437.6 ns
    latency = 0.3e-6 + 0.5e-6 * 94 / 1024  # 345.9 ns: 94 of the 1024 MiB read from L2 miss it
    check(big, {
        "pipeline_fill": 1, "log2_stage_amortisation": 64 / 4,
        "log2_producer_consumer": (mma / 2) / (49152 / 4.3e12),  # 350.4 ns / 11.43 ns = 30.7
        "log2_stage_bytes": 49152, "log2_k_in_flight": 256, "log2_bytes_in_flight": 4 * 49152,
        "log2_latency_cover": 4 * 49152 * 132 / (4.3e12 * 0.8e-6),  # 26 MB in flight, 3.44 MB needed
        "wgmma_efficiency": 1, "log2_mma_time": mma, "log2_fill_ratio": fill / mma,
        "log2_latency_ratio": latency / (4 * mma),
        "log2_unit_time": 64 * mma,  # 44.85 µs
        "log2_epilogue_ratio": (128 * 256 * 2 / 1.755e9 / 16) / (64 * mma),  # 2.334 µs / 44.85 µs
    })  # fmt: skip


def test_time(big):
    # 256 steps of 700.8 ns and 4 epilogues of 2.334 µs: 188.75 µs. DRAM: 94 + 32 MiB at 4.3 TB/s: 30.7 µs. L2: 1 GiB
    # at 132 · 56 · 1.755e9 = 12.973 TB/s: 82.8 µs. Total: 188.75 + 0.346 (first load) + 2.5 (launch) = 191.6 µs.
    sm = 256 * 2 * 128 * 256 * 64 / (790e12 / 132) + 4 * 128 * 256 * 2 / 1.755e9 / 16
    total = sm + 0.3e-6 + 0.5e-6 * 94 / 1024 + 2.5e-6
    assert total == pytest.approx(191.6e-6, rel=1e-3)
    check(big, {
        "log2_sm_time": sm, "log2_dram_time": 126 * MIB / 4.3e12, "log2_l2_time": 1024 * MIB / (132 * 56 * 1.755e9),
        "log2_time": total, "log2_over_roofline": total / (137438953472 / 790e12),
    })  # fmt: skip


SMALL = KernelConfig(64, 16, 256, 1, 1, 2, Schedule.WARPSPECIALIZED, Epilogue.TMA, family="TNN")


@pytest.fixture(scope="module")
def small():
    """16×8192×8192 swapped: the kernel sees 8192×16×8192."""
    return features(Candidate(SMALL, swapped=True), Problem(16, 8192, 8192))


def test_swapped_plain_kernel(small):
    # 128 tiles of 32 k-tiles. A stage is (64 + 16) · 256 · 2 = 40960 bytes, two are 80 KiB, so with the system's 1 KiB
    # two CTAs fit in 228 KiB, not three. 64·16/128 = 8 accumulators + 32 = 40 registers: 6 CTAs by registers, 8 by
    # threads.
    check(small, {
        "log2_m": 8192, "log2_n": 16, "swapped": 1, "layout_d=n": 1, "log2_tiles": 128, "log2_n_per_tile": 1,
        "log2_alignment_m": 128, "log2_alignment_n": 16, "resident_ctas": 2, "accumulator_registers": 8,
        "register_use": 32 / 255, "threads": 256, "register_proxy": 4,
        "wave_efficiency": 128 / 264,  # the paper's counts both slots of each SM
        "active_wave_efficiency": 128 / 132, "log2_waves": 128 / 264, "waves": 1, "log2_critical_k_tiles": 32,
        "busy_sms": 128 / 132, "useful_fraction": 128 / 132, "along_m": 1, "log2_passes": 1,
        "l2_hit": 1 - 128.25 / 160,
    })  # fmt: skip


def test_memory_of_the_swapped_plain_kernel(small):
    # The kernel's A is the 128 MiB weight matrix, its B 8192 · 16 · 2 = 0.25 MiB. L2 reads: A once (one column of
    # tiles), B for each of 128 rows, 32 MiB: 160 MiB. DRAM: A once. B: one wave covers all of D; one pass.
    check(small, {
        "log2_l2_bytes": 160 * MIB, "log2_sm_bytes": 160 * MIB, "log2_multicast": 1,
        "log2_min_bytes": 128.5 * MIB, "log2_restreaming": (1 * 128 + 128 * 0.25) / 128.25,
    })  # fmt: skip


def test_pace_of_the_swapped_plain_kernel(small):
    # MMAs of a k-tile: 2·64·16·256 = 524288 FLOP at 5.985 TFLOP/s an SM: 87.6 ns. Their shared-memory reads:
    # 64 · (1 + 16/64) · 256 · 2 = 40960 bytes at 128 · 1.755e9 B/s: 182.3 ns. Efficiency 0.4805. Fill: 40960 bytes at
    # half that rate: 364.7 ns. One CTA an SM (128 on 132). Latency 0.3 + 0.5 · (128.25/160) = 0.7008 µs over 2 stages:
    # 350.4 ns, so the fill decides.
    reads, fill = 40960 / (128 * 1.755e9), 40960 / (64 * 1.755e9)
    check(small, {
        "wgmma_efficiency": 524288 / (790e12 / 132) / reads, "log2_mma_time": reads, "log2_fill_ratio": 2,
        "log2_unit_time": 32 * fill,
    })  # fmt: skip


def test_plain_ctas_share_an_sm():
    # The same kernel on 19200×16×8192: 300 tiles on 132 SMs of two slots each. Two waves (264 and 36), but the busiest
    # SM runs 3 tiles of 32 k-tiles, not 4. Latency: L2 reads A (300 MiB) once and B (0.25 MiB) 300 times, 375 MiB. The
    # second wave finds 30 MiB usable L2 / 264.25 MiB (what the first touched) = 0.1135 of B still there, so DRAM reads
    # 300 + 0.25 · (2 − 0.1135) = 300.47 MiB. The 4 stages of two CTAs hide 0.7006/4 = 175 ns, less than the 364.7 ns
    # it takes to receive a k-tile.
    got = features(Candidate(SMALL, swapped=True), Problem(16, 19200, 8192))
    fill, latency = 40960 / (64 * 1.755e9), 0.3e-6 + 0.5e-6 * (300 + 0.25 * (2 - 30 / 264.25)) / 375
    epilogue = 64 * 16 * 2 / (32 * 1.755e9)
    check(got, {
        "waves": 2, "log2_waves": 300 / 264, "log2_critical_k_tiles": 96, "active_wave_efficiency": 300 / 396,
        "log2_unit_time": 2 * 32 * fill, "log2_latency_ratio": latency / (2 * 40960 / (128 * 1.755e9)),
        "log2_sm_time": 96 * fill + (latency + epilogue) / 2 + epilogue,
    })  # fmt: skip


def test_split_k_traffic():
    # 256×256×16384 on four 128×128 tiles, 4 splits: 12 partial tiles of 64 KiB written and read back = 1.5 MiB; minimum
    # bytes 8 + 8 MiB + 128 KiB. Barriers: memset. Time gains 4 latencies, two epilogues and the memset.
    kernel = KernelConfig(128, 128, 64, 1, 1, 4, Schedule.COOPERATIVE, Epilogue.TMA, Scheduler.STREAM_K)
    problem = Problem(256, 256, 16384)
    split = features(Candidate(kernel, Launch(decomposition=Decomposition.SPLIT_K, splits=4)), problem)
    check(split, {
        "partial_ratio": 1.5 / 16.125, "workspace_memset": 1, "log2_effective_splits": 4, "log2_splits": 4,
        "decomposition=split_k": 1, "log2_waves": 16 / 132, "waves": 1, "busy_sms": 16 / 132,
        "log2_k_tiles_per_unit": 64, "log2_critical_k_tiles": 64, "useful_fraction": 16 / 132,
    })  # fmt: skip
    whole = features(Candidate(kernel, Launch(decomposition=Decomposition.DATA_PARALLEL)), problem)
    assert (whole["workspace_memset"], whole["partial_ratio"]) == (0, 0)
    # 256 instead of 64 steps of 350.4 ns (2·128·128·64 FLOP) on the busiest SM: 67.3 µs apart.
    step = 2 * 128 * 128 * 64 / (790e12 / 132)
    assert 2 ** whole["log2_sm_time"] - 2 ** split["log2_sm_time"] == pytest.approx(192 * step, rel=1e-3)


def test_atomic_split_k_takes_three_turns():
    # 256×256×16384 on 128×128×64: 16 slices of each of 4 tiles wait 16 latencies in turn, 3 in any order; 14 of a
    # tile's 15 partial sums of 64 KiB are added: 3.5 MiB at 16 B/clock and SM. Everything else is the same.
    kernel = KernelConfig(128, 128, 64, 1, 1, 4, Schedule.COOPERATIVE, Epilogue.TMA, Scheduler.STREAM_K)
    problem = Problem(256, 256, 16384)
    kinds = Decomposition.SPLIT_K, Decomposition.SPLIT_K_ATOMIC
    turns, atomic = (features(Candidate(kernel, Launch(decomposition=kind, splits=16)), problem) for kind in kinds)
    differing = {name for name in turns if turns[name] != atomic[name]}
    assert differing == {"log2_time", "log2_over_roofline", "atomic_reduction", "fixup_steps", "log2_fixup_bytes"}
    assert (turns["atomic_reduction"], atomic["atomic_reduction"]) == (0, 1)
    assert atomic["decomposition=split_k"] == 1
    # Two tiles read each operand panel: the first from DRAM, the second from L2.
    latency = 0.3e-6 + 0.5e-6 * 0.5
    saved = 13 * latency - 3.5 * MIB / (16 * 1.755e9 * 132)
    assert 2 ** turns["log2_time"] - 2 ** atomic["log2_time"] == pytest.approx(saved, rel=1e-3)
    two = [features(Candidate(kernel, Launch(decomposition=kind, splits=2)), problem) for kind in kinds]
    assert two[0] == two[1] | {"atomic_reduction": 0}


def test_parallel_split_k_takes_two_or_three_steps():
    # 256×256×16384 on 128×128×64: 16 slices of each of 4 tiles of 64 KiB. In turn 16 round trips of a tile each. Apart
    # in groups of four, so 3 round trips that move 8 tiles (two stores, 3 + 3 loads); 5 tiles more than one a round
    # trip, at 56 B/clock of one SM.
    kernel = KernelConfig(128, 128, 64, 1, 1, 4, Schedule.COOPERATIVE, Epilogue.TMA, Scheduler.STREAM_K)
    problem = Problem(256, 256, 16384)
    kinds = Decomposition.SPLIT_K, Decomposition.SPLIT_K_PARALLEL
    turns, apart = (features(Candidate(kernel, Launch(decomposition=kind, splits=16)), problem) for kind in kinds)
    differing = {name for name in turns if turns[name] != apart[name]}
    timed = {"log2_time", "log2_over_roofline"}
    assert differing == {*timed, "parallel_reduction", "workspace_memset", "fixup_steps", "log2_fixup_bytes"}
    check(turns, {"parallel_reduction": 0, "workspace_memset": 1, "fixup_steps": 16, "log2_fixup_bytes": 17 * 65536})
    check(apart, {"parallel_reduction": 1, "workspace_memset": 0, "fixup_steps": 3, "log2_fixup_bytes": 9 * 65536})
    assert (apart["atomic_reduction"], apart["decomposition=split_k"]) == (0, 1)
    latency = 0.3e-6 + 0.5e-6 * 0.5
    memset = 2e-6  # parallel split-K leaves its flags zero
    saved = 13 * latency - 5 * 65536 / (56 * 1.755e9) + memset
    assert 2 ** turns["log2_time"] - 2 ** apart["log2_time"] == pytest.approx(saved, rel=1e-3)
    # Two slices: one stores, one loads, whichever way.
    turns, apart = (features(Candidate(kernel, Launch(decomposition=kind, splits=2)), problem) for kind in kinds)
    assert {name for name in turns if turns[name] != apart[name]} == {*timed, "parallel_reduction", "workspace_memset"}
    assert 2 ** turns["log2_time"] - 2 ** apart["log2_time"] == pytest.approx(memset, rel=1e-3)
    whole = features(Candidate(kernel, Launch(decomposition=Decomposition.DATA_PARALLEL)), problem)
    check(whole, {"fixup_steps": 0, "log2_fixup_bytes": 65536})


def test_split_k_over_slices_of_k_needs_no_stream_k():
    # 64×3200×1024 on 64×32×128: 100 tiles of 8 k-tiles, 4 slices of 2 each: 400 CTAs. Two stages of 24 KiB leave room
    # for four of them on an SM (228 KiB), so they run in one wave, four on the busiest SM.
    kernel = KernelConfig(
        64, 32, 128, 1, 1, 2, Schedule.WARPSPECIALIZED, Epilogue.NOSMEM, Scheduler.SPLIT_K, void_c=True
    )
    launch = Launch(decomposition=Decomposition.SPLIT_K_SEPARATE, splits=4)
    got = features(Candidate(kernel, launch), Problem(64, 3200, 1024))
    check(got, {
        "scheduler=stream_k": 0, "scheduler=split_k": 1, "decomposition=split_k": 1, "separate_reduction": 1,
        "log2_effective_splits": 4, "log2_k_tiles_per_unit": 2, "waves": 1, "log2_waves": 400 / 528,
        "log2_critical_k_tiles": 4 * 2, "busy_sms": 1, "workspace_memset": 0, "fixup_steps": 2,
        # All 400 slices of 8 KiB are stored and read back; A, B and D are 2·(64 + 3200)·1024 + 2·64·3200 bytes.
        "partial_ratio": 2 * 400 * 8192 / (2 * 3264 * 1024 + 2 * 64 * 3200),
        "log2_fixup_bytes": (2 + 400 / 132) * 8192,
    })  # fmt: skip


def test_split_k_with_a_second_kernel_shares_the_adding():
    # 256×256×16384 on 128×128×64: all 16 slices of each of 4 tiles store 64 KiB, 4 MiB, where only 15 of 16 do with one
    # kernel; minimum bytes 16.125 MiB. A round trip to store, one to load: 64 tiles spread over 132 SMs, less than the
    # one tile that a round trip may move. With one kernel 3 round trips, and 5 tiles more than one each.
    kernel = KernelConfig(128, 128, 64, 1, 1, 4, Schedule.COOPERATIVE, Epilogue.TMA, Scheduler.STREAM_K)
    problem = Problem(256, 256, 16384)
    kinds = Decomposition.SPLIT_K_PARALLEL, Decomposition.SPLIT_K_SEPARATE
    one, two = (features(Candidate(kernel, Launch(decomposition=kind, splits=16)), problem) for kind in kinds)
    rate = 132 * 56 * 1.755e9
    check(one, {"separate_reduction": 0, "parallel_reduction": 1, "partial_ratio": 2 * 3.75 / 16.125})
    check(two, {
        "separate_reduction": 1, "parallel_reduction": 1, "atomic_reduction": 0, "decomposition=split_k": 1,
        "workspace_memset": 0, "partial_ratio": 2 * 4 / 16.125, "fixup_steps": 2,
        "log2_fixup_bytes": (2 + 64 / 132) * 65536,
        "log2_l2_time": (4 * 8 + 2 * 4) * MIB / rate,  # each tile's operands are 4 + 4 MiB
    })  # fmt: skip
    timed = {"log2_time", "log2_over_roofline"}
    differing = {"separate_reduction", "partial_ratio", "fixup_steps", "log2_fixup_bytes", "log2_l2_time"}
    assert {name for name in one if one[name] != two[name]} == timed | differing
    latency = 0.3e-6 + 0.5e-6 * 0.5
    saved = latency + 5 * 65536 / (56 * 1.755e9) - 1.5e-6  # the second launch
    assert 2 ** one["log2_time"] - 2 ** two["log2_time"] == pytest.approx(saved, rel=1e-3)
    # 2×2 tiles of a single k-tile cannot be split: no second kernel, and nothing to wait for.
    short = [
        features(Candidate(kernel, Launch(decomposition=kind, splits=16)), Problem(256, 256, 64)) for kind in kinds
    ]
    assert short[0] == short[1]
    check(short[1], {"separate_reduction": 0, "log2_effective_splits": 1, "fixup_steps": 0})


@pytest.mark.parametrize(
    ("schedule", "tile", "accumulators", "budget", "spilled"),
    [
        (Schedule.COOPERATIVE, (256, 192), 192, 232, 0),
        (Schedule.COOPERATIVE, (256, 256), 256, 240, 40),  # 256 + 24 − 240
        (Schedule.PINGPONG, (64, 256), 128, 232, 0),
        (Schedule.PINGPONG, (128, 208), 208, 240, 0),  # CUTLASS's threshold for the larger budget; 232 fit exactly
        (Schedule.PINGPONG, (128, 256), 256, 240, 40),
        (Schedule.WARPSPECIALIZED, (128, 256), 256, 255, 25),
        (Schedule.WARPSPECIALIZED, (64, 256), 128, 255, 0),
    ],
)
def test_registers(schedule, tile, accumulators, budget, spilled):
    got = features(Candidate(KernelConfig(*tile, 64, 1, 1, 2, schedule, Epilogue.NOSMEM)), CUBE)
    check(got, {
        "accumulator_registers": accumulators, "register_use": (accumulators + 24) / budget,
        "spilled_registers": spilled,
    })  # fmt: skip


@pytest.mark.parametrize(
    ("cluster", "active"),
    # 30 clusters of 4, 15 of 8 and 7 of 16 are active at a time; persistent grids are told so.
    [((1, 1), 132), ((2, 1), 132), ((2, 2), 120), ((1, 8), 120), ((4, 4), 112)],
)
def test_active_sms(cluster, active):
    for schedule in (Schedule.PINGPONG, Schedule.WARPSPECIALIZED):
        got = features(Candidate(KernelConfig(64, 64, 64, *cluster, 2, schedule, Epilogue.NOSMEM)), CUBE)
        check(got, {"active_sms": active / 132, "log2_cluster": cluster[0] * cluster[1]})


def test_padding():
    # 640×640 on 128×128 tiles is 5×5. A 2×1 cluster makes it 6×5; max_swizzle_size 4 holds (5 ≥ 3), and rounds 6 up to
    # whole groups of 4·2 = 8 and 5 up to 8: 64 tiles run for 25.
    kernel = KernelConfig(128, 128, 64, 2, 1, 4, Schedule.PINGPONG, Epilogue.TMA)
    check(features(Candidate(kernel, Launch(Raster.ALONG_M, 4)), Problem(640, 640, 640)), {
        "log2_tiles": 25, "padding_efficiency": 25 / 64, "log2_swizzle": 4, "along_m": 1, "raster=along_m": 1,
        "log2_max_swizzle": 4,
    })  # fmt: skip
    check(features(Candidate(kernel), Problem(640, 640, 640)), {"padding_efficiency": 25 / 30, "log2_swizzle": 1})


def test_ragged_problem():
    # 1000×3000×520 on 128×128×64: 8 × 24 tiles, 9 k-tiles. 1000 = 8·125, 3000 = 8·375, 520 = 8·65.
    kernel = KernelConfig(128, 128, 64, 1, 1, 4, Schedule.PINGPONG, Epilogue.TMA)
    check(features(Candidate(kernel), Problem(1000, 3000, 520)), {
        "efficiency_m": 1000 / 1024, "efficiency_n": 3000 / 3072, "efficiency_k": 520 / 576, "log2_alignment_m": 8,
        "log2_alignment_n": 8, "log2_alignment_k": 8, "log2_m_per_tile": 7.8125, "log2_n_per_tile": 23.4375,
        "log2_k_tiles": 9, "pipeline_fill": 1, "log2_stage_amortisation": 9 / 4,
    })  # fmt: skip


def test_short_k_leaves_stages_empty():
    kernel = KernelConfig(64, 64, 64, 1, 1, 8, Schedule.PINGPONG, Epilogue.TMA)
    check(features(Candidate(kernel), Problem(4096, 4096, 128)), {"pipeline_fill": 2 / 8})


def test_swizzle_saves_dram_reads():
    # 16384³: each operand is 512 MiB, far beyond L2. 128 × 128 tiles, 132 in flight, raster along M, 128 tiles long:
    # one strip of 1 column reaches 128 rows: A is read for each of 128 columns. With swizzle 8 a strip has 8 columns
    # and reaches 16.5 rows; 16 passes.
    kernel = KernelConfig(128, 128, 64, 1, 1, 4, Schedule.COOPERATIVE, Epilogue.TMA)
    problem = Problem(16384, 16384, 16384)
    flat = features(Candidate(kernel, Launch(Raster.ALONG_M, 1)), problem)
    square = features(Candidate(kernel, Launch(Raster.ALONG_M, 8)), problem)
    check(flat, {"log2_passes": 128, "log2_wave_aspect": 128})
    check(square, {"log2_passes": 16, "log2_wave_aspect": 16.5 / 8})
    assert square["log2_dram_ratio"] < flat["log2_dram_ratio"] - 2
    assert square["l2_hit"] > flat["l2_hit"]


def test_pingpong_hides_epilogues():
    # Same tile and steps: cooperative pays 4 epilogues on the busiest SM, pingpong 1, its last
    # (mainloops are longer than epilogues).
    kernels = [KernelConfig(128, 128, 64, 1, 1, 4, s, Epilogue.TMA) for s in (Schedule.COOPERATIVE, Schedule.PINGPONG)]
    problem = Problem(128 * 132, 128 * 4, 4096)
    cooperative, pingpong = (2 ** features(Candidate(k), problem)["log2_sm_time"] for k in kernels)
    assert cooperative - pingpong == pytest.approx(3 * 128 * 128 * 2 / 1.755e9 / 32, rel=1e-3)


@pytest.mark.parametrize(
    ("family", "tile", "a_bytes", "b_bytes"),
    [
        # Row-major A and column-major B are contiguous along K: 64 elements are 128 bytes, 32 are 64.
        ("TNT", (128, 80, 64), 128, 128),
        ("TNT", (128, 80, 32), 64, 64),
        # Column-major A along M, which always has 64 elements; row-major B along N: 192 = 3 · 64 elements take swizzles
        # of 128 bytes, 96 = 3 · 32 of 64, and 112 = 7 · 16 of 32.
        ("NNT", (64, 112, 32), 128, 64),
        ("NTT", (128, 192, 64), 128, 128),
        ("NTT", (128, 96, 64), 128, 64),
        ("TTN", (128, 112, 128), 128, 32),
    ],
)
def test_swizzle_is_as_wide_as_divides_the_contiguous_side(family, tile, a_bytes, b_bytes):
    kernel = KernelConfig(*tile, 1, 1, 4, Schedule.COOPERATIVE, Epilogue.TMA, family=family)
    got = features(Candidate(kernel), Problem(4096, 4096, 4096, family))
    check(got, {"log2_a_swizzle_bytes": a_bytes, "log2_b_swizzle_bytes": b_bytes})


def test_every_feature_has_a_hand_worked_value(big):
    """The table tests above name every feature of the matrix."""
    source = "".join(open(__file__, encoding="utf-8"))  # noqa: SIM115, PTH123
    assert [f.name for f in describe_features() if f'"{f.name}"' not in source] == []
    assert set(big) == set(feature_names())


def test_shipped_description_gives_finite_features():
    matrix = featurize(col.from_configs([BIG]), CUBE, HARDWARE["h20"])
    assert np.isfinite(matrix).all()
