"""The rankers that learn nothing."""

from math import ceil, sqrt

import numpy as np
import pytest

from cutlass_ranker.features import Hardware
from cutlass_ranker.generator import Epilogue, KernelConfig, Problem, Schedule
from cutlass_ranker.generator import columns as col
from cutlass_ranker.models import AnalyticScore, RandomScore

CONFIGS = [
    KernelConfig(128, 256, 64, 2, 1, 4, Schedule.COOPERATIVE, Epilogue.TMA),
    KernelConfig(64, 16, 128, 1, 1, 9, Schedule.WARPSPECIALIZED, Epilogue.TMA),
]


def test_analytic_by_hand(hardware: Hardware) -> None:
    problem = Problem(2048, 4096, 512)
    assert hardware.sm_count == 132
    score = AnalyticScore().score(col.from_configs(CONFIGS), problem, hardware)
    # 16 x 16 = 256 tiles on 132 SMs are 2 waves; 32 x 256 = 8192 tiles are 63 (62.06).
    expected = [256 / (2 * 132) * 4 * sqrt(128 * 256 * 64), 8192 / (63 * 132) * 9 * sqrt(64 * 16 * 128)]
    assert score == pytest.approx(expected)


def test_analytic_scores_a_swapped_candidate_on_the_transposed_problem(hardware: Hardware) -> None:
    columns = col.with_launch(col.from_configs(CONFIGS[1:]), swapped=True)
    tiles = ceil(8192 / 64) * ceil(16 / 16)
    score = AnalyticScore().score(columns, Problem(16, 8192, 512), hardware)
    assert score == pytest.approx([tiles / 132 * 9 * sqrt(64 * 16 * 128)])


def test_random_depends_on_problem_and_seed_only(hardware: Hardware) -> None:
    columns = col.from_configs(CONFIGS * 500)
    one = RandomScore().score(columns, Problem(64, 64, 64), hardware)
    assert np.array_equal(one, RandomScore().score(columns, Problem(64, 64, 64), hardware))
    assert not np.array_equal(one, RandomScore(1).score(columns, Problem(64, 64, 64), hardware))
    assert not np.array_equal(one, RandomScore().score(columns, Problem(64, 64, 128), hardware))
    assert one.mean() == pytest.approx(0.5, abs=0.05)
