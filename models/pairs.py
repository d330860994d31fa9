"""Pairwise ranking losses of LambdaRank and RankNet in torch, for batches of many groups at once, on CPU or GPU.

Rows of a group are queries next to each other (:mod:`.samples`). Of a query, all pairs with any of its fastest rows
are kept; of the others a number is drawn anew for each batch. Everything is a flat array with one entry a row or a
pair, so that the cost of a batch does not depend on how many queries it has.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray

from .base import Floats
from .targets import gains

if TYPE_CHECKING:
    from .config import TrainingConfig
    from .samples import Samples

Ints = NDArray[np.intp]


@dataclass(frozen=True)
class Batch:
    """Rows and queries of some groups."""

    rows: torch.Tensor
    """Rows of the samples, query after query, shape (rows,)."""
    queries: torch.Tensor
    """Queries, in that order, shape (queries,)."""


class RankingLoss:
    """Mean over the queries of a batch, by their weights, of the sum over pairs of weight · log(1 + exp(−(s_i − s_j))).

    Row i is the more relevant one of a pair. Pairs weigh the same in ``ranknet`` (1 / pairs of the query) and |ΔNDCG|
    in ``lambdarank``, the change of NDCG if the two rows changed places in the ranking by the scores:
    |gain_i − gain_j| · |1/log2(1 + rank_i) − 1/log2(1 + rank_j)| / ideal DCG, ranks from 1.

    Parameters
    ----------
    samples
        Training rows.
    config
        Objective, gain, ``top_pairs`` and ``random_pairs``.
    device
        Where the tensors live.
    """

    def __init__(self, samples: Samples, config: TrainingConfig, device: torch.device) -> None:
        settings = config.mlp
        self.lambdarank = config.objective == "lambdarank"
        kept = [kept_pairs(part, settings.top_pairs) for part in np.split(samples.relevance, samples.start[1:-1])]
        gain = gains(samples, config) if self.lambdarank else samples.relevance
        sizes = np.diff(samples.start)
        others = np.array([len(part) for _, _, part in kept])
        extra = np.minimum(settings.random_pairs, others * (others - 1) // 2)

        def put(values: NDArray[np.generic]) -> torch.Tensor:
            return torch.from_numpy(np.ascontiguousarray(values)).to(device)

        def join(position: int) -> torch.Tensor:
            starts = samples.start[:-1].tolist()
            return put(np.concatenate([part[position] + start for part, start in zip(kept, starts, strict=True)]))

        self.better, self.worse, self.others = join(0), join(1), join(2)
        self.relevance = put(samples.relevance)
        self.gain = put(gain.astype(np.float32))
        self.row_query = put(samples.query.astype(np.int64))
        self.row_start, self.sizes = put(samples.start[:-1]), put(sizes)
        self.pairs, self.other_count = put(np.array([len(part) for part, _, _ in kept])), put(others)
        self.pair_start = torch.cumsum(self.pairs, 0) - self.pairs
        self.other_start = torch.cumsum(self.other_count, 0) - self.other_count
        self.extra = put(extra)
        self.weight = put(samples.weight.astype(np.float32))
        ideal = [_ideal_dcg(part) for part in np.split(gain, samples.start[1:-1])]
        self.ideal = put(np.array(ideal, dtype=np.float32))
        self.discount = put((1.0 / np.log2(np.arange(2, sizes.max() + 2))).astype(np.float32))
        self.place = torch.zeros(len(samples.speed), dtype=torch.int64, device=device)

    def batch(self, queries: torch.Tensor) -> Batch:
        """Gather the rows of some queries, ascending, shape (queries,)."""
        return Batch(_ranges(self.row_start[queries], self.sizes[queries]), queries)

    def __call__(self, scores: torch.Tensor, batch: Batch, generator: torch.Generator) -> torch.Tensor:
        """Return the loss, a scalar.

        Parameters
        ----------
        scores
            Score of each row of the batch, shape (rows,).
        batch
            The rows, from :meth:`batch`.
        generator
            Draws the random pairs; on the device of the scores.
        """
        queries = batch.queries
        self.place[batch.rows] = torch.arange(len(batch.rows), device=scores.device)
        kept = _ranges(self.pair_start[queries], self.pairs[queries])
        one, two, query = self._draw(queries, generator)
        better = torch.cat([self.better[kept], one])
        worse = torch.cat([self.worse[kept], two])
        query = torch.cat([torch.repeat_interleave(queries, self.pairs[queries]), query])
        if self.lambdarank:
            discount = self._discounts(scores.detach(), batch)
            weight = (self.gain[better] - self.gain[worse]).abs() / self.ideal[query]
            weight = weight * (discount[self.place[better]] - discount[self.place[worse]]).abs()
        else:
            differ = (self.relevance[better] != self.relevance[worse]).to(torch.float32)
            count = torch.zeros(len(self.weight), device=scores.device).index_add(0, query, differ)
            weight = differ / count[query].clamp(min=1.0)
        weight = weight * self.weight[query] / self.weight[queries].sum()
        difference = scores[self.place[better]] - scores[self.place[worse]]
        return (weight * torch.nn.functional.softplus(-difference)).sum()

    def _draw(
        self, queries: torch.Tensor, generator: torch.Generator
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Draw pairs among the rows outside the kept pairs' top: the more relevant row, the other one, their query.

        Ties are among them; they weigh nothing.
        """
        query = torch.repeat_interleave(queries, self.extra[queries])
        drawn = torch.rand((2, len(query)), generator=generator, device=query.device)
        count = self.other_count[query]
        index = (drawn * count).to(torch.int64).minimum(count - 1) + self.other_start[query]
        one, two = self.others[index[0]], self.others[index[1]]
        right = self.relevance[one] >= self.relevance[two]
        return torch.where(right, one, two), torch.where(right, two, one), query

    def _discounts(self, scores: torch.Tensor, batch: Batch) -> torch.Tensor:
        """Return 1/log2(1 + rank) of each row of a batch in its query, ranked by descending score."""
        order = torch.argsort(scores, descending=True, stable=True)
        order = order[torch.argsort(self.row_query[batch.rows][order], stable=True)]
        # The queries of a batch ascend, so the sorted rows of each take the places that its rows have in the batch.
        rank = batch.rows - self.row_start[self.row_query[batch.rows]]
        result = torch.empty_like(scores)
        result[order] = self.discount[rank]
        return result


