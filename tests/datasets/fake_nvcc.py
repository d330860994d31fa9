"""Stands in for nvcc: turns a unit into a shared library with the same table of kernels, by the C compiler.

A kernel whose name contains ``_64x48x`` does not compile. Each compilation adds a line to ``$FAKE_NVCC_LOG``.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

if "--version" in sys.argv:
    print("Cuda compilation tools, release 13.0, V13.0.88")
    sys.exit(0)
names = re.findall(r'sm90::entry<K\d+>\("(\w+)"\)', Path("unit.cu").read_text())
with Path(os.environ["FAKE_NVCC_LOG"]).open("a") as log:
    log.write(f"{len(names)}\n")
if any("_64x48x" in name for name in names):
    print("unit.cu(1): error: static assertion failed")
    sys.exit(2)
rows = ",".join(f'{{"{name}",{1000 + i},384,64,{{0,0,0,0}}}}' for i, name in enumerate(names))
Path("unit.c").write_text(
    "struct K { char const* n; int s, t; unsigned long b; void* f[4]; };"
    "struct U { int v, c; struct K const* k; };"
    f"static struct K const kernels[] = {{{rows}}};"
    f"static struct U const unit = {{1, {len(names)}, kernels}};"
    "struct U const* cr_unit(void) { return &unit; }"
)
subprocess.run(["cc", "-shared", "-fPIC", "unit.c", "-o", sys.argv[sys.argv.index("-o") + 1]], check=True)
for i in reversed(range(len(names))):  # ptxas reports in an order of its own
    symbol = f"_ZN7cutlass13device_kernelIN9_GLOBAL__2K{i}EEEvNT_6ParamsE"
    print(f"ptxas info    : Compiling entry function '{symbol}' for 'sm_90a'")
    print(f"    0 bytes stack frame, {8 * i} bytes spill stores, {4 * i} bytes spill loads")
    print(f"ptxas info    : Used {40 + i} registers, used 1 barriers")
