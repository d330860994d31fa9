from __future__ import annotations

import pandas as pd
import pytest

from cutlass_ranker.datasets import nvmmh
from cutlass_ranker.generator import Decomposition, MissingDependency, Scheduler


def pick(**changes):
    row = {
        "tile_m": 256, "tile_n": 128, "tile_k": 64, "cluster_m": 1, "cluster_n": 2, "stages": 4, "splits": 1,
        "swizzle": 2, "raster": 1,
    }  # fmt: skip
    return row | changes


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
        nvmmh.query([(128, 128, 128)])


class TestRealPackage:
    @pytest.fixture(autouse=True)
    def _package(self):
        pytest.importorskip("nvMatmulHeuristics", reason="optional extra baselines")

    def test_the_first_pick_is_the_answer_to_a_request_for_one(self):
        # 256x4096x4096: asked for 8, nvMMH lists kernels that it predicts to be faster than its first answer.
        one = nvmmh.query([(256, 4096, 4096)], top=1)
        eight = nvmmh.query([(256, 4096, 4096)], top=8)
        assert len(one) == 1
        assert one.iloc[0].equals(eight.iloc[0])
        assert eight["rank"].tolist() == list(range(len(eight)))
        assert eight["predicted_us"].min() < eight["predicted_us"].iloc[0]

    def test_known_answer(self):
        row = nvmmh.query([(8192, 7168, 5120)], top=1).iloc[0]
        tile = tuple(row[["tile_m", "tile_n", "tile_k", "cluster_m", "cluster_n", "stages", "splits", "swizzle"]])
        assert tile == (256, 128, 64, 1, 2, 4, 1, 1)
        # It predicts 943 TFLOP/s here: 2 * 8192 * 7168 * 5120 / 943e12 s.
        assert row["predicted_us"] == pytest.approx(637.6, rel=0.002)
