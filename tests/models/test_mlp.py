"""Losses of the network: pairs, weights and gradients against brute force; training on the CPU."""

from dataclasses import replace
from math import exp, log2

import numpy as np
import pytest

from cutlass_ranker.models.config import InvalidTraining, MLPConfig, SampleConfig, TrainingConfig
from cutlass_ranker.models.mlp import fit_mlp
from cutlass_ranker.models.samples import Samples

torch = pytest.importorskip("torch", reason="networks are trained with torch")

from cutlass_ranker.models.pairs import RankingLoss, kept_pairs  # noqa: E402

CPU = torch.device("cpu")


def make_samples(relevances: list[list[float]], weights: list[float] | None = None) -> Samples:
    """Queries of one group each, with the given relevances and one feature."""
    rows = [len(part) for part in relevances]
    return Samples(
        np.zeros((sum(rows), 1), np.float32),
        np.ones(sum(rows)),
        np.concatenate(relevances).astype(np.float64),
        np.concatenate(([0], np.cumsum(rows))).astype(np.intp),
        np.ones(len(rows)) if weights is None else np.array(weights),
        np.arange(len(rows)),
    )


def mlp_config(objective: str = "lambdarank", gain: str = "linear", **settings: object) -> TrainingConfig:
    return TrainingConfig(kind="mlp", objective=objective, samples=SampleConfig(gain=gain), mlp=MLPConfig(**settings))


def test_pairs_touching_the_top_are_always_kept() -> None:
    better, worse, others = kept_pairs(np.array([0.0, 5.0, 3.0, 3.0, 0.0, 1.0]), top=2)
    # Top: rows 1 and 2 (2 before 3, which ties with it). Every pair with 1 or 2 in it, but for the tie (2, 3).
    kept = set(zip(better.tolist(), worse.tolist(), strict=True))
    assert kept == {(1, 0), (1, 2), (1, 3), (1, 4), (1, 5), (2, 0), (2, 4), (2, 5)}
    assert len(better) == len(kept)
    assert others.tolist() == [0, 3, 4, 5]


def test_random_pairs_come_from_the_others_of_the_query() -> None:
    samples = make_samples([[1.0, 0.0], [0.0, 5.0, 3.0, 3.0, 0.0, 1.0], [7.0, 8.0, 9.0, 6.0]])
    loss = RankingLoss(samples, mlp_config(top_pairs=2, random_pairs=4096), CPU)
    # Query 1: 4 others, so 6 pairs; query 2: 2 others (rows 8 and 11), so 1 pair; query 0 has none.
    seen = set()
    for seed in range(200):
        one, two, query = loss._draw(torch.tensor([0, 1, 2]), torch.Generator().manual_seed(seed))
        assert query.tolist() == [1] * 6 + [2]
        drawn = list(zip(one.tolist(), two.tolist(), strict=True))
        assert all(samples.relevance[i] >= samples.relevance[j] for i, j in drawn)
        seen |= {(i, j) for i, j in drawn if samples.relevance[i] != samples.relevance[j]}
    assert seen == {(5, 2), (5, 6), (5, 7), (7, 2), (7, 6), (8, 11)}
    few = RankingLoss(samples, mlp_config(top_pairs=2, random_pairs=5), CPU)
    assert few._draw(torch.tensor([1, 2]), torch.Generator())[2].tolist() == [1] * 5 + [2]


@pytest.mark.parametrize("objective", ["lambdarank", "ranknet"])
def test_ties_that_are_drawn_weigh_nothing(objective: str) -> None:
    # Top 1 is row 0; the others tie, so only the pairs with row 0 count.
    samples = make_samples([[2.0, 1.0, 1.0, 1.0]])
    scores = torch.tensor([0.3, 0.1, -0.4, 0.2])
    losses = [RankingLoss(samples, mlp_config(objective, top_pairs=1, random_pairs=pairs), CPU) for pairs in (0, 100)]
    plain, drawn = (
        loss(scores, loss.batch(torch.tensor([0])), torch.Generator().manual_seed(0)).item() for loss in losses
    )
    assert drawn == pytest.approx(plain, rel=1e-6)
    assert plain > 0.1


def delta_ndcg(relevance: list[float], scores: list[float], i: int, j: int) -> float:
    """|NDCG before − after exchanging i and j in the ranking|, from the definition."""

    def ndcg(order: list[int]) -> float:
        dcg = sum(relevance[row] / log2(place + 2) for place, row in enumerate(order))
        return dcg / sum(gain / log2(place + 2) for place, gain in enumerate(sorted(relevance, reverse=True)))

    order = sorted(range(len(scores)), key=lambda row: -scores[row])
    swapped = [j if row == i else i if row == j else row for row in order]
    return abs(ndcg(order) - ndcg(swapped))


