from __future__ import annotations

from dataclasses import replace

import pandas as pd
import pytest
from tables_example import BASELINES, CAMPAIGN, PROBLEMS, ROWS, make_manifest, make_plan, make_tables, row

from cutlass_ranker.datasets import clock_factors, groups, training_groups
from cutlass_ranker.datasets.merging import merge_campaign
from cutlass_ranker.datasets.tables import Tables
from cutlass_ranker.generator import (
    CANDIDATE_COLUMNS,
    CONFIG_COLUMNS,
    DataError,
    Epilogue,
    KernelConfig,
    Problem,
    Schedule,
    Scheduler,
)
from cutlass_ranker.generator import columns as col


def test_groups_by_hand():
    first, second = groups(make_tables())
    assert first.problem == Problem(4096, 4096, 4096)
    assert first.split == "eval"
    assert first.sources == ("paper",)
    assert set(first.columns) == set(CANDIDATE_COLUMNS)
    assert first.kernel_id.tolist() == [0, 0, 1, 2]
    # Drift of the retaken rows: 202/200 = 1.01 and 199/198 = 1.00505, median 1.007525; the others are scaled by it.
    assert first.time_us.tolist() == pytest.approx([202.0, 199.0, 198.5 * 1.00752525, 900.0 * 1.00752525])
    assert first.coarse.tolist() == [False, False, False, True]
    assert first.default_launch.tolist() == [True, False, True, True]
    assert first.columns["swizzle"].tolist() == [1, 8, 1, 1]
    assert first.columns["tile_n"].tolist() == [128, 128, 128, 16]
    assert first.columns["swapped"].tolist() == [0, 0, 0, 1]
    assert first.oracle_us == 199.0
    # The hang is no candidate.
    assert second.kernel_id.tolist() == [1, 2]
    assert second.oracle_us == 12.5
    assert len(second) == 2


def test_a_row_without_a_retake_cannot_beat_the_retaken():
    rows = ROWS.copy()
    rows.loc[2, "time_us"] = 190.0  # 191.4 after the drift, under the best retake
    first, _ = groups(make_tables(rows))
    assert first.time_us[2] == 199.0


def test_splits():
    tables = make_tables()
    assert [g.problem_id for g in groups(tables, "eval")] == [0]
    assert [g.problem_id for g in groups(tables, "train")] == [1]
    with pytest.raises(DataError, match="test"):
        groups(tables, "test")


def test_below_floor_and_repeats_stay_out_and_newer_main_rows_win():
    tables = make_tables(pd.concat([ROWS, pd.DataFrame([row(1, 1, 0.1, swizzle=4, status="below_floor")])]))
    plan = make_plan("again")
    plan.meta["purpose"] = "repeat"
    faster = pd.DataFrame([row(1, 2, 1.0, retake_us=1.0)])
    tables = merge_campaign(tables, plan, faster, BASELINES, make_manifest(plan), CAMPAIGN)
    assert groups(tables, "train")[0].time_us.tolist() == [16.0, 12.5]
    plan = make_plan("newer")
    newer = pd.DataFrame([row(1, 2, 13.0, retake_us=13.0), row(1, 1, 15.0)])
    tables = merge_campaign(tables, plan, newer, BASELINES, make_manifest(plan), CAMPAIGN)
    # Kernel 2 was retaken in both: 13.0 / 12.5 = 1.04 is the older campaign's factor, and both retakes are 13.0 then.
    # Kernel 1: the older row has a retake, the newer has none.
    assert groups(tables, "train")[0].time_us.tolist() == pytest.approx([16.0 * 1.04, 13.0])


def campaigns_of(*rows: list[dict[str, object]]) -> Tables:
    """Tables of main campaigns that ran one after the other."""
    tables = Tables()
    for number, part in enumerate(rows):
        plan = make_plan(f"campaign {number}")
        tables = merge_campaign(tables, plan, pd.DataFrame(part), BASELINES, make_manifest(plan), CAMPAIGN)
    return tables


