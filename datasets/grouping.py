"""Groups: all measured candidates of one problem, as the rankers and the evaluation take them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, cast

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

    @property
    def ranked_first(self) -> NDArray[np.bool_]:
        """True where a row is ranked in the first stage: default launches and splits of K worth a look, if listed."""
        first = self.default_launch | splits_worth_a_look(self.columns, self.problem)
        return first if self.listed is None else first & self.listed

    @property
    def variant(self) -> NDArray[np.int64]:
        """Number per row, equal for rows that the first stage ranks as one: kernel, swap, and a split ranked first."""
        atomic = self.columns["decomposition"] == Decomposition.SPLIT_K_ATOMIC
        splits = np.where(self.ranked_first, 2 * self.columns["splits"] + atomic, 2).astype(np.int64) - 2
        return (splits << 32) + self.kernel_id.astype(np.int64) * 2 + self.columns["swapped"].astype(np.int64)

    @property
    def oracle_us(self) -> float:
        """Fastest time of a candidate that is not coarse, microseconds; that of any where all are coarse."""
        return float((self.time_us if self.coarse.all() else self.time_us[~self.coarse]).min())

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
    newest. A GPU's clock drifts with its load between first pass and retake (on large problems by over 10%), so the
    time of a row without a retake is multiplied by the median drift of its problem's retaken rows. It cannot beat
    them: the retake decides the oracle.

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


def _rows(tables: Tables, deterministic: bool) -> pd.DataFrame:
    """Timed rows of the main campaigns with their config columns, one a candidate."""
    main = tables.campaigns.loc[tables.campaigns["purpose"] == "main", "campaign_id"]
    rows = tables.measurements
    rows = rows[rows["status"].isin(TIMED) & rows["campaign_id"].isin(main)]
    rows = rows.assign(best_us=best_time(rows), retaken=rows["retake_us"].notna(), coarse=rows["status"] == "coarse")
    rows = rows[rows["best_us"].notna()]
    if deterministic:
        rows = rows[rows["decomposition"] != Decomposition.SPLIT_K_ATOMIC]
    rows = rows.sort_values(["retaken", "coarse", "campaign_id"], ascending=[False, True, False], kind="stable")
    rows = rows.drop_duplicates(list(CANDIDATE_KEY)).sort_values(list(CANDIDATE_KEY))
    rows = rows.merge(tables.kernels[["kernel_id", *CONFIG_COLUMNS]], on="kernel_id", how="inner")
    retakes = rows.assign(drift=rows["retake_us"] / rows["time_us"]).groupby("problem_id")
    drifted = (rows["time_us"] * retakes["drift"].transform("median").fillna(1.0)).astype(np.float64)
    rows["best_us"] = rows["best_us"].where(rows["retaken"], np.fmax(drifted, retakes["retake_us"].transform("min")))
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