@pytest.mark.parametrize(
    ("objective", "gain"), [("lambdarank", "linear"), ("lambdarank", "exp"), ("ranknet", "linear")]
)
def test_gradient_equals_brute_force(objective: str, gain: str) -> None:
    relevances = [[5.0, 1.0], [0.0, 3.0, 1.0, 7.0, 1.0], [1.0, 1.0, 0.0], [2.0, 0.0, 0.5]]
    scores = [0.3, -0.2, 1.4, 0.1, 0.9, -1.0, 0.6, 0.2]
    shares = {1: 1.0, 3: 0.25}
    samples = make_samples(relevances, [9.0, shares[1], 9.0, shares[3]])
    loss = RankingLoss(samples, mlp_config(objective, gain, top_pairs=8), CPU)
    batch = loss.batch(torch.tensor([1, 3]))
    assert batch.rows.tolist() == [2, 3, 4, 5, 6, 10, 11, 12]
    variable = torch.tensor(scores, requires_grad=True)
    loss(variable, batch, torch.Generator()).backward()

    expected = np.zeros(8)
    for first, query in ((0, 1), (5, 3)):
        relevance = relevances[query]
        gains = [2**value - 1 for value in relevance] if gain == "exp" else relevance
        part = scores[first : first + len(relevance)]
        pairs = [(i, j) for i, a in enumerate(relevance) for j, b in enumerate(relevance) if a > b]
        for i, j in pairs:
            weight = delta_ndcg(gains, part, i, j) if objective == "lambdarank" else 1 / len(pairs)
            slope = weight * shares[query] / sum(shares.values()) / (1 + exp(part[i] - part[j]))
            expected[first + i] -= slope
            expected[first + j] += slope
    np.testing.assert_allclose(variable.grad.numpy(), expected, rtol=1e-5, atol=1e-7)


def toy_samples() -> Samples:
    """16 queries of 50 rows whose relative speed is a bent function of two features."""
    rng = np.random.default_rng(2)
    features = rng.standard_normal((800, 6)).astype(np.float32)
    merit = np.abs(features[:, 0]) + 0.5 * features[:, 1] * features[:, 2]
    speed = np.concatenate([np.exp(part - part.max()) for part in np.split(merit, 16)])
    return Samples(features, speed, 5 * speed**2, np.arange(0, 801, 50), np.ones(16), np.arange(16))


SMALL = MLPConfig(
    hidden=(32, 16), epochs=60, batch=200, groups_per_batch=4, dropout=0.0, learning_rate=1e-2, random_pairs=64
)


@pytest.mark.parametrize(
    ("objective", "mixed"), [("lambdarank", 0.0), ("ranknet", 0.0), ("mse", 0.0), ("lambdarank", 0.5)]
)
def test_learns_and_repeats(objective: str, mixed: float) -> None:
    samples = toy_samples()
    settings = replace(SMALL, regression_weight=mixed)
    config = TrainingConfig(kind="mlp", objective=objective, mlp=settings, threads=1)
    network = fit_mlp(samples, config)
    scores = network.scores(samples.features).reshape(16, 50)
    picked = samples.speed.reshape(16, 50)[np.arange(16), scores.argmax(axis=1)]
    assert picked.mean() > 0.8 > 2 * samples.speed.mean()
    assert np.array_equal(fit_mlp(samples, config).scores(samples.features), scores.reshape(-1))
    other = replace(config, seed=1)
    assert not np.array_equal(fit_mlp(samples, other).scores(samples.features), scores.reshape(-1))


def test_a_mixed_loss_also_predicts_the_speed() -> None:
    samples = toy_samples()
    errors = []
    for mixed in (0.0, 100.0):
        config = TrainingConfig(kind="mlp", mlp=replace(SMALL, regression_weight=mixed), threads=1)
        scores = fit_mlp(samples, config).scores(samples.features)
        errors.append(np.sqrt(np.mean((scores - np.log(np.maximum(samples.speed, 0.2))) ** 2)))
    assert errors[1] < 0.25 < errors[0]


def test_global_state_of_torch_stays() -> None:
    before = torch.random.get_rng_state()
    fit_mlp(toy_samples(), TrainingConfig(kind="mlp", mlp=replace(SMALL, epochs=1), threads=1))
    assert torch.equal(torch.random.get_rng_state(), before)
    assert not torch.are_deterministic_algorithms_enabled()


@pytest.mark.skipif(torch.cuda.is_available(), reason="is about machines without a GPU")
def test_a_missing_gpu_is_named() -> None:
    config = TrainingConfig(kind="mlp", mlp=replace(SMALL, device="cuda"), threads=1)
    with pytest.raises(InvalidTraining, match="torch sees no GPU"):
        fit_mlp(toy_samples(), config)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU that torch sees")
@pytest.mark.parametrize("objective", ["lambdarank", "ranknet", "mse"])
def test_learns_and_repeats_on_a_gpu(objective: str) -> None:
    samples = toy_samples()
    config = TrainingConfig(kind="mlp", objective=objective, mlp=replace(SMALL, device="cuda"), threads=1)
    scores = fit_mlp(samples, config).scores(samples.features)
    picked = samples.speed.reshape(16, 50)[np.arange(16), scores.reshape(16, 50).argmax(axis=1)]
    assert picked.mean() > 0.8
    assert np.array_equal(fit_mlp(samples, config).scores(samples.features), scores)


def test_members_differ() -> None:
    settings = MLPConfig(hidden=(8,), epochs=1, members=2, random_pairs=0)
    network = fit_mlp(toy_samples(), TrainingConfig(kind="mlp", mlp=settings, threads=1))
    assert len(network.members) == 2
    assert not np.array_equal(network.members[0][0][0], network.members[1][0][0])
