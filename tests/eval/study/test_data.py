"""Draws of base shapes, fingerprints, and reading part of the tables."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cutlass_ranker.eval.study import load_data
from cutlass_ranker.eval.study.data import base_shape, draw_shapes, shape_count, shape_numbers
from cutlass_ranker.generator import DataError, Problem

sizes = st.sampled_from([64, 128, 512])
problems = st.lists(st.builds(Problem, sizes, sizes, sizes, st.sampled_from(["TNT", "TTT", "NNT"])), max_size=30)


def test_layouts_and_transposes_share_a_shape(with_shapes):
    listed = with_shapes(
        [Problem(64, 128, 256), Problem(64, 128, 256, "TTT"), Problem(128, 64, 256), Problem(64, 64, 8)]
    )
    assert [base_shape(group.problem) for group in listed] == [(64, 128, 256)] * 3 + [(64, 64, 8)]
    assert shape_count(listed) == 2
    assert shape_numbers(listed) == [0, 0, 0, 1]


@given(problems, st.integers(0, 12), st.integers(0, 50))
def test_draws_keep_shapes_together_and_are_nested(with_shapes, listed, count, draw):
    groups = with_shapes(listed)
    drawn = draw_shapes(groups, count, draw)
    shapes = {base_shape(group.problem) for group in drawn}
    assert len(shapes) == min(count, shape_count(groups))
    assert [g.problem_id for g in drawn] == [g.problem_id for g in groups if base_shape(g.problem) in shapes]
    larger = {group.problem_id for group in draw_shapes(groups, count + 3, draw)}
    assert {group.problem_id for group in drawn} <= larger


def test_draws_differ(with_shapes):
    groups = with_shapes([Problem(64, 64, 8 * i) for i in range(1, 21)])
    chosen = {tuple(group.problem_id for group in draw_shapes(groups, 5, draw)) for draw in range(10)}
    assert len(chosen) == 10
    assert draw_shapes(groups, None, 3) == groups


def test_the_fingerprint_follows_everything_that_counts(study_data):
    first = study_data.training[0]
    faster = replace(first, time_us=first.time_us * 0.9)
    other = replace(first, columns={**first.columns, "stages": first.columns["stages"] + 1})
    variants = [
        study_data,
        replace(study_data, training=(faster, *study_data.training[1:])),
        replace(study_data, training=(other, *study_data.training[1:])),
        replace(study_data, training=study_data.training[1:]),
        replace(study_data, training=study_data.evaluation, evaluation=study_data.training),
        replace(study_data, hardware=replace(study_data.hardware, l2_bytes=1)),
    ]
    assert len({data.fingerprint for data in variants}) == len(variants)
    copied = replace(first, time_us=first.time_us.copy())
    assert replace(study_data, training=(copied, *study_data.training[1:])).fingerprint == study_data.fingerprint


def test_reading_all_or_a_few_shapes(synthetic_tables, study_data, tmp_path):
    synthetic_tables.write(tmp_path)
    everything = load_data(tmp_path)
    assert [group.problem_id for group in everything.evaluation] == list(range(8))
    assert [group.problem_id for group in everything.training] == list(range(8, 12))
    few = load_data(tmp_path, shapes=2, evaluation_shapes=3)
    assert (len(few.training), len(few.evaluation)) == (2, 3)
    whole = {group.problem_id: group for group in (*everything.training, *everything.evaluation)}
    for group in (*few.training, *few.evaluation):
        np.testing.assert_array_equal(group.time_us, whole[group.problem_id].time_us)
    assert few.to_json()["training_rows"] == sum(map(len, few.training))


def test_tables_without_evaluation_problems_are_refused(synthetic_tables, tmp_path):
    problems = synthetic_tables.problems.assign(split="train")
    replace(synthetic_tables, problems=problems).write(tmp_path)
    with pytest.raises(DataError, match="no measured evaluation problem"):
        load_data(tmp_path)
