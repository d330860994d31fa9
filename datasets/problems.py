"""Problem lists: real shapes shipped with the package, the evaluation problems, and what may not be trained on.

A problem is (M, N, K) in a layout of A, B and D. Splits go by base shape: all layouts of an (M, N, K) fall on one side,
and a column-major D counts as the row-major problem (N, M, K) too, because that is the same computation.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping
from functools import lru_cache
from importlib.resources import files
from typing import Any, Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ..generator import Problem, UnsupportedProblem, require_supported
from ..generator.rules import contiguous_dimensions

Shape = tuple[int, int, int]

PTXBENCH_SHAPE: Final[Shape] = (8192, 7168, 5120)
"""PTXBench's GEMM ``gemm_n7168_k5120`` at its M; TNT."""
ROW_MAJOR: Final = ("TNT", "TTT", "NNT", "NTT")
"""The layouts with a row-major D."""
NEAR_FACTOR: Final = 1.5
"""A training shape may not lie within this factor of a held-out one in one axis while the other two are equal."""
MAX_FLOPS: Final = 8e11
"""Most floating-point operations of a drawn problem; measuring time grows with them."""
PROBLEM_COLUMNS: Final = ("problem_id", "M", "N", "K", "layout", "dtype", "sources", "split", "priority")
LIST_COLUMNS: Final = ("M", "N", "K", "layout", "sources", "split")
"""Columns of a problem list: ``sources`` are ``;``-joined; ``split`` is one of ``SPLITS``."""
SPLITS: Final = ("train", "eval")

_RANGES: Final = {"m": (1, 16_384), "n": (64, 32_768), "k": (64, 32_768)}


def read_shapes(name: str) -> list[dict[str, str]]:
    """Read a shipped shape list, e.g. ``"deepbench_gemm"``; the first line of each file names its source."""
    text = files(__package__).joinpath("shapes", f"{name}.csv").read_text(encoding="utf-8")
    return list(csv.DictReader(line for line in text.splitlines() if not line.startswith("#")))


def shape_of(row: Mapping[str, str]) -> Shape:
    """Return (M, N, K) of a row of a shape list."""
    return int(row["M"]), int(row["N"]), int(row["K"])


def paper_shapes() -> list[Shape]:
    """The 17 held-out shapes of arXiv 2609.35587, Table 9."""
    return [shape_of(row) for row in read_shapes("paper_eval_shapes")]


def deepbench_problems() -> list[Problem]:
    """The 151 problems of DeepBench's dense GEMM list that TMA can take and whose sides are all 32 or longer.

    DeepBench calls BLAS: C[M,N] = op(A) op(B) with everything column-major. An operand that is not transposed (N) is
    stored as the column-major matrix that the product sees; a transposed one (T) is stored column-major the other
    way round, which is the row-major matrix that the product sees. So BLAS's letters are CUTLASS's, and D is
    column-major: ``NN`` is NNN, ``TN`` is TNN, ``NT`` is NTN. Rows that are listed twice count once.
    """
    usable = [row for row in read_shapes("deepbench_gemm") if row["tma8"] == "1" and row["min_dim_ge32"] == "1"]
    return list(dict.fromkeys(Problem(*shape_of(row), f"{row['layout']}N") for row in usable))


def evaluation_problems() -> pd.DataFrame:
    """The published evaluation problems: the paper's shapes in four layouts, PTXBench's as TNT, DeepBench's as it is.

    Returns
    -------
    pandas.DataFrame
        ``LIST_COLUMNS``; split is ``"eval"``.
    """
    sources: dict[Problem, list[str]] = {}
    for name, problems in (
        ("paper", [Problem(*shape, layout) for layout in ROW_MAJOR for shape in paper_shapes()]),
        ("ptxbench", [Problem(*PTXBENCH_SHAPE)]),
        ("deepbench", deepbench_problems()),
    ):
        for problem in problems:
            sources.setdefault(problem, []).append(name)
    return problem_list(sources, "eval")


@lru_cache(maxsize=1)
def held_out_shapes() -> frozenset[Shape]:
    """Base shapes on which nothing may be trained: the paper's, PTXBench's, and all of DeepBench's, both ways round."""
    deepbench = [shape_of(row) for row in read_shapes("deepbench_gemm")]
    turned = [(n, m, k) for m, n, k in deepbench]
    return frozenset([*paper_shapes(), PTXBENCH_SHAPE, *deepbench, *turned])


def base_shapes(problems: pd.DataFrame) -> list[tuple[Shape, ...]]:
    """Shapes that each problem (columns M, N, K, layout) counts as: (M, N, K), with a column-major D also (N, M, K)."""
    rows = problems[["M", "N", "K", "layout"]].itertuples(index=False)
    shapes = [((int(m), int(n), int(k)), layout) for m, n, k, layout in rows]
    return [(s, (s[1], s[0], s[2])) if layout[2:] == "N" else (s,) for s, layout in shapes]


def near_held_out(
    shape: Shape, held: Iterable[Shape] | NDArray[np.int64] | None = None, factor: float = NEAR_FACTOR
) -> Shape | None:
    """Return a held-out shape that ``shape`` equals or comes within ``factor`` of in one axis, the others being equal.

    Parameters
    ----------
    shape
        M, N, K.
    held
        Held-out shapes, quickest as an array [shape, axis]; :func:`held_out_shapes` unless given.
    factor
        Nearness, at least 1.

    Returns
    -------
    tuple of int or None
        The offended shape, or None if ``shape`` may be trained on.
    """
    if not isinstance(held, np.ndarray):
        held = shape_array(held_out_shapes() if held is None else held)
    pair = np.stack(np.broadcast_arrays(held, np.array(shape, dtype=np.int64)))
    low, high = pair.min(axis=0), pair.max(axis=0)
    near = ((low != high).sum(axis=1) <= 1) & (high <= factor * low).all(axis=1)
    if not near.any():
        return None
    m, n, k = held[near.argmax()].tolist()
    return m, n, k


