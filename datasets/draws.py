"""Training problems: drawn from real lists and at random, for every layout, away from all that is evaluated on."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ..generator import Problem
from .problems import (
    MAX_FLOPS,
    ROW_MAJOR,
    Shape,
    base_shapes,
    flops,
    held_out_shapes,
    near_held_out,
    problem_list,
    random_shape,
    read_shapes,
    shape_array,
    shape_of,
    supported,
)

ORDINARY_FLOPS: Final = 1.2e11
"""Most floating-point operations of a training problem that is not of the source ``random_large``."""
MAX_BYTES: Final = 8 * 10**9
"""Most bytes that A, B and D of a training problem may take together."""
SHARES: Final = {
    "llm_small_m": 0.18, "llm_large_m": 0.16, "random_small_m": 0.22, "random": 0.30, "long_k": 0.05,
    "tritonbench": 0.04, "random_large": 0.05,
}  # fmt: skip
"""Shares of the sources in a layout's own shapes: 40% have M up to 64, a quarter is ragged (half of the random)."""
COUNTS: Final = {"TNT": 250, "TTT": 90, "NNT": 90, "NTT": 90}
"""Own shapes of each layout, unless said otherwise."""

_SMALL_M: Final = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 28, 32, 40, 48, 56, 64)
_LARGER_M: Final = (
    72, 80, 96, 112, 128, 160, 192, 224, 256, 320, 384, 448, 512, 640, 768, 896, 1024, 1280, 1536, 2048, 3072, 4096,
    6144, 8192,
)  # fmt: skip
_SMALL: Final = 64


def training_problems(
    seed: int = 0,
    counts: Mapping[str, int] | None = None,
    *,
    shared: int = 60,
    column_major: int = 25,
    avoid: pd.DataFrame | None = None,
) -> pd.DataFrame:
    """Draw training problems, none of them held out or near a shape that is evaluated on.

    Every layout gets shapes of its own, then the layouts other than TNT get the same ``shared`` TNT shapes, so that
    layouts can be compared. Last, some problems are listed once more as what they are with a column-major D: as
    (N, M, K), with A and B exchanged.

    Parameters
    ----------
    seed
        Seed of the draw; the same arguments give the same list.
    counts
        Own shapes of each layout with a row-major D, ``COUNTS`` unless given. They come from several sources in the
        proportions of ``SHARES``; 95% are at most ``ORDINARY_FLOPS``.
    shared
        TNT shapes that each other layout gets besides.
    column_major
        Problems with a column-major D, spread evenly over the four layouts.
    avoid
        Problems (``LIST_COLUMNS``) already in use. Their shapes are not drawn again; of those that are for training,
        shared and column-major ones may be derived.

    Returns
    -------
    pandas.DataFrame
        ``LIST_COLUMNS``; split is ``"train"``.
    """
    rng = np.random.default_rng(seed)
    used: set[Shape] = set()
    held = shape_array(held_out_shapes())
    known: dict[Problem, list[str]] = {}
    if avoid is not None:
        used = {shape for shapes in base_shapes(avoid) for shape in shapes}
        evaluated = base_shapes(avoid[avoid["split"] == "eval"])
        held = np.concatenate([held, shape_array(shape for shapes in evaluated for shape in shapes)])
        training = avoid[avoid["split"] == "train"]
        for m, n, k, layout, sources in training[["M", "N", "K", "layout", "sources"]].itertuples(index=False):
            known[Problem(int(m), int(n), int(k), layout)] = str(sources).split(";")
    drawn: dict[Problem, list[str]] = {}
    for layout, count in (COUNTS if counts is None else counts).items():
        for source, shape in _own_shapes(rng, layout, count, used, held):
            drawn[Problem(*shape, layout)] = [source]
    everything = known | drawn
    for problem in _shared(rng, list(everything), shared):
        for layout in ROW_MAJOR[1:]:
            drawn.setdefault(Problem(problem.m, problem.n, problem.k, layout), everything[problem])
    everything = known | drawn
    for problem in _column_major(rng, list(everything), column_major, held):
        drawn[problem.transposed()] = everything[problem]
    fresh = {problem: sources for problem, sources in drawn.items() if problem not in known}
    return problem_list(fresh, "train")


