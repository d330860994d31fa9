"""Settings that all tests share, and how fast the core is that they run on."""

import statistics
import time
from collections.abc import Callable
from typing import Final

import numpy as np
import pytest
from hypothesis import settings

# How long an example takes depends on what else the machine does; no test is about that.
settings.register_profile("no-deadline", deadline=None)
settings.load_profile("no-deadline")

REFERENCE: Final = 3.5e-3
"""Processor seconds of the fixed work below on the core that the tests' bounds are stated for: a Xeon of the fourth
generation at its high clock. The same core at its low one, for minutes at a time, needs 5.4 ms."""


@pytest.fixture
def slowness() -> Callable[[], float]:
    """How many times as long as on the reference core a fixed piece of work takes at this moment.

    The work is of the library's kind: NumPy on a few thousand elements, and Python between. Bounds on processor time
    are divided by it, so that they hold what the code does, not what clock the machine grants it.
    """

    def measure() -> float:
        spent = []
        for _ in range(9):
            start = time.thread_time()
            _fixed_work()
            spent.append(time.thread_time() - start)
        return statistics.median(spent) / REFERENCE

    return measure


def _fixed_work() -> int:
    rows = np.arange(2000)
    shuffled = rows * 7 % len(rows)
    inputs = np.linspace(-1, 1, 400 * 96, dtype=np.float32).reshape(400, 96)
    table = {f"column {place}": rows + place for place in range(24)}
    total = int((inputs @ inputs[:64].T).argmax())
    for divisor in range(2, 14):
        for values in table.values():
            quotient = (-(-values // divisor)).take(shuffled)
            total += int(np.where(quotient > 3, quotient, values)[divisor])
        total += len([str(value) for value in range(40)])
    return total