def shape_array(shapes: Iterable[Shape]) -> NDArray[np.int64]:
    """Return shapes as an array [shape, axis], sorted."""
    return np.array(sorted(shapes), dtype=np.int64).reshape(-1, 3)


def leaks(problems: pd.DataFrame) -> dict[int, tuple[Shape, Shape]]:
    """Find training problems that are held out, or equal or near to a problem that is evaluated on.

    Parameters
    ----------
    problems
        Columns M, N, K, layout, split.

    Returns
    -------
    dict
        Index label of a training problem to its shape and the shape that it offends.
    """
    evaluated = problems[problems["split"] == "eval"]
    held = shape_array(held_out_shapes() | {shape for shapes in base_shapes(evaluated) for shape in shapes})
    training = problems[problems["split"] == "train"]
    found = {}
    for label, shapes in zip(training.index, base_shapes(training), strict=True):
        for shape in shapes:
            other = near_held_out(shape, held)
            if other is not None:
                found[label] = (shape, other)
    return found


def supported(shape: Shape, layout: str) -> bool:
    """True if TMA's 16-byte rule and the size limit allow the problem."""
    try:
        require_supported(Problem(*shape, layout))
    except UnsupportedProblem:
        return False
    return True


def m_is_contiguous(layout: str) -> bool:
    """True if some operand is contiguous along M, so that M must be a multiple of 8."""
    return any(name == "M" for _, name, _ in contiguous_dimensions(Problem(8, 8, 8, layout)))


def random_evaluation_problems(seed: int, counts: Mapping[str, int], avoid: pd.DataFrame) -> pd.DataFrame:
    """Draw log-uniform evaluation problems, half of them 32-aligned, half multiples of 8 only.

    Parameters
    ----------
    seed
        Seed of the draw.
    counts
        How many problems of each layout, e.g. ``{"TNT": 110, "TTT": 68}``.
    avoid
        Problems (columns M, N, K, layout) already in use: none of the drawn ones equals one of them or comes within a
        factor 1.5 of it in one axis with the other two equal.

    Returns
    -------
    pandas.DataFrame
        ``LIST_COLUMNS``; sources ``random_aligned`` or ``random_ragged``, split ``"eval"``.
    """
    rng = np.random.default_rng(seed)
    used = shape_array(held_out_shapes() | {shape for shapes in base_shapes(avoid) for shape in shapes})
    chosen: dict[Problem, list[str]] = {}
    for layout, count in counts.items():
        drawn: list[Shape] = []
        while len(drawn) < count:
            ragged = len(drawn) % 2 == 1
            shape = random_shape(rng, layout, ragged)
            if flops(shape) <= MAX_FLOPS and near_held_out(shape, used) is None:
                drawn.append(shape)
                used = np.concatenate([used, shape_array([shape])])
                chosen[Problem(*shape, layout)] = ["random_ragged" if ragged else "random_aligned"]
    return problem_list(chosen, "eval")


def random_shape(
    rng: np.random.Generator, layout: str, ragged: bool, most_m: int = _RANGES["m"][1], least_flops: float = 0.0
) -> Shape:
    """Draw a log-uniform shape: M from 1 to ``most_m``, N and K from 64 to 32,768.

    Dimensions along which an operand of ``layout`` is contiguous, and N and K in any case, are multiples of 32. With
    ``ragged`` at least one of those is a multiple of 8 only. Shapes of fewer than ``least_flops`` are passed over.
    """
    aligned = "mnk" if m_is_contiguous(layout) else "nk"
    highest = {side: high for side, (_, high) in _RANGES.items()} | {"m": most_m}
    while True:
        sizes = {side: _log_uniform(rng, low, highest[side]) for side, (low, _) in _RANGES.items()}
        whole = {side: round(size / 32) * 32 if side in aligned else round(size) for side, size in sizes.items()}
        if ragged:
            # Any of the sides, at least one, drawn as the bits of a number.
            bits = int(rng.integers(1, 2 ** len(aligned)))
            for position, side in enumerate(aligned):
                if bits >> position & 1:
                    whole[side] += 8 * int(rng.integers(1, 4))
        shape = whole["m"], whole["n"], whole["k"]
        # M under 16 rounds to 0, and what was added to the highest side may pass its limit.
        inside = all(0 < whole[side] <= highest[side] for side in whole)
        if inside and flops(shape) >= least_flops and supported(shape, layout):
            return shape


def _log_uniform(rng: np.random.Generator, low: float, high: float) -> float:
    return float(np.exp(rng.uniform(np.log(low), np.log(high))))


def flops(shape: Shape) -> int:
    """Floating-point operations, 2MNK."""
    m, n, k = shape
    return 2 * m * n * k


def problem_list(sources: Mapping[Problem, list[str]], split: str) -> pd.DataFrame:
    """Make a problem list (``LIST_COLUMNS``) of problems and where each comes from."""
    rows: list[tuple[Any, ...]] = [(p.m, p.n, p.k, p.layout, ";".join(names), split) for p, names in sources.items()]
    return pd.DataFrame(rows, columns=list(LIST_COLUMNS))