def kept_pairs(relevance: Floats, top: int) -> tuple[Ints, Ints, Ints]:
    """Choose the pairs of a query that are always kept: all with any of its ``top`` most relevant rows, less ties.

    Where relevances tie, the earlier row is the one in the top.

    Returns
    -------
    (better, worse, others)
        Rows of each pair, shapes (pairs,); the rows that are not in the top, ascending.
    """
    order = np.argsort(-relevance, kind="stable")
    best, others = order[:top], np.sort(order[top:])
    one = np.concatenate([np.repeat(best, len(others)), np.repeat(best, len(best))])
    two = np.concatenate([np.tile(others, len(best)), np.tile(best, len(best))])
    keep = relevance[one] > relevance[two]
    return one[keep], two[keep], others


def _ideal_dcg(gain: Floats) -> float:
    """Return the DCG of the best order; 1 where nothing is relevant."""
    return float(np.sort(gain)[::-1] @ (1.0 / np.log2(np.arange(2, len(gain) + 2)))) or 1.0


def _ranges(start: torch.Tensor, length: torch.Tensor) -> torch.Tensor:
    """Concatenate start[i], start[i] + 1, ..., start[i] + length[i] − 1 for each i."""
    before = torch.cumsum(length, 0) - length
    steps = torch.arange(int(length.sum()), device=start.device)
    return steps + torch.repeat_interleave(start - before, length)
