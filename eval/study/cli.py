"""The command line of the studies: ``cutlass-ranker study NAME``, ``study all`` and ``study report``."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from ...models import InvalidTraining, TrainingConfig
from .options import Options, make_options
from .registry import STUDIES

app = typer.Typer(
    name="study",
    help="Ablations of the rankers. Finished cells are kept, so a study can be killed, resumed and grown at any time.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

_ANYWAY: Final[dict[str, Any]] = {
    "out": Annotated[Path, typer.Option(help="Folder for cells, plots and the page.")],
    "data": Annotated[Path | None, typer.Option(help="Folder of the Parquet tables; the shipped ones unless given.")],
    "hardware": Annotated[str, typer.Option(help="GPU that the data was measured on.")],
    "workers": Annotated[int, typer.Option(help="Worker processes, each of one thread.", min=1)],
    "quick": Annotated[
        bool, typer.Option("--quick", help="Small data, few repeats: about a minute of one core for each study.")
    ],
    "seconds": Annotated[
        float | None,
        typer.Option(
            help="Begin no cell that is likely to end after this time, in seconds; run again to go on.", min=0.0
        ),
    ],
    "dry_run": Annotated[bool, typer.Option("--dry-run", help="Say what there is to do and how long it may take.")],
    "shapes": Annotated[
        int | None, typer.Option(help="Base shapes of the training problems to use.  [default: all]", min=2)
    ],
    "evaluation_shapes": Annotated[
        int | None, typer.Option(help="Base shapes of the evaluation problems to use.  [default: all]", min=1)
    ],
}
"""Options of every study."""
_DEFAULTS: Final = {"data": None, "hardware": "h200", "workers": 1, "quick": False, "seconds": None, "dry_run": False}
_SPECIFIC: Final[dict[str, Any]] = {
    "kinds": Annotated[
        list[str] | None, typer.Option("--kind", help="Model family, xgboost or mlp; may be repeated.  [default: both]")
    ],
    "configs": Annotated[
        list[Path] | None,
        typer.Option(
            "--config", help="Training configuration that takes the place of its family's shipped one; may be repeated."
        ),
    ],
    "objectives": Annotated[
        list[str] | None, typer.Option("--objective", help="lambdarank, ranknet or mse; may be repeated.")
    ],
    "hidden": Annotated[
        list[str] | None, typer.Option("--hidden", help="Hidden layers of an MLP, e.g. 128x64; may be repeated.")
    ],
    "depths": Annotated[list[int] | None, typer.Option("--depth", help="Depth of trees; may be repeated.")],
    "fractions": Annotated[
        list[float] | None, typer.Option("--fraction", help="Share of the base shapes, 0 to 1; may be repeated.")
    ],
    "draws": Annotated[int | None, typer.Option(help="Independent draws of the shapes.", min=1)],
    "budgets": Annotated[
        list[int] | None, typer.Option("--budget", help="Candidates measured of a problem; may be repeated.")
    ],
    "alphas": Annotated[
        list[float] | None, typer.Option("--alpha", help="Share from the top of the static score; may be repeated.")
    ],
    "samples": Annotated[int | None, typer.Option(help="Independent samples of every problem.", min=1)],
    "permutations": Annotated[int | None, typer.Option(help="Permutations of every feature.", min=1)],
    "seeds": Annotated[int | None, typer.Option(help="Training seeds of every setting.", min=1)],
    "folds": Annotated[int | None, typer.Option(help="Folds of the cross-validation.", min=2)],
    "rounds": Annotated[int | None, typer.Option(help="Most boosting rounds.", min=1)],
    "epochs": Annotated[int | None, typer.Option(help="Epochs of an MLP.", min=1)],
    "members": Annotated[int | None, typer.Option(help="Networks averaged to one MLP.", min=1)],
}
"""Options by field of :class:`Options`; a study has those that it reads."""


@app.command()
def report(out: Annotated[Path, typer.Option(help="Folder of the studies.")]) -> None:
    """Draw the page, study.html, study.md, study.json and plots/, from the cells that are finished."""
    from .page import make_page

    made = make_page(out)
    typer.echo(f"{out / 'study.html'}: {', '.join(made)}")


def run_studies(
    names: Sequence[str],
    out: Path,
    options: Options,
    *,
    data: Path | None = None,
    hardware: str = "h200",
    workers: int = 1,
    seconds: float | None = None,
    dry_run: bool = False,
) -> None:
    """Run what is missing of some studies, with a progress bar, and draw the page.

    Parameters
    ----------
    names
        Of the studies.
    out
        Folder of cells, plots and the page.
    options
        Grids, repeats and sizes.
    data
        Folder of the tables; the shipped ones unless given.
    hardware
        The GPU that they were measured on.
    workers
        Worker processes.
    seconds
        No cell is begun that is likely to end after this time.
    dry_run
        Only say what there is to do.
    """
    from .data import load_data
    from .page import make_page
    from .progress import run_with_progress
    from .runner import Estimate, missing
    from .store import Store

    loaded, store = load_data(data, hardware, options.shapes, options.evaluation_shapes), Store(out)
    planned = {name: STUDIES[name].plan(options, loaded) for name in names}
    estimate = Estimate(loaded, store)
    for name, listed in planned.items():
        cells = [item.cell for item in listed]
        left = missing(cells, loaded, store)
        likely = duration(sum(map(estimate.seconds, left)))
        typer.echo(f"{name}: {len(cells)} cells, {len(left)} to run, about {likely} of one core")
    if dry_run:
        return
    for name, listed in planned.items():
        store.write_plan(name, listed, loaded, options)
    run_with_progress([item.cell for listed in planned.values() for item in listed], loaded, store, workers, seconds)
    make_page(out)
    typer.echo(f"{out / 'study.html'}: {', '.join(names)}")


def duration(seconds: float) -> str:
    """Write a time for readers: 40 s, 12 min, 3.5 h."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def _given(values: Mapping[str, Any]) -> dict[str, Any]:
    """Turn what was said on the command line into fields of :class:`Options`."""
    found = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in values.items()
        if value is not None and value != []
    }
    if "hidden" in found:
        found["hidden"] = tuple(_widths(text) for text in found["hidden"])
    if "configs" in found:
        configs = [TrainingConfig.from_file(path) for path in found["configs"]]
        found["configs"] = {config.kind: config for config in configs}
    return found


