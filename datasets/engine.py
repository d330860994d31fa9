"""The measuring engine as Python sees it: building the C++ library, finding its libraries, calling it.

:class:`Engine` is the interface that the measuring loop needs; :class:`CudaEngine` is the real one.
"""

from __future__ import annotations

import atexit
import ctypes
import hashlib
import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any, Final, Protocol

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ..generator import BuildError, MeasurementError

SOURCES: Final = ("device.cu", "trace.cpp", "blas.cpp", "engine.cpp", "api.cpp")
HEADERS: Final = ("device.h", "trace.h", "blas.h", "cublaslt.h", "engine.h", "library.h", "support.h", "kernel_abi.h")
FLAGS: Final = (
    "-std=c++17", "-O3", "-gencode=arch=compute_90a,code=sm_90a", "-shared", "-cudart", "static",
    "-Xcompiler", "-fPIC,-Wall,-Wextra,-fvisibility=hidden",
)  # fmt: skip

PROBE_SLOT: Final = -1
NULL_SLOT: Final = -2
TOLERANCE: Final = 1e-2
"""atol and rtol of the verification."""

ITEM: Final = np.dtype(
    [(name, "<i4") for name in ("unit", "index", "swapped", "raster", "swizzle", "decomposition", "splits")], align=True
)
"""A candidate as the engine takes it (``Candidate`` in ``runner/engine.h``)."""


class EngineFailure(MeasurementError):
    """A call failed but the engine can go on."""


class EngineLost(MeasurementError):
    """The CUDA context is lost; the process must be replaced."""


@dataclass(frozen=True)
class Conditions:
    """What precedes every timed launch of a batch."""

    flush_bytes: int
    """Bytes written to flush L2; 0 for an untimed launch of the same slot instead, which leaves its operands warm."""
    gaps_us: NDArray[np.float64] | None = None
    """Time that the GPU is idle right before each launch, one a launch, microseconds; None to launch at once."""


class Engine(Protocol):
    """What the measuring loop needs. Slots are numbered from 0 in the order they are added to a problem."""

    def info(self) -> dict[str, Any]:
        """Describe GPU and software: at least gpu, sm_count, l2_bytes, clock_khz, memory_clock_khz, memory_bus_bits."""

    def open_kernels(self, kernels: list[str]) -> NDArray[np.int32]:
        """Load kernels by name; returns [kernel, (unit, index)], -1 for a kernel that was not built."""

    def set_problem(self, m: int, n: int, k: int, layout: str, seed: int, placement: int = 0) -> None:
        """Start a problem with operands drawn from ``seed``, each ``placement`` (0 to 7) moved; drops all slots."""

    def add(self, items: NDArray[np.void]) -> NDArray[np.int32]:
        """Prepare candidates (``ITEM``) in new slots; returns CrStatus values (0: ready)."""

    def add_blas(self, most: int) -> list[str]:
        """Add cuBLASLt's answers as new slots, best first; returns their descriptions."""

    def verify(
        self, slots: NDArray[np.int32], conditions: Conditions
    ) -> tuple[NDArray[np.int32], NDArray[np.int64], NDArray[np.float64]]:
        """Launch slots in this order and check every output, poisoned before.

        Returns CrStatus values, numbers of wrong elements, and times as :meth:`time` does.
        """

    def time(self, slots: NDArray[np.int32], conditions: Conditions) -> NDArray[np.float64]:
        """Launch slots in this order; returns CUPTI times (microseconds), NaN if a launch failed."""

    def graph_time(self, slots: NDArray[np.int32], rounds: int, conditions: Conditions) -> NDArray[np.float64]:
        """Time the same by events around nodes of a captured graph, without gaps; [rounds, slots], microseconds."""


