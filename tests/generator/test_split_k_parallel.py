"""Parallel split-K's slots and order of adding, worked through on the host (split_k_parallel.cpp)."""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import shutil
import subprocess
from importlib.resources import files
from pathlib import Path

import pytest

from cutlass_ranker.datasets.build import find_toolchain

HERE = Path(__file__).parent


@pytest.mark.slow
@pytest.mark.skipif(
    shutil.which("g++") is None or shutil.which("nvcc") is None or importlib.util.find_spec("cutlass_library") is None,
    reason="needs g++, nvcc and the CUTLASS headers (extra gpu)",
)
def test_every_slice_has_a_slot_and_every_tile_its_sum(tmp_path: Path) -> None:
    tools = find_toolchain()
    # The host's compiler, with nvcc's own headers, is to let CUTLASS's code for newer GPUs pass.
    dry = subprocess.run([tools.nvcc, "--dryrun", "-x", "cu", os.devnull], capture_output=True, text=True, check=True)
    lines = re.findall(r"^#\$ (?:SYSTEM_)?INCLUDES=(.*)$", dry.stderr, re.MULTILINE)
    headers = [part for line in lines for part in shlex.split(line)]
    flags = ["-std=c++17", "-O1", "-w", "-fpermissive", "-include", str(HERE / "host_cuda.h")]
    program = tmp_path / "program"
    source = str(HERE / "split_k_parallel.cpp")
    subprocess.run(["g++", *flags, *tools.include_flags, *headers, source, "-o", str(program)], check=True)
    done = subprocess.run([program], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout
    assert re.fullmatch(r"\d+ launches, \d+ grouped, \d+ slices\n", done.stdout)


def test_the_scheduler_is_part_of_the_package() -> None:
    text = (files("cutlass_ranker.generator") / "templates" / "split_k_parallel.h").read_text()
    assert text.count("#pragma once\n") == 1  # which is left out where the text becomes part of a program
