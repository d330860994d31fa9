"""What the tables hold and whether they are sound: ``data info`` and ``data check``."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pandas as pd

from ..generator import (
    CONFIG_COLUMNS,
    FAMILIES,
    SPLIT_K_DECOMPOSITIONS,
    SWIZZLES,
    CutlassRankerError,
    DataError,
    Decomposition,
    Problem,
    Raster,
    Scheduler,
    names,
    parse_dtype,
    require_supported,
    swap_family,
)
from .problems import SPLITS, leaks
from .protocol import MODES, OPERANDS
from .tables import CANDIDATE_KEY, PROBLEM_KEY, PURPOSES, SCHEMA, TIMED, Tables, best_time, conform

LONG_US: Final = 20.0
"""Rows longer than this are hardly touched by the timer's resolution, microseconds."""
PEAK_FLOPS: Final = 1.1e15
"""Above what an SM90 GPU's tensor cores reach on 2-byte types at its highest clock (1.07e15 on 132 SMs), FLOP/s."""
PEAK_BANDWIDTH: Final = 4.9e12
"""Above what an H200's memory delivers by its data sheet (4.8 TB/s), bytes/s."""
ERROR: Final = "error"
WARNING: Final = "warning"


@dataclass(frozen=True)
class NoiseFloor:
    """How far measurements of the same thing differ; relative, NaN where there is nothing to compare."""

    spread: float
    """Median relative interquartile range of the rows with status ok."""
    timers: float
    """Median |retake - graph| / retake: the two timers."""
    timers_long: float
    """The same over rows longer than 20 us."""
    repeat: float
    """Median |repeat - first| / first over rows that a repeat campaign measured at another time."""
    retaken_rows: int
    """Rows with both timers."""
    repeated_rows: int
    """Rows measured by both a main and a repeat campaign."""


@dataclass(frozen=True)
class Info:
    """Summary of the tables."""

    campaigns: list[dict[str, Any]]
    """One entry a campaign: its table row and ``rows``."""
    statuses: dict[str, int]
    """Rows of ``measurements`` by status."""
    problems: dict[str, int]
    """Measured problems by split."""
    kernels: dict[str, int]
    """``total``, ``built``, ``measured``."""
    baselines: dict[str, int]
    """Rows of ``baselines`` by method."""
    noise: NoiseFloor

    def text(self) -> str:
        """Return the summary as plain text."""
        lines = ["Campaigns", *(_campaign_text(entry) for entry in self.campaigns)]
        lines += ["", "Rows by status", *(f"  {status:<14}{count:>10,}" for status, count in self.statuses.items())]
        lines += ["", "Problems measured", *(f"  {split:<14}{count:>10,}" for split, count in self.problems.items())]
        lines += ["", "Kernels", *(f"  {name:<14}{count:>10,}" for name, count in self.kernels.items())]
        lines += ["", "Baselines", *(f"  {method:<18}{count:>6,}" for method, count in self.baselines.items())]
        noise = self.noise
        lines += [
            "", "Noise floor (relative)",
            f"  median spread of a row's launches            {_percent(noise.spread)}",
            f"  median difference of the two timers          {_percent(noise.timers)}  ({noise.retaken_rows:,} rows)",
            f"  the same, rows longer than {LONG_US:.0f} us            {_percent(noise.timers_long)}",
            f"  median difference to a repeat                {_percent(noise.repeat)}  ({noise.repeated_rows:,} rows)",
        ]  # fmt: skip
        return "\n".join(lines)


def _campaign_text(entry: dict[str, Any]) -> str:
    return (
        f"  {entry['campaign_id']}: {entry['name']} ({entry['purpose']}), {entry['gpu']}, driver {entry['driver']}, "
        f"CUDA {entry['cuda']}, CUTLASS {entry['cutlass']}, protocol {entry['protocol_version']}, "
        f"{entry['started']}, {entry['seconds']:.0f} s, {entry['rows']:,} rows"
    )


