"""``select_kernel`` and ``rank_kernels``: from M, N, K to the kernel that should be fastest."""

from __future__ import annotations

import math
import operator
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

import numpy as np

from ..features import Hardware, get_hardware
from ..generator import (
    CANDIDATE_COLUMNS,
    Candidate,
    InvalidCandidates,
    ModelMismatch,
    Problem,
    require_supported,
)
from ..generator import columns as col
from ..models import load_model
from .choice import Choice
from .pool import Pool, as_entries, listed_pool, nothing_fits, shipped_pool, space_pool
from .ranking import at_least, rank_candidates

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ..generator import KernelConfig
    from ..models import Calibration, Ranker

ANSWERS: Final = 4096
"""Answers that are remembered."""


def select_kernel(
    m: int,
    n: int,
    k: int,
    *,
    layout: str = "TN",
    dtype: object = "bf16",
    hardware: str | Hardware = "h200",
    candidates: Iterable[KernelConfig | Candidate | str] | None = None,
    model: str | Path | Ranker = "default",
    space: str | None = None,
    deterministic: bool = True,
) -> Choice:
    """Pick the kernel and launch that should be fastest for D[m,n] = A[m,k] · B[k,n].

    Neither a GPU nor a compiler is used. The same call gives the same answer.

    Parameters
    ----------
    m, n, k
        Sizes in elements, from 1 to 2**31 − 1. Dimensions along which an operand is contiguous must be multiples of 16
        bytes (8 elements of BF16).
    layout
        Letters of A, B and, if wanted, D: ``T`` row-major, ``N`` column-major. ``"TN"`` is ``torch.nn.Linear``; D is
        row-major unless said.
    dtype
        Element type of A, B and D as torch or CUTLASS write it; accumulation is in float32.
    hardware
        ``"h200"``, ``"h100_sxm"``, ``"h100_pcie"``, ``"gh200"``, ``"h20"``, or a description of your own.
    candidates
        Kernels to choose from: configs, candidates (whose launch is kept) or ``cutlass_library`` procedural names, in
        any mixture. ``None`` takes the shipped catalogue, all of whose kernels were compiled, verified and measured.
    model
        Name of a shipped ranker, folder of a saved one (read once per process), or a ranker.
    space
        ``"paper"`` or ``"extended"``: choose from a whole search space instead, compiled or not.
    deterministic
        True takes only launches that give the same bits in every run. False also takes split-K whose partial sums are
        added atomically: it can be faster where D is small and K long, but the last bits vary.

    Returns
    -------
    Choice
        The pick, with its C++ and the regret to expect.

    Raises
    ------
    InvalidProblem
        If a size, the layout or the type makes no sense.
    UnsupportedProblem
        If TMA cannot take the problem, or the shipped catalogue has no kernels for its layout or type.
    UnknownHardware
        If the GPU is unknown.
    InvalidCandidates
        If the list is empty, has an entry that is no kernel, or nothing in it can serve the problem.
    InvalidConfig
        If the space is unknown.
    ModelMismatch
        If the model does not fit this version of the code.

    Examples
    --------
    >>> from cutlass_ranker import select_kernel
    >>> choice = select_kernel(8192, 7168, 5120, layout="TN", dtype="bf16")
    >>> choice.name.startswith("cutlass3x_sm90_tensorop_gemm_bf16_bf16_f32_")
    True
    """
    return _ask(m, n, k, 1, layout, dtype, hardware, candidates, model, space, deterministic)[0]


def rank_kernels(
    m: int,
    n: int,
    k: int,
    top_k: int = 8,
    *,
    layout: str = "TN",
    dtype: object = "bf16",
    hardware: str | Hardware = "h200",
    candidates: Iterable[KernelConfig | Candidate | str] | None = None,
    model: str | Path | Ranker = "default",
    space: str | None = None,
    deterministic: bool = True,
) -> list[Choice]:
    """List the ``top_k`` kernels that should be fastest, best first, each with its best launch.

    A kernel appears once, unless ``candidates`` has it with several launches. Fewer come back if fewer can serve the
    problem. The other parameters, and the errors, are those of :func:`select_kernel`, whose answer is the first entry.

    Parameters
    ----------
    top_k
        How many to return, at least 1.

    Raises
    ------
    InvalidCandidates
        Also if ``top_k`` is no positive whole number.
    """
    try:
        wanted = 0 if isinstance(top_k, bool) else operator.index(top_k)
    except TypeError:
        wanted = 0
    if wanted < 1:
        raise InvalidCandidates(f"top_k is {top_k!r}; it must be a whole number from 1")
    return list(_ask(m, n, k, wanted, layout, dtype, hardware, candidates, model, space, deterministic))


