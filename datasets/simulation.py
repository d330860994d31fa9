"""A simulated engine: the same interface without a GPU, for trying the whole campaign and its failures.

Times are a fixed function of problem, kernel and launch with a little noise. Faults are given by unit index (for this
engine the position of a kernel's name in ``names``).
"""

from __future__ import annotations

import os
import time
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from .engine import NULL_SLOT, PROBE_SLOT, Conditions, EngineFailure, EngineLost
from .status import StatusFile

WARM: Final = 0.8
"""What warm operands multiply times by."""
SERVER_US: Final = 3.0
"""What an idle gap adds to the time of a launch, microseconds; the gaps themselves are not waited for."""


class SimulatedEngine:
    """Plays an engine.

    Parameters
    ----------
    status
        The worker's status file, in which progress is reported.
    faults
        What goes wrong with which kernel name: ``wrong``, ``refused``, ``launch_failed``, ``below_floor``, ``hang``
        (never returns), ``lost`` (the context is lost), ``abort`` (the process dies), ``retake_hang`` (hangs once it
        has been launched a few times).
    blas
        Number of cuBLASLt answers.
    launch_s
        Seconds that a launch takes on the clock.
    missing
        Kernel names that were not built.
    starts
        A file to which every start of the engine appends a line.
    """

    def __init__(
        self,
        status: StatusFile,
        faults: Mapping[str, str] | None = None,
        blas: int = 3,
        launch_s: float = 0.0,
        missing: tuple[str, ...] = (),
        starts: str | None = None,
        fail_problem: int | None = None,
    ) -> None:
        self._status = status
        self._faults = dict(faults or {})
        self._blas = blas
        self._launch_s = launch_s
        self._missing = set(missing)
        self._fail_problem = fail_problem
        self._names: list[str] = []
        self._slots: list[tuple[str, str]] = []
        self._shape = (0, 0, 0)
        self._launched: dict[str, int] = {}
        self._rng = np.random.default_rng(os.getpid())
        if starts is not None:
            with Path(starts).open("a") as file:
                file.write(f"{os.getpid()}\n")

    def info(self) -> dict[str, Any]:
        """See ``Engine``; the numbers of an H200."""
        return {
            "gpu": "Simulated H200", "sm_count": 132, "l2_bytes": 62_914_560, "clock_khz": 1_980_000,
            "memory_clock_khz": 3_201_000, "memory_bus_bits": 6144, "driver_cuda": 13000, "cuda_runtime": 13000,
            "cupti": 130001, "cublaslt": 130000,
        }  # fmt: skip

    def open_kernels(self, kernels: list[str]) -> NDArray[np.int32]:
        """See ``Engine``."""
        places = np.full((len(kernels), 2), -1, dtype=np.int32)
        for row, name in enumerate(kernels):
            if name in self._missing:
                continue
            if name not in self._names:
                self._names.append(name)
            places[row] = 0, self._names.index(name)
        return places

    def set_problem(self, m: int, n: int, k: int, layout: str, seed: int, placement: int = 0) -> None:
        """See ``Engine``."""
        if self._fail_problem is not None and seed == self._fail_problem + 1:
            raise EngineFailure("allocate A: cudaErrorMemoryAllocation, out of memory")
        self._shape = (m, n, k)
        self._slots = []

    def add(self, items: NDArray[np.void]) -> NDArray[np.int32]:
        """See ``Engine``."""
        statuses = np.zeros(len(items), dtype=np.int32)
        for row, item in enumerate(items):
            name = self._names[int(item["index"])]
            launch = tuple(int(item[field]) for field in ("swapped", "raster", "swizzle", "decomposition", "splits"))
            self._slots.append((name, f"{self._shape}{name}{launch}"))
            statuses[row] = self._faults.get(name) == "refused"
        return statuses

    def add_blas(self, most: int) -> list[str]:
        """See ``Engine``."""
        names = [f"cublaslt {i}" for i in range(min(most, self._blas))]
        self._slots += [(name, f"{self._shape}{name}") for name in names]
        return names

    def true_us(self, identity: str) -> float:
        """The time without noise: 30 to 230 microseconds, spread by a checksum of shape, kernel and launch."""
        return 30.0 + 200.0 * (zlib.crc32(identity.encode()) / 2**32) ** 2

    def _launch(self, position: int, slot: int) -> tuple[int, float]:
        """Run one item; returns its CrStatus value and time."""
        self._status.advance(position, armed=True)
        if self._launch_s:
            time.sleep(self._launch_s)
        if slot in (PROBE_SLOT, NULL_SLOT):
            return 0, 90.0 if slot == PROBE_SLOT else 1.5
        name, identity = self._slots[slot]
        fault = self._faults.get(name, "")
        self._launched[name] = self._launched.get(name, 0) + 1
        if fault == "hang" or (fault == "retake_hang" and self._launched[name] > 5):
            while True:
                time.sleep(1.0)
        if fault == "lost":
            raise EngineLost("verification: cudaErrorIllegalAddress, an illegal memory access was encountered")
        if fault == "abort":
            os.abort()
        if fault == "launch_failed":
            return 2, np.nan
        return 0, 1e-3 if fault == "below_floor" else self.true_us(identity)

    def _run(self, slots: NDArray[np.int32], conditions: Conditions) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
        results = [self._launch(position, int(slot)) for position, slot in enumerate(slots)]
        self._status.advance(len(slots), armed=False)
        times = np.array([us for _, us in results]) * (1.0 + 0.01 * self._rng.standard_normal(len(slots)))
        if conditions.flush_bytes == 0:
            times *= WARM
        if conditions.gaps_us is not None:
            if conditions.gaps_us.shape != slots.shape:
                raise EngineFailure("gaps do not fit the launches")
            times += SERVER_US
        return np.array([code for code, _ in results], dtype=np.int32), times

    def verify(
        self, slots: NDArray[np.int32], conditions: Conditions
    ) -> tuple[NDArray[np.int32], NDArray[np.int64], NDArray[np.float64]]:
        """See ``Engine``."""
        statuses, times = self._run(slots, conditions)
        wrong = [7 if self._faults.get(self._slots[int(slot)][0]) == "wrong" else 0 for slot in slots]
        return statuses, np.array(wrong, dtype=np.int64), times

    def time(self, slots: NDArray[np.int32], conditions: Conditions) -> NDArray[np.float64]:
        """See ``Engine``."""
        return self._run(slots, conditions)[1]

    def graph_time(self, slots: NDArray[np.int32], rounds: int, conditions: Conditions) -> NDArray[np.float64]:
        """See ``Engine``; a microsecond more than the other timer says."""
        return np.array([self._run(slots, conditions)[1] + 1.0 for _ in range(rounds)])
