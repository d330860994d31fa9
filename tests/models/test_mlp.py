"""Losses of the network: pairs, weights and gradients against brute force."""

from math import exp, log2

import numpy as np
import pytest

from cutlass_ranker.models.config import MLPConfig, TrainingConfig
from cutlass_ranker.models.mlp import draw_pairs, fit_mlp, make_query, pair_weights, ranking_loss
from cutlass_ranker.models.samples import Samples


def test_pairs_touching_the_top_are_always_kept() -> None:
    relevance = np.array([0.0, 5.0, 3.0, 3.0, 0.0, 1.0])
    query = make_query(0, relevance, 1.0, top=2)
    # Top: rows 1 and 2 (2 before 3, which ties with it). Every pair with 1 or 2 in it, but for the tie (2, 3).
    kept = set(zip(query.better.tolist(), query.worse.tolist(), strict=True))
    assert kept == {(1, 0), (1, 2), (1, 3), (1, 4), (1, 5), (2, 0), (2, 4), (2, 5)}
    assert len(query.better) == len(kept)
    assert query.others.tolist() == [0, 3, 4, 5]


def test_random_pairs_come_from_the_others_and_are_never_ties() -> None:
    relevance = np.array([0.0, 5.0, 3.0, 3.0, 0.0, 1.0])
    query = make_query(0, relevance, 1.0, top=2)
    better, worse = draw_pairs(query, 400, np.random.default_rng(0))
    assert better[:8].tolist() == query.better.tolist()
    drawn = set(zip(better[8:].tolist(), worse[8:].tolist(), strict=True))
    assert drawn == {(3, 0), (3, 4), (3, 5), (5, 0), (5, 4)}
    assert draw_pairs(query, 0, np.random.default_rng(0))[0] is query.better


def test_lambdarank_weights_by_hand() -> None:
    # Scores rank the rows 1, 2, 0; gains 3, 1, 0; ideal DCG 3/log2(2) + 1/log2(3).
    weights = pair_weights(
        np.array([3.0, 1.0, 0.0]), np.array([0.1, 0.9, 0.5]), np.array([0, 0, 1]), np.array([1, 2, 2]), "lambdarank"
    )
    ideal = 3 + 1 / log2(3)
    expected = [2 * abs(1 / 2 - 1), 3 * abs(1 / 2 - 1 / log2(3)), 1 * abs(1 - 1 / log2(3))]
    assert weights == pytest.approx(np.array(expected) / ideal)


def test_ranknet_weights_are_equal() -> None:
    pairs = np.array([0, 1]), np.array([1, 2])
    assert pair_weights(np.array([3.0, 1.0, 0.0]), np.zeros(3), *pairs, "ranknet").tolist() == [0.5, 0.5]


def delta_ndcg(relevance: list[float], scores: list[float], i: int, j: int) -> float:
    """|NDCG before − after exchanging i and j in the ranking|, from the definition."""

    def ndcg(order: list[int]) -> float:
        dcg = sum(relevance[row] / log2(place + 2) for place, row in enumerate(order))
        return dcg / sum(gain / log2(place + 2) for place, gain in enumerate(sorted(relevance, reverse=True)))

    order = sorted(range(len(scores)), key=lambda row: -scores[row])
    swapped = [j if row == i else i if row == j else row for row in order]
    return abs(ndcg(order) - ndcg(swapped))


@pytest.mark.parametrize("objective", ["lambdarank", "ranknet"])
def test_gradient_equals_brute_force(objective: str) -> None:
    torch = pytest.importorskip("torch", reason="the loss is torch's")
    relevances = [[0.0, 3.0, 1.0, 7.0, 1.0], [2.0, 0.0, 0.5]]
    scores = [0.3, -0.2, 1.4, 0.1, 0.9, -1.0, 0.6, 0.2]
    shares = [1.0, 0.25]
    queries = [
        (0, make_query(0, np.array(relevances[0]), shares[0], top=8)),
        (5, make_query(0, np.array(relevances[1]), shares[1], top=8)),
    ]
    variable = torch.tensor(scores, requires_grad=True)
    config = TrainingConfig(kind="mlp", objective=objective)
    ranking_loss(variable, queries, config, np.random.default_rng(0)).backward()

    expected = np.zeros(8)
    for first, relevance, share in zip((0, 5), relevances, shares, strict=True):
        part = scores[first : first + len(relevance)]
        pairs = [(i, j) for i, a in enumerate(relevance) for j, b in enumerate(relevance) if a > b]
        for i, j in pairs:
            weight = delta_ndcg(relevance, part, i, j) if objective == "lambdarank" else 1 / len(pairs)
            slope = weight * share / sum(shares) / (1 + exp(part[i] - part[j]))
            expected[first + i] -= slope
            expected[first + j] += slope
    np.testing.assert_allclose(variable.grad.numpy(), expected, rtol=1e-5, atol=1e-7)


def toy_samples() -> Samples:
    """16 queries of 50 rows whose relative speed is a bent function of two features."""
    rng = np.random.default_rng(2)
    features = rng.standard_normal((800, 6)).astype(np.float32)
    merit = np.abs(features[:, 0]) + 0.5 * features[:, 1] * features[:, 2]
    speed = np.concatenate([np.exp(part - part.max()) for part in np.split(merit, 16)])
    return Samples(features, speed, 31 * speed**2, np.arange(0, 801, 50), np.ones(16), np.arange(16))


SMALL = MLPConfig(hidden=(32, 16), epochs=60, groups_per_batch=4, dropout=0.0, learning_rate=1e-2, random_pairs=64)


@pytest.mark.parametrize("objective", ["lambdarank", "ranknet", "mse"])
def test_learns_and_repeats(objective: str) -> None:
    pytest.importorskip("torch", reason="training needs torch")
    samples = toy_samples()
    config = TrainingConfig(kind="mlp", objective=objective, mlp=SMALL, threads=1)
    network = fit_mlp(samples, config)
    scores = network.scores(samples.features).reshape(16, 50)
    picked = samples.speed.reshape(16, 50)[np.arange(16), scores.argmax(axis=1)]
    assert picked.mean() > 0.8 > 2 * samples.speed.mean()
    assert np.array_equal(fit_mlp(samples, config).scores(samples.features), scores.reshape(-1))
    other = TrainingConfig(kind="mlp", objective=objective, mlp=SMALL, threads=1, seed=1)
    assert not np.array_equal(fit_mlp(samples, other).scores(samples.features), scores.reshape(-1))


def test_members_differ() -> None:
    pytest.importorskip("torch", reason="training needs torch")
    settings = MLPConfig(hidden=(8,), epochs=1, members=2, random_pairs=0)
    network = fit_mlp(toy_samples(), TrainingConfig(kind="mlp", mlp=settings, threads=1))
    assert len(network.members) == 2
    assert not np.array_equal(network.members[0][0][0], network.members[1][0][0])
