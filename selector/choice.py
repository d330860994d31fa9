"""The answer of the selector."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..generator import Candidate, KernelConfig, Launch, Problem, emit_source


@dataclass(frozen=True, slots=True)
class Choice:
    """A kernel, how to launch it, and how sure to be."""

    problem: Problem
    """What was asked."""
    config: KernelConfig
    """The kernel to compile."""
    launch: Launch
    """How to launch it."""
    swapped: bool
    """True if the kernel runs the transposed problem: give it (N, M, K), and exchange A and B."""
    rank: int
    """1 for the best."""
    score: float
    """Score of the ranker; only differences on one problem mean anything."""
    relative_speed: float
    """Expected time of the fastest candidate / time of this one, from 0 to 1, calibrated on problems that were held out
    of training; NaN if the ranker has no calibration."""
    hardware: str
    """GPU that was ranked for."""
    model: str
    """Ranker that scored."""

    @property
    def name(self) -> str:
        """The ``cutlass_library`` procedural name of the kernel."""
        return self.config.name

    @property
    def expected_regret(self) -> float:
        """Expected 1 − time of the fastest candidate / time of this one, from 0 to 1; NaN if not calibrated."""
        return 1.0 - self.relative_speed

    @property
    def candidate(self) -> Candidate:
        """Kernel, launch and swap together."""
        return Candidate(self.config, self.launch, self.swapped)

    def source(self) -> str:
        """Return C++ that compiles with nvcc and CUTLASS's headers, and runs this kernel on the problem."""
        return emit_source(self.candidate, self.problem)

    def to_dict(self) -> dict[str, Any]:
        """Return the choice as plain values, ready for JSON."""
        config, launch = self.config, self.launch
        return {
            "rank": self.rank,
            "name": self.name,
            "tile": [config.tile_m, config.tile_n, config.tile_k],
            "cluster": [config.cluster_m, config.cluster_n],
            "stages": config.stages,
            "schedule": config.schedule.name.lower(),
            "epilogue": config.epilogue.name.lower(),
            "scheduler": config.scheduler.name.lower(),
            "family": config.family,
            "void_c": config.void_c,
            "launch": {
                "raster": launch.raster.name.lower(),
                "swizzle": launch.swizzle,
                "decomposition": launch.decomposition.name.lower(),
                "splits": launch.splits,
            },
            "deterministic": launch.deterministic,
            "swapped": self.swapped,
            "score": self.score,
            "relative_speed": self.relative_speed,
            "expected_regret": self.expected_regret,
        }
