"""Groups: all measured candidates of one problem, as the rankers and the evaluation take them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final, cast

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ..generator import (
    CANDIDATE_COLUMNS,
    CONFIG_COLUMNS,
    LAUNCH_COLUMNS,
    Columns,
    DataError,
    Decomposition,
    Launch,
    Problem,
    splits_worth_a_look,
)
from .tables import CANDIDATE_KEY, TIMED, Tables, best_time

_PAIR: Final = ["problem_id", "campaign_id"]


@dataclass(frozen=True)
class Group:
    """All measured candidates of one problem; every array has one entry a candidate."""

    problem_id: int
    problem: Problem
    split: str
    """``"train"`` or ``"eval"``."""
    sources: tuple[str, ...]
    """Lists that the problem comes from."""
    columns: Columns
    """``CANDIDATE_COLUMNS``."""
    kernel_id: NDArray[np.int32]
    time_us: NDArray[np.float64]
    """Best-known time, microseconds."""
    spread: NDArray[np.float64]
    """Relative interquartile range of the row's launches."""
    coarse: NDArray[np.bool_]
    """True where the race was given up after two launches: 1.5 times the best or slower (3 times in protocols 1, 2)."""
    default_launch: NDArray[np.bool_]
    """True where the launch is CUTLASS's default one."""
    listed: NDArray[np.bool_] | None = None
    """True where the kernel is in the list that is chosen from; None if every measured kernel is."""
    allowed: NDArray[np.bool_] | None = None
    """False where a row is only learned from: it is neither chosen nor the oracle. None if there is no such row."""

    @property
    def first_stage(self) -> NDArray[np.bool_]:
        """True where the launch is one of those measured for every kernel: the default one, splits worth a look."""
        return self.default_launch | splits_worth_a_look(self.columns, self.problem)

    @property
    def ranked_first(self) -> NDArray[np.bool_]:
        """True where a row is ranked in the first stage of the deployed rule: of ``first_stage``, listed, allowed."""
        first = self.first_stage
        for wanted in (self.listed, self.allowed):
            first = first if wanted is None else first & wanted
        return first

    @property
    def variant(self) -> NDArray[np.int64]:
        """Number per row, equal for rows that the first stage ranks as one: kernel, swap, and a split worth a look."""
        split = self.first_stage & (self.columns["splits"] > 1)
        way = np.where(split, 8 * self.columns["splits"] + self.columns["decomposition"], 0).astype(np.int64)
        return (way << 32) + self.kernel_id.astype(np.int64) * 2 + self.columns["swapped"].astype(np.int64)

    @property
    def oracle_us(self) -> float:
        """Fastest time of an allowed candidate that is not coarse, microseconds; of any allowed one if all are."""
        allowed = np.ones(len(self), dtype=np.bool_) if self.allowed is None else self.allowed
        full = allowed & ~self.coarse
        return float(self.time_us[full if full.any() else allowed].min())

    def as_deployed(self) -> Group:
        """Return the group as it is ranked: with a column-major D, as the transposed problem, kernels the other way."""
        if self.problem.layout[2] != "N":
            return self
        turned = {**self.columns, "swapped": 1 - self.columns["swapped"]}
        return replace(self, problem=self.problem.transposed(), columns=turned)

    def __len__(self) -> int:
        return len(self.time_us)


