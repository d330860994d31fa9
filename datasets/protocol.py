"""Numbers and formulas of the measurement protocol: what is launched how often, and what time comes out of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ..generator import MeasurementError, Problem

OPERANDS: Final = ("cold", "warm")
MODES: Final = ("offline", "server")
GAPS_US: Final = (100.0, 10_000.0)
"""Shortest and longest idle time before a launch in server mode, microseconds."""

TENSOR_FLOPS_PER_CLOCK: Final = 4096
"""Dense BF16 floating-point operations of one SM90 SM per clock."""
H200_CLOCK_KHZ: Final = 1_980_000
H200_BANDWIDTH: Final = 4.92e12
"""Highest clock and nominal bytes per second of an H200, where the driver does not tell (virtual machines)."""
FLUSH_BANDWIDTH: Final = 3.8e12
"""Bytes per second at which L2 is flushed, for sizing batches."""
LAUNCH_S: Final = 6e-6
"""Seconds between two kernels in the stream, for sizing batches."""

FINAL_LAUNCHES: Final = ((50.0, 180), (500.0, 45), (5000.0, 30), (np.inf, 15))
"""Launches of each finalist, by the time of the fastest below which they apply (microseconds)."""


@dataclass(frozen=True)
class Options:
    """What a campaign may choose.

    Raises
    ------
    MeasurementError
        If ``operands`` or ``mode`` is unknown.
    """

    operands: str = "cold"
    """``cold``: L2 is flushed before each timed launch. ``warm``: an untimed launch of the same candidate precedes it,
    so that operands and output are whatever the kernel left in L2."""
    mode: str = "offline"
    """``offline``: launches follow each other. ``server``: the GPU is idle before each timed launch, for a random time
    (log-uniform over ``GAPS_US``) after the flush or the untimed launch, as a serving engine leaves it."""
    flush_l2: float = 2.2
    """Bytes written to flush L2, in sizes of L2."""
    launches: int = 10
    """Launches of a candidate, those of the look included; the median counts."""
    small_launches: int = 20
    """Launches of one that takes less than ``small_us`` and ``small_within`` times the best; the mean of the middle
    half counts for all that take less than ``small_us``."""
    small_us: float = 20.0
    small_within: float = 1.5
    look_launches: int = 2
    """Launches that are verified, and timed too."""
    race: float = 1.5
    """A candidate slower than this many times the best is kept with its ``look_launches``."""
    launches_for_best: int = 16
    """Kernels whose other launches are measured."""
    retake_top: int = 32
    """Candidates measured again, interleaved and with a second timer."""
    final_top: int = 16
    """Most candidates of the retake that are measured a third time."""
    final_within: float = 1.04
    """They are at most this many times slower than the fastest of the retake."""
    final_placements: int = 3
    """Places that the operands are moved to during the final."""
    blas_algorithms: int = 8
    batch_s: float = 1.0
    """GPU time that a batch is sized for; what a kill can lose."""
    max_batch: int = 512
    """Most candidates in a batch."""
    probe_every_s: float = 2.0

    def __post_init__(self) -> None:
        for name, known in (("operands", OPERANDS), ("mode", MODES)):
            if getattr(self, name) not in known:
                raise MeasurementError(f"{name} {getattr(self, name)!r} is unknown; use one of {', '.join(known)}")

    def flush_bytes(self, l2_bytes: int) -> int:
        """Return how many bytes flush an L2 of ``l2_bytes``."""
        return int(self.flush_l2 * l2_bytes)

    def launch_counts(self, times_us: NDArray[Any], best_us: float) -> NDArray[np.int64]:
        """Return how often candidates are launched, by their times and that of the best (microseconds)."""
        often = (times_us < self.small_us) & (times_us <= self.small_within * best_us)
        return np.where(often, self.small_launches, self.launches).astype(np.int64)

    def launch_seconds(self, times_us: NDArray[Any], l2_bytes: int) -> NDArray[np.float64]:
        """Return about how long timed launches of candidates take with what precedes them, seconds."""
        kernel = np.asarray(times_us, dtype=np.float64) * 1e-6
        before = self.flush_bytes(l2_bytes) / FLUSH_BANDWIDTH if self.operands == "cold" else kernel + LAUNCH_S
        shortest, longest = GAPS_US
        mean_gap_s = 1e-6 * (longest - shortest) / np.log(longest / shortest)
        return kernel + before + 2 * LAUNCH_S + (mean_gap_s if self.mode == "server" else 0.0)


def summarise(times_us: NDArray[np.float64], small_us: float) -> tuple[float, float]:
    """Return the time of a candidate and its relative interquartile range.

    The median; under ``small_us`` the mean of the middle half of the launches, because the timer's ticks are coarse
    against such times while starts fall anywhere between two ticks.
    """
    quartiles = np.quantile(times_us, (0.25, 0.5, 0.75))
    value = float(quartiles[1])
    if value < small_us and len(times_us) >= 4:
        cut = len(times_us) // 4
        value = float(np.sort(times_us)[cut : len(times_us) - cut].mean())
    return value, float((quartiles[2] - quartiles[0]) / value)


def floor_us(problem: Problem, info: dict[str, Any], operands: str = "cold") -> float:
    """Return the time that no correct kernel can beat, microseconds, less 2%.

    Tensor cores at the highest clock; with cold operands A and B once through DRAM at its nominal bandwidth (D may stay
    in L2), if that takes longer.
    """
    peak = info["sm_count"] * TENSOR_FLOPS_PER_CLOCK * (info["clock_khz"] or H200_CLOCK_KHZ) * 1e3
    bandwidth = 2 * info["memory_clock_khz"] * 1e3 * info["memory_bus_bits"] / 8 or H200_BANDWIDTH
    operand_bytes = problem.dtype.bytes * problem.k * (problem.m + problem.n) if operands == "cold" else 0
    return float(0.98e6 * max(problem.flops / peak, operand_bytes / bandwidth))


def interleave(counts: NDArray[np.int64], rng: np.random.Generator) -> NDArray[np.intp]:
    """Return an order that visits item i ``counts[i]`` times, in rounds that are shuffled each."""
    rounds = [rng.permutation(np.flatnonzero(counts > number)) for number in range(int(counts.max(initial=0)))]
    return np.concatenate(rounds) if rounds else np.zeros(0, dtype=np.intp)


def draw_gaps(count: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """Return idle times for server mode, microseconds: log-uniform over ``GAPS_US``."""
    shortest, longest = GAPS_US
    return np.exp(rng.uniform(np.log(shortest), np.log(longest), count))


def final_launches(best_us: float) -> int:
    """Return how often each finalist is launched where the fastest takes ``best_us`` microseconds."""
    return next(launches for below_us, launches in FINAL_LAUNCHES if best_us < below_us)


def final_times(
    times_us: NDArray[np.float64], before_us: NDArray[np.float64]
) -> tuple[NDArray[np.float64], float, float]:
    """Return finalists' times from blocks that launched each of them once, on the scale of an earlier measurement.

    Every block is divided by its median, which takes out the drift of the clock. A finalist's ratio of one placement is
    the mean over the blocks without the lowest and highest fifth; its ratio is the mean over placements. The ratios are
    then scaled by one common factor, so that the finalists' median ratio to ``before_us`` is 1 and candidates that were
    not in the final stay comparable.

    Parameters
    ----------
    times_us
        [placement, block, finalist], microseconds.
    before_us
        [finalist], microseconds.

    Returns
    -------
    times_us
        [finalist], microseconds.
    noise
        Standard error of a finalist's ratio of one placement, relative, from the blocks; median over finalists.
    placed
        Standard deviation of a finalist's ratio over the placements, relative; median over finalists. About ``noise``
        if it does not matter where operands lie. NaN if there is one placement.
    """
    ratios = np.sort(times_us / np.median(times_us, axis=2, keepdims=True), axis=1)
    blocks = ratios.shape[1]
    cut = blocks // 5
    kept = ratios[:, cut : blocks - cut]
    by_placement = kept.mean(axis=1)
    relative = by_placement.mean(axis=0)
    # Tukey and McLaughlin (1963): a trimmed mean's standard error from the winsorised deviation.
    winsorised = np.clip(ratios, kept[:, :1], kept[:, -1:])
    noise = winsorised.std(axis=1, ddof=1) / ((1 - 2 * cut / blocks) * np.sqrt(blocks)) if blocks > 1 else np.nan
    placed = by_placement.std(axis=0, ddof=1) if len(by_placement) > 1 else np.nan
    scaled: NDArray[np.float64] = relative / np.median(relative / before_us)
    return scaled, float(np.median(noise / by_placement)), float(np.median(placed / relative))
