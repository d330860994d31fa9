"""Problem lists: real shapes shipped with the package, evaluation problems, and training problems kept apart from them.

All problems of the first campaign are ``TNT``: A row-major, B column-major, D row-major. A list that was published for
another layout contributes its (M, N, K) only.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.resources import files
from typing import Final

import numpy as np
import pandas as pd

Shape = tuple[int, int, int]

PTXBENCH_SHAPE: Final[Shape] = (8192, 7168, 5120)
"""PTXBench's GEMM ``gemm_n7168_k5120`` at its M."""
NEAR_FACTOR: Final = 1.5
"""A training shape may not lie within this factor of a held-out one in one axis while the other two are equal."""
MAX_BYTES: Final = 8 * 10**9
"""Most bytes that A, B and D of a training problem may take together."""
MAX_FLOPS: Final = 8e11
"""Most floating-point operations of an ordinary training problem; measuring time grows with them."""
PROBLEM_COLUMNS: Final = ("problem_id", "M", "N", "K", "layout", "dtype", "sources", "split", "priority")

_TMA_ELEMENTS: Final = 8
_SMALL_M: Final = (1, 2, 3, 4, 5, 7, 8, 12, 16, 24, 32, 40, 48, 64)
_LARGER_M: Final = (80, 96, 128, 192, 256, 384, 512, 1024, 2048, 4096, 8192)
_LARGE: Final[tuple[Shape, ...]] = ((16384, 8192, 8192), (8192, 16384, 4096))


@dataclass(frozen=True)
class ProblemCounts:
    """How many training problems come from each kind of source."""

    llm_small_m: int = 46
    """LLM projections with M from 1 to 64."""
    llm_large_m: int = 46
    """LLM projections with M above 64."""
    tritonbench: int = 36
    random_odd: int = 66
    """Log-uniform shapes with N or K a multiple of 8 but not of 32."""
    random_aligned: int = 24
    """Log-uniform shapes with N and K multiples of 32."""
    random_large: int = 20
    """Log-uniform shapes of many tiles: M 512 to 8,192, N 1,024 to 32,768, K 256 to 8,192."""
    long_k: int = 10
    """Small M and N with K from 8,192 to 131,072."""


def read_shapes(name: str) -> list[dict[str, str]]:
    """Read a shipped shape list, e.g. ``"deepbench_gemm"``; the first line of each file names its source."""
    text = files(__package__).joinpath("shapes", f"{name}.csv").read_text(encoding="utf-8")
    return list(csv.DictReader(line for line in text.splitlines() if not line.startswith("#")))


def _shape(row: dict[str, str]) -> Shape:
    return int(row["M"]), int(row["N"]), int(row["K"])


def paper_shapes() -> list[Shape]:
    """The 17 held-out shapes of arXiv 2609.35587, Table 9."""
    return [_shape(row) for row in read_shapes("paper_eval_shapes")]


def deepbench_shapes() -> list[Shape]:
    """Every distinct (M, N, K) of DeepBench's dense GEMM list."""
    return sorted({_shape(row) for row in read_shapes("deepbench_gemm")})


def deepbench_evaluation(count: int = 60) -> list[Shape]:
    """Choose DeepBench evaluation shapes: 16-byte aligned in their own layout and as TNT, no dimension under 32.

    Sorted by 2MNK, the surplus is taken out as every second shape counted from the largest, so the choice is the same
    every time and spans the whole range of sizes.
    """
    shapes = {_shape(r) for r in read_shapes("deepbench_gemm") if r["tma8"] == "1" and r["min_dim_ge32"] == "1"}
    usable = sorted((s for s in shapes if tma_aligned(s)), key=lambda s: (s[0] * s[1] * s[2], s))
    surplus = len(usable) - count
    dropped = {len(usable) - 2 * (i + 1) for i in range(max(surplus, 0))}
    return [shape for i, shape in enumerate(usable) if i not in dropped]


def tma_aligned(shape: Shape) -> bool:
    """True if a 2-byte TNT problem obeys TMA's 16-byte rule: K (rows of A and B) and N (rows of D) multiples of 8."""
    return shape[1] % _TMA_ELEMENTS == 0 and shape[2] % _TMA_ELEMENTS == 0


