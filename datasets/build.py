"""Compile farm: turns kernel configurations into shared libraries that the runner can load.

Kernels of one tile are compiled together in one translation unit, because most of nvcc's time goes into templates that
they share. Every unit is named after a hash of its source, headers, flags and compiler, so building again compiles
nothing, and a build that was interrupted goes on where it stopped.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from importlib.resources import files
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import pandas as pd
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from .. import generator
from ..generator import CONFIG_COLUMNS, BuildError, Columns, KernelConfig, emit_unit, parse_dtype
from ..generator import columns as col

ABI_VERSION: Final = 1
UNIT_SIZE: Final = 40
"""Most kernels in one translation unit; nvcc needs about 6 GB for one of this size on few tiles."""
UNIT_TILES: Final = 6
"""Most tiles in one translation unit: 40 kernels on 14 tiles were seen to need 12 GB."""
UNIT_MEMORY: Final = 8 * 2**30
MEMORY_BUDGET: Final = 20 * 2**30
FLAGS: Final = (
    "-std=c++17", "-O1", "-Xptxas", "-O3", "-DNDEBUG", "--expt-relaxed-constexpr",
    "-gencode=arch=compute_90a,code=sm_90a", "-shared", "-Xcompiler", "-fPIC,-fvisibility=hidden,-fno-gnu-unique",
    "--resource-usage",
)  # fmt: skip
"""nvcc's flags. -O1 is the host's level; device code is optimised fully. Without NDEBUG ptxas serialises WGMMA."""


@dataclass(frozen=True)
class Toolchain:
    """The compiler and the headers."""

    nvcc: str
    nvcc_version: str
    cutlass: Path
    """Folder that holds ``include`` and ``tools/util/include``."""
    cutlass_version: str

    @property
    def include_flags(self) -> list[str]:
        """Flags naming the header folders."""
        ours = (files(__package__) / "runner", files(generator) / "templates")
        cutlass = (self.cutlass / "include", self.cutlass / "tools" / "util" / "include")
        folders = (*cutlass, *(Path(str(folder)) for folder in ours))
        return [f"-I{folder}" for folder in folders]


def find_toolchain(nvcc: str | None = None, cutlass: Path | None = None) -> Toolchain:
    """Find nvcc and the CUTLASS headers.

    Parameters
    ----------
    nvcc
        The compiler; default: ``$NVCC``, ``nvcc`` on the path, or ``/usr/local/cuda/bin/nvcc``.
    cutlass
        A CUTLASS source tree; default: ``$CUTLASS_PATH``, or the headers that ``nvidia-cutlass`` carries.

    Raises
    ------
    BuildError
        If either is missing.
    """
    named = nvcc or os.environ.get("NVCC") or shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"
    found = shutil.which(named)
    if found is None:
        raise BuildError(f"no CUDA compiler at {named!r}; install the CUDA toolkit (12.3 or newer) or set NVCC")
    text = subprocess.run([found, "--version"], capture_output=True, text=True, check=True).stdout
    match = re.search(r"release [\d.]+, V([\d.]+)", text)
    root = cutlass or (Path(os.environ["CUTLASS_PATH"]) if "CUTLASS_PATH" in os.environ else _packaged_cutlass())
    header = root / "include" / "cutlass" / "version.h"
    if not header.is_file():
        raise BuildError(f"no CUTLASS headers under {root} (looked for {header}); set CUTLASS_PATH to a CUTLASS tree")
    numbers = dict(re.findall(r"#define CUTLASS_(MAJOR|MINOR|PATCH)\s+(\d+)", header.read_text()))
    cutlass_version = ".".join(numbers.get(part, "?") for part in ("MAJOR", "MINOR", "PATCH"))
    return Toolchain(found, match[1] if match else "unknown", root, cutlass_version)


def _packaged_cutlass() -> Path:
    spec = find_spec("cutlass_library")
    if spec is None or spec.origin is None:
        raise BuildError("CUTLASS headers are missing; pip install 'cutlass-ranker[gpu]' or set CUTLASS_PATH")
    return Path(spec.origin).parent / "source"


@dataclass(frozen=True)
class _Unit:
    """One translation unit to compile."""

    configs: list[KernelConfig]
    source: str
    digest: str


def plan_units(configs: Columns, dtype: object = "bf16", unit_size: int = UNIT_SIZE) -> list[list[KernelConfig]]:
    """Group kernels into units of at most ``UNIT_TILES`` whole tiles and ``unit_size`` kernels; larger ones are cut."""
    kind = parse_dtype(dtype)
    by_tile: dict[tuple[int, ...], list[KernelConfig]] = {}
    for row in range(col.size(configs)):
        config = col.config_at(configs, row, kind)
        key = (int(configs["family"][row]), config.tile_m, config.tile_n, config.tile_k)
        by_tile.setdefault(key, []).append(config)
    units: list[list[KernelConfig]] = [[]]
    tiles = 0
    for _, members in sorted(by_tile.items()):
        members.sort(key=lambda c: (c.schedule, c.scheduler, c.epilogue, c.stages, c.cluster_m, c.cluster_n, c.void_c))
        if tiles < UNIT_TILES and len(units[-1]) + len(members) <= unit_size:
            units[-1] += members
            tiles += 1
            continue
        pieces = -(-len(members) // unit_size)
        bounds = [round(i * len(members) / pieces) for i in range(pieces + 1)]
        units += [members[a:b] for a, b in pairwise(bounds)]
        tiles = 1
    return [unit for unit in units if unit]


def build(
    configs: Columns,
    out_dir: Path,
    dtype: object = "bf16",
    jobs: int | None = None,
    toolchain: Toolchain | None = None,
    progress: bool = True,
) -> pd.DataFrame:
    """Compile kernels; return and write the manifest ``out_dir/manifest.parquet``.

    Parameters
    ----------
    configs
        ``CONFIG_COLUMNS`` of the kernels.
    out_dir
        Build folder: ``units/<hash>.so`` and ``units/<hash>.json``, one pair per unit.
    dtype
        Element type of A, B and D.
    jobs
        Compilers at once; default: one per core as far as 20 GB of memory allow.

    Returns
    -------
    DataFrame
        One row per kernel: ``name``, config columns, ``unit`` (file), ``index`` in it, ``build_status`` ("ok" or
        "failed"), ``message``, ``registers`` per thread at launch, ``spill_bytes`` (stores and loads),
        ``shared_memory_bytes``, ``threads``, ``build_seconds`` (core seconds, shared evenly within a unit),
        ``cutlass`` and ``nvcc`` versions.

    Raises
    ------
    BuildError
        If the compiler or the headers are missing. A kernel that does not compile is recorded, not raised.
    """
    tools = toolchain or find_toolchain()
    units_dir = out_dir / "units"
    units_dir.mkdir(parents=True, exist_ok=True)
    units = [_make_unit(members, tools) for members in plan_units(configs, dtype)]
    total = sum(len(unit.configs) for unit in units)
    jobs = jobs or max(1, min(os.cpu_count() or 1, MEMORY_BUDGET // UNIT_MEMORY))
    rows: list[dict[str, Any]] = []
    text = TextColumn("compiling kernels, {task.fields[failed]} failed")
    fields = (text, BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    with Progress(*fields, disable=not progress) as bar, ThreadPoolExecutor(jobs) as pool:
        task = bar.add_task("", total=total, failed=0)
        for future in as_completed([pool.submit(_build_unit, unit, units_dir, tools) for unit in units]):
            rows += future.result()
            bar.update(task, completed=len(rows), failed=sum(row["build_status"] != "ok" for row in rows))
    manifest = pd.DataFrame(rows).sort_values("name", ignore_index=True)
    partial = out_dir / "manifest.parquet.tmp"
    manifest.to_parquet(partial, compression="zstd", index=False)
    partial.replace(out_dir / "manifest.parquet")
    return manifest


def _make_unit(configs: list[KernelConfig], tools: Toolchain) -> _Unit:
    source = emit_unit(configs)
    runner, templates = files(__package__) / "runner", files(generator) / "templates"
    own = ("split_k_parallel.h", "split_k_sum.h", "split_k_reduction.h", "split_k_slices.h")
    headers = (runner / "unit.h", runner / "kernel_abi.h", *(templates / name for name in own))
    parts = [source, *(header.read_text() for header in headers), *FLAGS]
    parts += [tools.nvcc_version, tools.cutlass_version]
    return _Unit(configs, source, hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16])


def _build_unit(unit: _Unit, units_dir: Path, tools: Toolchain) -> list[dict[str, Any]]:
    """Return the manifest rows of a unit, compiled unless it is there; one that fails is split down to one kernel."""
    record = units_dir / f"{unit.digest}.json"
    if record.is_file():
        stored: list[dict[str, Any]] = json.loads(record.read_text())
        if all(row["build_status"] != "ok" or (units_dir / row["unit"]).is_file() for row in stored):
            return stored
    with tempfile.TemporaryDirectory(prefix="unit-", dir=units_dir) as scratch:
        folder = Path(scratch)
        (folder / "unit.cu").write_text(unit.source)
        command = [tools.nvcc, *FLAGS, *tools.include_flags, "unit.cu", "-o", "unit.so"]
        status, seconds, log = _run(command, folder)
        if status == 0:
            (folder / "unit.so").replace(units_dir / f"{unit.digest}.so")
            rows = _rows(unit, units_dir, log, seconds, tools)
        elif len(unit.configs) == 1:
            errors = [line for line in log.splitlines() if "error" in line.lower()]
            message = (errors or log.splitlines() or [f"nvcc ended with status {status}"])[0][:500]
            rows = [_row(unit.configs[0], tools, seconds) | {"build_status": "failed", "message": message}]
        else:
            middle = len(unit.configs) // 2
            halves = (unit.configs[:middle], unit.configs[middle:])
            rows = [row for half in halves for row in _build_unit(_make_unit(half, tools), units_dir, tools)]
            for row in rows:
                row["build_seconds"] += seconds / len(rows)
    partial = units_dir / f"{unit.digest}.json.tmp"
    partial.write_text(json.dumps(rows))
    partial.replace(record)
    return rows


def _run(command: Sequence[str], folder: Path) -> tuple[int, float, str]:
    """Run a command; return its exit status, the core seconds of it and its children, and what it printed."""
    with (folder / "log").open("w+") as log:
        process = subprocess.Popen(command, cwd=folder, stdout=log, stderr=subprocess.STDOUT)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        log.seek(0)
        return process.returncode, usage.ru_utime + usage.ru_stime, log.read()


def _row(config: KernelConfig, tools: Toolchain, seconds: float) -> dict[str, Any]:
    columns = col.from_configs([config])
    row: dict[str, Any] = {"name": config.name}
    row.update({name: int(columns[name][0]) for name in CONFIG_COLUMNS})
    row.update(unit="", index=-1, build_status="ok", message="", registers=-1, spill_bytes=-1, shared_memory_bytes=-1)
    row.update(threads=-1, build_seconds=seconds, cutlass=tools.cutlass_version, nvcc=tools.nvcc_version)
    return row


def _rows(unit: _Unit, units_dir: Path, log: str, seconds: float, tools: Toolchain) -> list[dict[str, Any]]:
    """Manifest rows of a unit that compiled: what ptxas said of each kernel, and what the library itself says."""
    usage = _resource_usage(log)
    library = f"{unit.digest}.so"
    rows = []
    entries = dict(read_unit(units_dir / library))
    for index, config in enumerate(unit.configs):
        shared_memory, threads = entries[config.name]
        registers, spills = usage[index]
        row = _row(config, tools, seconds / len(unit.configs))
        row.update(unit=library, index=index, registers=registers, spill_bytes=spills)
        row.update(shared_memory_bytes=shared_memory, threads=threads)
        rows.append(row)
    return rows


def _resource_usage(log: str) -> dict[int, tuple[int, int]]:
    """Registers and spilled bytes (stores plus loads) per kernel index, from ptxas's report."""
    found = {}
    for block in log.split("Compiling entry function '")[1:]:
        name = re.match(r"\w*\dK(\d+)EE", block)
        spills = re.search(r"(\d+) bytes spill stores, (\d+) bytes spill loads", block)
        registers = re.search(r"Used (\d+) registers", block)
        if name and spills and registers:
            found[int(name[1])] = (int(registers[1]), int(spills[1]) + int(spills[2]))
    return found


class _Kernel(ctypes.Structure):
    """``CrKernel`` of kernel_abi.h."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("shared_memory_bytes", ctypes.c_int32),
        ("threads", ctypes.c_int32),
        ("state_bytes", ctypes.c_uint64),
        ("functions", ctypes.c_void_p * 4),
    )


class _UnitTable(ctypes.Structure):
    """``CrUnit`` of kernel_abi.h."""

    _fields_ = (("abi_version", ctypes.c_int32), ("count", ctypes.c_int32), ("kernels", ctypes.POINTER(_Kernel)))


def read_unit(library: Path) -> Iterator[tuple[str, tuple[int, int]]]:
    """Yield name, shared-memory bytes and threads per CTA of every kernel in a compiled unit; needs no GPU."""
    entry = ctypes.CDLL(str(library.resolve())).cr_unit
    entry.restype = ctypes.POINTER(_UnitTable)
    table = entry().contents
    if table.abi_version != ABI_VERSION:
        raise BuildError(f"{library} has ABI version {table.abi_version}, this code needs {ABI_VERSION}; build again")
    for kernel in table.kernels[: table.count]:
        yield kernel.name.decode(), (kernel.shared_memory_bytes, kernel.threads)