def _percent(value: float) -> str:
    return "   n/a" if np.isnan(value) else f"{value:6.2%}"


def data_info(tables: Tables) -> Info:
    """Summarise the tables."""
    rows = tables.measurements
    per_campaign = rows.groupby("campaign_id").size()
    campaigns: list[dict[str, Any]] = [
        {str(key): value for key, value in entry.items()} | {"rows": int(per_campaign.get(entry["campaign_id"], 0))}
        for entry in tables.campaigns.to_dict("records")
    ]
    measured = tables.problems[tables.problems["problem_id"].isin(rows["problem_id"])]
    return Info(
        campaigns=campaigns,
        statuses={str(k): int(v) for k, v in rows["status"].value_counts().items() if v},
        problems={str(k): int(v) for k, v in measured["split"].value_counts().items()},
        kernels={
            "total": len(tables.kernels),
            "built": int((tables.kernels["build_status"] == "ok").sum()),
            "measured": int(rows["kernel_id"].nunique()),
        },
        baselines={str(k): int(v) for k, v in tables.baselines["method"].value_counts().items()},
        noise=noise_floor(tables),
    )


def noise_floor(tables: Tables) -> NoiseFloor:
    """Compute the noise floor; the first three numbers come from the main campaigns."""
    purpose = tables.measurements["campaign_id"].map(tables.campaigns.set_index("campaign_id")["purpose"])
    main = tables.measurements[(purpose == "main") & (tables.measurements["status"] == "ok")]
    both = main[main["retake_us"].notna() & main["graph_us"].notna()]
    timers = (both["retake_us"] - both["graph_us"]).abs() / both["retake_us"]
    repeats = tables.measurements[(purpose == "repeat") & (tables.measurements["status"] == "ok")]
    pairs = main.merge(repeats, on=list(CANDIDATE_KEY), suffixes=("", "_repeat"))
    repeat = (pairs["time_us_repeat"] - pairs["time_us"]).abs() / pairs["time_us"]
    return NoiseFloor(
        spread=_median(main["spread"]),
        timers=_median(timers),
        timers_long=_median(timers[both["retake_us"] > LONG_US]),
        repeat=_median(repeat),
        retaken_rows=len(both),
        repeated_rows=len(pairs),
    )


def _median(values: pd.Series[float]) -> float:
    return float(values.median()) if len(values) else float("nan")


@dataclass(frozen=True)
class Finding:
    """Something wrong with the tables."""

    level: str
    """``"error"`` or ``"warning"``."""
    table: str
    message: str
    rows: int
    """Rows concerned."""

    def __str__(self) -> str:
        return f"{self.level}: {self.table}: {self.message} ({self.rows:,} rows)"


def data_check(tables: Tables) -> list[Finding]:
    """Check schema, ids, duplicates, names, problems, layouts, launches, ranges, roofline floor, campaigns and splits.

    An empty list means sound.
    """
    found = list(_schema(tables))
    if found:
        return found
    for check in (_ids, _duplicates, _names, _problems, _layouts, _launches, _ranges, _floor, _campaigns, _splits):
        found += check(tables)
    return found


def _count(level: str, table: str, message: str, broken: pd.Series[bool]) -> Iterator[Finding]:
    if broken.any():
        yield Finding(level, table, message, int(broken.sum()))


def _schema(tables: Tables) -> Iterator[Finding]:
    for table in SCHEMA:
        try:
            conform(table, getattr(tables, table))
        except DataError as error:
            yield Finding(ERROR, table, str(error), len(getattr(tables, table)))


def _ids(tables: Tables) -> Iterator[Finding]:
    """Rows that point at a kernel, problem or campaign that is not there."""
    owners = {"problem_id": tables.problems, "kernel_id": tables.kernels, "campaign_id": tables.campaigns}
    for table in ("measurements", "baselines", "nvmmh", "nvmmh_variants"):
        frame = getattr(tables, table)
        for column, owner in owners.items():
            if column in frame:
                yield from _count(ERROR, table, f"{column} is not in its table", ~frame[column].isin(owner[column]))


