"""A small synthetic study: few problems, few kernels, tiny rankers."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest

from cutlass_ranker.datasets import Group, Tables, groups
from cutlass_ranker.eval.study import Options, StudyData, make_options
from cutlass_ranker.features import get_hardware
from cutlass_ranker.generator import Problem, Schedule
from cutlass_ranker.generator import columns as col

TINY = {
    "hidden": ((4,), (8, 4)),
    "depths": (1, 2),
    "fractions": (0.5, 1.0),
    "draws": 2,
    "budgets": (2, 8),
    "alphas": (0.0, 1.0),
    "samples": 3,
    "permutations": 1,
    "seeds": 1,
    "folds": 2,
    "rounds": 2,
    "epochs": 1,
}


@pytest.fixture(scope="session")
def tiny_options() -> Options:
    return make_options(TINY)


@pytest.fixture(scope="session")
def synthetic_tables(synthetic_tables: Tables) -> Tables:
    """The same tables, complete enough to be written."""
    return replace(synthetic_tables, campaigns=synthetic_tables.campaigns.assign(mode="offline"))


@pytest.fixture(scope="session")
def study_data(synthetic_tables: Tables) -> StudyData:
    """4 training and 8 evaluation problems."""
    training, evaluation = (tuple(groups(synthetic_tables, split)) for split in ("train", "eval"))
    return StudyData(training, evaluation, get_hardware("h200"))


@pytest.fixture(scope="session")
def with_shapes(study_data: StudyData) -> Callable[[Sequence[Problem]], list[Group]]:
    """A factory of groups that differ by their problem only."""

    def make(problems: Sequence[Problem]) -> list[Group]:
        group = study_data.training[0]
        return [replace(group, problem_id=i, problem=problem) for i, problem in enumerate(problems)]

    return make


@pytest.fixture
def toy_group(study_data: StudyData) -> Callable[[Sequence[tuple[int, int, int, float]]], Group]:
    """A factory of groups: rows of (kernel id, tile_n, stages, time in µs), all with the default launch."""

    def make(rows: Sequence[tuple[int, int, int, float]]) -> Group:
        base = study_data.training[0]
        first = int(np.flatnonzero(base.default_launch & (base.columns["swapped"] == 0))[0])
        columns = col.take(base.columns, np.full(len(rows), first, dtype=np.intp))
        columns |= {
            "tile_m": np.full(len(rows), 128, dtype=np.int32),
            "tile_n": np.array([tile_n for _, tile_n, _, _ in rows], dtype=np.int32),
            "tile_k": np.full(len(rows), 64, dtype=np.int32),
            "stages": np.array([stages for _, _, stages, _ in rows], dtype=np.int32),
            "schedule": np.full(len(rows), int(Schedule.PINGPONG), dtype=np.int32),
        }
        return replace(
            base,
            problem=Problem(128, 128 * 132, 1024),
            columns=columns,
            kernel_id=np.array([kernel for kernel, *_ in rows], dtype=np.int32),
            time_us=np.array([time for *_, time in rows], dtype=np.float64),
            spread=np.full(len(rows), 0.01),
            coarse=np.zeros(len(rows), dtype=bool),
            default_launch=np.ones(len(rows), dtype=bool),
        )

    return make
