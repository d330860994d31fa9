"""Resource pressure: registers, shared memory, residency and clusters."""

from __future__ import annotations

from typing import Final

import numpy as np

from .occupancy import OTHER_REGISTERS, PERSISTENT_THREADS, PLAIN_THREADS
from .schema import KERNEL, OWN, PAPER, Feature
from .terms import Terms, Value

FEATURES: Final = (
    Feature("log2_extra_memory", "KiB", "resources", f"1 KiB + shared memory beside the mainloop's stages; {KERNEL}"),
    Feature("log2_cluster", "CTAs", "resources", f"CTAs per cluster; {PAPER}"),
    Feature("accumulator_registers", "registers", "resources", f"float32 accumulators per consumer thread; {KERNEL}"),
    Feature(
        "register_use", "fraction", "resources",
        f"(accumulators + {OTHER_REGISTERS:.0f}) / registers a consumer thread may use: 232, 240 or 255; {KERNEL}",
    ),
    Feature("spilled_registers", "registers", "resources", f"registers needed beyond that budget; {OWN}"),
    Feature("register_proxy", "elements/thread", "resources", f"tile_m·tile_n / threads per CTA; {PAPER}"),
    Feature("threads", "threads", "resources", f"threads per CTA; {KERNEL}"),
    Feature("shared_memory_use", "fraction", "resources", f"shared memory of a CTA / of an SM; {PAPER}"),
    Feature("resident_ctas", "CTAs", "resources", f"CTAs one SM holds by shared memory, registers, threads; {PAPER}"),
    Feature("resident_memory_use", "fraction", "resources", f"shared memory of all resident CTAs / of an SM; {OWN}"),
    Feature("active_sms", "fraction", "resources", f"SMs that clusters of this size can keep busy / SMs; {OWN}"),
)  # fmt: skip


def compute(terms: Terms) -> dict[str, Value]:
    """Compute the features of :data:`FEATURES`."""
    hardware = terms.hardware
    threads = np.where(terms.plain, PLAIN_THREADS, PERSISTENT_THREADS)
    use = terms.shared_memory / hardware.shared_memory_per_sm
    return {
        "log2_extra_memory": 1.0 + (terms.shared_memory - terms.stages * terms.stage_bytes) / 1024.0,
        "log2_cluster": terms.cluster,
        "accumulator_registers": terms.accumulators,
        "register_use": (terms.accumulators + OTHER_REGISTERS) / terms.register_budget,
        "spilled_registers": terms.spilled,
        "register_proxy": terms.tile_m * terms.tile_n / threads,
        "threads": threads,
        "shared_memory_use": use,
        "resident_ctas": terms.resident,
        "resident_memory_use": use * terms.resident,
        "active_sms": terms.active / hardware.sm_count,
    }
