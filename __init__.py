"""Picks the fastest CUTLASS kernel on Hopper for a GEMM, without compiling or running any.

The public names below are loaded on first use, so that importing the package stays cheap.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

__version__ = "0.1.0"

__all__ = [
    "HARDWARE",
    "Candidate",
    "Choice",
    "CutlassRankerError",
    "Decomposition",
    "Epilogue",
    "Hardware",
    "InvalidCandidates",
    "InvalidConfig",
    "InvalidProblem",
    "KernelConfig",
    "Launch",
    "Problem",
    "Raster",
    "Schedule",
    "Scheduler",
    "UnknownHardware",
    "UnsupportedProblem",
    "__version__",
    "rank_kernels",
    "select_kernel",
]

if TYPE_CHECKING:
    from .features import HARDWARE, Hardware
    from .generator import (
        Candidate,
        CutlassRankerError,
        Decomposition,
        Epilogue,
        InvalidCandidates,
        InvalidConfig,
        InvalidProblem,
        KernelConfig,
        Launch,
        Problem,
        Raster,
        Schedule,
        Scheduler,
        UnknownHardware,
        UnsupportedProblem,
    )
    from .selector import Choice, rank_kernels, select_kernel

_HOME: Final = {
    "HARDWARE": "features",
    "Hardware": "features",
    "Choice": "selector",
    "rank_kernels": "selector",
    "select_kernel": "selector",
}
"""Folder of each public name that is not the generator's."""


def __getattr__(name: str) -> Any:
    """Import a public name from its folder the first time it is asked for."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(f".{_HOME.get(name, 'generator')}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """List the public names, loaded or not."""
    return sorted({*globals(), *__all__})
