"""How far two measurements of the same candidates agree: repeats, operands warm or cold, GPU busy or idle before."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ..datasets import groups
from ..datasets.labels import sigma
from ..datasets.tables import CANDIDATE_KEY
from .metrics import spearman
from .resampling import mean_interval

if TYPE_CHECKING:
    from ..datasets import Group, Tables

Floats = NDArray[np.float64]

TIMER_EDGES_US: Final = (0.0, 5.0, 10.0, 20.0, 50.0, 200.0, float("inf"))
"""Bands of kernel time in which the two timers are compared, µs."""
MAIN: Final = "earlier main campaigns"
"""Title of what a repeat or a study is compared with."""
LEAST_COMMON: Final = 5
"""A rank correlation needs at least this many common candidates."""
_CLOSE: Final = (0.01, 0.02)
_SLACK: Final = 1e-9


@dataclass(frozen=True)
class Agreement:
    """Two measurements of the same candidates. Shares are fractions of ``oracle_problems``; NaN without any."""

    first: str
    second: str
    """Titles of both sides."""
    problems: int
    """Problems with common candidates that were timed in full on both sides."""
    candidates: int
    """Common candidates."""
    ratio: float
    """Median over problems of the median of second time / first time."""
    difference: float
    """Median over candidates of |second − first| / first."""
    difference_p90: float
    """Its 90th percentile."""
    difference_undrifted: float
    """The median once each problem's own ratio is taken out."""
    spearman: float
    """Median over problems of the rank correlation of times, of those with at least 5 common candidates."""
    spearman_p10: float
    """Its 10th percentile: one problem in ten agrees less."""
    oracle_problems: int
    """Problems in which the oracles of both sides are common candidates."""
    same_oracle: float
    """Share with the same oracle."""
    within_1: float
    """Share in which the first side's oracle is the second's too, or within 1% of it, by the second's times."""
    within_2: float
    """The same for 2%."""
    beyond_noise: float
    """Share in which the first side's oracle is slower on the second side than its oracle by more than the noise, the
    rule of the training labels: 2·√(σ²+σ²) of the launches' spread."""
    cost: float
    """Mean regret on the second side of choosing by the first."""
    cost_ci: tuple[float, float]
    """Its 95% bootstrap interval over problems."""
    cost_max: float
    """The largest regret of one problem."""
    cost_back: float
    """Mean regret on the first side of choosing by the second."""
    cost_back_ci: tuple[float, float]
    cost_back_max: float


@dataclass(frozen=True)
class TimerBand:
    """The two timers on rows of similar length; NaN without rows."""

    low_us: float
    high_us: float
    """CUPTI time from (not included) and to, µs."""
    rows: int
    difference: float
    """Median |graph − CUPTI| / CUPTI."""
    corrected: float
    """The same once the graph time of an empty kernel is subtracted."""