def _ask(
    m: object, n: object, k: object, top_k: int, layout: object, dtype: object, hardware: object, candidates: object,
    model: object, space: object, deterministic: bool,
) -> tuple[Choice, ...]:  # fmt: skip
    """Answer from memory where the same was asked before."""
    entries = None if candidates is None else as_entries(candidates)
    request = (m, n, k, top_k, layout, dtype, hardware, entries, model, space, deterministic)
    try:
        hash(request)
    except TypeError:
        return _answer(*request)
    return _remembered(*request)


def _answer(
    m: Any, n: Any, k: Any, top_k: int, layout: Any, dtype: Any, hardware: Any, entries: tuple[object, ...] | None,
    model: Any, space: Any, deterministic: bool,
) -> tuple[Choice, ...]:  # fmt: skip
    """Check the request, rank, and build the best ``top_k`` choices."""
    problem = Problem(m, n, k, layout, dtype)
    gpu = get_hardware(hardware)
    if entries is not None and space is not None:
        raise InvalidCandidates("candidates and space were both given; choose from one or the other")
    require_supported(problem)
    if entries is not None:
        pool = listed_pool(entries, problem, deterministic)
    elif space is not None:
        pool = space_pool(space, problem)
    else:
        pool = shipped_pool(problem)
    return tuple(_choices(pool, problem, gpu, _ranker(model), top_k, deterministic))


# Equal arguments of different types (True, 1, 1.0) are remembered apart, so that a wrong one is still refused.
_remembered = lru_cache(maxsize=ANSWERS, typed=True)(_answer)


def _ranker(model: object) -> Ranker:
    """Return the ranker behind a name, a folder, or itself."""
    if isinstance(model, str | Path):
        return load_model(model)
    if not hasattr(model, "score"):
        raise ModelMismatch(f"model is {model!r}; it must be the name of a shipped ranker, a folder, or a ranker")
    return cast("Ranker", model)


def _choices(
    pool: Pool, problem: Problem, hardware: Hardware, ranker: Ranker, top_k: int, deterministic: bool
) -> list[Choice]:
    """Rank a pool and build its best choices.

    A problem with column-major D is ranked as the transposed one, which is the same computation: measurements are made
    with row-major D, where a kernel of the problem's own family is the swapped one.
    """
    turned = problem.layout[2] == "N"
    ranked = problem.transposed() if turned else problem
    ranking = rank_candidates(ranker, pool.configs, ranked, hardware, top=top_k, deterministic=deterministic)
    candidates, score = ranking.candidates, ranking.score
    given = 0 if pool.fixed is None else col.size(pool.fixed)
    if pool.fixed is not None and given:
        fixed = {**pool.fixed, "swapped": pool.fixed["swapped"] ^ np.int32(turned)}
        candidates = col.concat([{name: candidates[name] for name in CANDIDATE_COLUMNS}, fixed])
        score = np.concatenate([score, ranker.score(fixed, ranked, hardware)])
    if not len(score):
        raise nothing_fits(pool, problem)

    # What ties with the last place is ordered by name, so that the answer does not depend on the order of the input; a
    # kernel that is listed with and without a launch may come out twice, and counts once.
    near = at_least(score, top_k + given).tolist()
    listed = {col.candidate_at(candidates, row, problem.dtype): float(score[row]) for row in near}
    ordered = sorted(listed.items(), key=lambda item: (-item[1], _order(item[0])))
    best = ordered[0][1]
    # Rankers without calibration (baselines, a caller's own) order the kernels, but cannot say by how much.
    calibration: Calibration | None = getattr(ranker, "calibration", None)
    gap = best - np.array([value for _, value in ordered[:top_k]])
    unknown = np.full(len(gap), math.nan)
    speed = unknown if calibration is None else calibration.relative_speed(gap, ranked, ranking.doubt)
    return [
        Choice(
            problem=problem,
            config=candidate.config,
            launch=candidate.launch,
            swapped=candidate.swapped != turned,
            rank=place,
            score=value,
            relative_speed=float(speed[place - 1]),
            hardware=hardware.name,
            model=ranker.name,
        )
        for place, (candidate, value) in enumerate(ordered[:top_k], start=1)
    ]


def _order(candidate: Candidate) -> tuple[object, ...]:
    """Order of candidates with equal scores: by name, then by launch."""
    launch = candidate.launch
    return (
        candidate.config.name,
        candidate.swapped,
        launch.decomposition,
        launch.splits,
        launch.raster,
        launch.swizzle,
    )
