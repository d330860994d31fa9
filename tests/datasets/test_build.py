"""The compile farm, with a stand-in for nvcc (``fake_nvcc.py``)."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from cutlass_ranker.datasets.build import Toolchain, build, find_toolchain, plan_units
from cutlass_ranker.generator import BuildError, Epilogue, KernelConfig, Schedule, enumerate_configs
from cutlass_ranker.generator import columns as col

needs_cc = pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
GOOD = [KernelConfig(64, 64, 64, 1, 1, stages, Schedule.PINGPONG, Epilogue.NOSMEM) for stages in (2, 3, 4)]
OTHER = KernelConfig(128, 64, 64, 1, 1, 2, Schedule.PINGPONG, Epilogue.NOSMEM)
BAD = KernelConfig(64, 48, 64, 1, 1, 2, Schedule.PINGPONG, Epilogue.NOSMEM)


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Toolchain:
    header = tmp_path / "cutlass" / "include" / "cutlass" / "version.h"
    header.parent.mkdir(parents=True)
    header.write_text("#define CUTLASS_MAJOR 4\n#define CUTLASS_MINOR 2\n#define CUTLASS_PATCH 0\n")
    nvcc = tmp_path / "nvcc"
    nvcc.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{Path(__file__).with_name("fake_nvcc.py")}" "$@"\n')
    nvcc.chmod(0o755)
    monkeypatch.setenv("FAKE_NVCC_LOG", str(tmp_path / "log"))
    return find_toolchain(str(nvcc), tmp_path / "cutlass")


@pytest.fixture
def compilations(tmp_path: Path) -> Callable[[], list[int]]:
    """Kernels of each compilation so far."""
    log = tmp_path / "log"
    return lambda: [int(line) for line in log.read_text().split()] if log.exists() else []


def test_the_toolchain_says_its_versions(tools: Toolchain) -> None:
    assert (tools.nvcc_version, tools.cutlass_version) == ("13.0.88", "4.2.0")


def test_missing_tools_are_named(tmp_path: Path, tools: Toolchain) -> None:
    with pytest.raises(BuildError, match="no CUDA compiler at"):
        find_toolchain(str(tmp_path / "none"))
    with pytest.raises(BuildError, match="no CUTLASS headers under"):
        find_toolchain(tools.nvcc, tmp_path)


@needs_cc
def test_a_second_build_compiles_nothing(
    tmp_path: Path, tools: Toolchain, compilations: Callable[[], list[int]]
) -> None:
    configs = col.from_configs([*GOOD, OTHER])
    first = build(configs, tmp_path / "out", jobs=2, toolchain=tools, progress=False)
    assert compilations() == [4]
    assert build(configs, tmp_path / "out", jobs=2, toolchain=tools, progress=False).equals(first)
    assert compilations() == [4]
    assert set(first["build_status"]) == {"ok"}
    assert set(first["name"]) == {config.name for config in [*GOOD, OTHER]}
    # The stand-in gives the kernel at place i 40 + i registers, 12 i spilled bytes and 1000 + i bytes of shared memory.
    assert (first["registers"] == 40 + first["index"]).all()
    assert (first["spill_bytes"] == 12 * first["index"]).all()
    assert (first["shared_memory_bytes"] == 1000 + first["index"]).all()
    assert (first["build_seconds"] > 0).all()


@needs_cc
def test_a_lost_library_is_built_again(tmp_path: Path, tools: Toolchain, compilations: Callable[[], list[int]]) -> None:
    manifest = build(col.from_configs(GOOD), tmp_path / "out", toolchain=tools, progress=False)
    (tmp_path / "out" / "units" / manifest["unit"][0]).unlink()
    build(col.from_configs(GOOD), tmp_path / "out", toolchain=tools, progress=False)
    assert compilations() == [3, 3]


@needs_cc
def test_a_kernel_that_fails_costs_only_itself(
    tmp_path: Path, tools: Toolchain, compilations: Callable[[], list[int]]
) -> None:
    configs = col.from_configs([*GOOD, BAD])
    manifest = build(configs, tmp_path / "out", jobs=1, toolchain=tools, progress=False).set_index("name")
    assert manifest.loc[BAD.name, "build_status"] == "failed"
    assert "static assertion failed" in manifest.loc[BAD.name, "message"]
    assert all(manifest.loc[config.name, "build_status"] == "ok" for config in GOOD)
    before = compilations()
    build(configs, tmp_path / "out", jobs=1, toolchain=tools, progress=False)
    assert compilations() == before


def test_units_hold_whole_tiles_and_every_kernel_once() -> None:
    space = enumerate_configs("TNT")
    some = col.take(space, slice(0, None, 211))
    units = plan_units(some, unit_size=12)
    listed = [config for unit in units for config in unit]
    assert len(listed) == len(set(listed)) == col.size(some)
    assert max(map(len, units)) <= 12
    tiles = [{(config.tile_m, config.tile_n, config.tile_k) for config in unit} for unit in units]
    for tile in set.union(*tiles):
        size = sum((config.tile_m, config.tile_n, config.tile_k) == tile for config in listed)
        if size <= 12:
            assert sum(tile in unit for unit in tiles) == 1


def test_units_hold_few_tiles() -> None:
    configs = [
        KernelConfig(64, tile_n, 64, 1, 1, 2, Schedule.PINGPONG, Epilogue.NOSMEM) for tile_n in range(16, 257, 16)
    ]
    units = plan_units(col.from_configs(configs))
    assert [len(unit) for unit in units] == [6, 6, 4]
