from __future__ import annotations

from dataclasses import replace

import pandas as pd
import pytest
from tables_example import BASELINES, CAMPAIGN, make_manifest, make_plan, make_tables, row

from cutlass_ranker.datasets import data_check, data_info
from cutlass_ranker.datasets.merging import merge_campaign


@pytest.fixture
def tables():
    return make_tables()


def test_noise_floor_by_hand(tables):
    plan = make_plan("again")
    plan.meta["purpose"] = "repeat"
    rows = pd.DataFrame([row(0, 0, 202.0), row(1, 1, 16.32), row(1, 2, 12.36)])
    tables = merge_campaign(tables, plan, rows, BASELINES.iloc[:0], make_manifest(plan), CAMPAIGN)
    noise = data_info(tables).noise
    assert noise.spread == pytest.approx(0.01)
    # Timers: 2.02/202 = 1%, 1/199 = 0.503%, 0.8/16 = 5%, 0; the first two are over 20 us.
    assert noise.timers == pytest.approx((2.02 / 202 + 1 / 199) / 2, rel=1e-4)
    assert noise.timers_long == pytest.approx((2.02 / 202 + 1 / 199) / 2, rel=1e-4)
    assert noise.retaken_rows == 4
    # First-pass times: 202 against 200 (1%), 16.32 against 16 (2%), 12.36 against 12 (3%).
    assert noise.repeat == pytest.approx(0.02, rel=1e-3)
    assert noise.repeated_rows == 3


def test_info_counts_and_text(tables):
    info = data_info(tables)
    assert info.statuses == {"ok": 5, "coarse": 1, "hang": 1}
    assert info.problems == {"eval": 1, "train": 1}
    assert info.kernels == {"total": 3, "built": 3, "measured": 3}
    text = info.text()
    assert "NVIDIA H200" in text
    assert "7 rows" in text
    assert "n/a  (0 rows)" in text


def test_sound_tables_have_no_findings(tables):
    assert data_check(tables) == []


def changed(tables, table, index, column, value):
    frame = getattr(tables, table).copy()
    frame.loc[index, column] = value
    return replace(tables, **{table: frame})


# 8x4096x4096 reads 2 * (8 + 4096) * 4096 B = 33.6 MB: 6.86 us at 4.9 TB/s. 4096 cubed is 137.4 GFLOP: 124.9 us at
# 1.1 PFLOP/s.
@pytest.mark.parametrize(
    ("table", "index", "column", "value", "message"),
    [
        ("measurements", 0, "kernel_id", 99, "kernel_id is not in its table"),
        ("measurements", 0, "problem_id", 99, "problem_id is not in its table"),
        ("measurements", 0, "campaign_id", 9, "campaign_id is not in its table"),
        ("measurements", 0, "time_us", float("nan"), "no positive time"),
        ("measurements", 4, "time_us", 20.0, "failed has a time"),
        ("measurements", 0, "launches", 1, "fewer than 2"),
        ("measurements", 0, "launches", 9, "fewer than 10"),
        ("measurements", 0, "spread", -0.1, "spread is negative"),
        ("measurements", 0, "retake_us", 124.0, "faster than the roofline"),
        ("measurements", 6, "retake_us", 6.8, "faster than the roofline"),
        ("measurements", 0, "probe_ratio", 1.3, "probe"),
        ("baselines", 0, "time_us", 124.0, "faster than the roofline"),
        ("kernels", 0, "stages", 5, "does not match the configuration"),
        ("kernels", 0, "name", "gemm", "not a procedural name"),
        ("problems", 0, "split", "test", "none of train, eval"),
        ("problems", 0, "split", "train", "held out or too near"),
        ("problems", 1, "M", 5000, "held out or too near"),
        ("problems", [0, 1], "M", 8, "repeats M, N, K"),
        ("problems", 1, "K", 4092, "not a problem that the kernels can take"),
        ("problems", 1, "layout", "TT", "not a problem that the kernels can take"),
        ("measurements", 3, "swapped", 0, "does not serve"),
        ("measurements", 0, "swapped", 1, "does not serve"),
        ("measurements", 3, "swapped", 2, "neither 0 nor 1"),
        ("measurements", 0, "raster", 3, "not a launch"),
        ("measurements", 0, "swizzle", 3, "not a launch"),
        ("measurements", 0, "splits", 2, "not a launch"),
        ("measurements", 0, "decomposition", 2, "not a launch"),
        ("measurements", 0, "decomposition", 4, "not a launch"),
        ("measurements", 0, "decomposition", 5, "not a launch"),
        ("measurements", 0, "decomposition", 1, "without the Stream-K scheduler"),
        ("campaigns", 0, "purpose", "other", "purpose is none of"),
        ("campaigns", 0, "operands", "lukewarm", "operands is none of"),
        ("campaigns", 0, "mode", "", "mode is none of"),
        ("campaigns", 0, "gpu", None, None),
    ],
)
def test_each_fault_is_found(tables, table, index, column, value, message):
    findings = data_check(changed(tables, table, index, column, value))
    if message is None:
        assert findings == []
    else:
        assert any(message in finding.message and finding.table == table for finding in findings), findings


