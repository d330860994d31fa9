"""The kernels to choose from: the shipped catalogue, a search space, or a caller's own list."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np

from ..generator import (
    DTYPES,
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
    problem_mask,
    swap_family,
    valid_mask,
)
from ..generator import columns as col
from ..generator.estimates import with_shared_memory

CATALOGUE_DTYPE: Final = "bf16"
"""Element type of the shipped catalogue's kernels."""
_SHOWN_REASONS: Final = 3
_parse_name = lru_cache(maxsize=65536)(parse_name)

Entry = KernelConfig | Candidate


@dataclass(frozen=True, slots=True)
class Pool:
    """Kernels to rank. Those in ``configs`` get the launch that is ranked best; ``fixed`` ones keep theirs."""

    configs: Columns
    """Kernels whose launch is free, ``CONFIG_COLUMNS``, all of the problem's element type."""
    fixed: Columns | None = None
    """Candidates whose launch is given, ``CANDIDATE_COLUMNS``, all able to serve the problem; None without any."""
    listed: tuple[Entry, ...] = ()
    """The caller's list, each entry once; empty if the pool is not a list."""


def shipped_pool(problem: Problem) -> Pool:
    """Return the shipped catalogue.

    Raises
    ------
    UnsupportedProblem
        If the catalogue has no kernels of the problem's layout (itself or swapped) or element type.
    """
    configs = _catalogue_of(problem.layout)
    if problem.dtype.name != CATALOGUE_DTYPE or not col.size(configs):
        families = {FAMILIES[code] for code in np.unique(load_catalogue()["family"])}
        covered = sorted(families | {swap_family(family) for family in families})
        raise UnsupportedProblem(
            f"the shipped catalogue has no kernels for {problem.dtype.name} with layout {problem.layout}; it covers "
            f"{CATALOGUE_DTYPE} with layouts {', '.join(covered)}. Give your own candidates, or a space, to rank others"
        )
    return Pool(configs)


@lru_cache(maxsize=len(FAMILIES))
def _catalogue_of(layout: str) -> Columns:
    """Return the kernels of the shipped catalogue that serve a layout, directly or swapped."""
    configs = load_catalogue()
    serving = np.isin(configs["family"], [FAMILIES.index(layout), FAMILIES.index(swap_family(layout))])
    return with_shared_memory(col.take(configs, serving), DTYPES[CATALOGUE_DTYPE])


def space_pool(space: object, problem: Problem) -> Pool:
    """Return every kernel of a search space that fits the problem.

    Raises
    ------
    InvalidConfig
        If the space is unknown.
    """
    return Pool(enumerate_configs(space=str(space), problem=problem))


def listed_pool(entries: Sequence[object], problem: Problem, deterministic: bool = True) -> Pool:
    """Return a caller's own kernels, each once.

    Parameters
    ----------
    entries
        ``KernelConfig``, ``Candidate`` and procedural names in any mixture.
    problem
        Problem to serve.
    deterministic
        Leave out candidates whose results differ from run to run.

    Raises
    ------
    InvalidCandidates
        If the list is empty, or an entry is of another kind or no procedural name.
    """
    if not entries:
        raise InvalidCandidates("the list of candidates is empty; give at least one kernel, or None for the catalogue")
    listed = tuple(dict.fromkeys(_parse(position, entry) for position, entry in enumerate(entries)))
    configs = [e for e in listed if isinstance(e, KernelConfig) and e.dtype == problem.dtype]
    candidates = [
        e
        for e in listed
        if isinstance(e, Candidate)
        and e.config.dtype == problem.dtype
        and (e.launch.deterministic or not deterministic)
    ]
    fixed = None
    if candidates:
        fixed = col.from_candidates(candidates)
        fixed = col.take(fixed, problem_mask(fixed, problem) & valid_mask(fixed, problem.dtype))
    columns = col.from_configs(configs)
    return Pool(col.take(columns, valid_mask(columns, problem.dtype)), fixed, listed)


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
    """Build the error for a pool in which no kernel can serve the problem: what is wrong with the first few."""
    if not pool.listed:
        return InvalidCandidates(f"no kernel of the pool can serve {problem}")
    reasons = "; ".join(_reason(entry, problem) for entry in pool.listed[:_SHOWN_REASONS])
    more = len(pool.listed) - _SHOWN_REASONS
    return InvalidCandidates(
        f"none of the {len(pool.listed)} candidates can serve {problem}: {reasons}"
        + (f"; {more} more" if more > 0 else "")
    )


def _reason(entry: Entry, problem: Problem) -> str:
    """Return the first rule that an entry breaks on a problem."""
    config = entry.config if isinstance(entry, Candidate) else entry
    if isinstance(entry, KernelConfig) and entry.family == swap_family(problem.layout):
        entry = Candidate(entry, swapped=True)
    broken = check(entry, problem)
    if not broken:  # the only other reason to leave a kernel out
        return f"{config.name}: its atomic adds make results differ from run to run; deterministic=False allows that"
    return f"{config.name}: {broken[0].message}"


def _parse(position: int, entry: object) -> Entry:
    """Return one entry of a caller's list as a config or candidate."""
    if isinstance(entry, KernelConfig | Candidate):
        return entry
    if not isinstance(entry, str):
        raise InvalidCandidates(
            f"candidates[{position}] is {entry!r}; it must be a KernelConfig, a Candidate or a procedural name"
        )
    try:
        return _parse_name(entry)
    except InvalidConfig as error:
        raise InvalidCandidates(f"candidates[{position}]: {error}") from error