def _duplicates(tables: Tables) -> Iterator[Finding]:
    keys: dict[str, list[list[str]]] = {
        "kernels": [["kernel_id"], ["name"]],
        "problems": [["problem_id"], list(PROBLEM_KEY)],
        "measurements": [[*CANDIDATE_KEY, "campaign_id"]],
        "baselines": [["problem_id", "method", "campaign_id"]],
        "nvmmh": [["problem_id", "rank"]],
        "campaigns": [["campaign_id"], ["name"]],
    }
    for table, unique in keys.items():
        for key in unique:
            frame: pd.DataFrame = getattr(tables, table)
            yield from _count(ERROR, table, f"repeats {', '.join(key)}", frame.duplicated(key))


def _names(tables: Tables) -> Iterator[Finding]:
    """Kernels whose name is not that of their configuration."""
    columns = {name: tables.kernels[name].to_numpy(dtype=np.int32) for name in CONFIG_COLUMNS}
    dtype = tables.kernels["name"].str.extract(r"gemm_([a-z0-9]+)_", expand=False)
    for kind in dtype.dropna().unique():
        expected = pd.Series(names(columns, parse_dtype(kind)), index=tables.kernels.index)
        wrong = (dtype == kind) & (expected != tables.kernels["name"])
        yield from _count(ERROR, "kernels", "name does not match the configuration", wrong)
    yield from _count(ERROR, "kernels", "name is not a procedural name", dtype.isna())


def _problems(tables: Tables) -> Iterator[Finding]:
    """Problems that make no sense or that TMA cannot take."""
    refused = [_refused(row) for row in tables.problems.itertuples()]
    broken = pd.Series(refused, index=tables.problems.index, dtype=bool)
    yield from _count(ERROR, "problems", "not a problem that the kernels can take", broken)


def _refused(row: Any) -> bool:
    try:
        require_supported(Problem(row.M, row.N, row.K, row.layout, row.dtype))
    except CutlassRankerError:
        return True
    return row.layout not in FAMILIES


def _layouts(tables: Tables) -> Iterator[Finding]:
    """Kernels of a family that does not serve the layout of their problem, directly or swapped as the row says."""
    family = tables.kernels.set_index("kernel_id")["family"].map(dict(enumerate(FAMILIES)))
    layout = tables.problems.set_index("problem_id")["layout"]
    turned = layout.map({family: swap_family(family) for family in FAMILIES})
    for table in ("measurements", "nvmmh_variants"):
        frame = getattr(tables, table)
        needed = frame["problem_id"].map(layout)
        if "swapped" in frame:
            needed = needed.where(frame["swapped"] == 0, frame["problem_id"].map(turned))
        wrong = frame["kernel_id"].map(family) != needed
        yield from _count(ERROR, table, "the kernel's family does not serve the problem's layout", wrong)


def _launches(tables: Tables) -> Iterator[Finding]:
    """Launches that do not exist, or that the kernel's scheduler does not have."""
    kernels = tables.kernels.set_index("kernel_id")["scheduler"]
    for table in ("measurements", "nvmmh_variants"):
        frame = getattr(tables, table)
        split = frame["decomposition"].isin(SPLIT_K_DECOMPOSITIONS)
        broken = (
            ~frame["raster"].isin(list(Raster))
            | ~frame["swizzle"].isin(SWIZZLES)
            | ~frame["decomposition"].isin(list(Decomposition))
            | (frame["splits"] < 1)
            | (split != (frame["splits"] > 1))
        )
        yield from _count(ERROR, table, "not a launch", broken)
        scheduler = frame["kernel_id"].map(kernels)
        decomposed = (frame["decomposition"] != Decomposition.HEURISTIC) & (scheduler == Scheduler.PERSISTENT)
        yield from _count(ERROR, table, "a decomposition without the Stream-K scheduler", decomposed)
        whole = (frame["decomposition"] != Decomposition.SPLIT_K_SEPARATE) & (scheduler == Scheduler.SPLIT_K)
        yield from _count(ERROR, table, "a kernel that splits K without a second kernel that adds", whole)
    swapped = ~tables.measurements["swapped"].isin([0, 1])
    yield from _count(ERROR, "measurements", "swapped is neither 0 nor 1", swapped)