def test_campaigns_are_brought_to_the_newest_clock():
    # In the older campaign the GPU was 10% faster; the candidates retaken in both say 1.1, 1.1 and 1.2.
    tables = campaigns_of(
        [
            row(0, 0, 100.0, retake_us=100.0),
            row(0, 0, 200.0, retake_us=220.0, swizzle=2),
            row(0, 0, 300.0, retake_us=303.0, swizzle=4),
            row(0, 1, 104.0, retake_us=105.0),
            row(0, 2, 400.0),
        ],
        [
            row(0, 0, 105.0, retake_us=110.0),
            row(0, 0, 242.0, retake_us=242.0, swizzle=2),
            row(0, 0, 303.0, retake_us=363.6, swizzle=4),
            row(0, 1, 500.0, status="coarse", swizzle=2),
        ],
    )
    assert clock_factors(tables).to_dict() == pytest.approx({(0, 0): 1.1, (0, 1): 1.0})
    group = groups(tables)[0]
    assert group.kernel_id.tolist() == [0, 0, 0, 1, 1, 2]
    # Kernel 0, swizzle 4: the median of 303 · 1.1 = 333.3 and 363.6. Kernel 1 was retaken in the older campaign only.
    # Without a retake: the median drift of the older campaign (1, 1.1, 1.01, 1.0096) and its factor; of the newer one
    # (1.0476, 1, 1.2) alone.
    expected = [110.0, 242.0, 348.45, 115.5, 500.0 * 110 / 105, 400.0 * (1.01 + 105 / 104) / 2 * 1.1]
    assert group.time_us.tolist() == pytest.approx(expected)
    assert group.oracle_us == pytest.approx(110.0)


def test_the_newest_protocol_decides_the_oracle():
    older = [row(0, 0, 100.0, retake_us=100.0), row(0, 1, 101.0, retake_us=104.0), row(0, 2, 99.0, retake_us=98.0)]
    newer = [row(0, 0, 100.0, retake_us=103.0), row(0, 1, 101.0, retake_us=102.0)]
    tables = campaigns_of(older, newer)
    tables = replace(tables, campaigns=tables.campaigns.assign(protocol_version=[3, 4]))
    group = groups(tables)[0]
    # Kernels 0 and 1 are what the newer protocol says; both ratios, 1.03 and 0.981, make the clocks 1.005 apart. Kernel
    # 2 was not retaken by it: its 98 * 1.005 = 98.5 may not beat the 102 of kernel 1.
    assert group.time_us.tolist() == pytest.approx([103.0, 102.0, 102.0])
    # By one protocol all retakes count alike.
    alike = groups(replace(tables, campaigns=tables.campaigns.assign(protocol_version=3)))[0]
    factor = (103 / 100 + 102 / 104) / 2
    expected = [(100 * factor + 103) / 2, (104 * factor + 102) / 2, 98 * factor]
    assert alike.time_us.tolist() == pytest.approx(expected)


def test_without_common_retakes_the_first_pass_tells_the_clocks_apart():
    older = [row(0, 0, 100.0, retake_us=102.0), row(0, 1, 110.0), row(0, 2, 300.0, status="coarse")]
    newer = [row(0, 0, 120.0), row(0, 1, 121.0, retake_us=123.0), row(0, 2, 900.0, status="coarse")]
    tables = campaigns_of(older, newer)
    # 1.2 and 1.1 of the two that were timed in full.
    assert clock_factors(tables).to_dict() == pytest.approx({(0, 0): 1.15, (0, 1): 1.0})
    assert groups(tables)[0].time_us[:2].tolist() == pytest.approx([102.0 * 1.15, 123.0])
    # Nothing in common at all: times stay as they are.
    assert clock_factors(campaigns_of(older[:1], newer[1:2])).to_dict() == {(0, 0): 1.0, (0, 1): 1.0}


def test_a_campaign_without_retakes_drifts_as_the_newest_did():
    # 110 / 100 from clock to clock, then 121 / 110 from first pass to retake; the reference is the older campaign.
    tables = campaigns_of([row(0, 0, 110.0, retake_us=121.0)], [row(0, 0, 100.0), row(0, 1, 200.0)])
    assert clock_factors(tables).to_dict() == pytest.approx({(0, 0): 1.0, (0, 1): 1.1})
    assert groups(tables)[0].time_us.tolist() == pytest.approx([121.0, 242.0])


