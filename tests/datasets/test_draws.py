from __future__ import annotations

import pandas as pd
import pytest

from cutlass_ranker.datasets import problems
from cutlass_ranker.datasets.draws import ORDINARY_FLOPS, SHARES, training_problems
from cutlass_ranker.generator import swap_family

COUNTS = {"TNT": 100, "TTT": 50, "NNT": 50, "NTT": 50}
KEY = ["M", "N", "K", "layout"]


@pytest.fixture(scope="module")
def in_use():
    # An evaluation problem in the midst of what would be drawn, and a training problem that may be shared.
    rows = [(96, 6144, 4096, "TNT", "llm", "eval"), (4096, 3000, 512, "TNN", "random", "eval")]
    rows += [(8 * i, 4104, 1000, "TNT", "random", "train") for i in range(1, 40)]
    return pd.DataFrame(rows, columns=list(problems.LIST_COLUMNS))


@pytest.fixture(scope="module")
def drawn(in_use):
    return training_problems(5, COUNTS, shared=20, column_major=9, avoid=in_use)


def shapes(frame):
    return [tuple(map(int, row)) for row in frame[["M", "N", "K"]].to_numpy()]


def own(drawn):
    """Rows that are neither shared with TNT nor column-major."""
    row_major = drawn[drawn["layout"].isin(problems.ROW_MAJOR)]
    return row_major[~row_major.duplicated(["M", "N", "K"], keep=False)]


def test_counts(drawn, in_use):
    by_layout = drawn["layout"].value_counts()
    assert {name: by_layout[name] for name in COUNTS} == {"TNT": 100, "TTT": 70, "NNT": 70, "NTT": 70}
    # 9 over four layouts, first come first served: TNT 3, the others 2; as TNN, NNN, TTN, NTN.
    assert {name: by_layout[name] for name in ("TNN", "NNN", "TTN", "NTN")} == {"TNN": 3, "NNN": 2, "TTN": 2, "NTN": 2}
    assert set(drawn["split"]) == {"train"}
    assert not pd.concat([drawn, in_use]).duplicated(KEY).any()


def test_nothing_leaks_and_all_can_run(drawn, in_use):
    assert problems.leaks(pd.concat([drawn, in_use], ignore_index=True)) == {}
    assert all(problems.supported(s, layout) for s, layout in zip(shapes(drawn), drawn["layout"], strict=True))


def test_shared_shapes_are_the_same_in_three_layouts_and_known_as_tnt(drawn, in_use):
    other = drawn[drawn["layout"].isin(["TTT", "NNT", "NTT"])]
    uses = pd.Series(shapes(other)).value_counts()
    shared = set(uses[uses > 1].index)
    assert set(uses) == {1, 3}
    assert len(shared) == 20
    tnt = pd.concat([drawn, in_use])
    assert shared <= set(shapes(tnt[(tnt["layout"] == "TNT") & (tnt["split"] == "train")]))


def test_column_major_problems_are_others_the_other_way_round(drawn, in_use):
    everything = pd.concat([drawn, in_use])
    known = set(zip(shapes(everything), everything["layout"], strict=True))
    turned = drawn[~drawn["layout"].isin(problems.ROW_MAJOR)]
    for (m, n, k), layout in zip(shapes(turned), turned["layout"], strict=True):
        assert ((n, m, k), swap_family(layout)) in known


def test_own_shapes_cover_the_regimes(drawn):
    mine = own(drawn)
    assert (mine["M"] <= 64).mean() >= 1 / 3
    # Of the random ones M counts too where A is column-major; of the others, N and K.
    assert ((mine[["N", "K"]] % 32 != 0).any(axis=1)).mean() >= 0.2
    ragged = (mine["N"] % 32 != 0) | (mine["K"] % 32 != 0) | (mine["layout"].str[0].eq("N") & (mine["M"] % 32 != 0))
    assert ragged.mean() >= 1 / 4
    flops = 2.0 * mine["M"] * mine["N"] * mine["K"]
    large = mine["sources"] == "random_large"
    assert (flops[~large] <= ORDINARY_FLOPS).all()
    assert ((flops[large] > ORDINARY_FLOPS) & (flops[large] <= 8e11)).all()
    assert large.mean() == pytest.approx(SHARES["random_large"], abs=0.02)
    assert (mine["sources"] == "llm").mean() == pytest.approx(0.34, abs=0.04)


def test_the_same_arguments_give_the_same_list(drawn, in_use):
    assert training_problems(5, COUNTS, shared=20, column_major=9, avoid=in_use).equals(drawn)
    assert not training_problems(6, COUNTS, shared=20, column_major=9, avoid=in_use).equals(drawn)


def test_the_default_list_stands_alone():
    table = training_problems()
    assert problems.leaks(pd.concat([table, problems.evaluation_problems()], ignore_index=True)) == {}
    assert len(table) == 250 + 3 * (90 + 60) + 25
    assert len(set(shapes(table))) >= 520
