"""A first look at a GPU, a build and the engine, in one process.

Run it with ``python -m cutlass_ranker.datasets.selfcheck BUILD [MxNxK ...]``.
"""

from __future__ import annotations

import argparse
import faulthandler
import tempfile
import time
from collections import Counter
from pathlib import Path

import numpy as np
import pandas as pd

from ..generator import CONFIG_COLUMNS, LAUNCH_COLUMNS, Columns, Problem, candidates_for
from ..generator.types import FAMILIES
from .engine import ITEM, Conditions, CudaEngine
from .meter import Meter
from .protocol import Options, floor_us, summarise
from .records import Recorder
from .status import StatusFile

DEFAULT_SHAPES = ("512x768x1024", "16x4096x4096", "4096x4096x4096")
MEMORY_BOUND_SHAPES = ((16, 4096, 1024), (8, 4096, 4096), (64, 8192, 1024), (16, 7168, 4096), (32, 16384, 1024))
"""Problems whose time is that of reading B; all fit into an H200's L2 (60 MB)."""
OLD_FLUSH_BYTES = 192_000_000
"""What protocols 1 and 2 wrote to flush L2."""


def selfcheck(build_dir: str | Path, shapes: tuple[str, ...] = DEFAULT_SHAPES, patience_s: int = 300) -> bool:
    """Print what works: timers, references of all layouts, every kernel of the build on a few problems.

    Parameters
    ----------
    build_dir
        A build with ``manifest.parquet`` and ``units/``.
    shapes
        Problems as ``MxNxK``, layout TNT.
    patience_s
        The process ends with a traceback after this many seconds, should the GPU hang.

    Returns
    -------
    bool
        True if every reference agrees and no kernel gives a wrong result.
    """
    faulthandler.dump_traceback_later(patience_s, exit=True)
    manifest = pd.read_parquet(Path(build_dir) / "manifest.parquet")
    manifest = manifest[manifest["build_status"] == "ok"].reset_index(drop=True)
    configs = {name: manifest[name].to_numpy(dtype=np.int32) for name in CONFIG_COLUMNS}
    good = True
    with tempfile.TemporaryDirectory() as folder:
        status = StatusFile(Path(folder) / "status.bin", create=True)
        began = time.perf_counter()
        engine = CudaEngine(Path(build_dir), status.path)
        meter = Meter(engine, status, Recorder(Path(folder), "check"), Options(), lambda: False)
        print(f"engine open after {time.perf_counter() - began:.2f} s; facts: {meter.calibrate()}")
        for layout in FAMILIES:
            engine.set_problem(264, 136, 1032, layout, 1)
            worst = engine.check_reference()
            algorithms = engine.add_blas(8)
            slots = np.arange(len(algorithms), dtype=np.int32)
            wrong = engine.verify(slots, meter.plain)[1] if len(slots) else np.zeros(0)
            good &= worst < 1e-3 and not wrong.any()
            answers = f"{len(slots)} cuBLASLt answers, {int((wrong > 0).sum())} wrong"
            print(f"{layout}: reference differs by {worst:.1e}; {answers}")
        for shape, ratio, warm in flush_ratios(engine, meter):
            size = f"{meter.plain.flush_bytes / 1e6:.0f} MB against {OLD_FLUSH_BYTES / 1e6:.0f} MB"
            print(f"{shape}: cold times after a flush of {size}: {ratio:.4f}; warm against cold: {warm:.3f}")
        for shape in shapes:
            good &= _kernels(engine, manifest["name"].tolist(), configs, shape, meter)
    faulthandler.cancel_dump_traceback_later()
    return good