def test_duplicates_and_missing_columns_are_found(tables):
    twice = pd.concat([tables.measurements, tables.measurements.iloc[:2]], ignore_index=True)
    assert [(f.table, f.rows) for f in data_check(replace(tables, measurements=twice))] == [("measurements", 2)]
    lacking = data_check(replace(tables, problems=tables.problems.drop(columns="split")))
    assert [(f.level, f.table) for f in lacking] == [("error", "problems")]
    assert "split" in str(lacking[0])


def test_kernels_of_the_wrong_family_are_found(tables):
    turned = tables.problems.assign(layout=["TNT", "TNN"])
    # Problem 1 has three rows: TNT kernels 0 and 1 not swapped, TNN kernel 2 swapped; as TNN it would be the reverse.
    assert [(f.table, f.rows) for f in data_check(replace(tables, problems=turned))] == [("measurements", 3)]
    swapped = tables.measurements["swapped"].where(tables.measurements["problem_id"] == 0, [1] * 6 + [0])
    both = replace(tables, problems=turned, measurements=tables.measurements.assign(swapped=swapped))
    assert data_check(both) == []


def test_a_leak_in_another_layout_is_found(tables):
    # 16x3000x512 NNN computes what 3000x16x512 TTT does; 3000x24x512 is near that.
    problems = tables.problems.assign(
        M=[16, 3000], N=[3000, 24], K=512, layout=["NNN", "TNT"], sources="x", split=["eval", "train"]
    )
    only = replace(tables, problems=problems, measurements=tables.measurements[:0], baselines=tables.baselines[:0])
    assert [finding.message for finding in data_check(replace(only, problems=problems.assign(N=[3000, 32])))] == []
    found = data_check(only)
    assert [(f.table, f.rows) for f in found] == [("problems", 1)]
    assert "too near" in found[0].message


def test_main_campaigns_must_share_their_conditions_but_studies_need_not(tables):
    for purpose, count in (("study", 0), ("main", 1)):
        plan = make_plan("warm")
        plan.meta["purpose"] = purpose
        # 5 us for 33.6 MB of operands is impossible from DRAM (6.9 us), not from L2.
        rows = pd.DataFrame([row(1, 2, 5.0)])
        warm = CAMPAIGN | {"operands": "warm"}
        both = merge_campaign(tables, plan, rows, BASELINES.iloc[:0], make_manifest(plan), warm)
        assert [f.message for f in data_check(both)] == ["main campaigns differ in operands or mode"] * count
        cold = merge_campaign(tables, plan, rows, BASELINES.iloc[:0], make_manifest(plan), CAMPAIGN)
        assert any("roofline" in finding.message for finding in data_check(cold))


def test_launches_of_kernels_that_split_k_are_checked(tables):
    # Kernel 0 as one over slices of K: its rows are whole launches, which it does not have.
    columns = {"scheduler": 2, "void_c": 1}
    kernels = tables.kernels.copy()
    kernels.loc[0, list(columns)] = list(columns.values())
    kernels.loc[0, "name"] = kernels.loc[0, "name"].replace("f32_bf16_bf16", "f32_void_f32")
    found = {f.message: f.rows for f in data_check(replace(tables, kernels=kernels))}
    rows = int((tables.measurements["kernel_id"] == kernels.loc[0, "kernel_id"]).sum())
    assert found["a kernel that splits K without a second kernel that adds"] == rows
    split = tables.measurements.assign(decomposition=6, splits=2)
    left = {f.message: f.rows for f in data_check(replace(tables, kernels=kernels, measurements=split))}
    assert "a kernel that splits K without a second kernel that adds" not in left
    assert left["a decomposition without the Stream-K scheduler"] == len(split) - rows