def _own_shapes(
    rng: np.random.Generator, layout: str, count: int, used: set[Shape], held: NDArray[np.int64]
) -> Iterator[tuple[str, Shape]]:
    """Yield ``count`` shapes for a layout with their sources; adds them to ``used``."""
    projections = sorted({(int(row["N"]), int(row["K"])) for row in read_shapes("llm_projection_shapes")})
    tritonbench = sorted({shape_of(row) for row in read_shapes("tritonbench_gemm")})
    small = partial(random_shape, rng, layout, most_m=_SMALL)
    supplies: dict[str, Iterable[Shape]] = {
        "llm_small_m": _spread(rng, projections, _SMALL_M),
        "llm_large_m": _spread(rng, projections, _LARGER_M),
        "random_small_m": _alternating(small),
        "random": _alternating(partial(random_shape, rng, layout)),
        "long_k": (_long_k_shape(rng) for _ in iter(int, 1)),
        "tritonbench": _by_rank(rng, tritonbench, round(SHARES["tritonbench"] * count)),
        "random_large": (random_shape(rng, layout, False, least_flops=ORDINARY_FLOPS) for _ in iter(int, 1)),
    }
    total, taken = 0.0, 0
    for source, share in SHARES.items():
        total += share
        most = MAX_FLOPS if source == "random_large" else ORDINARY_FLOPS
        for shape in supplies[source]:
            if taken >= round(total * count):
                break
            if shape not in used and _fits(shape, layout, most) and near_held_out(shape, held) is None:
                used.add(shape)
                taken += 1
                yield ("llm" if source.startswith("llm") else source), shape


def _fits(shape: Shape, layout: str, most_flops: float) -> bool:
    problem = Problem(*shape, layout)
    return supported(shape, layout) and flops(shape) <= most_flops and problem.min_bytes <= MAX_BYTES


def _shared(rng: np.random.Generator, problems: list[Problem], count: int) -> list[Problem]:
    """Choose TNT problems that can be had in every layout."""
    usable = [
        p for p in problems
        if p.layout == "TNT" and p.m % 8 == 0 and p.flops <= ORDINARY_FLOPS
    ]  # fmt: skip
    order = rng.permutation(len(usable))[:count]
    return [usable[i] for i in sorted(order)]


def _column_major(
    rng: np.random.Generator, problems: list[Problem], count: int, held: NDArray[np.int64]
) -> list[Problem]:
    """Choose problems of all four layouts, evenly, that may be trained on the other way round too."""
    chosen = []
    for number, layout in enumerate(ROW_MAJOR):
        usable = [
            p for p in problems
            if p.layout == layout and p.flops <= ORDINARY_FLOPS and near_held_out((p.n, p.m, p.k), held) is None
        ]  # fmt: skip
        share = (count + len(ROW_MAJOR) - 1 - number) // len(ROW_MAJOR)
        chosen += [usable[i] for i in sorted(rng.permutation(len(usable))[:share])]
    return chosen


def _alternating(draw: Callable[[bool], Shape]) -> Iterator[Shape]:
    """Yield shapes that are ragged and 32-aligned in turn."""
    while True:
        yield draw(True)
        yield draw(False)


def _spread(rng: np.random.Generator, pairs: list[tuple[int, int]], sizes: tuple[int, ...]) -> Iterator[Shape]:
    """Yield every (M, N, K) of sizes x pairs, cycling through both so that any prefix covers them evenly."""
    ms = rng.permutation(np.array(sizes)).tolist()
    order = rng.permutation(len(pairs)).tolist()
    for turn in range(len(ms)):
        for position, pair in enumerate(order):
            n, k = pairs[pair]
            yield ms[(position + turn * (len(pairs) // 2 + 1)) % len(ms)], n, k


def _by_rank(rng: np.random.Generator, shapes: list[Shape], count: int) -> Iterator[Shape]:
    """Yield one shape at random from each of ``count`` quantiles of 2MNK, over and over."""
    ordered = np.array(sorted(shapes, key=lambda shape: (flops(shape), shape)))
    bins = [list(map(tuple, rng.permutation(part).tolist())) for part in np.array_split(ordered, max(count, 1))]
    while any(bins):
        for part in bins:
            if part:
                yield part.pop()


def _long_k_shape(rng: np.random.Generator) -> Shape:
    """Draw a shape with a long K and an output of few tiles, where splitting K is what matters."""
    m, n = (max(1, round(np.exp(rng.uniform(np.log(16), np.log(768))) / 8)) * 8 for _ in range(2))
    return m, n, round(np.exp(rng.uniform(np.log(8_192), np.log(131_072))) / 64) * 64
