from __future__ import annotations

from itertools import combinations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cutlass_ranker.datasets import choice
from cutlass_ranker.datasets.grouping import Group
from cutlass_ranker.generator import (
    DTYPES,
    FAMILIES,
    DataError,
    Epilogue,
    KernelConfig,
    Problem,
    Schedule,
    Scheduler,
    enumerate_configs,
    valid_mask,
)
from cutlass_ranker.generator import columns as col

BF16 = DTYPES["bf16"]
KNOBS = ("tile_m", "tile_n", "tile_k", "stages", "schedule", "epilogue", "scheduler")


def make_group(times: dict[int, float], families: dict[int, str] | None = None, swizzles: int = 1) -> Group:
    """A problem with one row for each kernel; kernels differ in their stages, which are their id plus 2."""
    ids = list(times) * swizzles
    family = dict.fromkeys(ids, "TNT") | (families or {})
    configs = (
        KernelConfig(64, 64, 64, 1, 1, 2 + kernel, Schedule.PINGPONG, Epilogue.TMA, family=family[kernel])
        for kernel in ids
    )
    columns = col.with_launch(col.from_configs(configs))
    time = np.concatenate([np.array(list(times.values())) * 2**i for i in range(swizzles)])
    return Group(
        0, Problem(64, 64, 64), "train", ("x",), columns, np.array(ids, dtype=np.int32), time, np.zeros(len(ids)),
        np.zeros(len(ids), dtype=bool), np.ones(len(ids), dtype=bool),
    )  # fmt: skip


class TestCover:
    def test_by_hand(self):
        # Kernel 0 is good everywhere, 1 and 2 are best on one problem each. 0 comes first: 0.8 + 0.8 against 1 + 0.5;
        # then the one that repairs most: 1 gains 0.2, 2 gains 0.2: a tie, the lower id; then 2.
        groups = [make_group({0: 1.25, 1: 1.0, 2: 2.0}), make_group({0: 1.25, 1: 2.0, 2: 1.0})]
        assert choice.cover(groups, {"TNT": 3}) == [0, 1, 2]
        assert choice.cover(groups, {"TNT": 2}) == [0, 1]

    def test_a_second_cover_begins_when_nothing_is_to_be_gained(self):
        # 0 is best on both. Of the rest, 2 alone leaves 0.9 + 0.5, 1 leaves 0.8 + 0.8 and comes first.
        groups = [make_group({0: 1.0, 1: 1.25, 2: 1 / 0.9}), make_group({0: 1.0, 1: 1.25, 2: 2.0})]
        assert choice.cover(groups, {"TNT": 3}) == [0, 1, 2]

    def test_the_best_row_of_a_kernel_counts_and_unmeasured_is_nothing(self):
        speeds = choice.relative_speeds([make_group({0: 4.0, 1: 2.0}, swizzles=2), make_group({1: 3.0})])
        assert speeds.to_numpy().tolist() == [[0.5, 1.0], [0.0, 1.0]]
        assert list(speeds.columns) == [0, 1]

    def test_families_have_their_own_counts(self):
        families = {0: "TNT", 1: "TNN", 2: "TNT", 3: "TNN"}
        groups = [make_group({0: 1.0, 1: 1.1, 2: 1.2, 3: 1.3}, families)]
        assert choice.cover(groups, {"TNT": 1, "TNN": 1}) == [0, 1]
        assert choice.cover(groups, {"TNN": 2}) == [1, 3]
        with pytest.raises(DataError, match="3 kernels of TNN are wanted, 2 are measured"):
            choice.cover(groups, {"TNN": 3})

    @settings(max_examples=30, deadline=None)
    @given(st.lists(st.lists(st.integers(1, 9), min_size=5, max_size=5), min_size=2, max_size=4), st.integers(1, 3))
    def test_against_brute_force(self, times, count):
        groups = [make_group(dict(enumerate(map(float, row)))) for row in times]
        speeds = np.array([[min(row) / t for t in row] for row in times])
        best = max(speeds[:, list(chosen)].max(axis=1).mean() for chosen in combinations(range(5), count))
        chosen = choice.cover(groups, {"TNT": count})
        assert len(set(chosen)) == count
        reached = speeds[:, chosen].max(axis=1).mean()
        # Nemhauser, Wolsey and Fisher (1978): greedy reaches 1 - 1/e of the best; a single choice is the best.
        assert reached >= (1 - 1 / np.e) * best - 1e-12
        if count == 1:
            assert reached == pytest.approx(best)


def rows(columns):
    return set(map(tuple, np.stack([columns[name] for name in col.CONFIG_COLUMNS], axis=1).tolist()))


