from __future__ import annotations

import pandas as pd
import pytest

from cutlass_ranker.datasets import nvmmh
from cutlass_ranker.generator import FAMILIES, Decomposition, MissingDependency, Problem, Schedule, Scheduler


def pick(**changes):
    row = {
        "tile_m": 256, "tile_n": 128, "tile_k": 64, "cluster_m": 1, "cluster_n": 2, "stages": 4, "splits": 1,
        "swizzle": 2, "raster": 1,
    }  # fmt: skip
    return row | changes


def problems(*shapes, layout="TNT"):
    return pd.DataFrame([(*shape, layout) for shape in shapes], columns=["M", "N", "K", "layout"])


def test_an_unsplit_pick_has_eight_variants_and_a_split_one_two():
    picks = pd.DataFrame([pick(), pick(tile_m=128, splits=3)])
    variants = nvmmh.schedule_variants(picks)
    assert variants["row"].tolist() == [0] * 8 + [1] * 2
    combinations = set(zip(*(variants[n][:8].tolist() for n in ("schedule", "epilogue", "scheduler")), strict=True))
    assert combinations == {
        (0, 0, 0), (0, 1, 0), (1, 0, 0), (1, 1, 0), (2, 0, 0), (2, 1, 0), (2, 0, 1), (2, 1, 1),
    }  # fmt: skip
    assert set(variants["scheduler"][8:]) == {int(Scheduler.STREAM_K)}
    assert variants["decomposition"].tolist() == [0] * 8 + [int(Decomposition.SPLIT_K)] * 2
    assert variants["splits"].tolist() == [1] * 8 + [3] * 2
    assert set(variants["swizzle"]) == {2}
    assert variants["tile_m"].tolist() == [256] * 8 + [128] * 2


def test_missing_package_names_the_extra(monkeypatch):
    def refuse(name):
        raise ImportError(name)

    monkeypatch.setattr(nvmmh, "import_module", refuse)
    with pytest.raises(MissingDependency, match="baselines"):
        nvmmh.query(problems((128, 128, 128)))


def test_variants_of_the_first_pick_are_valid_and_launched_plainly_where_that_is_the_same():
    # 128x128x64, cluster 2x1, 4 stages: all eight are valid. 4096 / 128 tiles along M and swizzle 4 differ from the
    # default; a plain warpspecialized kernel has no tile scheduler, so its launch is the default one.
    first = pick(tile_m=128, cluster_m=2, cluster_n=1, swizzle=4) | {"rank": 0}
    other = pick(tile_m=64) | {"rank": 1}
    picks = pd.DataFrame([first, other])
    variants = nvmmh.first_pick_variants(picks, Problem(4096, 4096, 4096, "NNN"))
    assert variants["family"].tolist() == [FAMILIES.index("NNN")] * 8
    assert set(variants["tile_m"]) == {128}
    assert not variants["swapped"].any()
    plain = variants["schedule"] == Schedule.WARPSPECIALIZED
    assert plain.sum() == 2
    assert set(variants["swizzle"][plain]) == {1}
    assert set(variants["swizzle"][~plain]) == {4}
    # tile_m 192 is no cooperative tile, and 8 stages of 256x128x64 do not fit.
    assert len(nvmmh.first_pick_variants(picks.assign(tile_m=192), Problem(4096, 4096, 4096))["tile_m"]) == 4
    assert len(nvmmh.first_pick_variants(picks.assign(tile_m=256, stages=8), Problem(4096, 4096, 4096))["tile_m"]) == 0


class TestRealPackage:
    @pytest.fixture(autouse=True)
    def _package(self):
        pytest.importorskip("nvMatmulHeuristics", reason="optional extra baselines")

    def test_the_first_pick_is_the_answer_to_a_request_for_one(self):
        # 256x4096x4096: asked for 8, nvMMH lists kernels that it predicts to be faster than its first answer.
        one = nvmmh.query(problems((256, 4096, 4096)), top=1)
        eight = nvmmh.query(problems((256, 4096, 4096)), top=8)
        assert len(one) == 1
        assert one.iloc[0].equals(eight.iloc[0])
        assert eight["rank"].tolist() == list(range(len(eight)))
        assert eight["predicted_us"].min() < eight["predicted_us"].iloc[0]

    def test_known_answer(self):
        row = nvmmh.query(problems((8192, 7168, 5120)), top=1).iloc[0]
        tile = tuple(row[["tile_m", "tile_n", "tile_k", "cluster_m", "cluster_n", "stages", "splits", "swizzle"]])
        assert tile == (256, 128, 64, 1, 2, 4, 1, 1)
        # It predicts 943 TFLOP/s here: 2 * 8192 * 7168 * 5120 / 943e12 s.
        assert row["predicted_us"] == pytest.approx(637.6, rel=0.002)

    @pytest.mark.parametrize("layout", ["TTT", "NNT", "NTT", "NNN", "TNN", "NTN"])
    def test_every_layout_is_asked_for_and_gets_the_same_answer(self, layout):
        tn = nvmmh.query(problems((512, 3072, 768), (64, 12288, 4096)))
        other = nvmmh.query(problems((512, 3072, 768), (64, 12288, 4096), layout=layout))
        assert set(other["layout"]) == {layout}
        pd.testing.assert_frame_equal(other.drop(columns="layout"), tn.drop(columns="layout"))
