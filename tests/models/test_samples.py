"""Groups as ranking queries: which rows, which gains, which weights."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from cutlass_ranker.datasets import Group
from cutlass_ranker.generator.errors import DataError
from cutlass_ranker.models.config import SampleConfig, TrainingConfig
from cutlass_ranker.models.samples import build_samples, mistake_cost, speed_relevance, subset
from cutlass_ranker.models.targets import gains, regression_target, row_weights

MakeGroup = Callable[..., Group]


def numbered(group: Group) -> np.ndarray:
    """A feature matrix that holds the row numbers."""
    return np.arange(len(group.time_us), dtype=np.float32)[:, None]


def config(**samples: object) -> TrainingConfig:
    return TrainingConfig(samples=SampleConfig(**{"coarse_fraction": 1.0, **samples}))


def test_relevance_and_gain_by_hand(make_group: MakeGroup) -> None:
    assert speed_relevance(np.array([0.2, 0.5, 0.75, 1.0]), floor=0.5, sharpness=4.0).tolist() == [0, 0, 2, 4]
    group = make_group([(0, True, 10.0), (1, True, 12.5), (2, True, 40.0)])
    for gain, expected in (("exp", [2**5 - 1, 2**3 - 1, 0]), ("linear", [5, 3, 0])):
        chosen = config(gain=gain)
        assert gains(build_samples([group], [numbered(group)], chosen), chosen) == pytest.approx(expected)


def test_a_query_where_mistakes_cost_more_weighs_more(make_group: MakeGroup) -> None:
    # A random pick costs (0 + 1/2) / 2 = 1/4 in the one and (0 + 1/4) / 2 = 1/8 in the other; their mean is 3/16.
    groups = [make_group([(0, True, 10.0), (1, True, 20.0)]), make_group([(0, True, 15.0), (1, True, 20.0)])]
    for share, expected in ((0.0, [1, 1]), (1.0, [4 / 3, 2 / 3]), (0.5, [7 / 6, 5 / 6])):
        samples = build_samples(groups, [numbered(g) for g in groups], config(cost_weight=share))
        assert samples.weight == pytest.approx(expected)
    # Rows after the 16 fastest change nothing; speeds are against the query's own best.
    assert mistake_cost(np.array([0.5] * 16 + [0.1] * 9)) == 0.0
    assert mistake_cost(np.array([0.1, 0.4, 0.8])) == pytest.approx(1 - (0.1 + 0.4 + 0.8) / 3 / 0.8)


def test_kernels_are_one_query_and_the_launches_of_each_kernel_another(make_group: MakeGroup) -> None:
    group = make_group([(4, True, 10.0), (4, False, 8.0), (5, True, 16.0), (6, True, 12.0), (6, False, 24.0)])
    samples = build_samples([group], [numbered(group)], config(sharpness=1.0, launch_weight=0.5))
    assert samples.start.tolist() == [0, 3, 5, 7]
    assert samples.features[:, 0].tolist() == [0, 2, 3, 0, 1, 3, 4]
    assert samples.weight.tolist() == [1.0, 0.25, 0.25]
    assert samples.group.tolist() == [0, 0, 0]
    assert samples.query.tolist() == [0, 0, 0, 1, 1, 2, 2]
    # Speed is against the oracle of the group (8), relevance against the best of the query.
    assert samples.speed == pytest.approx([0.8, 0.5, 8 / 12, 0.8, 1.0, 8 / 12, 8 / 24])
    within = [1.0, 10 / 16, 10 / 12, 8 / 10, 1.0, 1.0, 0.5]
    assert samples.relevance == pytest.approx([2 * speed - 1 for speed in within])


def test_rows_that_may_not_be_chosen_are_learned_from(make_group: MakeGroup) -> None:
    group = make_group([(4, True, 10.0), (4, False, 8.0), (5, True, 16.0), (6, True, 5.0)])
    held = replace(group, listed=np.arange(4) != 2, allowed=np.arange(4) != 3)
    samples, every = (build_samples([each], [numbered(each)], config()) for each in (held, group))
    assert samples.features[:, 0].tolist() == [0, 2, 3, 0, 1]
    # Speed is against the fastest row (5), which may not be chosen.
    assert samples.speed == pytest.approx([1 / 2, 5 / 16, 1, 1 / 2, 5 / 8])
    assert samples.relevance.tolist() == every.relevance.tolist()


def test_swapped_launches_are_their_own_query(make_group: MakeGroup) -> None:
    group = make_group([(4, True, 10.0), (4, False, 8.0), (4, True, 16.0), (4, False, 12.0)])
    group.columns["swapped"][2:] = 1
    samples = build_samples([group], [numbered(group)], config())
    assert samples.features[:, 0].tolist() == [0, 2, 0, 1, 2, 3]
    assert group.variant.tolist() == [8, 8, 9, 9]


def test_without_launch_weight_only_kernels_are_compared(make_group: MakeGroup) -> None:
    group = make_group([(4, True, 10.0), (4, False, 8.0), (5, True, 16.0)])
    samples = build_samples([group], [numbered(group)], config(launch_weight=0.0))
    assert samples.features[:, 0].tolist() == [0, 2]


def test_coarse_rows_are_thinned_the_same_way_each_time(make_group: MakeGroup) -> None:
    rows = [(i, True, 10.0 if i < 20 else 100.0) for i in range(1020)]
    group = make_group(rows, coarse=[i >= 20 for i in range(1020)])
    kept = build_samples([group], [numbered(group)], config(coarse_fraction=0.25)).features[:, 0]
    assert kept[:20].tolist() == list(range(20))
    assert 200 < len(kept) - 20 < 300
    again = build_samples([group], [numbered(group)], config(coarse_fraction=0.25)).features[:, 0]
    assert kept.tolist() == again.tolist()
    other = build_samples([replace(group, problem_id=1)], [numbered(group)], config(coarse_fraction=0.25)).features[
        :, 0
    ]
    assert kept.tolist() != other.tolist()


def test_only_the_groups_of_the_index(make_group: MakeGroup) -> None:
    groups = [make_group([(0, True, 10.0), (1, True, 5.0 + i)]) for i in range(3)]
    samples = build_samples(groups, [numbered(g) for g in groups], config(), [2, 0])
    assert samples.group.tolist() == [2, 0]
    assert samples.speed == pytest.approx([0.7, 1.0, 0.5, 1.0])


def test_nothing_to_compare_is_refused(make_group: MakeGroup) -> None:
    group = make_group([(0, True, 10.0)])
    with pytest.raises(DataError, match="two rows"):
        build_samples([group], [numbered(group)], config())


def test_bands_as_relevance(make_group: MakeGroup) -> None:
    # Noise is 0.2% at least, so bands are about 0.57% wide: {10.0, 10.05}, {10.2}, {11}, {12}.
    group = make_group([(0, True, 12.0), (1, True, 10.0), (2, True, 10.05), (3, True, 10.2), (4, True, 11.0)])
    samples = build_samples([group], [numbered(group)], config(labels="bands", top_bands=2))
    assert samples.relevance.tolist() == [0, 2, 2, 1, 0]


def test_labels_follow_the_objective() -> None:
    assert TrainingConfig(objective="lambdarank").labels == "speed"
    assert TrainingConfig(objective="ranknet").labels == "bands"
    assert config(labels="bands").labels == "bands"


def test_subset_keeps_arrays_and_columns_together(make_group: MakeGroup) -> None:
    group = make_group([(0, True, 12.0), (1, True, 10.0), (2, False, 11.0)])
    group.columns["swizzle"][:] = [1, 2, 4]
    part = subset(group, np.array([2, 0]))
    assert part.time_us.tolist() == [11.0, 12.0]
    assert part.columns["swizzle"].tolist() == [4, 1]
    assert part.default_launch.tolist() == [False, True]
    assert part.problem == group.problem


def test_regression_target_and_weights(make_group: MakeGroup) -> None:
    groups = [
        make_group([(0, True, 10.0), (1, True, 20.0), (2, True, 40.0), (3, True, 100.0)]),
        make_group([(0, True, 10.0), (1, True, 20.0)]),
    ]
    chosen = config(regression_floor=0.2)
    samples = build_samples(groups, [numbered(g) for g in groups], chosen)
    assert regression_target(samples, chosen) == pytest.approx(np.log([1, 0.5, 0.25, 0.2, 1, 0.5]))
    # Both groups weigh the same although one has twice the rows; the mean is 1.
    assert row_weights(samples) == pytest.approx([0.75] * 4 + [1.5] * 2)
