from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
from tables_example import BASELINES, CAMPAIGN, KERNELS, PROBLEMS, ROWS, make_manifest, make_plan, make_tables, row

from cutlass_ranker.datasets import load, merge, records, write_plan
from cutlass_ranker.datasets.merging import merge_campaign
from cutlass_ranker.datasets.tables import SCHEMA, Tables
from cutlass_ranker.generator import DataError
from cutlass_ranker.generator import columns as col


def assert_same(a, b, **options):
    for table in SCHEMA:
        pd.testing.assert_frame_equal(getattr(a, table), getattr(b, table), **options)


def test_first_merge():
    tables = make_tables()
    assert len(tables.measurements) == 7
    assert tables.kernels["registers"].tolist() == [168] * 3
    assert tables.campaigns[["campaign_id", "name", "purpose"]].to_numpy().tolist() == [[0, "first", "main"]]
    assert tables.measurements["status"].value_counts()["hang"] == 1
    assert tables.baselines["method"].tolist() == ["cublaslt_best", "cublaslt_first"]


def test_merging_again_changes_nothing():
    tables, made = make_tables(), make_plan()
    again = merge_campaign(tables, made, ROWS, BASELINES, make_manifest(made), CAMPAIGN)
    assert_same(tables, again)
    shuffled = ROWS.sample(frac=1, random_state=0)
    assert_same(tables, merge_campaign(again, made, shuffled, BASELINES, make_manifest(made), CAMPAIGN))


def test_merging_a_campaign_that_went_on_replaces_its_rows():
    early = make_tables(ROWS.iloc[:3])
    made = make_plan()
    assert_same(merge_campaign(early, made, ROWS, BASELINES, make_manifest(made), CAMPAIGN), make_tables())


def test_a_second_campaign_keeps_the_ids_of_known_kernels_and_problems():
    tables = make_tables()
    # The second plan numbers the same kernels and problems the other way round and adds one of each.
    kernels = col.take(KERNELS, np.array([2, 1, 0, 1]))
    kernels["stages"] = np.array([8, 4, 4, 3], dtype=np.int32)
    problems = pd.concat(
        [PROBLEMS.iloc[[1]].assign(sources="splitk"), PROBLEMS.iloc[[0]], PROBLEMS.iloc[[1]].assign(M=1000)]
    )
    made = make_plan("second", kernels, problems)
    rows = pd.DataFrame([row(0, 0, 12.2, swapped=1), row(1, 2, 201.0, swapped=0), row(2, 3, 50.0)])
    rows["swapped"] = [1, 0, 0]
    manifest = make_manifest(made).assign(registers=200)
    both = merge_campaign(tables, made, rows, BASELINES.iloc[:0], manifest, CAMPAIGN)
    new = both.measurements[both.measurements["campaign_id"] == 1]
    ids = new[["problem_id", "kernel_id", "time_us"]].astype(float).round(1).to_numpy().tolist()
    assert ids == [[0, 0, 201.0], [1, 2, 12.2], [2, 3, 50.0]]
    assert both.kernels["kernel_id"].tolist() == [0, 1, 2, 3]
    assert both.kernels["name"].tolist()[:3] == tables.kernels["name"].tolist()
    assert both.kernels["registers"].tolist() == [200] * 4
    assert both.problems["sources"].tolist() == ["paper", "llm;splitk", "llm"]
    assert both.problems["M"].tolist() == [4096, 8, 1000]
    old = both.measurements[both.measurements["campaign_id"] == 0].reset_index(drop=True)
    pd.testing.assert_frame_equal(old, tables.measurements)
    assert len(both.baselines) == 2


def test_rows_are_sorted_by_campaign_and_candidate_whichever_is_merged_first():
    tables, made = make_tables(), make_plan("second")
    both = merge_campaign(tables, made, ROWS.iloc[::-1], BASELINES, make_manifest(made), CAMPAIGN)
    first = make_plan()
    again = merge_campaign(both, first, ROWS.iloc[:3], BASELINES, make_manifest(first), CAMPAIGN)
    order = ["campaign_id", "problem_id", "kernel_id", "raster", "swizzle", "decomposition", "splits", "swapped"]
    for merged, counts in ((both, [7, 7]), (again, [3, 7])):
        rows = merged.measurements
        assert rows["campaign_id"].value_counts().sort_index().tolist() == counts
        pd.testing.assert_frame_equal(rows, rows.sort_values(order, ignore_index=True))


def test_a_problem_cannot_change_sides():
    made = make_plan("torn", problems=PROBLEMS.assign(split="eval"))
    with pytest.raises(DataError, match="8x4096x4096 is train in the tables but eval in the plan"):
        merge_campaign(make_tables(), made, ROWS, BASELINES, make_manifest(made), CAMPAIGN)


@pytest.mark.parametrize("column", ["problem_id", "kernel_id"])
def test_rows_of_another_plan_are_refused(column):
    made = make_plan()
    with pytest.raises(DataError, match=f"a measurement has the {column} 77"):
        merge_campaign(make_tables(), made, ROWS.assign(**{column: 77}), BASELINES, make_manifest(made), CAMPAIGN)


def test_a_kernel_without_manifest_row_is_marked_unknown():
    made = make_plan()
    tables = merge_campaign(make_tables(), made, ROWS, BASELINES, make_manifest(made).iloc[:0], CAMPAIGN)
    assert tables.kernels["registers"].tolist() == [168] * 3  # what an earlier build said stays
    fresh = merge_campaign(Tables(), made, ROWS, BASELINES, make_manifest(made).iloc[:1], CAMPAIGN)
    assert fresh.kernels["registers"].tolist() == [168, -1, -1]


def test_merge_of_a_campaign_on_disk(tmp_path):
    """The runner's own files, its plan and the manifest, merged twice, give the tables that the frames give."""
    made = make_plan()
    write_plan(made, tmp_path / "plan")
    (tmp_path / "build").mkdir()
    make_manifest(made).to_parquet(tmp_path / "build" / "manifest.parquet")
    out = tmp_path / "out"
    out.mkdir()
    recorder = records.Recorder(out, "gpu0")
    for number, values in enumerate(ROWS.to_dict("records")):
        key = np.zeros(1, dtype=records.KEY)
        for name in records.KEY.names:
            key[name] = values[name]
        raw = records.new_rows(values["problem_id"], key, session=0)
        raw["status"] = records.STATUSES.index(values["status"])
        raw["phase"] = records.Phase.FIRST
        raw["probe_us"] = 40.0
        raw["at_s"] = number
        for name in ("time_us", "spread", "launches", "retake_us", "graph_us"):
            raw[name] = values[name]
        recorder.rows(raw)
    for number, values in enumerate(BASELINES.to_dict("records")):
        recorder.note("baseline", **values, graph_us=1.0, at_s=number)
    (out / "campaign-0.json").write_text(json.dumps(CAMPAIGN | {"name": "first", "purpose": "main"}))

    folders = out, tmp_path / "plan", tmp_path / "build", tmp_path / "data"
    once = merge(*folders)
    assert_same(once, make_tables(), rtol=2**-7)  # written with fewer bits
    assert_same(merge(*folders), once)
    assert_same(load(path=tmp_path / "data"), once)


def test_merge_without_a_build_says_so(tmp_path):
    with pytest.raises(DataError, match=r"manifest\.parquet"):
        merge(tmp_path, tmp_path, tmp_path, tmp_path)