def build_engine(out_dir: str | Path, nvcc: str = "nvcc") -> Path:
    """Compile the engine unless ``out_dir`` holds one of the same sources; return the library.

    Raises
    ------
    BuildError
        If the compiler is missing or fails.
    """
    runner = files(__package__) / "runner"
    digest = hashlib.sha256("\0".join(FLAGS).encode())
    for name in (*SOURCES, *HEADERS):
        digest.update(f"\0{name}\0".encode() + (runner / name).read_bytes())
    library = Path(out_dir) / f"libengine-{digest.hexdigest()[:16]}.so"
    if library.is_file():
        return library
    compiler = shutil.which(nvcc) or shutil.which("/usr/local/cuda/bin/nvcc")
    if compiler is None:
        raise BuildError(f"no CUDA compiler at {nvcc!r}; install the CUDA toolkit (13.0 or newer) to build the engine")
    library.parent.mkdir(parents=True, exist_ok=True)
    partial = library.with_suffix(f".{os.getpid()}.tmp")
    command = [compiler, *FLAGS, *(str(runner / name) for name in SOURCES), "-o", str(partial), "-ldl", "-lpthread"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise BuildError(f"nvcc could not build the engine:\n{done.stderr[-4000:]}")
    partial.replace(library)
    return library


def library_directories() -> list[str]:
    """Return the directories where CUPTI and cuBLASLt may lie: pip's wheels first, then CUDA toolkits."""
    wheels = ("nvidia/cu13/lib", "nvidia/cuda_cupti/lib", "nvidia/cublas/lib")
    toolkit = ("lib64", "extras/CUPTI/lib64", "lib", "targets/x86_64-linux/lib")
    roots = [root for root in (os.environ.get("CUDA_HOME"), "/usr/local/cuda", "/usr/local/cuda-13.0") if root]
    found = [Path(site) / part for site in sys.path for part in wheels]
    found += [Path(root) / part for root in roots for part in toolkit]
    return [str(path) for path in dict.fromkeys(found) if path.is_dir() and ":" not in str(path)]


class _Options(ctypes.Structure):
    """``EngineOptions`` of ``runner/api.cpp``."""

    _fields_ = (
        ("status_file", ctypes.c_char_p), ("library_directories", ctypes.c_char_p),
        ("workspace_bytes", ctypes.c_uint64), ("workspace_limit", ctypes.c_uint64),
        ("blas_workspace_bytes", ctypes.c_uint64),
        ("atol", ctypes.c_float), ("rtol", ctypes.c_float),
    )  # fmt: skip


def _pointer(array: NDArray[Any]) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data)


