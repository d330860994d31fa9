"""The status file of a worker: memory shared by worker, engine and supervisor, which outlives a killed worker.

The first words are written by the engine's own thread (``Status`` in ``runner/engine.h``), so they advance even while
Python waits for the GPU, and they say after a crash or hang which item of the batch was running.
"""

from __future__ import annotations

from enum import IntEnum
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from .records import KEY

MAX_ITEMS: Final = 16384
"""Most items in one batch."""

_LAYOUT: Final = np.dtype(
    [
        ("heartbeat", "<i8"), ("marker", "<i8"), ("armed", "<i8"),
        ("state", "<i8"), ("problem_id", "<i8"), ("count", "<i8"), ("beat", "<i8"), ("unused", "<i8"),
        ("items", KEY, (MAX_ITEMS,)),
    ]
)  # fmt: skip
NO_KERNEL: Final = -1
"""``kernel_id`` of items that are no candidates (cuBLASLt, probe)."""


class State(IntEnum):
    """What a worker is doing, which decides how long it may be silent."""

    IDLE = 0
    SLOW = 1
    """Start-up, loading libraries, operands and reference."""
    BATCH = 2
    """Candidates run on the GPU or are being prepared for it."""


class StatusFile:
    """A status file mapped into memory.

    Parameters
    ----------
    path
        The file.
    create
        Make it anew, zeroed.
    """

    def __init__(self, path: Path, create: bool = False) -> None:
        self.path = path
        self._data: Any = np.memmap(path, dtype=_LAYOUT, mode="w+" if create else "r+", shape=(1,))

    def slow(self, problem_id: int = -1) -> None:
        """Enter work that may take long; nobody is to blame if it fails."""
        self._enter(State.SLOW, problem_id, 0)

    def idle(self) -> None:
        """Wait for work."""
        self._enter(State.IDLE, -1, 0)

    def batch(self, problem_id: int, items: NDArray[np.void]) -> None:
        """Enter a batch of items (``KEY`` records) that the engine works through in this order."""
        if len(items) > MAX_ITEMS:
            raise ValueError(f"a batch has {len(items)} items; at most {MAX_ITEMS} fit")
        self._data["marker"][0] = 0
        self._data["armed"][0] = 0
        self._data["items"][0, : len(items)] = items
        self._enter(State.BATCH, problem_id, len(items))

    def _enter(self, state: State, problem_id: int, count: int) -> None:
        self._data["count"][0] = count
        self._data["problem_id"][0] = problem_id
        self._data["state"][0] = state
        self._data["beat"][0] += 1

    def advance(self, marker: int, armed: bool) -> None:
        """Report progress in place of the engine; for engines written in Python."""
        self._data["armed"][0] = armed
        self._data["marker"][0] = marker
        self._data["heartbeat"][0] += 1

    @property
    def state(self) -> State:
        """What the worker is doing."""
        return State(int(self._data["state"][0]))

    @property
    def problem_id(self) -> int:
        """The problem at hand, or -1."""
        return int(self._data["problem_id"][0])

    def signature(self) -> tuple[int, ...]:
        """Return values that change with every sign of progress."""
        return tuple(int(self._data[name][0]) for name in ("heartbeat", "marker", "beat", "state"))

    def culprit(self) -> NDArray[np.void] | None:
        """Return the item (one ``KEY`` record) that was running, or None if no candidate was."""
        marker, count = int(self._data["marker"][0]), int(self._data["count"][0])
        if self.state is not State.BATCH or not self._data["armed"][0] or not 0 <= marker < count:
            return None
        item = np.array(self._data["items"][0, marker : marker + 1])
        return None if int(item["kernel_id"][0]) == NO_KERNEL else item
