"""The kernels to choose from: the shipped catalogue, a search space, or a caller's own list."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from ..generator import (
    FAMILIES,
    Candidate,
    Columns,
    InvalidCandidates,
    InvalidConfig,
    KernelConfig,
    Problem,
    UnsupportedProblem,
    check,
    enumerate_configs,
    load_catalogue,
    parse_name,
    swap_family,
)
from ..generator import columns as col

CATALOGUE_DTYPE: Final = "bf16"
"""Element type of the shipped catalogue's kernels."""
_SHOWN_REASONS: Final = 3


@dataclass(frozen=True, slots=True)
class Pool:
    """Kernels to rank. Those in ``configs`` get the launch that is ranked best; ``fixed`` ones keep theirs."""

    configs: Columns
    """Kernels whose launch is free, ``CONFIG_COLUMNS``, all of the problem's element type."""
    fixed: tuple[Candidate, ...] = ()
    """Candidates with a launch, all able to serve the problem."""
    rejected: tuple[str, ...] = field(default=())
    """Why the others were dropped, one reason each."""


def shipped_pool(problem: Problem) -> Pool:
    """Return the shipped catalogue.

    Raises
    ------
    UnsupportedProblem
        If the catalogue has no kernels of the problem's layout (itself or swapped) or element type.
    """
    configs = load_catalogue()
    families = {FAMILIES[code] for code in np.unique(configs["family"])}
    covered = sorted(families | {swap_family(family) for family in families})
    if problem.dtype.name != CATALOGUE_DTYPE or problem.layout not in covered:
        raise UnsupportedProblem(
            f"the shipped catalogue has no kernels for {problem.dtype.name} with layout {problem.layout}; it covers "
            f"{CATALOGUE_DTYPE} with layouts {', '.join(covered)}. Give your own candidates, or a space, to rank others"
        )
    return Pool(configs)


def space_pool(space: object, problem: Problem) -> Pool:
    """Return every kernel of a search space that fits the problem.

    Raises
    ------
    InvalidConfig
        If the space is unknown.
    """
    return Pool(enumerate_configs(space=str(space), problem=problem))


def listed_pool(candidates: tuple[object, ...], problem: Problem) -> Pool:
    """Return a caller's own kernels, each once, without those that cannot serve the problem.

    Parameters
    ----------
    candidates
        ``KernelConfig``, ``Candidate`` and procedural names in any mixture.
    problem
        Problem to serve.

    Raises
    ------
    InvalidCandidates
        If the list is empty, or an entry is of another kind or no procedural name.
    """
    if not candidates:
        raise InvalidCandidates("the list of candidates is empty; give at least one kernel, or None for the catalogue")
    configs: list[KernelConfig] = []
    fixed: list[Candidate] = []
    rejected: list[str] = []
    for entry in dict.fromkeys(_parse(position, entry) for position, entry in enumerate(candidates)):
        config = entry.config if isinstance(entry, Candidate) else entry
        placed = entry
        if isinstance(entry, KernelConfig) and entry.family == swap_family(problem.layout):
            placed = Candidate(entry, swapped=True)
        violations = check(placed, problem)
        if violations:
            rejected.append(f"{config.name}: {violations[0].message}")
        elif isinstance(entry, Candidate):
            fixed.append(entry)
        else:
            configs.append(entry)
    return Pool(col.from_configs(configs), tuple(fixed), tuple(rejected))


def as_entries(candidates: object) -> tuple[object, ...]:
    """Return a caller's list as a tuple.

    Raises
    ------
    InvalidCandidates
        If it is a single text or mapping, or nothing that can be iterated over.
    """
    if isinstance(candidates, str | bytes | Mapping | KernelConfig | Candidate) or not isinstance(candidates, Iterable):
        raise InvalidCandidates(
            f"candidates must be a list of KernelConfig, Candidate or procedural names, not {type(candidates).__name__}"
        )
    return tuple(candidates)


def nothing_fits(pool: Pool, problem: Problem) -> InvalidCandidates:
    """Build the error for a pool in which no kernel can serve the problem."""
    if not pool.rejected:
        return InvalidCandidates(f"no kernel of the pool can serve {problem}")
    shown = "; ".join(pool.rejected[:_SHOWN_REASONS])
    more = len(pool.rejected) - _SHOWN_REASONS
    return InvalidCandidates(
        f"none of the {len(pool.rejected)} candidates can serve {problem}: {shown}"
        + (f"; {more} more" if more > 0 else "")
    )


def _parse(position: int, entry: object) -> KernelConfig | Candidate:
    """Return one entry of a caller's list as a config or candidate."""
    if isinstance(entry, KernelConfig | Candidate):
        return entry
    if not isinstance(entry, str):
        raise InvalidCandidates(
            f"candidates[{position}] is {entry!r}; it must be a KernelConfig, a Candidate or a procedural name"
        )
    try:
        return parse_name(entry)
    except InvalidConfig as error:
        raise InvalidCandidates(f"candidates[{position}]: {error}") from error