def _ranges(tables: Tables) -> Iterator[Finding]:
    rows = tables.measurements
    timed = rows["status"].isin(TIMED)
    time = rows["time_us"]
    broken = {
        "a timed row has no positive time": timed & ~(time > 0),
        "a row that failed has a time": ~timed & time.notna(),
        "a timed row has fewer than 2 launches": timed & (rows["launches"] < 2),
        "a row with status ok has fewer than 10 launches": (rows["status"] == "ok") & (rows["launches"] < 10),
        "spread is negative": rows["spread"] < 0,
        "a retake is not positive": (rows["retake_us"] <= 0) | (rows["graph_us"] <= 0),
    }
    for message, mask in broken.items():
        yield from _count(ERROR, "measurements", message, mask)
    off = (rows["probe_ratio"] - 1).abs() > 0.2
    yield from _count(WARNING, "measurements", "the probe was more than 20% off its median", off)
    far = (rows["retake_us"] / time - 1).abs() > 0.25
    yield from _count(WARNING, "measurements", "retake and first pass differ by more than 25%", far)


def _floor(tables: Tables) -> Iterator[Finding]:
    """Times below what the hardware could do: 2MNK at peak; with cold operands, A and B read once at peak bandwidth."""
    sizes = tables.problems.set_index("problem_id")[["M", "N", "K"]].astype(np.float64)
    flop_us = 2 * sizes["M"] * sizes["N"] * sizes["K"] / PEAK_FLOPS * 1e6
    read_us = 2 * (sizes["M"] + sizes["N"]) * sizes["K"] / PEAK_BANDWIDTH * 1e6
    cold = tables.campaigns.loc[tables.campaigns["operands"] == "cold", "campaign_id"]
    for table in ("measurements", "baselines"):
        rows = getattr(tables, table)
        time = best_time(rows) if "retake_us" in rows else rows["time_us"]
        read = rows["problem_id"].map(read_us).where(rows["campaign_id"].isin(cold), 0.0)
        floor = np.fmax(rows["problem_id"].map(flop_us), read)
        yield from _count(ERROR, table, "faster than the roofline", time < floor)


def _campaigns(tables: Tables) -> Iterator[Finding]:
    """Unknown purposes and conditions; main campaigns that were not measured under the same ones."""
    campaigns = tables.campaigns
    for column, allowed in (("purpose", PURPOSES), ("operands", OPERANDS), ("mode", MODES)):
        broken = ~campaigns[column].isin(allowed)
        yield from _count(ERROR, "campaigns", f"{column} is none of {', '.join(allowed)}", broken)
    conditions = campaigns.loc[campaigns["purpose"] == "main", ["operands", "mode"]].drop_duplicates()
    if len(conditions) > 1:
        yield Finding(ERROR, "campaigns", "main campaigns differ in operands or mode", len(conditions))


def _splits(tables: Tables) -> Iterator[Finding]:
    """Unknown splits; training problems whose base shape is held out, or is or comes near one that is evaluated on."""
    problems = tables.problems
    unknown = ~problems["split"].isin(SPLITS)
    yield from _count(ERROR, "problems", f"split is none of {', '.join(SPLITS)}", unknown)
    leaked = pd.Series(problems.index.isin(list(leaks(problems))), index=problems.index)
    yield from _count(ERROR, "problems", "a training shape is held out or too near a held-out one", leaked)