def held_out_shapes() -> frozenset[Shape]:
    """Base shapes on which nothing may be trained: the paper's, all of DeepBench's, PTXBench's."""
    return frozenset([*paper_shapes(), *deepbench_shapes(), PTXBENCH_SHAPE])


def near_held_out(shape: Shape, held: Iterable[Shape] | None = None, factor: float = NEAR_FACTOR) -> Shape | None:
    """Return a held-out shape that ``shape`` equals or comes within ``factor`` of in one axis, the others being equal.

    Returns
    -------
    tuple of int or None
        The offended shape, or None if ``shape`` may be trained on.
    """
    for other in held_out_shapes() if held is None else held:
        differing = [axis for axis in range(3) if shape[axis] != other[axis]]
        if not differing:
            return other
        if len(differing) == 1:
            low, high = sorted((shape[differing[0]], other[differing[0]]))
            if high <= factor * low:
                return other
    return None


def evaluation_problems(deepbench: int = 60) -> pd.DataFrame:
    """The evaluation problems: the paper's 17 shapes, PTXBench's, and ``deepbench`` of DeepBench's, all as TNT.

    Returns
    -------
    pandas.DataFrame
        Columns M, N, K, sources (``;``-joined), split (``"eval"``).
    """
    sources: dict[Shape, list[str]] = {}
    for name, shapes in (
        ("paper", paper_shapes()),
        ("ptxbench", [PTXBENCH_SHAPE]),
        ("deepbench", deepbench_evaluation(deepbench)),
    ):
        for shape in shapes:
            sources.setdefault(shape, []).append(name)
    return _frame(sources, "eval")


def random_evaluation_problems(seed: int, count: int, avoid: pd.DataFrame) -> pd.DataFrame:
    """Draw log-uniform evaluation problems, half of them with N and K multiples of 32, half only of 8.

    Parameters
    ----------
    seed
        Seed of the draw.
    count
        How many problems.
    avoid
        Problems (columns M, N, K) already in use: none of the drawn ones equals one of them or comes within a factor
        1.5 of it in one axis with the other two equal.

    Returns
    -------
    pandas.DataFrame
        Columns M, N, K, sources (``random_aligned`` or ``random_ragged``), split (``"eval"``).
    """
    rng = np.random.default_rng(seed)
    used = {(int(m), int(n), int(k)) for m, n, k in avoid[["M", "N", "K"]].itertuples(index=False)} | held_out_shapes()
    chosen: dict[Shape, list[str]] = {}
    while len(chosen) < count:
        odd = len(chosen) % 2 == 1
        shape = _random_shape(rng, odd)
        m, n, k = shape
        near = near_held_out(shape, [*used, *chosen]) is not None
        if tma_aligned(shape) and 2 * m * n * k <= MAX_FLOPS and not near:
            chosen[shape] = ["random_ragged" if odd else "random_aligned"]
    return _frame(chosen, "eval")


