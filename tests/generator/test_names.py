"""Procedural names: round trips, and equality with what cutlass_library prints."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from cutlass_ranker.generator import (
    CONFIG_COLUMNS,
    DTYPES,
    FAMILIES,
    Epilogue,
    InvalidConfig,
    KernelConfig,
    Schedule,
    Scheduler,
    enumerate_configs,
    names,
    parse_name,
)
from cutlass_ranker.generator import columns as col

FIXTURE = Path(__file__).parent / "fixtures" / "cutlass_library_names.csv"


@pytest.mark.parametrize("space", ["paper", "extended"])
@pytest.mark.parametrize("family", FAMILIES)
def test_round_trip_of_every_config(space: str, family: str) -> None:
    columns = enumerate_configs(family, space=space)
    if space == "extended":  # the swapped family is covered by its own turn
        columns = col.take(columns, columns["family"] == FAMILIES.index(family))
    listed = names(columns, DTYPES["bf16"])
    assert len(set(listed)) == len(listed)
    parsed = col.from_configs(parse_name(name) for name in listed)
    for name in CONFIG_COLUMNS:
        assert np.array_equal(parsed[name], columns[name]), name


def test_names_equal_those_of_cutlass_library() -> None:
    with FIXTURE.open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) >= 100
    for row in rows:
        config = KernelConfig(
            *(int(row[key]) for key in ("tile_m", "tile_n", "tile_k", "cluster_m", "cluster_n", "stages")),
            Schedule(int(row["schedule"])), Epilogue(int(row["epilogue"])), Scheduler(int(row["scheduler"])),
            row["family"], bool(int(row["void_c"])), DTYPES[row["dtype"]],
        )  # fmt: skip
        assert config.name == row["name"]
        assert parse_name(row["name"]) == config


def test_live_cutlass_library(script: Callable[[str], ModuleType]) -> None:
    pytest.importorskip("cutlass_library", reason="needs nvidia-cutlass (extra gpu)")
    library_name = script("library_names").library_name
    columns = enumerate_configs("NTN", space="extended")
    for row in np.random.default_rng(3).choice(col.size(columns), 50, replace=False).tolist():
        config = col.config_at(columns, row, DTYPES["f16"])
        assert config.name == library_name(config)


@pytest.mark.parametrize(
    "name",
    [
        "",
        "gemm",
        "cutlass3x_sm90_tensorop_gemm_bf16_bf16_f32_bf16_bf16_128x128x64_2x1x1_0_tnt_align8",
        "cutlass3x_sm90_tensorop_gemm_bf16_f16_f32_bf16_bf16_128x128x64_2x1x1_4_tnt_align8_warpspecialized_epi_tma",
        "cutlass3x_sm90_tensorop_gemm_bf16_bf16_f32_bf16_bf16_128x128x64_2x1x1_4_tnt_align4_warpspecialized_epi_tma",
        "cutlass3x_sm90_tensorop_gemm_bf16_bf16_f32_bf16_bf16_0128x128x64_2x1x1_4_tnt_align8_warpspecialized_epi_tma",
        "cutlass3x_sm100_tensorop_gemm_bf16_bf16_f32_bf16_bf16_128x128x64_2x1x1_4_tnt_align8_warpspecialized_epi_tma",
    ],
)
def test_other_names_are_refused(name: str) -> None:
    with pytest.raises(InvalidConfig):
        parse_name(name)