def flush_ratios(engine: CudaEngine, meter: Meter, launches: int = 60) -> list[tuple[str, float, float]]:
    """Compare the protocol's flush with the larger one of earlier protocols, on memory-bound problems by cuBLASLt.

    Parameters
    ----------
    engine, meter
        A calibrated meter and its engine.
    launches
        Launches under each condition.

    Returns
    -------
    list of (shape, ratio, warm)
        Median over cuBLASLt's algorithms of their median time after the protocol's flush over that after the larger
        one (1 if both are as cold), and of their time with warm operands over the latter.
    """
    found = []
    for m, n, k in MEMORY_BOUND_SHAPES:
        engine.set_problem(m, n, k, "TNT", 1)
        slots = np.arange(len(engine.add_blas(4)), dtype=np.int32)
        times = np.zeros((3, launches, len(slots)))
        for launch in range(0, launches, 10):  # in turn, so that a drift of the clock cancels
            for way, flush_bytes in enumerate((meter.plain.flush_bytes, OLD_FLUSH_BYTES, 0)):
                part = engine.time(np.tile(slots, 10), Conditions(flush_bytes))
                times[way, launch : launch + 10] = part.reshape(10, len(slots))
        now, old, warm = np.median(times, axis=1)
        found.append((f"{m}x{n}x{k}", float(np.median(now / old)), float(np.median(warm / old))))
    return found


def _kernels(engine: CudaEngine, names: list[str], configs: Columns, shape: str, meter: Meter) -> bool:
    """Run every kernel that serves a problem; print outcomes and the fastest."""
    m, n, k = (int(part) for part in shape.split("x"))
    problem = Problem(m, n, k, "TNT")
    columns, rows = candidates_for(configs, problem)
    chosen = [names[row] for row in rows]
    items = np.zeros(len(chosen), dtype=ITEM)
    marks = [time.perf_counter()]
    places = engine.open_kernels(chosen)
    items["unit"], items["index"] = places[:, 0], places[:, 1]
    for name in ("swapped", *LAUNCH_COLUMNS):
        items[name] = columns[name]
    marks.append(time.perf_counter())
    engine.set_problem(m, n, k, "TNT", 1)
    marks.append(time.perf_counter())
    prepared = engine.add(items)
    marks.append(time.perf_counter())
    slots = np.flatnonzero(prepared == 0).astype(np.int32)
    launched, wrong, _ = engine.verify(slots, meter.plain)
    marks.append(time.perf_counter())
    outcome = Counter(np.where(launched != 0, "launch_failed", np.where(wrong > 0, "wrong", "right")).tolist())
    outcome["refused"] += int((prepared != 0).sum())
    for slot, code, count in zip(slots, launched, wrong, strict=True):
        if code or count:
            swapped = bool(columns["swapped"][slot])
            print(f"  {chosen[slot]} swapped={swapped}: status {code}, {count} of {m * n} elements wrong")
    sound = slots[(launched == 0) & (wrong == 0)]
    blas = np.arange(len(chosen), len(chosen) + len(engine.add_blas(8)), dtype=np.int32)
    marks.append(time.perf_counter())
    order = np.concatenate([meter.rng.permutation(np.concatenate([sound, blas])) for _ in range(5)])
    times = engine.time(order, meter.plain)
    marks.append(time.perf_counter())
    best = {int(slot): summarise(times[order == slot], 20.0)[0] for slot in np.unique(order)}
    fastest = sorted(best, key=lambda slot: best[slot])[:8]
    graph = np.median(engine.graph_time(np.array(fastest, dtype=np.int32), 5, meter.plain), axis=0)
    marks.append(time.perf_counter())
    steps = ("load", "set up", "prepare", "verify", "cuBLASLt", "time", "graphs")
    spent = ", ".join(f"{step} {seconds:.2f} s" for step, seconds in zip(steps, np.diff(marks), strict=True))
    print(f"{problem}: {dict(outcome)}; floor {floor_us(problem, meter.facts):.1f} us")
    print(f"  {len(order)} timed launches; {spent}")
    for number, graph_us in zip(fastest, graph, strict=True):
        what = chosen[number] if number < len(chosen) else f"cuBLASLt: {engine.blas_description(number)}"
        print(f"  {best[number]:9.2f} us CUPTI, {graph_us:9.2f} us events  {what}")
    return outcome["wrong"] == 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("build")
    parser.add_argument("shapes", nargs="*", default=DEFAULT_SHAPES)
    arguments = parser.parse_args()
    raise SystemExit(0 if selfcheck(arguments.build, tuple(arguments.shapes)) else 1)
