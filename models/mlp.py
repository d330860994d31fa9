"""Training of multilayer perceptrons with torch; what comes out is evaluated in NumPy (:mod:`.network`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ..generator.errors import MissingDependency
from .base import Floats, Matrix, Standardizer
from .config import MLPConfig, TrainingConfig
from .network import Layer, Network
from .samples import Samples
from .targets import regression_target, row_weights

if TYPE_CHECKING:
    import torch

Ints = NDArray[np.intp]


def fit_mlp(samples: Samples, config: TrainingConfig) -> Network:
    """Train a network, or an ensemble of them.

    A batch is some groups with all their queries. For the ranking objectives the loss of a query is the sum over its
    kept pairs of weight · log(1 + exp(−(score of the better − score of the worse))), and a batch's the weighted mean
    over its queries; see :func:`make_query`, :func:`draw_pairs` and :func:`pair_weights`.

    Parameters
    ----------
    samples
        Training rows.
    config
        Objective, settings, seed and threads.

    Raises
    ------
    MissingDependency
        If torch is not installed.
    """
    try:
        import torch
    except ImportError as error:
        raise MissingDependency("training this model needs torch: pip install 'cutlass-ranker[train]'") from error
    threads = torch.get_num_threads()
    torch.set_num_threads(config.threads)
    try:
        standardizer = Standardizer.fit(samples.features)
        rows = standardizer.apply(samples.features)
        members = [_member(samples, rows, config, config.seed + 1000 * i) for i in range(config.mlp.members)]
    finally:
        torch.set_num_threads(threads)
    return Network(standardizer, members)


def build_module(inputs: int, settings: MLPConfig) -> torch.nn.Sequential:
    """Build the torch module: linear, ReLU, dropout for each hidden layer, then one linear output."""
    import torch

    layers: list[torch.nn.Module] = []
    width = inputs
    for hidden in settings.hidden:
        layers += [torch.nn.Linear(width, hidden), torch.nn.ReLU(), torch.nn.Dropout(settings.dropout)]
        width = hidden
    return torch.nn.Sequential(*layers, torch.nn.Linear(width, 1))


def export_layers(module: torch.nn.Sequential) -> list[Layer]:
    """Return weight and bias of each linear layer as NumPy arrays."""
    import torch

    linear = [layer for layer in module if isinstance(layer, torch.nn.Linear)]
    return [(layer.weight.detach().numpy().copy(), layer.bias.detach().numpy().copy()) for layer in linear]


@dataclass(frozen=True)
class Query:
    """The rows of one query and the pairs of them that are always kept."""

    start: int
    """First row, counted in the rows of its group."""
    relevance: Floats
    """Shape (rows,)."""
    weight: float
    better: Ints
    """More relevant row of each kept pair, shape (pairs,), counted in the query."""
    worse: Ints
    """Less relevant row of each."""
    others: Ints
    """Rows in none of the kept pairs' top, from which further pairs are drawn."""


def make_query(start: int, relevance: Floats, weight: float, top: int) -> Query:
    """Build a query; kept are the pairs with any of the ``top`` most relevant rows (the earlier one on a tie)."""
    order = np.argsort(-relevance, kind="stable")
    best, others = order[:top], np.sort(order[top:])
    one = np.concatenate([np.repeat(best, len(others)), np.repeat(best, len(best))])
    two = np.concatenate([np.tile(others, len(best)), np.tile(best, len(best))])
    keep = relevance[one] > relevance[two]
    return Query(start, relevance, weight, one[keep], two[keep], others)


def draw_pairs(query: Query, extra: int, rng: np.random.Generator) -> tuple[Ints, Ints]:
    """Return the pairs of a query for one batch: the kept ones, and ``extra`` drawn from the others (less ties).

    Returns
    -------
    (better, worse)
        Rows of each pair, counted in the query, shapes (pairs,).
    """
    if len(query.others) < 2 or not extra:
        return query.better, query.worse
    one, two = query.others[rng.integers(0, len(query.others), (2, extra))]
    lower = query.relevance[one] < query.relevance[two]
    differ = query.relevance[one] != query.relevance[two]
    better = np.concatenate([query.better, np.where(lower, two, one)[differ]])
    return better, np.concatenate([query.worse, np.where(lower, one, two)[differ]])


