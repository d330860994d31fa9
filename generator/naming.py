"""The form of ``cutlass_library``'s procedural names for SM90 (``GemmOperation.procedural_name`` in CUTLASS 4.2)."""

from __future__ import annotations

from typing import Final

SCHEDULES: Final = ("_warpspecialized", "_warpspecialized_pingpong", "_warpspecialized_cooperative")
"""Parts of the name by the value of ``Schedule``."""
EPILOGUES: Final = ("_epi_nosmem", "_epi_tma", "_epi_tma_n64")
"""Parts of the name by the value of ``Epilogue``; the last one is not in ``cutlass_library``."""
SCHEDULERS: Final = ("", "_stream_k", "")
"""Parts of the name by the value of ``Scheduler``; kernels of ``SPLIT_K`` are known by a float32 D."""
SPLIT_K: Final = 2
"""The value of ``Scheduler.SPLIT_K``."""
ALIGNMENT_BYTES: Final = 16


def format_name(
    element: str, element_bytes: int, void_c: int, tile: tuple[int, int, int], cluster: tuple[int, int], stages: int,
    family: str, scheduler: int, schedule: int, epilogue: int,
) -> str:  # fmt: skip
    """Put a procedural name together; enumerations are given by their value."""
    source, result = "void" if void_c else element, "f32" if scheduler == SPLIT_K else element
    return (
        f"cutlass3x_sm90_tensorop_gemm_{element}_{element}_f32_{source}_{result}"
        f"_{tile[0]}x{tile[1]}x{tile[2]}_{cluster[0]}x{cluster[1]}x1_{stages}_{family.lower()}"
        f"_align{ALIGNMENT_BYTES // element_bytes}{SCHEDULERS[scheduler]}{SCHEDULES[schedule]}{EPILOGUES[epilogue]}"
    )
