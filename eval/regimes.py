"""Slices of the evaluation groups: kinds of problem, layouts and where the problem comes from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from ..datasets import Group
    from ..generator import Problem


@dataclass(frozen=True)
class Regime:
    """A kind of problem. Regimes may overlap."""

    name: str
    """Key in the report."""
    title: str
    """Heading for readers."""
    rule: str
    """The rule in words."""
    holds: Callable[[Problem], bool]
    """The rule."""


REGIMES: Final = (
    Regime("small_m", "small M", "M <= 64", lambda p: p.m <= 64),
    Regime("long_k", "long K", "K >= 4 max(M, N)", lambda p: p.k >= 4 * max(p.m, p.n)),
    Regime("large", "square or large", "M, N, K >= 1024", lambda p: min(p.m, p.n, p.k) >= 1024),
    Regime(
        "skinny",
        "skinny",
        "M > 64 and max(M, N) >= 8 min(M, N)",
        lambda p: p.m > 64 and max(p.m, p.n) >= 8 * min(p.m, p.n),
    ),
    Regime(
        "ragged",
        "ragged",
        "a dimension above 64 that is no multiple of 32",
        lambda p: any(size > 64 and size % 32 for size in (p.m, p.n, p.k)),
    ),
)


_TOGETHER: Final = (
    ("random", "random", "problem lists random_*", ("random",)),
    ("deepbench_random", "DeepBench and random", "problem lists deepbench and random_*", ("deepbench", "random")),
)
"""Slices of several problem lists: key, title, rule, and how the lists' names begin."""


def regimes_of(problem: Problem) -> tuple[str, ...]:
    """Return the names of the regimes that the problem belongs to."""
    return tuple(regime.name for regime in REGIMES if regime.holds(problem))


@dataclass(frozen=True)
class Slice:
    """Some of the evaluation groups."""

    title: str
    """Heading for readers."""
    rule: str
    """What its problems have in common, in words."""
    mask: NDArray[np.bool_]
    """Which groups belong to it, shape (groups,)."""


def slices(groups: Sequence[Group]) -> dict[str, Slice]:
    """Return every slice that has groups in it.

    Keys are regime names, ``aligned`` (all that is not ragged), ``source:<name>``, ``deepbench_random`` (DeepBench and
    random problems together) and ``layout:<letters>``. Layouts are left out if all groups have the same one.
    """
    found = {}
    for regime in REGIMES:
        mask = np.array([regime.holds(group.problem) for group in groups], dtype=bool)
        found[regime.name] = Slice(regime.title, regime.rule, mask)
    found["aligned"] = Slice("aligned", "all that is not ragged", ~found["ragged"].mask)
    for source in sorted({source for group in groups for source in group.sources}):
        mask = np.array([source in group.sources for group in groups], dtype=bool)
        found[f"source:{source}"] = Slice(source, f"problem list {source}", mask)
    for key, title, rule, wanted in _TOGETHER:
        mask = np.array([any(source.startswith(wanted) for source in group.sources) for group in groups], dtype=bool)
        found[key] = Slice(title, rule, mask)
    layouts = sorted({group.problem.layout for group in groups})
    for layout in layouts if len(layouts) > 1 else ():
        mask = np.array([group.problem.layout == layout for group in groups], dtype=bool)
        found[f"layout:{layout}"] = Slice(layout, f"layouts {layout}", mask)
    return {key: part for key, part in found.items() if part.mask.any()}