def pair_weights(relevance: Floats, scores: Floats, better: Ints, worse: Ints, objective: str) -> Floats:
    """Weigh the pairs of a query.

    ``ranknet``: 1 / pairs each. ``lambdarank``: |ΔNDCG|, the change of NDCG if the two rows changed places in the
    ranking by ``scores``: |gain_i − gain_j| · |1/log2(1 + rank_i) − 1/log2(1 + rank_j)| / ideal DCG, with the
    relevance as gain and ranks from 1.

    Returns
    -------
    ndarray, shape (pairs,)
    """
    if objective == "ranknet":
        return np.full(len(better), 1.0 / max(len(better), 1))
    discount = 1.0 / np.log2(np.arange(2, len(relevance) + 2))
    ideal = float(np.sort(relevance)[::-1] @ discount)
    of_row = np.empty(len(relevance))
    of_row[np.argsort(-scores, kind="stable")] = discount
    gain = np.abs(relevance[better] - relevance[worse])
    return np.asarray(gain * np.abs(of_row[better] - of_row[worse]) / ideal)


def ranking_loss(
    scores: torch.Tensor, queries: Sequence[tuple[int, Query]], config: TrainingConfig, rng: np.random.Generator
) -> torch.Tensor:
    """Return the weighted mean loss of the queries of a batch, a scalar.

    Parameters
    ----------
    scores
        Score of each row of the batch, shape (rows,).
    queries
        First row in the batch, and the query.
    config
        Objective and number of random pairs.
    rng
        Draws the random pairs.
    """
    import torch

    current = scores.detach().numpy().astype(np.float64)
    better, worse, weight = [], [], []
    for first, query in queries:
        one, two = draw_pairs(query, config.mlp.random_pairs, rng)
        part = current[first : first + len(query.relevance)]
        weight.append(query.weight * pair_weights(query.relevance, part, one, two, config.objective))
        better.append(one + first)
        worse.append(two + first)
    total = sum(query.weight for _, query in queries)
    difference = scores[torch.from_numpy(np.concatenate(better))] - scores[torch.from_numpy(np.concatenate(worse))]
    weights = torch.from_numpy((np.concatenate(weight) / total).astype(np.float32))
    return (weights * torch.nn.functional.softplus(-difference)).sum()


def _member(samples: Samples, rows: Matrix, config: TrainingConfig, seed: int) -> list[Layer]:
    """Train one network on standardised rows."""
    import torch

    settings = config.mlp
    rng = np.random.default_rng(seed)
    spans, queries = _by_group(samples, settings.top_pairs)
    target = torch.from_numpy(regression_target(samples, config).astype(np.float32))
    weight = torch.from_numpy(row_weights(samples).astype(np.float32))
    inputs = torch.from_numpy(rows)
    per_epoch = -(-len(spans) // settings.groups_per_batch)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        module = build_module(rows.shape[1], settings)
        optimizer = torch.optim.AdamW(module.parameters(), settings.learning_rate, weight_decay=settings.weight_decay)
        schedule = torch.optim.lr_scheduler.OneCycleLR(
            optimizer, settings.learning_rate, total_steps=settings.epochs * per_epoch + 1, pct_start=0.2
        )
        for _ in range(settings.epochs):
            for batch in np.array_split(rng.permutation(len(spans)), per_epoch):
                index = torch.from_numpy(np.concatenate([np.arange(*spans[g]) for g in batch]))
                scores = module(inputs[index])[:, 0]
                if config.objective == "mse":
                    share = weight[index]
                    loss = (share * (scores - target[index]) ** 2).sum() / share.sum()
                else:
                    first = np.cumsum([0] + [spans[g][1] - spans[g][0] for g in batch])
                    listed = [(int(first[i]) + q.start, q) for i, g in enumerate(batch) for q in queries[g]]
                    loss = ranking_loss(scores, listed, config, rng)
                optimizer.zero_grad()
                loss.backward()
                if settings.gradient_clip:
                    torch.nn.utils.clip_grad_norm_(module.parameters(), settings.gradient_clip)
                optimizer.step()
                schedule.step()
    return export_layers(module)


def _by_group(samples: Samples, top: int) -> tuple[list[tuple[int, int]], list[list[Query]]]:
    """Return the row range of each group and its queries; a group's queries lie next to each other."""
    spans: list[tuple[int, int]] = []
    queries: list[list[Query]] = []
    previous = -1
    for number, group in enumerate(samples.group.tolist()):
        begin, end = int(samples.start[number]), int(samples.start[number + 1])
        if group != previous:
            spans.append((begin, end))
            queries.append([])
        spans[-1] = (spans[-1][0], end)
        share = float(samples.weight[number])
        queries[-1].append(make_query(begin - spans[-1][0], samples.relevance[begin:end], share, top))
        previous = group
    return spans, queries