def groups(
    tables: Tables, split: str | None = None, deterministic: bool = True, catalogue: Columns | None = None
) -> list[Group]:
    """Build the groups of the main campaigns, in order of problem_id.

    Of a candidate that several campaigns measured, the row with a retake counts, then one that is not coarse, then the
    newest. Campaigns are brought to one clock by :func:`clock_factors`; the time of a candidate is the median of its
    retakes by the newest protocol that retook it. A GPU's clock also drifts with its load between first pass and retake
    (on large problems by over 10%), so the time of a row without a retake is multiplied by the median drift of its
    campaign's retaken rows of the problem. The retakes by the newest protocol that retook a problem decide its oracle:
    nothing else can beat them.

    Parameters
    ----------
    tables
        The measurement tables.
    split
        ``"train"``, ``"eval"`` or None for all.
    deterministic
        Leave out candidates whose results differ from run to run (split-K with atomic adds), so that they are neither
        chosen nor an oracle.
    catalogue
        Kernels (``CONFIG_COLUMNS``) that are chosen from. The others stay in the groups, and may be their oracles, but
        are not ``listed``. None lists every kernel.

    Raises
    ------
    DataError
        If the split is unknown.
    """
    if split not in (None, "train", "eval"):
        raise DataError(f"split {split!r} is unknown; use 'train', 'eval' or None")
    rows = _rows(tables, deterministic)
    if catalogue is not None:
        names = list(CONFIG_COLUMNS)
        known = pd.MultiIndex.from_frame(pd.DataFrame({name: catalogue[name] for name in names}))
        rows["listed"] = pd.MultiIndex.from_frame(rows[names]).isin(known)
    problems = tables.problems if split is None else tables.problems[tables.problems["split"] == split]
    described = problems.set_index("problem_id")
    return [
        _group(cast(int, problem_id), described.loc[problem_id], members)
        for problem_id, members in rows[rows["problem_id"].isin(described.index)].groupby("problem_id")
    ]


def training_groups(tables: Tables, catalogue: Columns | None = None) -> list[Group]:
    """Build the groups of the training split as rankers are trained and cross-validated on them.

    All measured candidates are learned from. As in :func:`groups`, what is chosen is a deterministic launch of a kernel
    of the catalogue, and the oracle is the fastest deterministic candidate: others are not ``allowed``.

    Parameters
    ----------
    tables
        The measurement tables.
    catalogue
        See :func:`groups`.

    Returns
    -------
    list of Group
        Each as it is ranked (:meth:`Group.as_deployed`); those without anything to choose are left out.
    """
    found = (
        replace(group, allowed=group.columns["decomposition"] != Decomposition.SPLIT_K_ATOMIC).as_deployed()
        for group in groups(tables, "train", deterministic=False, catalogue=catalogue)
    )
    return [group for group in found if group.ranked_first.any()]


def clock_factors(tables: Tables) -> pd.Series[float]:
    """Return what brings times of each main campaign to one clock per problem.

    Campaigns ran at different clocks, so their times of a problem differ by a common factor. The reference is the
    newest campaign with retakes of the problem. The factor of another one is the median of reference / its time over
    the candidates that both retook; where there is none, over those that both timed in full in their first pass;
    failing that, 1.

    Returns
    -------
    Series
        Factors by (problem_id, campaign_id), one for each problem that a main campaign timed.
    """
    return _clocks(_timed(tables))["factor"]


def _timed(tables: Tables) -> pd.DataFrame:
    """Timed rows of the main campaigns, numbered from 0."""
    main = tables.campaigns[tables.campaigns["purpose"] == "main"].set_index("campaign_id")
    rows = tables.measurements[[*CANDIDATE_KEY, "campaign_id", "status", "time_us", "spread", "retake_us"]]
    rows = rows[rows["status"].isin(TIMED) & rows["campaign_id"].isin(main.index) & best_time(rows).notna()]
    return rows.assign(protocol=rows["campaign_id"].map(main["protocol_version"])).reset_index(drop=True)


def _clocks(rows: pd.DataFrame) -> pd.DataFrame:
    """Return by (problem_id, campaign_id): ``factor`` to the reference's clock, ``drift`` from first pass to retake."""
    pairs = pd.MultiIndex.from_frame(rows[_PAIR].drop_duplicates())
    again = rows[rows["retake_us"].notna()]
    reference = again.groupby("problem_id")["campaign_id"].max()
    factor = _ratios(again, "retake_us", reference).reindex(pairs)
    lacking = pairs[factor.isna()].get_level_values("problem_id")
    full = rows[rows["problem_id"].isin(lacking) & (rows["status"] == "ok")]
    factor = factor.fillna(_ratios(full, "time_us", reference)).fillna(1.0)
    drift = (again["retake_us"] / again["time_us"].astype(np.float64)).groupby([again[name] for name in _PAIR]).median()
    # A campaign without a retake of the problem is brought to the reference's first pass, and drifts on as that did.
    problem = pairs.get_level_values("problem_id")
    newest = pd.MultiIndex.from_arrays([problem, reference.reindex(problem)])
    others = pd.Series(drift.reindex(newest).to_numpy(), index=pairs)
    return pd.DataFrame({"factor": factor, "drift": drift.reindex(pairs).fillna(others).fillna(1.0)})


