"""Parallel split-K on the host: slots and order of adding (split_k_parallel.cpp), the second kernel's sums
(split_k_reduction.cpp), slices of K (split_k_slices.cpp)."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path

import pytest


def output(program: Path) -> str:
    """Run a program, which must end well, and return what it printed."""
    done = subprocess.run([program], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout
    return done.stdout


@pytest.mark.slow
def test_every_slice_has_a_slot_and_every_tile_its_sum(compile_on_host: Callable[..., Path]) -> None:
    printed = output(compile_on_host("split_k_parallel.cpp", "-O1"))
    assert re.fullmatch(r"\d+ launches, \d+ grouped, \d+ slices\n", printed)


@pytest.mark.slow
def test_the_second_kernel_puts_every_sum_in_its_place(compile_on_host: Callable[..., Path]) -> None:
    printed = output(compile_on_host("split_k_reduction.cpp", "-O1", "-DCUTE_SM90_EXTENDED_MMA_SHAPES_ENABLED"))
    assert re.fullmatch(r"\d+ elements, \d+ CTAs\n", printed)


@pytest.mark.slow
def test_slices_of_k_add_up(compile_on_host: Callable[..., Path]) -> None:
    printed = output(compile_on_host("split_k_slices.cpp", "-O1"))
    assert re.fullmatch(r"\d+ elements\n", printed)


@pytest.mark.parametrize("name", ["split_k_parallel.h", "split_k_sum.h", "split_k_reduction.h", "split_k_slices.h"])
def test_the_headers_are_part_of_the_package(name: str) -> None:
    text = (files("cutlass_ranker.generator") / "templates" / name).read_text()
    assert text.count("#pragma once\n") == 1  # which is left out where the text becomes part of a program
