"""The progress bar of a run, weighed by the time that each cell is likely to take."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .cells import Cell
from .data import StudyData
from .runner import Estimate, missing, run_cells
from .store import Store


def run_with_progress(
    cells: Sequence[Cell], data: StudyData, store: Store, workers: int, seconds: float | None = None
) -> int:
    """Run what is missing of the cells (:func:`.runner.run_cells`) and return how many that were.

    A line is printed for every finished cell, the bar goes to standard error.
    """
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    left = missing(cells, data, store)
    estimate = Estimate(data, store)
    columns = (
        TextColumn("{task.fields[done]} of {task.fields[count]} cells"),
        BarColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True)) as progress:
        task = progress.add_task("", total=sum(map(estimate.seconds, left)), done=0, count=len(left))

        def on_done(cell: Cell, record: Mapping[str, Any]) -> None:
            done = int(progress.tasks[0].fields["done"]) + 1
            progress.update(task, advance=estimate.seconds(cell), done=done)
            progress.console.print(f"{cell.label}: {record['seconds']:.0f} s", highlight=False)

        return run_cells(left, data, store, workers, on_done, seconds)
