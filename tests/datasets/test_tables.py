from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from tables_example import make_tables

import cutlass_ranker.datasets as datasets
from cutlass_ranker.datasets import tables


def test_round_trip(tmp_path):
    made = make_tables()
    made.write(tmp_path)
    read = datasets.load(path=tmp_path)
    for table, schema in tables.SCHEMA.items():
        frame = getattr(read, table)
        pd.testing.assert_frame_equal(frame, getattr(made, table))
        assert list(frame) == list(schema)
    assert str(read.measurements["time_us"].dtype) == "float32"
    assert str(read.measurements["splits"].dtype) == "int16"
    assert list(read.measurements["status"].cat.categories) == list(tables.STATUSES)
    assert not list(tmp_path.glob("*.part"))


def test_load_a_subset(tmp_path):
    make_tables().write(tmp_path)
    read = datasets.load(["problems"], path=tmp_path)
    assert len(read.problems) == 2
    assert len(read.measurements) == 0
    assert list(read.measurements) == list(tables.SCHEMA["measurements"])


def test_load_errors(tmp_path):
    with pytest.raises(datasets.tables.DataError, match="unknown table speeds"):
        datasets.load(["speeds"], path=tmp_path)
    with pytest.raises(tables.DataError, match="cannot read table kernels"):
        datasets.load(path=tmp_path)
    make_tables().write(tmp_path)
    pd.read_parquet(tmp_path / "kernels.parquet").drop(columns="registers").to_parquet(tmp_path / "kernels.parquet")
    with pytest.raises(tables.DataError, match="lacks the columns registers"):
        datasets.load(path=tmp_path)


@pytest.mark.parametrize(
    ("column", "value", "message"),
    [("splits", 40_000, "no int16"), ("swizzle", 1.5, "no int8"), ("status", "fine", "values other than")],
)
def test_conform_refuses_what_does_not_fit(column, value, message):
    frame = make_tables().measurements.astype({column: object})
    frame.loc[0, column] = value
    with pytest.raises(tables.DataError, match=message):
        tables.conform("measurements", frame)


def test_conform_fills_missing_numbers_and_texts():
    frame = make_tables().kernels.astype({"registers": float, "build_status": object})
    frame.loc[0, ["registers", "build_status"]] = [np.nan, None]
    fixed = tables.conform("kernels", frame)
    assert fixed.loc[0, "registers"] == -1
    assert fixed.loc[0, "build_status"] == ""


def test_best_time_prefers_the_retake():
    frame = pd.DataFrame({"time_us": [10.0, 11.0, np.nan], "retake_us": [np.nan, 12.0, np.nan]})
    assert datasets.best_time(frame).tolist()[:2] == [10.0, 12.0]
    assert np.isnan(datasets.best_time(frame).iloc[2])


def test_names_are_functions_whatever_was_imported_first():
    from cutlass_ranker.datasets.labels import relevance

    assert callable(datasets.groups)
    assert callable(datasets.merge)
    assert datasets.labels.relevance is relevance
    with pytest.raises(AttributeError):
        _ = datasets.nothing