def test_atomic_splits_are_candidates_only_when_asked_for():
    stream_k = KernelConfig(128, 128, 64, 1, 1, 4, Schedule.COOPERATIVE, Epilogue.TMA, Scheduler.STREAM_K)
    shapes = pd.DataFrame([(256, 256, 16384, "TNT", "paper", "eval")], columns=PROBLEMS.columns)
    plan = make_plan("long k", col.from_configs([stream_k]), shapes)
    rows = pd.DataFrame(
        [
            row(0, 0, 20.0, retake_us=20.0),
            row(0, 0, 15.0, retake_us=15.0, decomposition=2, splits=8),
            row(0, 0, 9.0, retake_us=9.0, decomposition=4, splits=8),
            row(0, 0, 8.0, retake_us=8.0, decomposition=4, splits=32),
        ]
    )
    tables = merge_campaign(Tables(), plan, rows, BASELINES, make_manifest(plan), CAMPAIGN)
    (group,) = groups(tables)
    assert group.columns["decomposition"].tolist() == [0, 2]
    assert group.oracle_us == 15.0
    (group,) = groups(tables, deterministic=False)
    assert group.columns["splits"].tolist() == [1, 8, 8, 32]
    assert group.oracle_us == 8.0
    # Each way to split is ranked as a kernel of its own.
    assert group.ranked_first.all()
    assert len(set(group.variant.tolist())) == 4
    # In training they are learned from, but neither chosen nor the oracle.
    assert training_groups(tables) == []
    (group,) = training_groups(replace(tables, problems=tables.problems.assign(split="train")))
    assert group.columns["splits"].tolist() == [1, 8, 8, 32]
    assert group.first_stage.all()
    assert group.ranked_first.tolist() == [True, True, False, False]
    assert group.oracle_us == 15.0


def test_kernels_outside_the_catalogue_are_not_ranked_but_may_be_the_oracle():
    tables = make_tables()
    kernel = {name: tables.kernels.loc[tables.kernels["kernel_id"] == 1, name].to_numpy() for name in CONFIG_COLUMNS}
    everything, first = groups(tables)[0], groups(tables, catalogue=kernel)[0]
    assert everything.listed is None
    assert everything.ranked_first.tolist() == [True, False, True, True]
    assert first.listed is not None
    assert first.listed.tolist() == [False, False, True, False]
    assert first.first_stage.tolist() == [True, False, True, True]
    assert first.ranked_first.tolist() == [False, False, True, False]
    assert first.variant.tolist() == everything.variant.tolist()
    assert first.oracle_us == everything.oracle_us == 199.0  # of kernel 0


def test_a_row_that_may_not_be_chosen_holds_down_no_other():
    shapes = pd.DataFrame([(256, 256, 16384, "TNT", "llm", "train")], columns=PROBLEMS.columns)
    stream_k = KernelConfig(128, 128, 64, 1, 1, 4, Schedule.COOPERATIVE, Epilogue.TMA, Scheduler.STREAM_K)
    plan = make_plan("atomic", col.from_configs([stream_k]), shapes)
    rows = pd.DataFrame(
        [
            row(0, 0, 20.0, retake_us=20.0),
            row(0, 0, 19.0, swizzle=2),
            row(0, 0, 9.0, retake_us=9.0, decomposition=4, splits=8),
            row(0, 0, 8.0, decomposition=4, splits=32),
        ]
    )
    tables = merge_campaign(Tables(), plan, rows, BASELINES, make_manifest(plan), CAMPAIGN)
    # Not retaken: no better than the best retake among those it is compared with.
    (group,) = training_groups(tables)
    assert group.time_us.tolist() == [20.0, 9.0, 9.0, 20.0]
    assert group.oracle_us == 20.0
    assert training_groups(tables, catalogue=col.from_configs([replace(stream_k, stages=3)])) == []


def test_a_column_major_output_is_ranked_as_the_transposed_problem():
    first = groups(make_tables())[0]
    assert first.as_deployed() is first
    literal = replace(first, problem=Problem(4096, 256, 512, "TNN"))
    turned = literal.as_deployed()
    assert turned.problem == Problem(256, 4096, 512, "TNT")
    assert turned.columns["swapped"].tolist() == [1, 1, 1, 0]
    assert literal.columns["swapped"].tolist() == [0, 0, 0, 1]
