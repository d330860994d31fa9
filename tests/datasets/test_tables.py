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
        # Measurements are written with 14 bits of mantissa or fewer, spreads with 6: at most 1 part in 128 off.
        exact = {} if table != "measurements" else {"rtol": 2**-7}
        pd.testing.assert_frame_equal(frame, getattr(made, table), **exact)
        assert list(frame) == list(schema)
    assert str(read.measurements["time_us"].dtype) == "float32"
    assert str(read.measurements["splits"].dtype) == "int16"
    assert list(read.measurements["status"].cat.categories) == list(tables.STATUSES)
    assert not list(tmp_path.glob("*.part"))


@pytest.mark.parametrize(
    ("value", "bits", "rounded"),
    [
        (1.0, 6, 1.0),
        (1 + 1 / 64, 6, 1 + 1 / 64),
        (1 + 3 / 256, 6, 1 + 1 / 64),
        (1 + 1 / 128, 6, 1.0),  # a tie goes to the even neighbour
        (1 + 3 / 128, 6, 1 + 2 / 64),
        (1.9999, 6, 2.0),
        (-3.0, 1, -3.0),
        (100.001, 14, 100.0),  # steps of 64 / 2^14 = 1/256
        (100.006, 14, 100 + 2 / 256),
        (float("nan"), 6, float("nan")),
    ],
)
def test_round_mantissa(value, bits, rounded):
    result = tables.round_mantissa(np.array([value], dtype=np.float32), bits)
    assert result.dtype == np.float32
    np.testing.assert_array_equal(result, np.array([rounded], dtype=np.float32))


def test_writing_rounds_once_and_for_all(tmp_path):
    made = make_tables()
    made.write(tmp_path / "once")
    datasets.load(path=tmp_path / "once").write(tmp_path / "twice")
    files = [tmp_path / name / "measurements.parquet" for name in ("once", "twice")]
    assert files[0].read_bytes() == files[1].read_bytes()
    plain = pd.read_parquet(files[0])
    # 204.02 in steps of 128 / 2^14 = 1/128: 26114.56 steps, so 26115.
    assert plain.loc[0, "graph_us"] == 26115 / 128
    assert plain.loc[0, "time_us"] == 200.0


def test_a_row_takes_few_bytes(tmp_path):
    """Random times: 14 bits of mantissa and 1 of exponent; 6 and 2 for the spread; the rest follows a pattern."""
    rng = np.random.default_rng(0)
    rows, one = 40_000, make_tables().measurements.iloc[[0]]
    frame = one.loc[np.zeros(rows, dtype=int)].reset_index(drop=True).assign(
        problem_id=np.arange(rows) // 1000, kernel_id=np.arange(rows) % 1000,
        time_us=rng.uniform(10, 30, rows), spread=rng.lognormal(-4, 0.3, rows), retake_us=np.nan, graph_us=np.nan,
    )  # fmt: skip
    tables.Tables(measurements=tables.conform("measurements", frame)).write(tmp_path)
    assert (tmp_path / "measurements.parquet").stat().st_size / rows < 4.5


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
