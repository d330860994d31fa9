"""Worker processes: how they are started, their threads and their GPU."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Final

SPAWN: Final = multiprocessing.get_context("spawn")
"""Fresh processes: threads and GPU contexts do not survive a fork."""


@contextmanager
def library_threads(count: int) -> Iterator[None]:
    """Give the numeric libraries of processes that are started inside so many threads each."""
    names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
    before = {name: os.environ.get(name) for name in names}
    os.environ.update(dict.fromkeys(names, str(count)))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def choose_gpu(index: int | None = None) -> None:
    """Make one of the GPUs that torch sees this process's own; workers are spread over them.

    Parameters
    ----------
    index
        Number of the worker, that of the process unless given.
    """
    if find_spec("torch") is None:
        return
    import torch

    if torch.cuda.is_available():
        torch.cuda.set_device((os.getpid() if index is None else index) % torch.cuda.device_count())
