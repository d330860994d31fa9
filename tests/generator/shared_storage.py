"""What nvcc says of ``sizeof(SharedStorage)``: prints one CSV row per kernel.

The fixture was made with CUDA 13.0 and CUTLASS 4.2.0 by
``python tests/generator/shared_storage.py > tests/generator/fixtures/shared_storage.csv`` (about 40 s, no GPU).
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Sequence
from itertools import product
from pathlib import Path

from cutlass_ranker.datasets.build import find_toolchain
from cutlass_ranker.generator import Epilogue, KernelConfig, Schedule, Scheduler, check, emit_unit

W, P, C = Schedule
TMA = Epilogue.TMA
PERSISTENT, STREAM_K, SPLIT_K = Scheduler
KINDS = [(s, e, PERSISTENT) for s in Schedule for e in Epilogue] + [(C, e, STREAM_K) for e in Epilogue]
SLICES = [(s, e, SPLIT_K) for s in Schedule for e in (Epilogue.NOSMEM, TMA)]


def sample() -> list[KernelConfig]:
    """Configs that cover every schedule, epilogue, scheduler, D layout, many widths, stages, and kernels without C."""
    configs = [
        KernelConfig(128, tile_n, 64, 2, 1, 3, *kind)
        for tile_n in (16, 32, 48, 64, 80, 96, 112, 128, 160, 192, 224, 256)
        for kind in KINDS
    ]
    configs += [KernelConfig(128, 64, 32, 1, 1, stages, *kind, "TNN") for stages, kind in product((2, 5, 7, 12), KINDS)]
    configs += [
        KernelConfig(tile_m, 48, 64, 1, 2, 3, *kind, void_c=void_c)
        for tile_m, kind, void_c in product((64, 128, 192, 256), KINDS, (False, True))
    ]
    configs += [
        KernelConfig(128, 128, 64, 1, 1, 2, *kind, family, void_c)
        for family, kind, void_c in product(("TTT", "NNT", "NTN", "NNN"), KINDS, (False, True))
        if kind[0] is not W and kind[2] is PERSISTENT
    ]
    configs += [
        KernelConfig(128, tile_n, 64, 1, 1, 3, *kind, family, True)
        for tile_n, kind, family in product((16, 48, 64, 256), SLICES, ("TNT", "NTN"))
    ]
    configs += [KernelConfig(64, 16, 512, 1, 1, 2, W, TMA), KernelConfig(256, 256, 32, 1, 1, 2, W, TMA)]
    return [config for config in configs if not check(config)]


def sizes(configs: Sequence[KernelConfig]) -> list[int]:
    """Compile a program that prints the sizes, and run it."""
    tools = find_toolchain()
    lines = emit_unit(configs).splitlines()
    types = "\n".join(line for line in lines if line.startswith("struct"))
    show = '  std::printf("%d\\n", int(sizeof(typename K{}::SharedStorage)));'
    prints = "\n".join(show.format(i) for i in range(len(configs)))
    program = f'#include <cstdio>\n#include "unit.h"\n{types}\nint main() {{\n{prints}\n}}\n'
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "sizes.cu").write_text(program)
        flags = ["-std=c++17", "-O0", "-DNDEBUG", "--expt-relaxed-constexpr", "-gencode=arch=compute_90a,code=sm_90a"]
        subprocess.run([tools.nvcc, *flags, *tools.include_flags, "sizes.cu", "-o", "sizes"], cwd=folder, check=True)
        output = subprocess.run([f"{folder}/sizes"], capture_output=True, text=True, check=True).stdout
    return [int(line) for line in output.split()]


if __name__ == "__main__":
    listed = sample()
    sys.stdout.write("name,shared_storage_bytes\n")
    for config, size in zip(listed, sizes(listed), strict=True):
        sys.stdout.write(f"{config.name},{size}\n")
