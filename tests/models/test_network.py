"""NumPy inference of networks and the feature transform, by hand and against torch."""

import numpy as np
import pytest

from cutlass_ranker.generator.errors import ModelMismatch
from cutlass_ranker.models.base import CLIP, Standardizer
from cutlass_ranker.models.config import MLPConfig
from cutlass_ranker.models.network import Network


def f32(values: object) -> np.ndarray:
    return np.array(values, dtype=np.float32)


def identity(features: int) -> Standardizer:
    return Standardizer(np.zeros(features, np.float32), np.ones(features, np.float32), np.zeros(features, bool))


def test_standardizer_by_hand() -> None:
    # Columns: mean 2, deviation 1; constant; wide: sign(x) log(1+|x|) of 0, e^2-1, -(e^2-1) is 0, 2, -2.
    wide = np.exp(2.0) - 1.0
    rows = f32([[1, 5, 0], [3, 5, 0], [1, 5, 100 * wide], [3, 5, -100 * wide]])
    standardizer = Standardizer.fit(rows)
    assert standardizer.log.tolist() == [False, False, True]
    top = np.log1p(100 * wide)
    expected = [[-1, 0, 0], [1, 0, 0], [-1, 0, np.sqrt(2)], [1, 0, -np.sqrt(2)]]
    np.testing.assert_allclose(standardizer.apply(rows), expected, atol=1e-6)
    np.testing.assert_allclose(1 / standardizer.scale[2], top / np.sqrt(2), rtol=1e-6)


def test_a_constant_feature_stays_zero_even_when_it_changes_later() -> None:
    standardizer = Standardizer.fit(f32([[0.1, 1], [0.1, 2]]))
    assert standardizer.apply(f32([[7.0, 1.5]])).tolist() == [[0.0, 0.0]]


def test_far_values_are_cut() -> None:
    standardizer = Standardizer.fit(f32([[-1.0], [1.0]]))
    assert standardizer.apply(f32([[30.0], [-30.0]])).tolist() == [[CLIP], [-CLIP]]


def test_rows_that_are_cut_only_by_hand() -> None:
    # Means 2, 5 and 0; deviations 1, 0 and 2: cut at 2 ± 8, 5 and the logarithm at 0 ± 16.
    standardizer = Standardizer(f32([2, 5, 0]), f32([1, 0, 0.5]), np.array([False, False, True]))
    far = np.exp(20.0)
    rows = f32([[3, 7, np.e - 1], [11, 5, far], [-7, 0, -far]])
    expected = [[3, 5, 1], [10, 5, 16], [-6, 5, -16]]
    np.testing.assert_allclose(standardizer.cut(rows), expected, rtol=1e-6)
    centred = (f32(expected) - standardizer.mean) * standardizer.scale
    np.testing.assert_allclose(standardizer.apply(rows), centred, rtol=1e-6)


def test_standardizer_leaves_its_input_alone() -> None:
    rows = f32([[1, 1e6], [2, 3e6]])
    before = rows.copy()
    Standardizer.fit(rows).apply(rows)
    Standardizer.fit(rows).cut(rows)
    assert np.array_equal(rows, before)


def test_network_by_hand() -> None:
    first = (f32([[1, -1], [2, 0]]), f32([0, -3]))
    last = (f32([[10, 1]]), f32([0.5]))
    network = Network(identity(2), [[first, last]])
    # (3, 1): hidden (2, 3) -> 23.5; (1, 4): hidden (max(-3, 0), max(-1, 0)) -> 0.5.
    assert network.scores(f32([[3, 1], [1, 4]])).tolist() == [23.5, 0.5]


def test_members_are_averaged() -> None:
    one = [(f32([[1]]), f32([0]))]
    two = [(f32([[3]]), f32([4]))]
    assert Network(identity(1), [one, two]).scores(f32([[1], [2]])).tolist() == [4.0, 6.0]


def test_many_rows_equal_single_rows() -> None:
    rng = np.random.default_rng(0)
    layers = [
        (f32(rng.standard_normal((7, 5))), f32(rng.standard_normal(7))),
        (f32(rng.standard_normal((1, 7))), f32([0])),
    ]
    rows = f32(rng.standard_normal((1000, 5)))
    network = Network(Standardizer.fit(rows), [layers])
    singly = np.concatenate([network.scores(rows[i : i + 1]) for i in range(1000)])
    np.testing.assert_allclose(network.scores(rows), singly, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    "members",
    [
        [],
        [[(f32([[1, 2, 3]]), f32([0]))]],
        [[(f32([[1, 2]]), f32([0, 0]))]],
        [[(f32([[1, 2], [3, 4]]), f32([0, 0]))]],
    ],
)
def test_shapes_that_do_not_fit_are_refused(members: list) -> None:
    with pytest.raises(ModelMismatch):
        Network(identity(2), members)


def test_a_missing_tensor_is_named() -> None:
    tensors = Network(identity(1), [[(f32([[1]]), f32([0]))]]).tensors()
    del tensors["member0.layer0.bias"]
    with pytest.raises(ModelMismatch, match=r"member0\.layer0\.bias"):
        Network.from_tensors(tensors)


@pytest.mark.parametrize("hidden", [(), (16,), (256, 128), (64, 32, 16, 8)])
def test_equals_torch(hidden: tuple[int, ...]) -> None:
    torch = pytest.importorskip("torch", reason="compares with torch itself")
    from cutlass_ranker.models.mlp import build_module, export_layers

    rng = np.random.default_rng(1)
    rows = f32(rng.standard_normal((700, 40)) * np.geomspace(1e-3, 1e6, 40))
    standardizer = Standardizer.fit(rows)
    torch.manual_seed(3)
    module = build_module(40, MLPConfig(hidden=hidden, dropout=0.3))
    network = Network.from_tensors(Network(standardizer, [export_layers(module)]).tensors())
    module.eval()
    with torch.no_grad():
        expected = module(torch.from_numpy(standardizer.apply(rows)))[:, 0].numpy()
    assert expected.std() > 1e-3
    np.testing.assert_allclose(network.scores(rows), expected, rtol=1e-5, atol=1e-5)