def _ratios(rows: pd.DataFrame, column: str, reference: pd.Series[int]) -> pd.Series[float]:
    """Return the median of reference / own time over the candidates that both have, by (problem_id, campaign_id)."""
    newest = rows.loc[rows["campaign_id"] == rows["problem_id"].map(reference), [*CANDIDATE_KEY, column]]
    both = rows.merge(newest, on=list(CANDIDATE_KEY), suffixes=("", "_reference"))
    ratio = both[f"{column}_reference"].astype(np.float64) / both[column]
    return ratio.groupby([both[name] for name in _PAIR]).median()


def _rows(tables: Tables, deterministic: bool) -> pd.DataFrame:
    """Timed rows of the main campaigns with their config columns and best-known times, one a candidate."""
    rows = _timed(tables)
    clocks = _clocks(rows)
    place = clocks.index.get_indexer(pd.MultiIndex.from_frame(rows[_PAIR]))
    factor, drift = (clocks[name].to_numpy()[place] for name in ("factor", "drift"))
    rows["retaken"], rows["coarse"] = rows["retake_us"].notna(), rows["status"] == "coarse"
    rows["best_us"] = rows["time_us"] * drift * factor
    again = rows.loc[rows["retaken"], [*CANDIDATE_KEY, "retake_us", "protocol"]]
    candidates = again.groupby(list(CANDIDATE_KEY))
    times = (again["retake_us"] * factor[again.index]).where(
        again["protocol"] == candidates["protocol"].transform("max")
    )
    # The newest retake alone is noisier, and the least of noisy times, which the oracle is, comes out too low.
    again["best_us"] = times.groupby([again[name] for name in CANDIDATE_KEY]).transform("median")
    rows.loc[again.index, "best_us"] = again["best_us"]
    atomic = rows["decomposition"] == Decomposition.SPLIT_K_ATOMIC
    deciding = again[again["protocol"] == again.groupby("problem_id")["protocol"].transform("max")]
    for members, rivals in ((atomic, deciding), (~atomic, deciding[~atomic[deciding.index]])):
        least = rows["problem_id"].map(rivals.groupby("problem_id")["best_us"].min())
        rows["best_us"] = rows["best_us"].where(~members, np.fmax(rows["best_us"], least))
    if deterministic:
        rows = rows[~atomic]
    rows = rows.sort_values(["retaken", "coarse", "campaign_id"], ascending=[False, True, False], kind="stable")
    rows = rows.drop_duplicates(list(CANDIDATE_KEY)).sort_values(list(CANDIDATE_KEY))
    rows = rows.merge(tables.kernels[["kernel_id", *CONFIG_COLUMNS]], on="kernel_id", how="inner")
    default = Launch()
    rows["default_launch"] = np.logical_and.reduce(
        [rows[name] == int(getattr(default, name)) for name in LAUNCH_COLUMNS]
    )
    return rows


def _group(problem_id: int, described: Any, rows: pd.DataFrame) -> Group:
    return Group(
        problem_id=problem_id,
        problem=Problem(
            int(described["M"]), int(described["N"]), int(described["K"]), described["layout"], described["dtype"]
        ),
        split=described["split"],
        sources=tuple(described["sources"].split(";")),
        columns={name: rows[name].to_numpy(dtype=np.int32) for name in CANDIDATE_COLUMNS},
        kernel_id=rows["kernel_id"].to_numpy(dtype=np.int32),
        time_us=rows["best_us"].to_numpy(dtype=np.float64),
        spread=rows["spread"].to_numpy(dtype=np.float64),
        coarse=rows["coarse"].to_numpy(dtype=np.bool_),
        default_launch=rows["default_launch"].to_numpy(dtype=np.bool_),
        listed=rows["listed"].to_numpy(dtype=np.bool_) if "listed" in rows else None,
    )
