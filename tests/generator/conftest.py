"""Fixtures of the generator's tests."""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from cutlass_ranker.datasets.build import find_toolchain


@pytest.fixture
def script() -> Callable[[str], ModuleType]:
    """Load one of the scripts beside the tests that made the fixtures."""

    def load(name: str) -> ModuleType:
        spec = importlib.util.spec_from_file_location(name, Path(__file__).parent / f"{name}.py")
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    return load


@pytest.fixture
def compile_on_host(tmp_path: Path) -> Callable[..., Path]:
    """Compile a C++ file of this folder against CUTLASS with g++, so that its templates can be tried without a GPU."""
    tools_found = shutil.which("g++") and shutil.which("nvcc") and importlib.util.find_spec("cutlass_library")
    if not tools_found:
        pytest.skip("needs g++, nvcc and the CUTLASS headers (extra gpu)")
    tools, here = find_toolchain(), Path(__file__).parent
    # nvcc's own headers let CUTLASS's code for newer GPUs pass.
    dry = subprocess.run([tools.nvcc, "--dryrun", "-x", "cu", os.devnull], capture_output=True, text=True, check=True)
    lines = re.findall(r"^#\$ (?:SYSTEM_)?INCLUDES=(.*)$", dry.stderr, re.MULTILINE)
    headers = [part for line in lines for part in shlex.split(line)]
    common = ["-std=c++17", "-w", "-fpermissive", "-include", str(here / "host_cuda.h"), *tools.include_flags, *headers]

    def run(source: str, *flags: str) -> Path:
        program = tmp_path / Path(source).stem
        subprocess.run(["g++", *common, *flags, str(here / source), "-o", str(program)], check=True)
        return program

    return run
