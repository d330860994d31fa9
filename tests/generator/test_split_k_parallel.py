"""Parallel split-K's slots and order of adding, worked through on the host (split_k_parallel.cpp)."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path

import pytest


@pytest.mark.slow
def test_every_slice_has_a_slot_and_every_tile_its_sum(compile_on_host: Callable[..., Path]) -> None:
    program = compile_on_host("split_k_parallel.cpp", "-O1")
    done = subprocess.run([program], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout
    assert re.fullmatch(r"\d+ launches, \d+ grouped, \d+ slices\n", done.stdout)


def test_the_scheduler_is_part_of_the_package() -> None:
    text = (files("cutlass_ranker.generator") / "templates" / "split_k_parallel.h").read_text()
    assert text.count("#pragma once\n") == 1  # which is left out where the text becomes part of a program