class TestNeighbours:
    def test_against_the_whole_extended_space(self):
        config = KernelConfig(128, 96, 64, 2, 1, 3, Schedule.COOPERATIVE, Epilogue.TMA)
        space = enumerate_configs("TNT", space="extended")
        space = col.take(space, (space["family"] == 0) & (space["void_c"] == 0))
        differs = {name: space[name] != getattr(config, name) for name in KNOBS}
        differs["cluster"] = (space["cluster_m"] != 2) | (space["cluster_n"] != 1)
        once = sum(mask.astype(int) for mask in differs.values()) == 1
        steps = (
            np.isin(space["tile_m"], (64, 128, 192)) & np.isin(space["tile_n"], (80, 96, 112))
            & np.isin(space["tile_k"], (32, 64, 128)) & np.isin(space["stages"], (2, 3, 4))
        )  # fmt: skip
        clusters = np.isin(space["cluster_m"] * 100 + space["cluster_n"], (201, 101, 401, 202, 102))
        expected = rows(col.take(space, once & steps & clusters))
        assert rows(choice.neighbours(col.from_configs([config]))) == expected
        # By hand: tile_m 64 and 192 are no cooperative tiles; tile_n 2, tile_k 2, cluster 4 (half, double, twice the
        # other side, exchanged), stages 2, schedule 2, epilogue 1, scheduler 1.
        assert len(expected) == 14

    def test_stages_give_way_to_a_larger_tile(self):
        # 128x128x64 in 7 stages takes 229,376 of 230,400 B; 128x144x64 takes 34,816 B a stage: 6.
        config = KernelConfig(128, 128, 64, 1, 1, 7, Schedule.PINGPONG, Epilogue.NOSMEM)
        found = choice.neighbours(col.from_configs([config]))
        assert found["stages"][found["tile_n"] == 144].tolist() == [6]
        assert found["stages"][found["tile_n"] == 112].tolist() == [7]
        assert valid_mask(found, BF16).all()

    def test_given_kernels_are_left_out(self):
        pair = [KernelConfig(64, 64, 64, 1, 1, s, Schedule.PINGPONG, Epilogue.NOSMEM) for s in (4, 5)]
        found = choice.neighbours(col.from_configs(pair))
        assert rows(found).isdisjoint(rows(col.from_configs(pair)))
        assert set(found["stages"][(found["tile_m"] == 64) & (found["tile_n"] == 64)]) >= {3, 6}


def test_deepest_by_hand():
    one = KernelConfig(128, 128, 64, 1, 1, 4, Schedule.COOPERATIVE, Epilogue.NOSMEM)
    big = KernelConfig(256, 256, 256, 1, 1, 4, Schedule.COOPERATIVE, Epilogue.NOSMEM)
    # 128x128x64: 32 KiB a stage, 232448 - 2048 = 230400 B: 7 stages. 256x256x256: 256 KiB a stage: none.
    assert choice.deepest(col.from_configs([one, big])).tolist() == [7, 0]


def test_uniform_sample_is_even():
    space = enumerate_configs("TTT")
    exclude = col.take(space, slice(0, 20_000))
    drawn = choice.uniform_sample("TTT", 8_000, seed=1, exclude=exclude)
    assert len(rows(drawn)) == 8_000
    assert rows(drawn) <= rows(space) - rows(exclude)
    rest = col.take(space, slice(20_000, None))
    # Each share of the draw is that of the 40,740 kernels it is drawn from, within four standard errors.
    for name in ("schedule", "stages", "tile_n", "cluster_m"):
        for value in np.unique(rest[name]):
            share = (rest[name] == value).mean()
            assert abs((drawn[name] == value).mean() - share) <= 4 * np.sqrt(share / 8_000) + 1e-9
    assert rows(choice.uniform_sample("TTT", 5, seed=1)) != rows(choice.uniform_sample("TTT", 5, seed=2))


def test_transfer_leaves_out_what_the_layout_forbids():
    # tile_k 512 is two TMA boxes: a column-major A needs cluster_n 2, a row-major B cluster_m 2.
    clusters = [(1, 1), (1, 2), (2, 1), (2, 2)]
    configs = col.from_configs(
        KernelConfig(64, 16, 512, m, n, 2, Schedule.WARPSPECIALIZED, Epilogue.NOSMEM) for m, n in clusters
    )
    kept = {}
    for family in ("TNN", "NNT", "TTT", "NTT"):
        moved = choice.transfer(configs, family)
        pairs = zip(moved["cluster_m"].tolist(), moved["cluster_n"].tolist(), strict=True)
        kept[family] = [clusters.index(pair) for pair in pairs]
    assert kept == {"TNN": [0, 1, 2, 3], "NNT": [1, 3], "TTT": [2, 3], "NTT": [3]}
    assert set(choice.transfer(configs, "NTT")["family"]) == {FAMILIES.index("NTT")}


def test_family_catalogue():
    families = {kernel: "TNT" if kernel < 6 else "TNN" for kernel in range(11)}
    rng = np.random.default_rng(0)
    groups = [make_group(dict(enumerate(rng.uniform(1, 2, 11))), families) for _ in range(6)]
    made = choice.family_catalogue(groups, per_family=6)
    table = pd.DataFrame(made)
    assert not table.duplicated().any()
    assert valid_mask(made, BF16).all()
    sizes = table["family"].map(dict(enumerate(FAMILIES))).value_counts().to_dict()
    assert sizes == dict.fromkeys(("TTT", "NNT", "NTT", "NNN", "TTN", "NTN"), 6)
    # A quarter of 6 is 1.5: 2 are drawn, 4 come from the cover; the measured ones are 64x64x64 pingpong.
    cover = choice.cover(groups, {"TNT": 4, "TNN": 4})
    for family, source in (("TTT", "TNT"), ("NNN", "TNN")):
        mine = table[table["family"] == FAMILIES.index(family)]
        assert mine["stages"].tolist()[:4] == [2 + kernel for kernel in cover if families[kernel] == source]
        moved = mine.iloc[4:].assign(family=0)
        drawn = {name: moved[name].to_numpy(dtype=np.int32) for name in col.CONFIG_COLUMNS}
        assert set(drawn["scheduler"]) <= set(Scheduler)
        assert rows(drawn) <= rows(enumerate_configs("TNT"))