def compare(first: Sequence[Group], second: Sequence[Group], titles: tuple[str, str], seed: int = 0) -> Agreement:
    """Compare two measurements problem by problem, over candidates that neither side gave up as coarse.

    Parameters
    ----------
    first, second
        Groups of both sides.
    titles
        Titles of both sides.
    seed
        Of the bootstrap.
    """
    other = {group.problem_id: group for group in second}
    pairs = [_pair(group, other[group.problem_id]) for group in first if group.problem_id in other]
    pairs = [pair for pair in pairs if len(pair)]
    ratios = [(pair["time_second"] / pair["time_first"]).to_numpy(np.float64) for pair in pairs]
    drift = np.array([np.median(ratio) for ratio in ratios])
    apart = np.abs(np.concatenate(ratios) - 1.0) if ratios else np.empty(0)
    rest = np.abs(np.concatenate([r / d - 1.0 for r, d in zip(ratios, drift, strict=True)])) if ratios else np.empty(0)
    ranks = [spearman(pair["time_first"], pair["time_second"]) for pair in pairs if len(pair) >= LEAST_COMMON]
    known = np.array([rank for rank in ranks if not np.isnan(rank)])
    duels = [duel for pair in pairs if (duel := _duel(pair)) is not None]
    forth, back = (np.array([duel[i] for duel in duels], dtype=np.float64) for i in (0, 1))
    return Agreement(
        first=titles[0],
        second=titles[1],
        problems=len(pairs),
        candidates=len(apart),
        ratio=_quantile(drift, 0.5),
        difference=_quantile(apart, 0.5),
        difference_p90=_quantile(apart, 0.9),
        difference_undrifted=_quantile(rest, 0.5),
        spearman=_quantile(known, 0.5),
        spearman_p10=_quantile(known, 0.1),
        oracle_problems=len(duels),
        same_oracle=_share([duel[2] for duel in duels]),
        within_1=_share((forth <= _CLOSE[0] + _SLACK).tolist()),
        within_2=_share((forth <= _CLOSE[1] + _SLACK).tolist()),
        beyond_noise=_share([duel[3] for duel in duels]),
        cost=float(forth.mean()) if duels else float("nan"),
        cost_ci=mean_interval(forth, seed=seed),
        cost_max=_quantile(forth, 1.0),
        cost_back=float(back.mean()) if duels else float("nan"),
        cost_back_ci=mean_interval(back, seed=seed),
        cost_back_max=_quantile(back, 1.0),
    )


def mode_study(tables: Tables, seed: int = 0) -> list[Agreement]:
    """Compare the conditions of the study campaigns: operands cold or warm, launches offline or as a server has them.

    Parameters
    ----------
    tables
        The measurement tables.
    seed
        Of the bootstrap.

    Returns
    -------
    list
        First the earlier main campaigns against the study's own cold, offline pass, if it has one: what mere repetition
        does. Then every pair of conditions, cold before warm, offline before server. Empty without study campaigns.
    """
    campaigns = tables.campaigns[tables.campaigns["purpose"] == "study"]
    modes = campaigns["mode"] if "mode" in campaigns else pd.Series("offline", index=campaigns.index)
    conditions = campaigns["operands"].str.cat(modes.replace("", "offline"), sep=", ")
    names = sorted(conditions.unique())
    found = {name: campaign_groups(tables, campaigns[conditions == name]) for name in names}
    result = []
    if names and names[0] == "cold, offline":
        main = _earlier(tables, campaigns[conditions == names[0]])
        result.append(compare(main, found[names[0]], (MAIN, names[0]), seed))
    for i, first in enumerate(names):
        result += [compare(found[first], found[second], (first, second), seed) for second in names[i + 1 :]]
    return result


def repeatability(tables: Tables, seed: int = 0) -> list[Agreement]:
    """Compare each repeat campaign with the main campaigns before it; parameters as in :func:`mode_study`.

    Repeat campaigns of the same problems are also compared together: a candidate that several of them retook has the
    median of its times, as the main campaigns' candidates have.
    """
    repeats = tables.campaigns[tables.campaigns["purpose"] == "repeat"].sort_values("campaign_id")
    rows = tables.measurements
    problems = (
        rows[rows["campaign_id"].isin(repeats["campaign_id"])].groupby("campaign_id")["problem_id"].agg(frozenset)
    )
    together = repeats.groupby(repeats["campaign_id"].map(problems), sort=False)
    sets = [repeats.iloc[[i]] for i in range(len(repeats))] + [mine for _, mine in together if len(mine) > 1]
    return [
        compare(_earlier(tables, mine), campaign_groups(tables, mine), (MAIN, ", ".join(mine["name"])), seed)
        for mine in sets
    ]


