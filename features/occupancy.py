"""Registers and CTAs per SM, estimated from the configuration alone."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from .hardware import Hardware

FloatArray = NDArray[np.float64]

OTHER_REGISTERS: Final = 24.0
"""Registers a consumer thread cannot do without beside its accumulators (addresses, descriptors, pipeline state)."""
PLAIN_REGISTERS: Final = 32.0
"""What the compiler gives a plain kernel beside its accumulators (tiles of 64×16 to 64×64 take 40, 48 and 64)."""
MAX_REGISTERS: Final = 255.0
"""Most registers one thread can name."""
HEAVY_ACCUMULATORS: Final = 208.0
"""From this many accumulators on, CUTLASS moves registers from the producer to the consumers."""
SYSTEM_SHARED_MEMORY: Final = 1024.0
"""Bytes of shared memory the system keeps per resident CTA on SM90."""
PLAIN_THREADS: Final = 256.0
"""Threads per CTA of a plain warpspecialized kernel."""
PERSISTENT_THREADS: Final = 384.0
"""Threads per CTA of a pingpong or cooperative kernel."""
_PERSISTENT_REGISTERS: Final = 168.0
"""Registers per thread that a 384-thread CTA is launched with: 65536 / 384, rounded down to 8."""
_MAX_THREADS_PER_SM: Final = 2048.0


def register_budget(plain: NDArray[np.bool_], accumulators: FloatArray) -> FloatArray:
    """Registers that a consumer thread may use.

    Pingpong and cooperative kernels call ``setmaxnreg`` with 232, or 240 from 208 accumulators on
    (``MmaRegisterRequirement`` in ``sm90_gemm_tma_warpspecialized_{pingpong,cooperative}.hpp``); plain kernels are
    compiled for 256 threads and have the architecture's 255.
    """
    persistent = np.where(accumulators >= HEAVY_ACCUMULATORS, 240.0, 232.0)
    return np.where(plain, MAX_REGISTERS, persistent)


def estimated_registers(plain: NDArray[np.bool_], accumulators: FloatArray) -> FloatArray:
    """Registers per thread at launch: 168 for kernels of 384 threads; for plain ones what a consumer thread takes.

    Plain kernels allocate in units of 8 registers and no more than 255.
    """
    needed = np.ceil((accumulators + PLAIN_REGISTERS) / 8.0) * 8.0
    return np.where(plain, np.minimum(needed, MAX_REGISTERS), _PERSISTENT_REGISTERS)


def resident_ctas(
    plain: NDArray[np.bool_], registers: FloatArray, shared_memory: FloatArray, hardware: Hardware
) -> FloatArray:
    """CTAs that one SM holds at a time.

    Persistent kernels launch one CTA per SM. Plain kernels stack as many as shared memory (plus 1 KiB each),
    registers (256 threads) and the 2048 threads of an SM allow; at least 1.
    """
    by_memory = hardware.shared_memory_per_sm / (shared_memory + SYSTEM_SHARED_MEMORY)
    by_registers = hardware.registers_per_sm / (registers * PLAIN_THREADS)
    fit = np.floor(np.minimum(np.minimum(by_memory, by_registers), _MAX_THREADS_PER_SM / PLAIN_THREADS))
    return np.where(plain, np.maximum(fit, 1.0), 1.0)