class CudaEngine:
    """The engine on the first visible GPU. One per process, for its whole life.

    Parameters
    ----------
    build_dir
        Where the engine's library (built if missing), ``manifest.parquet`` and ``units/`` lie.
    status_file
        An existing :class:`~.status.StatusFile`'s path.

    Raises
    ------
    BuildError
        If the engine has to be built and cannot be.
    MeasurementError
        If there is no SM90 GPU, no CUPTI, or no manifest.
    """

    def __init__(self, build_dir: Path, status_file: Path) -> None:
        self._library = ctypes.CDLL(str(build_engine(build_dir).resolve()))
        self._library.engine_error.restype = ctypes.c_char_p
        self._build_dir = build_dir
        self._units: dict[str, int] = {}
        self._manifest: pd.DataFrame | None = None
        options = _Options(
            str(status_file).encode(), ":".join(library_directories()).encode(),
            256 << 20, 8 << 30, 64 << 20, TOLERANCE, TOLERANCE,
        )  # fmt: skip
        self._call("engine_open", ctypes.byref(options))
        atexit.register(self.close)  # runs before the exit handlers of CUDA and CUPTI

    def close(self) -> None:
        """End the engine's thread and CUPTI's records, which must not outlive CUDA.

        Nothing can be measured afterwards, and the process cannot open another engine. Called by itself when the
        interpreter ends; may be called again.
        """
        self._call("engine_close")

    def _call(self, function: str, *arguments: Any) -> None:
        code = getattr(self._library, function)(*arguments)
        if code == 0:
            return
        message = self._library.engine_error().decode(errors="replace")
        raise (EngineFailure if code == 1 else EngineLost)(message)

    def _text(self, function: str, *arguments: Any) -> str:
        buffer = ctypes.create_string_buffer(4096)
        self._call(function, *arguments, buffer, len(buffer))
        return buffer.value.decode(errors="replace")

    def info(self) -> dict[str, Any]:
        """See :class:`Engine`."""
        result: dict[str, Any] = json.loads(self._text("engine_info"))
        return result

    def load_unit(self, path: Path) -> tuple[int, list[str]]:
        """Open a unit; return its number and the names of its kernels."""
        unit, count = ctypes.c_int32(), ctypes.c_int32()
        self._call("engine_load_unit", str(path.resolve()).encode(), ctypes.byref(unit), ctypes.byref(count))
        names = [self._text("engine_kernel_name", unit, ctypes.c_int32(index)) for index in range(count.value)]
        return unit.value, names

    def open_kernels(self, kernels: list[str]) -> NDArray[np.int32]:
        """See :class:`Engine`.

        Raises
        ------
        MeasurementError
            If the manifest is missing, or a unit does not hold the kernels that the manifest says.
        """
        if self._manifest is None:
            path = self._build_dir / "manifest.parquet"
            if not path.is_file():
                raise MeasurementError(f"no compiled kernels: {path} is missing")
            manifest = pd.read_parquet(path)
            self._manifest = manifest[manifest["build_status"] == "ok"].drop_duplicates("name").set_index("name")
        places = np.full((len(kernels), 2), -1, dtype=np.int32)
        wanted = self._manifest[["unit", "index"]].reindex(kernels)
        for row, (unit, index) in enumerate(zip(wanted["unit"], wanted["index"], strict=True)):
            if not isinstance(unit, str):
                continue
            if unit not in self._units:
                number, names = self.load_unit(self._build_dir / "units" / unit)
                self._units[unit] = number
                listed = self._manifest[self._manifest["unit"] == unit]
                for kernel, place in listed["index"].items():
                    if int(place) >= len(names) or names[int(place)] != kernel:
                        raise MeasurementError(f"unit {unit} does not hold {kernel} at {place} as the manifest says")
            places[row] = self._units[unit], int(index)
        return places

    def set_problem(self, m: int, n: int, k: int, layout: str, seed: int, placement: int = 0) -> None:
        """See :class:`Engine`."""
        numbers = (ctypes.c_int32(m), ctypes.c_int32(n), ctypes.c_int32(k))
        chosen = (ctypes.c_uint64(seed), ctypes.c_int32(placement))
        self._call("engine_set_problem", *numbers, layout.encode(), *chosen)

    def add(self, items: NDArray[np.void]) -> NDArray[np.int32]:
        """See :class:`Engine`."""
        packed = np.ascontiguousarray(items, dtype=ITEM)
        statuses = np.zeros(len(packed), dtype=np.int32)
        self._call("engine_add", _pointer(packed), ctypes.c_int32(len(packed)), _pointer(statuses))
        return statuses

    def add_blas(self, most: int) -> list[str]:
        """See :class:`Engine`."""
        added, first = ctypes.c_int32(), ctypes.c_int32()
        self._call("engine_add_blas", ctypes.c_int32(most), ctypes.byref(first), ctypes.byref(added))
        return [self.blas_description(slot) for slot in range(first.value, first.value + added.value)]

    def blas_description(self, slot: int) -> str:
        """Return what cuBLASLt says of a slot's algorithm."""
        return self._text("engine_blas_description", ctypes.c_int32(slot))

    def verify(
        self, slots: NDArray[np.int32], conditions: Conditions
    ) -> tuple[NDArray[np.int32], NDArray[np.int64], NDArray[np.float64]]:
        """See :class:`Engine`."""
        statuses, wrong = np.zeros(len(slots), dtype=np.int32), np.zeros(len(slots), dtype=np.int64)
        times = self._batch("engine_verify", slots, conditions, _pointer(statuses), _pointer(wrong))
        return statuses, wrong, times

    def time(self, slots: NDArray[np.int32], conditions: Conditions) -> NDArray[np.float64]:
        """See :class:`Engine`."""
        return self._batch("engine_time", slots, conditions)

    def _batch(
        self, function: str, slots: NDArray[np.int32], conditions: Conditions, *outputs: ctypes.c_void_p
    ) -> NDArray[np.float64]:
        slots = np.ascontiguousarray(slots, dtype=np.int32)
        gaps = None if conditions.gaps_us is None else np.ascontiguousarray(conditions.gaps_us, dtype=np.float64)
        if gaps is not None and gaps.shape != slots.shape:
            raise MeasurementError(f"{len(slots)} launches need as many gaps, not an array of shape {gaps.shape}")
        result = np.full(len(slots), np.nan)
        given = ctypes.c_uint64(conditions.flush_bytes), None if gaps is None else _pointer(gaps)
        self._call(function, _pointer(slots), ctypes.c_int32(len(slots)), *given, *outputs, _pointer(result))
        return result

    def graph_time(self, slots: NDArray[np.int32], rounds: int, conditions: Conditions) -> NDArray[np.float64]:
        """See :class:`Engine`."""
        slots = np.ascontiguousarray(slots, dtype=np.int32)
        result = np.full((rounds, len(slots)), np.nan)
        count, flush_bytes = ctypes.c_int32(len(slots)), ctypes.c_uint64(conditions.flush_bytes)
        self._call("engine_graph_time", _pointer(slots), count, flush_bytes, ctypes.c_int32(rounds), _pointer(result))
        return result

    def check_reference(self) -> float:
        """Return the largest |x - y| / (1 + |y|) between the reference x and a plain float32 kernel's y."""
        worst = ctypes.c_float()
        self._call("engine_check_reference", ctypes.byref(worst))
        return worst.value