def timer_bands(tables: Tables) -> list[TimerBand]:
    """Compare both timers, CUPTI kernel records and events around a captured graph, on the main campaigns' retakes."""
    campaigns = tables.campaigns.set_index("campaign_id")
    rows = tables.measurements
    main = rows["campaign_id"].map(campaigns["purpose"]) == "main"
    rows = rows[main & (rows["status"] == "ok") & rows["retake_us"].notna() & rows["graph_us"].notna()]
    cupti, graph = (rows[name].to_numpy(np.float64) for name in ("retake_us", "graph_us"))
    overhead = rows["campaign_id"].map(campaigns["graph_overhead_us"]).to_numpy(np.float64)
    bands = []
    for low, high in pairwise(TIMER_EDGES_US):
        mine = (cupti > low) & (cupti <= high)
        raw = np.abs(graph - cupti)[mine] / cupti[mine]
        corrected = np.abs(graph - overhead - cupti)[mine] / cupti[mine]
        bands.append(TimerBand(low, high, int(mine.sum()), _quantile(raw, 0.5), _quantile(corrected, 0.5)))
    return bands


def campaign_groups(tables: Tables, campaigns: pd.DataFrame) -> list[Group]:
    """Build groups from some campaigns as if they were the main ones, by the same rules."""
    if campaigns.empty:
        return []
    mine = tables.measurements["campaign_id"].isin(campaigns["campaign_id"])
    rows = tables.measurements[mine]
    return groups(replace(tables, measurements=rows, campaigns=campaigns.assign(purpose="main")))


def _earlier(tables: Tables, campaigns: pd.DataFrame) -> list[Group]:
    """Groups of what was known when some campaigns started, on their problems: their candidates were chosen from it."""
    known = (tables.campaigns["purpose"] == "main") & (tables.campaigns["started"] <= campaigns["started"].min())
    mine = tables.measurements["campaign_id"].isin(campaigns["campaign_id"])
    rows = tables.measurements
    rows = rows[rows["problem_id"].isin(rows["problem_id"][mine].unique())]
    return campaign_groups(replace(tables, measurements=rows), tables.campaigns[known])


def _pair(first: Group, second: Group) -> pd.DataFrame:
    """Match two groups of one problem: ``time``, ``sigma`` and ``oracle`` of common candidates, with suffixes."""
    key = [name for name in CANDIDATE_KEY if name != "problem_id"]
    return _frame(first).merge(_frame(second), on=key, suffixes=("_first", "_second"), validate="one_to_one")


def _frame(group: Group) -> pd.DataFrame:
    """Return the candidates of a group that are not coarse."""
    fields: Mapping[str, NDArray[np.generic]] = {
        "kernel_id": group.kernel_id,
        **{name: group.columns[name] for name in CANDIDATE_KEY if name in group.columns},
        "time": group.time_us,
        "sigma": sigma(group),
        "oracle": group.time_us == group.oracle_us,
    }
    return pd.DataFrame(fields)[~group.coarse]


def _duel(frame: pd.DataFrame) -> tuple[float, float, bool, bool] | None:
    """Return the cost of choosing by either side, whether the oracle is the same, whether it differs beyond noise."""
    if not (frame["oracle_first"].any() and frame["oracle_second"].any()):
        return None
    one, other = int(frame["oracle_first"].to_numpy().argmax()), int(frame["oracle_second"].to_numpy().argmax())
    times = {side: frame[f"time_{side}"].to_numpy(np.float64) for side in ("first", "second")}
    noise = frame["sigma_second"].to_numpy(np.float64) * times["second"]
    forth = 1.0 - times["second"][other] / times["second"][one]
    back = 1.0 - times["first"][one] / times["first"][other]
    apart = times["second"][one] - times["second"][other] > 2.0 * float(np.hypot(noise[one], noise[other]))
    return float(forth), float(back), one == other, bool(apart)


def _quantile(values: Floats, level: float) -> float:
    return float(np.quantile(values, level)) if values.size else float("nan")


def _share(values: Sequence[bool]) -> float:
    return float(np.mean(values)) if len(values) else float("nan")
