"""What makes a configuration, a launch or a problem valid, each rule with its numbers.

Every rule is one entry of ``CONFIG_RULES`` or ``PROBLEM_RULES`` and is evaluated on columns; :func:`valid_mask`,
:func:`problem_mask` and :func:`check` all read the same entries. Sources: arXiv 2609.35587 (Tables 1, 2 and 9) and
CUTLASS 4.2's collective builders.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from .columns import Columns, from_candidates, from_configs
from .errors import UnsupportedProblem
from .estimates import (
    D_ROW_MAJOR,
    EPILOGUE_COLUMNS,
    SHARED_MEMORY_LIMIT,
    SHARED_MEMORY_RESERVE,
    effective_sizes,
    tensor_bytes,
    tile_counts,
)
from .types import FAMILIES, Candidate, DType, Epilogue, KernelConfig, Problem, Schedule, Scheduler, swap_family

Mask = NDArray[np.bool_]

TMA_ALIGNMENT_BYTES: Final = 16
"""Every row (contiguous dimension) of an operand must start on a multiple of this for TMA to address it."""
MAX_OPERAND_BYTES: Final = 2**40
"""Operands larger than this together (1 TiB) are refused: no Hopper GPU holds them."""
TILE_K: Final = (32, 64, 128, 256, 512)
CLUSTER: Final = (1, 2, 4, 8, 16)
MAX_CLUSTER_SIZE: Final = 16
MAX_GRID_Y: Final = 65535
"""Most CTAs along the second axis of a launch."""
TMA_BOX: Final = 256
"""Longest side of a TMA box, in elements."""
MULTICAST_BYTES: Final = 128
"""What the share of a multicast tile that each CTA of a cluster loads must be a multiple of."""

_COLUMN_MAJOR_A: Final = np.array([family[0] == "N" for family in FAMILIES])
_ROW_MAJOR_B: Final = np.array([family[1] == "T" for family in FAMILIES])


@dataclass(frozen=True, slots=True)
class Violation:
    """One broken rule."""

    rule: str
    """Name of the rule."""
    message: str
    """What is wrong and what would be right, with the numbers."""
    value: int
    """The value that breaks the rule."""
    limit: int
    """The limit that it breaks."""


@dataclass(frozen=True, slots=True)
class _Rule:
    """A rule over columns: broken where ``broken`` is true; ``value`` and ``limit`` say by what numbers."""

    name: str
    message: str
    """Format string with {value}, {limit} and the column names."""
    broken: Callable[[Columns, DType], Mask]
    value: Callable[[Columns, DType], NDArray[np.integer]]
    limit: Callable[[Columns, DType], NDArray[np.integer]]


def _column(name: str) -> Callable[[Columns, DType], NDArray[np.integer]]:
    return lambda c, _: c[name]


def _constant(value: int) -> Callable[[Columns, DType], NDArray[np.integer]]:
    return lambda c, _: np.full(len(c["tile_m"]), value)


def _not_in(column: str, allowed: tuple[int, ...]) -> Callable[[Columns, DType], Mask]:
    return lambda c, _: ~np.isin(c[column], allowed)


def _multiple(column: str, unit: int, most: int) -> Callable[[Columns, DType], Mask]:
    return lambda c, _: (c[column] % unit != 0) | (c[column] < unit) | (c[column] > most)


CONFIG_RULES: Final = (
    _Rule("tile_m", "tile_m is {value}; WGMMA needs a multiple of 64 up to {limit}",
          _multiple("tile_m", 64, 256), _column("tile_m"), _constant(256)),
    _Rule("tile_n", "tile_n is {value}; it must be a multiple of 16 up to {limit}",
          _multiple("tile_n", 16, 256), _column("tile_n"), _constant(256)),
    _Rule("tile_k", "tile_k is {value}; it must be 32, 64, 128, 256 or {limit}",
          _not_in("tile_k", TILE_K), _column("tile_k"), _constant(TILE_K[-1])),
    _Rule("cluster_m", "cluster_m is {value}; it must be 1, 2, 4, 8 or {limit}",
          _not_in("cluster_m", CLUSTER), _column("cluster_m"), _constant(CLUSTER[-1])),
    _Rule("cluster_n", "cluster_n is {value}; it must be 1, 2, 4, 8 or {limit}",
          _not_in("cluster_n", CLUSTER), _column("cluster_n"), _constant(CLUSTER[-1])),
    _Rule("cluster_size", "a cluster of {cluster_m}x{cluster_n} has {value} CTAs; SM90 allows at most {limit}",
          lambda c, _: c["cluster_m"] * c["cluster_n"] > MAX_CLUSTER_SIZE,
          lambda c, _: c["cluster_m"] * c["cluster_n"], _constant(MAX_CLUSTER_SIZE)),
    _Rule("stages", "stages is {value}; a warp-specialized mainloop needs at least {limit}",
          lambda c, _: c["stages"] < 2, _column("stages"), _constant(2)),
    _Rule("cooperative_tile_m", "tile_m is {value}; two cooperative warpgroups need a multiple of {limit}",
          lambda c, _: (c["schedule"] == Schedule.COOPERATIVE) & (c["tile_m"] % 128 != 0),
          _column("tile_m"), _constant(128)),
    _Rule("stream_k_schedule", "the Stream-K scheduler needs the cooperative schedule",
          lambda c, _: (c["scheduler"] == Scheduler.STREAM_K) & (c["schedule"] != Schedule.COOPERATIVE),
          _column("schedule"), _constant(Schedule.COOPERATIVE)),
    _Rule("split_k_source", "a kernel that splits K stores float32 partial sums and has no source matrix C",
          lambda c, _: (c["scheduler"] == Scheduler.SPLIT_K) & (c["void_c"] == 0),
          _column("void_c"), _constant(1)),
    _Rule("split_k_epilogue_columns", "an epilogue tile of 64 columns is for a 2-byte D",
          lambda c, _: (c["scheduler"] == Scheduler.SPLIT_K) & (c["epilogue"] == Epilogue.TMA_64),
          _column("epilogue"), _constant(Epilogue.TMA)),
    _Rule("epilogue_columns", "tile_n is {value}; an epilogue tile of 64 columns needs a multiple of {limit}",
          lambda c, _: (c["epilogue"] == Epilogue.TMA_64) & (c["tile_n"] % EPILOGUE_COLUMNS != 0),
          _column("tile_n"), _constant(EPILOGUE_COLUMNS)),
    _Rule("epilogue_columns_layout", "an epilogue tile of 64 columns is for a row-major D",
          lambda c, _: (c["epilogue"] == Epilogue.TMA_64) & ~D_ROW_MAJOR[c["family"]],
          _column("family"), _constant(FAMILIES.index("TNT"))),
    _Rule("tma_box_a", "tile_k is {value}; a column-major A with cluster_n {cluster_n} allows at most {limit}",
          lambda c, _: _COLUMN_MAJOR_A[c["family"]] & (c["tile_k"] > TMA_BOX * c["cluster_n"]),
          _column("tile_k"), lambda c, _: TMA_BOX * c["cluster_n"]),
    _Rule("tma_box_b", "tile_k is {value}; a row-major B with cluster_m {cluster_m} allows at most {limit}",
          lambda c, _: _ROW_MAJOR_B[c["family"]] & (c["tile_k"] > TMA_BOX * c["cluster_m"]),
          _column("tile_k"), lambda c, _: TMA_BOX * c["cluster_m"]),
    _Rule("shared_memory",
          "shared memory is {value} bytes ({stages} stages and the epilogue); at most {limit} fit beside the barriers",
          lambda c, t: tensor_bytes(c, t) > SHARED_MEMORY_LIMIT - SHARED_MEMORY_RESERVE,
          tensor_bytes, _constant(SHARED_MEMORY_LIMIT - SHARED_MEMORY_RESERVE)),
)  # fmt: skip
"""Rules of a configuration alone."""


def valid_mask(columns: Columns, dtype: DType) -> Mask:
    """Which rows are valid SM90 kernels; shape (rows,)."""
    valid = np.ones(len(columns["tile_m"]), dtype=bool)
    for rule in CONFIG_RULES:
        valid &= ~rule.broken(columns, dtype)
    return valid


def multicast_mask(columns: Columns, dtype: DType) -> Mask:
    """Which rows can load their tiles: TMA writes to multiples of 128 bytes of shared memory; shape (rows,).

    Each CTA of a cluster loads one share of the tile of A that its ``cluster_n`` CTAs need, and of that of B that its
    ``cluster_m`` CTAs need, and multicasts it. With 16 CTAs, a tile_k of 32 and a tile_n of 16, 48 or 80, shares of B
    do not start at multiples of 128 bytes: CUTLASS 4.2 compiles such kernels, and they end with a misaligned address
    on every problem (six kernels measured). The paper's space counts them, so this is no rule of ``CONFIG_RULES``.
    Shape (rows,).
    """
    return np.asarray(~(_uneven_share(columns, dtype, "m") | _uneven_share(columns, dtype, "n")))


def _multicast_share(columns: Columns, dtype: DType, side: str) -> NDArray[np.integer]:
    """Bytes of the tile along ``side`` that one CTA loads for its cluster."""
    across = {"m": "n", "n": "m"}[side]
    return np.asarray(columns[f"tile_{side}"] * columns["tile_k"] * dtype.bytes // columns[f"cluster_{across}"])


def _uneven_share(columns: Columns, dtype: DType, side: str) -> Mask:
    return np.asarray(_multicast_share(columns, dtype, side) % MULTICAST_BYTES != 0)


def serves(columns: Columns, problem: Problem) -> Mask:
    """Which rows have the family that the problem needs: its own, or the swapped one where the row is swapped."""
    own, other = FAMILIES.index(problem.layout), FAMILIES.index(swap_family(problem.layout))
    if "swapped" not in columns:
        return np.asarray(columns["family"] == own)
    return np.asarray(columns["family"] == np.where(columns["swapped"] == 1, other, own))


def _too_wide(columns: Columns, problem: Problem, side: str) -> Mask:
    m, n = effective_sizes(columns, problem)
    size, least = (m, 64) if side == "m" else (n, 16)
    return np.asarray((size >= least) & (columns[f"tile_{side}"] > 2 * size))


def _too_many_tiles(columns: Columns, problem: Problem) -> Mask:
    plain = columns["schedule"] == Schedule.WARPSPECIALIZED
    return np.asarray(plain & (tile_counts(columns, problem)[1] > MAX_GRID_Y))


def problem_mask(columns: Columns, problem: Problem) -> Mask:
    """Which rows are sensible for the problem: right family, a grid that can be launched, and no tile far too long.

    The guard on tiles is the paper's: tile_m > 2M is refused where M >= 64, tile_n > 2N where N >= 16. Plain
    warpspecialized kernels launch one CTA a tile with N along the grid's second axis, which has at most 65,535 of
    them. Swapped rows are judged on (N, M). Shape (rows,).
    """
    refused = _too_wide(columns, problem, "m") | _too_wide(columns, problem, "n") | _too_many_tiles(columns, problem)
    return serves(columns, problem) & ~refused


def check(kernel: KernelConfig | Candidate, problem: Problem | None = None) -> list[Violation]:
    """Return every rule that a kernel (or candidate) breaks, alone or on a problem; an empty list means valid.

    Examples
    --------
    >>> from cutlass_ranker.generator import Epilogue, KernelConfig, Schedule
    >>> [v.rule for v in check(KernelConfig(64, 128, 64, 2, 1, 4, Schedule.COOPERATIVE, Epilogue.TMA))]
    ['cooperative_tile_m']
    """
    config = kernel.config if isinstance(kernel, Candidate) else kernel
    columns = from_candidates([kernel]) if isinstance(kernel, Candidate) else from_configs([config])
    numbers = {name: int(values[0]) for name, values in columns.items()}
    found = []
    for rule in CONFIG_RULES:
        if rule.broken(columns, config.dtype)[0]:
            value, limit = int(rule.value(columns, config.dtype)[0]), int(rule.limit(columns, config.dtype)[0])
            found.append(Violation(rule.name, rule.message.format(value=value, limit=limit, **numbers), value, limit))
    for side in ("m", "n"):
        if _uneven_share(columns, config.dtype, side)[0]:
            share = int(_multicast_share(columns, config.dtype, side)[0])
            message = (
                f"each CTA of the cluster loads {share} bytes of a tile along {side.upper()}; TMA's multicast needs a "
                f"multiple of {MULTICAST_BYTES}"
            )
            found.append(Violation("multicast_share", message, share, MULTICAST_BYTES))
    return found if problem is None else found + _check_problem(columns, problem, config.dtype)


def _check_problem(columns: Columns, problem: Problem, dtype: DType) -> list[Violation]:
    """Violations of one row on a problem."""
    found = []
    if problem.dtype != dtype:
        message = f"the kernel computes {dtype.name}, the problem is {problem.dtype.name}"
        found.append(Violation("dtype", message, dtype.bytes, problem.dtype.bytes))
    family = int(columns["family"][0])
    if not serves(columns, problem)[0]:
        swapped = "swapped" in columns and bool(columns["swapped"][0])
        needed = swap_family(problem.layout) if swapped else problem.layout
        when = " when swapped" if swapped else ""
        message = f"the kernel's family is {FAMILIES[family]}; a {problem.layout} problem needs {needed}{when}"
        found.append(Violation("family", message, family, FAMILIES.index(needed)))
    m, n = (int(side[0]) for side in effective_sizes(columns, problem))
    for side, size in (("m", m), ("n", n)):
        if _too_wide(columns, problem, side)[0]:
            tile = int(columns[f"tile_{side}"][0])
            message = f"tile_{side} is {tile}; with {side.upper()} = {size} it may be at most {2 * size}"
            found.append(Violation(f"guard_{side}", message, tile, 2 * size))
    if _too_many_tiles(columns, problem)[0]:
        tiles = int(tile_counts(columns, problem)[1][0])
        message = f"a plain warpspecialized kernel needs {tiles} CTAs along N; a grid has at most {MAX_GRID_Y}"
        found.append(Violation("grid_y", message, tiles, MAX_GRID_Y))
    return found + [violation for _, violation in alignment_violations(problem)]


def contiguous_dimensions(problem: Problem) -> list[tuple[str, str, int]]:
    """Operand, name and size of the dimension along which each operand is contiguous: A, B, D."""
    m, n, k = ("M", problem.m), ("N", problem.n), ("K", problem.k)
    across = (("A", m, k), ("B", k, n), ("D", m, n))  # rows, columns
    return [
        (operand, *(columns if letter == "T" else rows))
        for letter, (operand, rows, columns) in zip(problem.layout, across, strict=True)
    ]


def alignment_violations(problem: Problem) -> list[tuple[str, Violation]]:
    """Dimensions that break TMA's 16-byte rule, each once, with the name of the dimension."""
    unit = TMA_ALIGNMENT_BYTES // problem.dtype.bytes
    broken: dict[str, tuple[int, list[str]]] = {}
    for operand, name, size in contiguous_dimensions(problem):
        if size % unit:
            broken.setdefault(name, (size, []))[1].append(operand)
    found = []
    for name, (size, operands) in broken.items():
        below, above = size // unit * unit, -(-size // unit) * unit
        nearest = f"{below} or {above}" if below else str(above)
        message = (
            f"{name} = {size} is the contiguous dimension of {' and '.join(operands)} in layout {problem.layout}; "
            f"TMA needs rows of a multiple of {TMA_ALIGNMENT_BYTES} bytes ({unit} {problem.dtype.name} elements); "
            f"nearest sizes that work: {nearest}"
        )
        found.append((name, Violation("tma_alignment", message, size, unit)))
    return found


def require_supported(problem: Problem) -> None:
    """Refuse a problem that no SM90 TMA kernel can take.

    Raises
    ------
    UnsupportedProblem
        If a contiguous dimension is no multiple of 16 bytes, or the operands need more than 1 TiB.
    """
    broken = alignment_violations(problem)
    if broken:
        unit = TMA_ALIGNMENT_BYTES // problem.dtype.bytes
        fixed = {"M": problem.m, "N": problem.n, "K": problem.k}
        for name, violation in broken:
            fixed[name] = -(-violation.value // unit) * unit
        size = f"{problem.m}x{problem.n}x{problem.k}"
        padded = "x".join(str(value) for value in fixed.values())
        reasons = "; ".join(violation.message for _, violation in broken)
        raise UnsupportedProblem(f"{size}: {reasons}. Padded to {padded} it works")
    if problem.min_bytes > MAX_OPERAND_BYTES:
        raise UnsupportedProblem(
            f"{problem.m}x{problem.n}x{problem.k} needs {problem.min_bytes / 2**40:.1f} TiB for A, B and D; "
            "the limit is 1 TiB"
        )
