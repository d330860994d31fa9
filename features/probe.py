"""Measure a GPU's hardware description: ``python -m cutlass_ranker.features.probe --json out.json``.

SM count, memory sizes and clock come from the driver; DRAM bandwidth, active clusters and the tensor rate are
measured. Needs a Hopper GPU and either nvcc or a probe program built elsewhere (``--binary``); about ten seconds.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any, Final

from ..generator import BuildError, CutlassRankerError, MeasurementError
from .hardware import Hardware

NVCC_FLAGS: Final = ("-std=c++17", "-O3", "-gencode=arch=compute_90a,code=sm_90a")
TENSOR_SIZE: Final = 8192
TENSOR_SECONDS: Final = 2.0
_TIMEOUT: Final = 120.0
_TORCH_NAMES: Final = {"bf16": "bfloat16", "f16": "float16"}


def build_probe(output: Path) -> None:
    """Compile the probe program.

    Raises
    ------
    BuildError
        If nvcc is missing or fails.
    """
    nvcc = shutil.which("nvcc")
    if nvcc is None:
        raise BuildError("nvcc is not on PATH; build probe.cu elsewhere and give the program with --binary")
    with as_file(files(__package__).joinpath("probe.cu")) as source:
        done = subprocess.run(
            [nvcc, *NVCC_FLAGS, str(source), "-o", str(output)], capture_output=True, text=True, check=False
        )
    if done.returncode:
        raise BuildError(f"nvcc failed on probe.cu:\n{done.stderr.strip()}")


def run_probe(binary: Path) -> dict[str, Any]:
    """Run the probe program and return what it prints.

    Raises
    ------
    MeasurementError
        If it fails, for example without a GPU, or the GPU is no Hopper.
    """
    try:
        done = subprocess.run([str(binary.resolve())], capture_output=True, text=True, check=True, timeout=_TIMEOUT)
        seen: dict[str, Any] = json.loads(done.stdout)
    except subprocess.CalledProcessError as error:
        raise MeasurementError(error.stderr.strip() or f"{binary} ended with status {error.returncode}") from error
    except (OSError, subprocess.TimeoutExpired, json.JSONDecodeError) as error:
        raise MeasurementError(f"cannot run {binary}: {error}") from error
    if seen["compute_capability"] != "9.0":
        raise MeasurementError(
            f"{seen['gpu']} has compute capability {seen['compute_capability']}; Hopper (9.0) is needed"
        )
    return seen


def tensor_rate(dtype: str, seconds: float = TENSOR_SECONDS) -> float | None:
    """Measure the dense tensor rate under load: products of random 8192 × 8192 matrices for a while.

    Returns
    -------
    float or None
        FLOP/s over the second half of the time, when clocks have settled under the power cap; None without a GPU torch.
    """
    try:
        import torch
    except ImportError:
        return None
    if not torch.cuda.is_available():
        return None
    element = getattr(torch, _TORCH_NAMES[dtype])
    a, b = (torch.randn(TENSOR_SIZE, TENSOR_SIZE, device="cuda").to(element) for _ in range(2))
    out = torch.empty_like(a)
    torch.matmul(a, b, out=out)
    torch.cuda.synchronize()
    halves = []
    for _ in range(2):
        count, start = 0, time.perf_counter()
        while time.perf_counter() - start < seconds / 2:
            for _ in range(20):
                torch.matmul(a, b, out=out)
            torch.cuda.synchronize()
            count += 20
        halves.append(count * 2.0 * TENSOR_SIZE**3 / (time.perf_counter() - start))
    return halves[1]


def describe(name: str, seen: dict[str, Any], peaks: dict[str, float], note: str) -> Hardware:
    """Build the hardware description from what the probe saw.

    Parameters
    ----------
    name
        Key of the description.
    seen
        Output of :func:`run_probe`.
    peaks
        FLOP/s by element type.
    note
        Where the peaks come from.
    """
    clusters = {int(size): counts for size, counts in seen["clusters"].items()}
    asked = ", ".join(f"{counts['query']} of {size}" for size, counts in clusters.items())
    source = (
        f"Measured on one {seen['gpu']}: copy of 4 GiB (bytes read plus written); clusters seen running at the same "
        f"time with one CTA per SM (cudaOccupancyMaxActiveClusters says {asked}); {note}; sizes and clock as the "
        "driver reports."
    )
    return Hardware(
        name=name,
        sm_count=seen["sm_count"],
        shared_memory_per_sm=seen["shared_memory_per_sm"],
        registers_per_sm=seen["registers_per_sm"],
        l2_bytes=seen["l2_bytes"],
        dram_bandwidth=seen["dram_bandwidth"],
        peak_flops=peaks,
        clock_hz=seen["clock_hz"],
        active_clusters={size: counts["active"] for size, counts in clusters.items()},
        source=source,
        measured=True,
    )


def _peaks(given: float | None) -> tuple[dict[str, float], str]:
    """Tensor rates by type, measured or as given in TFLOP/s, and where they come from.

    Raises
    ------
    MeasurementError
        If they can neither be measured nor are given.
    """
    if given is not None:
        return dict.fromkeys(_TORCH_NAMES, given * 1e12), "tensor rate given by hand"
    measured = {dtype: tensor_rate(dtype) for dtype in _TORCH_NAMES}
    peaks = {dtype: rate for dtype, rate in measured.items() if rate is not None}
    if not peaks:
        raise MeasurementError("the tensor rate needs torch with CUDA; or give it with --tensor-tflops")
    return peaks, f"tensor rates over random {TENSOR_SIZE}³ products under load, by torch.matmul"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m cutlass_ranker.features.probe", description=__doc__)
    parser.add_argument("--json", type=Path, help="file to write the description to (default: standard output)")
    parser.add_argument("--name", default="h200", help="name of the description (default: %(default)s)")
    parser.add_argument("--binary", type=Path, help="probe program built before (default: build it with nvcc)")
    parser.add_argument("--build", type=Path, help="only build the probe program, to this file")
    parser.add_argument(
        "--tensor-tflops", type=float, help="dense BF16 and FP16 rate, TFLOP/s (default: measure with torch)"
    )
    options = parser.parse_args(arguments)
    try:
        if options.build is not None:
            build_probe(options.build)
            return 0
        with tempfile.TemporaryDirectory() as folder:
            binary = options.binary
            if binary is None:
                binary = Path(folder) / "probe"
                build_probe(binary)
            seen = run_probe(binary)
        peaks, note = _peaks(options.tensor_tflops)
        text = json.dumps(dataclasses.asdict(describe(options.name, seen, peaks, note)), indent=2) + "\n"
    except CutlassRankerError as error:
        print(f"probe: {error}", file=sys.stderr)
        return 2
    if options.json is None:
        print(text, end="")
    else:
        options.json.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