def training_problems(seed: int = 0, counts: ProblemCounts | None = None) -> pd.DataFrame:
    """Draw the training problems, none of them held out or near a held-out shape, all TMA-aligned as TNT.

    Parameters
    ----------
    seed
        Seed of the draw; the same seed gives the same list.
    counts
        How many problems to take from each kind of source.

    Returns
    -------
    pandas.DataFrame
        Columns M, N, K, sources (``;``-joined), split (``"train"``).
    """
    counts = counts or ProblemCounts()
    rng = np.random.default_rng(seed)
    chosen: dict[Shape, list[str]] = {}
    held = held_out_shapes()

    def fits(shape: Shape, max_flops: float = MAX_FLOPS) -> bool:
        m, n, k = shape
        return (
            tma_aligned(shape)
            and shape not in chosen
            and 2 * m * n * k <= max_flops
            and 2 * (m * k + k * n + m * n) <= MAX_BYTES
            and near_held_out(shape, held) is None
        )

    def add(source: str, shapes: Iterable[Shape], count: int, max_flops: float = MAX_FLOPS) -> None:
        for shape in shapes:
            if count == 0:
                return
            if fits(shape, max_flops):
                chosen[shape] = [source]
                count -= 1

    kernelbench = [_shape(row) for row in read_shapes("kernelbench_matmul")]
    add("kernelbench", [s for s in kernelbench if s[1] > 1], len(kernelbench))
    add("large", _LARGE, len(_LARGE), max_flops=np.inf)
    projections = sorted({(int(row["N"]), int(row["K"])) for row in read_shapes("llm_projection_shapes")})
    for sizes, count in ((_SMALL_M, counts.llm_small_m), (_LARGER_M, counts.llm_large_m)):
        add("llm", _spread(rng, projections, sizes), count)
    tritonbench = sorted({_shape(row) for row in read_shapes("tritonbench_gemm")})
    add("tritonbench", _by_rank(rng, tritonbench, counts.tritonbench), counts.tritonbench)
    add("random", (_random_shape(rng, odd=True) for _ in range(100_000)), counts.random_odd)
    add("random", (_random_shape(rng, odd=False) for _ in range(100_000)), counts.random_aligned)
    add("random_large", (_random_large_shape(rng) for _ in range(100_000)), counts.random_large, max_flops=4e11)
    add("long_k", (_long_k_shape(rng) for _ in range(100_000)), counts.long_k)
    return _frame(chosen, "train")


def _spread(rng: np.random.Generator, pairs: list[tuple[int, int]], sizes: tuple[int, ...]) -> Iterable[Shape]:
    """Yield every (M, N, K) of sizes x pairs, cycling through both so that any prefix covers them evenly."""
    ms = rng.permutation(np.array(sizes)).tolist()
    order = rng.permutation(len(pairs)).tolist()
    for turn in range(len(ms)):
        for position, pair in enumerate(order):
            n, k = pairs[pair]
            yield ms[(position + turn * (len(pairs) // 2 + 1)) % len(ms)], n, k


def _by_rank(rng: np.random.Generator, shapes: list[Shape], count: int) -> Iterable[Shape]:
    """Yield one shape at random from each of ``count`` quantiles of 2MNK, over and over."""
    ordered = [s for s in sorted(shapes, key=lambda s: (s[0] * s[1] * s[2], s)) if tma_aligned(s)]
    bins = [list(map(tuple, rng.permutation(part).tolist())) for part in np.array_split(np.array(ordered), count)]
    while any(bins):
        for part in bins:
            if part:
                yield part.pop()


def _log_uniform(rng: np.random.Generator, low: float, high: float) -> float:
    return float(np.exp(rng.uniform(np.log(low), np.log(high))))


def _random_shape(rng: np.random.Generator, odd: bool) -> Shape:
    """Draw a log-uniform shape; ``odd``: N, K or both a multiple of 8 but not of 32."""
    m = round(_log_uniform(rng, 1, 12_000))
    n, k = (max(1, round(_log_uniform(rng, low, 16_384) / 32)) * 32 for low in (64, 64))
    if odd:
        axes = rng.integers(1, 4)
        n += 8 * int(rng.integers(1, 4)) * int(axes & 1)
        k += 8 * int(rng.integers(1, 4)) * int(axes >> 1)
    return m, n, k


def _random_large_shape(rng: np.random.Generator) -> Shape:
    """Draw a shape that fills the GPU several times over; M and N multiples of 8, K of 32."""
    m, n = (round(_log_uniform(rng, low, high) / 8) * 8 for low, high in ((512, 8_192), (1_024, 32_768)))
    return m, n, round(_log_uniform(rng, 256, 8_192) / 32) * 32


def _long_k_shape(rng: np.random.Generator) -> Shape:
    """Draw a shape with a long K and an output of few tiles, where splitting K is what matters."""
    m, n = (max(1, round(_log_uniform(rng, 16, 768) / 8)) * 8 for _ in range(2))
    return m, n, round(_log_uniform(rng, 8_192, 131_072) / 64) * 64


def _frame(sources: dict[Shape, list[str]], split: str) -> pd.DataFrame:
    rows = [(*shape, ";".join(names), split) for shape, names in sources.items()]
    return pd.DataFrame(rows, columns=["M", "N", "K", "sources", "split"])