def _widths(text: str) -> tuple[int, ...]:
    """Read the widths of hidden layers."""
    parts = text.lower().split("x")
    if not all(part.isdecimal() and int(part) > 0 for part in parts):
        raise InvalidTraining(f"hidden layers {text!r} cannot be read; write their widths like 128x64")
    return tuple(map(int, parts))


def _command(names: Sequence[str]) -> Callable[..., None]:
    """Make the command of some studies, with the options that they read."""

    def command(**values: Any) -> None:
        fixed = {name: values.pop(name) for name in ("out", "data", "hardware", "workers", "seconds", "dry_run")}
        options = make_options(_given({key: value for key, value in values.items() if key != "quick"}), values["quick"])
        run_studies(names, fixed.pop("out"), options, **fixed)

    read = {field for name in names for field in STUDIES[name].options}
    if "kinds" in read:
        read.add("configs")
    listed = _ANYWAY | {field: hint for field, hint in _SPECIFIC.items() if field in read}
    parameters = [
        inspect.Parameter(
            field,
            inspect.Parameter.KEYWORD_ONLY,
            annotation=hint,
            default=inspect.Parameter.empty if field == "out" else _DEFAULTS.get(field),
        )
        for field, hint in listed.items()
    ]
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = dict(listed)
    return command


for _name, _study in STUDIES.items():
    app.command(_name, help=f"{_study.title}. {_study.text}", short_help=_study.title)(_command([_name]))
app.command("all", help="All studies, one after the other, with the cells that they share computed once.")(
    _command(list(STUDIES))
)
