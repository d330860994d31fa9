"""Choices as a table for readers and as JSON for programs."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any, Final

from ..generator import SPLIT_K_DECOMPOSITIONS, Decomposition, Launch, Raster, Scheduler
from .choice import Choice
from .measured import Measured

FILE_WIDTH: Final = 120
"""Width of the table where it does not go to a terminal; in a narrow terminal it is wrapped."""


def launch_text(launch: Launch) -> str:
    """Describe a launch in a few words: ``default``, ``along_n, swizzle 4``, ``split_k 8``, ``split_k_atomic 8`` ..."""
    parts = []
    if launch.raster is not Raster.HEURISTIC:
        parts.append(launch.raster.name.lower())
    if launch.swizzle > 1:
        parts.append(f"swizzle {launch.swizzle}")
    if launch.decomposition in SPLIT_K_DECOMPOSITIONS:
        parts.append(f"{launch.decomposition.name.lower()} {launch.splits}")
    elif launch.decomposition is not Decomposition.HEURISTIC:
        parts.append(launch.decomposition.name.lower())
    return ", ".join(parts) or "default"


def print_table(choices: Sequence[Choice], measured: Measured) -> None:
    """Print choices to standard output, with measured times where there are any."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    first = choices[0]
    table = Table(
        box=box.SIMPLE_HEAD,
        title=f"{first.problem} on {first.hardware}, ranked by {first.model}",
        title_justify="left",
        pad_edge=False,
        padding=(0, 1),
        collapse_padding=True,
    )
    for heading in ("", "tile", "cluster", "stages"):
        table.add_column(heading, justify="right", no_wrap=True)
    for heading in ("mainloop", "epilogue", "swapped", "launch"):
        table.add_column(heading, overflow="fold")
    table.add_column("speed", justify="right", no_wrap=True)
    if measured.choices:
        table.add_column("measured", justify="right", no_wrap=True)
    for choice in choices:
        config = choice.config
        row = [
            str(choice.rank),
            f"{config.tile_m}x{config.tile_n}x{config.tile_k}",
            f"{config.cluster_m}x{config.cluster_n}",
            str(config.stages),
            config.schedule.name.lower()
            + ("" if config.scheduler is Scheduler.PERSISTENT else f", {config.scheduler.name.lower()}"),
            config.epilogue.name.lower() + (", void C" if config.void_c else ""),
            "yes" if choice.swapped else "",
            launch_text(choice.launch),
            _percent(choice.relative_speed),
        ]
        if measured.choices:
            time = measured.choices.get(choice.candidate)
            row.append("" if time is None else f"{time:.2f} µs")
        table.add_row(*row)
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = FILE_WIDTH
    console.print(table)
    console.print("speed: expected time of the fastest candidate / time of this one")
    console.print(f"First: {first.name}", soft_wrap=True)
    console.print(f"Expected regret of the first: {_percent(first.expected_regret)}")
    if measured.fastest is not None:
        line = f"Fastest measured candidate on this problem: {measured.fastest:.2f} µs"
        if measured.cublaslt is not None:
            line += f"; cuBLASLt: {measured.cublaslt:.2f} µs"
        console.print(line)


def to_json(choices: Sequence[Choice], measured: Measured) -> str:
    """Return choices as JSON: sizes in elements, times in µs, speeds and regrets as fractions, null for unknown."""
    first = choices[0]
    problem = first.problem
    listed: list[dict[str, Any]] = []
    for choice in choices:
        entry = choice.to_dict() | {"measured_us": measured.choices.get(choice.candidate)}
        listed.append({key: None if _is_nan(value) else value for key, value in entry.items()})
    answer = {
        "problem": {
            "m": problem.m,
            "n": problem.n,
            "k": problem.k,
            "layout": problem.layout,
            "dtype": problem.dtype.name,
        },
        "hardware": first.hardware,
        "model": first.model,
        "fastest_measured_us": measured.fastest,
        "cublaslt_us": measured.cublaslt,
        "choices": listed,
    }
    return json.dumps(answer, indent=2, allow_nan=False)


def _percent(fraction: float) -> str:
    return "unknown" if math.isnan(fraction) else f"{100 * fraction:.1f}%"


def _is_nan(value: object) -> bool:
    return isinstance(value, float) and math.isnan(value)
