"""Descriptions of the SM90 GPUs that features are computed for."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from importlib.resources import files
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ..generator import UnknownHardware

MAX_CLUSTER: Final = 16
"""Most CTAs in one thread-block cluster on SM90 (above 8 needs the non-portable attribute)."""

_FULL_GPC_SMS: Final = 18
"""SMs of a complete GPC of GH100."""


@dataclass(frozen=True)
class Hardware:
    """What features need to know of a GPU.

    Raises
    ------
    UnknownHardware
        If a quantity is not positive, no peak is given, or ``active_clusters`` lacks single CTAs.
    """

    name: str
    """Key of the description, e.g. ``h200``."""
    sm_count: int
    """Streaming multiprocessors."""
    shared_memory_per_sm: int
    """Bytes of shared memory per SM, the 1 KiB the system keeps per resident CTA included."""
    registers_per_sm: int
    """32-bit registers per SM."""
    l2_bytes: int
    """Bytes of L2 cache."""
    dram_bandwidth: float
    """DRAM bandwidth, bytes per second; for a measured GPU, bytes read plus written of a large copy."""
    peak_flops: Mapping[str, float]
    """Dense tensor-core rate by element type (``bf16``, ``f16``), FLOP/s; for a measured GPU, under sustained load."""
    clock_hz: float
    """SM clock, Hz."""
    active_clusters: Mapping[int, int]
    """Clusters that run at the same time with one CTA per SM, by cluster size in CTAs."""
    source: str
    """Where the numbers come from."""
    measured: bool
    """True if they were measured on a card, False if they are datasheet values."""

    def __post_init__(self) -> None:
        for field in ("sm_count", "shared_memory_per_sm", "registers_per_sm", "l2_bytes", "dram_bandwidth", "clock_hz"):
            if not getattr(self, field) > 0:
                raise UnknownHardware(f"{self.name}: {field} is {getattr(self, field)!r}; it must be positive")
        if not self.peak_flops or not all(rate > 0 for rate in self.peak_flops.values()):
            raise UnknownHardware(f"{self.name}: peak_flops needs a positive FLOP/s for at least one element type")
        if 1 not in self.active_clusters or not all(count > 0 for count in self.active_clusters.values()):
            raise UnknownHardware(
                f"{self.name}: active_clusters needs positive counts and an entry for single CTAs (1)"
            )
        object.__setattr__(self, "peak_flops", dict(self.peak_flops))
        object.__setattr__(self, "active_clusters", dict(self.active_clusters))

    def __hash__(self) -> int:
        return hash((self.name, self.sm_count, self.l2_bytes, self.dram_bandwidth, self.source))

    @cached_property
    def active_ctas(self) -> NDArray[np.float64]:
        """CTAs running at the same time, one per SM, by cluster size: shape (17,), index 0 unused.

        A cluster size that ``active_clusters`` does not list counts as the next larger listed one, or as one cluster.
        """
        table = np.ones(MAX_CLUSTER + 1)
        for size in range(1, MAX_CLUSTER + 1):
            listed = [known for known in self.active_clusters if known >= size]
            clusters = self.active_clusters[min(listed)] if listed else 1
            table[size] = clusters * size
        return table

    def peak(self, dtype: str) -> float:
        """Dense tensor-core rate for an element type, FLOP/s.

        Raises
        ------
        UnknownHardware
            If the description has no rate for that type.
        """
        if dtype not in self.peak_flops:
            known = ", ".join(sorted(self.peak_flops))
            raise UnknownHardware(f"{self.name} has no peak_flops for {dtype!r}; it has {known}")
        return self.peak_flops[dtype]

    @classmethod
    def from_json(cls, text: str) -> Hardware:
        """Build a description from the JSON object that :mod:`.probe` writes.

        Raises
        ------
        UnknownHardware
            If the text is no JSON object with exactly this class's fields.
        """
        try:
            values: dict[str, Any] = json.loads(text)
            values["active_clusters"] = {int(size): int(count) for size, count in values["active_clusters"].items()}
            return cls(**values)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise UnknownHardware(f"not a hardware description: {error}") from error


def _clusters_by_gpc(sm_count: int) -> dict[int, int]:
    """Active clusters per cluster size if SMs sit in full GPCs of 18 and one rest; a cluster never spans GPCs."""
    gpcs, rest = divmod(sm_count, _FULL_GPC_SMS)
    return {size: gpcs * (_FULL_GPC_SMS // size) + rest // size for size in (1, 2, 4, 8, 16)}


def _datasheet(
    name: str, sm_count: int, l2_mib: int, bandwidth: float, tensor: float, clock_hz: float, source: str
) -> Hardware:
    """Describe a GPU by its datasheet; BF16 and FP16 have the same dense rate on all of them."""
    return Hardware(
        name=name,
        sm_count=sm_count,
        shared_memory_per_sm=228 * 1024,
        registers_per_sm=65536,
        l2_bytes=l2_mib * 2**20,
        dram_bandwidth=bandwidth,
        peak_flops={"bf16": tensor, "f16": tensor},
        clock_hz=clock_hz,
        active_clusters=_clusters_by_gpc(sm_count),
        source=f"Datasheet: {source}. Active clusters follow from GPCs of 18 SMs. Nothing measured.",
        measured=False,
    )


HARDWARE: Final[dict[str, Hardware]] = {
    "h200": Hardware.from_json(files(__package__).joinpath("data/h200.json").read_text(encoding="utf-8")),
    "h100_sxm": _datasheet(
        "h100_sxm", 132, 50, 3.35e12, 989.4e12, 1.83e9,
        "NVIDIA H100 SXM5 80 GB: 132 SMs, 50 MB L2, 3.35 TB/s, 989.4 TFLOP/s dense BF16 (1.83 GHz)",
    ),
    "h100_pcie": _datasheet(
        "h100_pcie", 114, 50, 2.04e12, 756e12, 1.62e9,
        "NVIDIA H100 PCIe 80 GB: 114 SMs, 50 MB L2, 2.04 TB/s, 756 TFLOP/s dense BF16 (1.62 GHz)",
    ),
    "gh200": _datasheet(
        "gh200", 132, 60, 4.0e12, 989.4e12, 1.83e9,
        "NVIDIA GH200 with 96 GB HBM3: 132 SMs, 60 MB L2, 4 TB/s, 989.4 TFLOP/s dense BF16 (1.83 GHz)",
    ),
    "h20": _datasheet(
        "h20", 78, 60, 4.0e12, 148e12, 1.83e9,
        "NVIDIA H20 96 GB: 78 SMs, 60 MB L2, 4 TB/s, 148 TFLOP/s dense BF16; the clock is H100's",
    ),
}  # fmt: skip
"""Known GPUs by name."""


def get_hardware(hardware: str | Hardware) -> Hardware:
    """Return the description for a name; case, spaces, dashes and an ``nvidia`` prefix do not matter.

    Raises
    ------
    UnknownHardware
        If the name is not in :data:`HARDWARE`.
    """
    if isinstance(hardware, Hardware):
        return hardware
    wanted = _squeeze(str(hardware))
    for name, known in HARDWARE.items():
        if _squeeze(name) == wanted:
            return known
    raise UnknownHardware(f"hardware {hardware!r} is unknown; use one of {', '.join(HARDWARE)} or give a Hardware")


def _squeeze(name: str) -> str:
    return "".join(letter for letter in name.lower() if letter.isalnum()).removeprefix("nvidia")
