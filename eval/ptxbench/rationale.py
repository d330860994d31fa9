"""Why a candidate is a good start for a problem, and what limits it, in terms of the features."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ...features import Hardware, feature_names, featurize
from ...generator import Candidate, Epilogue, Problem, Schedule, Scheduler
from ...generator import columns as col


@dataclass(frozen=True)
class Rationale:
    """Reasons for the parts of a candidate, each one or two sentences with the numbers they rest on."""

    tile: str
    cluster: str
    pipeline: str
    schedule: str
    launch: str
    limit: str
    features: dict[str, float]
    """The feature values that the sentences name; ``log2_x`` is given as x."""

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return dict(vars(self))

    def lines(self) -> list[str]:
        """Return the sentences as Markdown list items."""
        parts = ("tile", "cluster", "pipeline", "schedule", "launch", "limit")
        return [f"- **{part}**: {getattr(self, part)}" for part in parts]


_NAMED = (
    "tiles", "waves", "wave_efficiency", "active_wave_efficiency", "efficiency_m", "efficiency_n", "padding_efficiency",
    "useful_fraction", "tile_intensity", "cluster_intensity", "multicast", "l2_hit", "dram_ratio", "k_tiles_per_unit",
    "effective_splits", "accumulator_registers", "register_use", "spilled_registers", "resident_ctas", "active_sms",
    "latency_cover", "fill_ratio", "epilogue_ratio", "wgmma_efficiency", "sm_time", "dram_time", "l2_time", "time",
    "over_roofline", "balance", "swizzle", "along_m",
)  # fmt: skip


def feature_values(candidate: Candidate, problem: Problem, hardware: Hardware) -> dict[str, float]:
    """Return all features of one candidate by name, those called ``log2_x`` as x."""
    row = featurize(col.from_candidates([candidate]), problem, hardware)[0].astype(np.float64)
    named = dict(zip(feature_names(), row.tolist(), strict=True))
    return {
        name.removeprefix("log2_"): 2.0**value if name.startswith("log2_") else value for name, value in named.items()
    }


def explain(candidate: Candidate, problem: Problem, hardware: Hardware) -> Rationale:
    """Explain a candidate for a problem; every number is a feature, nothing is measured."""
    config = candidate.config
    f = feature_values(candidate, problem, hardware)
    mine = problem.transposed() if candidate.swapped else problem
    swap = f" The kernel runs the transposed problem {mine.m}×{mine.n}, so that the short side takes tile_n."
    tile = (
        f"{config.tile_m}×{config.tile_n}×{config.tile_k}: {f['tiles']:.0f} tiles of D, covering M by "
        f"{f['efficiency_m']:.0%} and N by {f['efficiency_n']:.0%}; {f['tile_intensity']:.0f} FLOP per operand byte; "
        f"{f['accumulator_registers']:.0f} accumulator registers a consumer thread ({f['register_use']:.0%} of its "
        "budget)."
    )
    cluster = (
        f"{config.cluster_m}×{config.cluster_n}: TMA multicast brings each byte from L2 {f['multicast']:.1f} times, "
        f"{f['cluster_intensity']:.0f} FLOP per L2 byte; clusters of this size keep {f['active_sms']:.0%} of the SMs "
        "busy."
        if config.cluster_m * config.cluster_n > 1
        else f"1×1: no multicast ({f['cluster_intensity']:.0f} FLOP per L2 byte), no waiting for neighbours, all SMs "
        "usable."
    )
    pipeline = (
        f"{config.stages} stages; loads in flight are {f['latency_cover']:.1f} times what DRAM latency needs; filling "
        f"a stage takes {f['fill_ratio']:.2f} of the time of its MMAs; {f['k_tiles_per_unit']:.0f} k-tiles a work unit."
    )
    return Rationale(
        tile=tile + (swap if candidate.swapped else ""),
        cluster=cluster,
        pipeline=pipeline,
        schedule=_schedule(candidate, f),
        launch=_launch(candidate, f) if config.schedule is not Schedule.WARPSPECIALIZED else _plain_launch(f),
        limit=_limit(f, hardware),
        features={name: float(f"{f[name]:.4g}") for name in _NAMED},
    )


def _schedule(candidate: Candidate, f: dict[str, float]) -> str:
    config = candidate.config
    kind = {
        Schedule.PINGPONG: "pingpong: two consumer warpgroups take turns on tiles of their own, so that one's epilogue "
        f"({f['epilogue_ratio']:.2f} of a mainloop) hides behind the other's MMAs",
        Schedule.COOPERATIVE: "cooperative: two consumer warpgroups share a tile, which halves the accumulators of a "
        f"thread; its MMAs stop for each epilogue ({f['epilogue_ratio']:.2f} of a mainloop)",
        Schedule.WARPSPECIALIZED: "plain warpspecialized: one CTA a tile, "
        + (
            f"{f['resident_ctas']:.0f} on an SM hide each other's loads and epilogues"
            if f["resident_ctas"] > 1
            else "alone on its SM, so that its first loads and its epilogue are not hidden"
        ),
    }[config.schedule]
    epilogue = (
        "D leaves through shared memory and TMA" if config.epilogue is Epilogue.TMA else "D leaves from registers"
    )
    stream = ", Stream-K evens out the last wave" if config.scheduler is Scheduler.STREAM_K else ""
    return f"{kind}; {epilogue}{stream}."


def _launch(candidate: Candidate, f: dict[str, float]) -> str:
    launch = candidate.launch
    order = "M" if f["along_m"] else "N"
    text = (
        f"CTAs walk along {order} in groups of {f['swizzle']:.0f} (swizzle {launch.swizzle} asked for); DRAM should "
        f"deliver the operands {f['dram_ratio']:.2f} times, L2 serves {f['l2_hit']:.0%} of the reads"
    )
    if f["effective_splits"] > 1:
        text += f"; K is cut into {f['effective_splits']:.0f} slices"
    return text + "."


def _plain_launch(f: dict[str, float]) -> str:
    return (
        "a grid of tiles, started along M first; DRAM is expected to deliver the operands "
        f"{f['dram_ratio']:.2f} times, L2 serves {f['l2_hit']:.0%} of the reads."
    )


def _limit(f: dict[str, float], hardware: Hardware) -> str:
    """Say which resource the estimate waits for, and what costs most against the roofline."""
    times = {"the SMs": f["sm_time"], "DRAM": f["dram_time"], "L2": f["l2_time"]}
    slowest = max(times, key=lambda name: times[name])
    losses = {
        "the last wave is not full": 1.0 - f["active_wave_efficiency"],
        "tiles overhang M or N": 1.0 - f["efficiency_m"] * f["efficiency_n"],
        "clusters and swizzle pad the grid": 1.0 - f["padding_efficiency"],
        "shared-memory reads slow the MMAs": 1.0 - f["wgmma_efficiency"],
        "clusters leave SMs idle": 1.0 - f["active_sms"],
    }
    worst = max(losses, key=lambda name: losses[name])
    spill = f" About {f['spilled_registers']:.0f} registers spill." if f["spilled_registers"] > 0 else ""
    loss = f" Largest loss: {worst} ({losses[worst]:.0%})." if losses[worst] >= 0.01 else ""
    bound = "compute" if f["balance"] >= 1.0 else "memory"
    return (
        f"the problem is bound by {bound} on {hardware.name}; this kernel is estimated to wait for {slowest}, "
        f"{f['over_roofline']:.2f} times the roofline's time ({1e6 * f['time']:.0f} µs), {f['useful_fraction']:.0%} "
        f"of the tensor cores' slots are useful.{loss}{spill}"
    )
