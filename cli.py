"""The command line: ``cutlass-ranker select | space | collect | data | train | tune | study | report | ptxbench``.

Everything heavy is imported inside the commands, so that ``--help`` stays quick. Whatever the project refuses on
purpose ends as one line on standard error and exit status 2.
"""

from __future__ import annotations

import gc
import os
import sys
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer

from . import __version__

_UsageError: Any = typer.BadParameter.__base__
"""What typer raises for a command line that it cannot read."""

app = typer.Typer(
    name="cutlass-ranker",
    help="Picks the fastest CUTLASS SM90 (Hopper) GEMM kernel for M, N, K without compiling or running any.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

Layout = Annotated[
    str, typer.Option(help="Letters of A, B and optionally D: T row-major, N column-major; D is row-major unless said.")
]
DType = Annotated[str, typer.Option(help="Element type of A, B and D, as torch or CUTLASS write it.")]


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"cutlass-ranker {__version__}")
        raise typer.Exit


@app.callback()
def _main(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version and stop.")
    ] = False,
) -> None:
    """Picks the fastest CUTLASS SM90 (Hopper) GEMM kernel for M, N, K without compiling or running any."""


# Negative sizes look like options; they are passed on, so that the answer says what is wrong with them.
@app.command(context_settings={"ignore_unknown_options": True})
def select(
    m: Annotated[str, typer.Argument(metavar="M", help="Rows of A and D, in elements.")],
    n: Annotated[str, typer.Argument(metavar="N", help="Columns of B and D, in elements.")],
    k: Annotated[str, typer.Argument(metavar="K", help="Columns of A and rows of B, in elements.")],
    layout: Layout = "TN",
    dtype: DType = "bf16",
    hardware: Annotated[str, typer.Option(help="GPU: h200, h100_sxm, h100_pcie, gh200 or h20.")] = "h200",
    model: Annotated[str, typer.Option(help="Name of a shipped ranker, or the folder of a saved one.")] = "default",
    space: Annotated[
        str | None, typer.Option(help="Rank a whole search space (paper or extended) instead of the shipped catalogue.")
    ] = None,
    top: Annotated[int, typer.Option(help="How many kernels to list.")] = 8,
    allow_nondeterministic: Annotated[
        bool,
        typer.Option("--allow-nondeterministic", help="Also atomic split-K: the last bits of D vary between runs."),
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print JSON: times in µs, speeds and regrets as fractions.")
    ] = False,
    emit: Annotated[Path | None, typer.Option(help="Write the C++ of the best kernel to this file.")] = None,
) -> None:
    """Rank the kernels for D[M,N] = A[M,K] · B[K,N], best first, without a GPU.

    Relative speed is the expected time of the fastest candidate over that
    of this one. Measured times, in µs, are shown where the shipped data has
    them for this problem, kernel and launch.
    """
    from .selector import rank_kernels
    from .selector.display import print_table, to_json
    from .selector.measured import look_up

    choices = rank_kernels(
        *_sizes(m, n, k), top_k=top, layout=layout, dtype=dtype, hardware=hardware, model=model, space=space,
        deterministic=not allow_nondeterministic,
    )  # fmt: skip
    if emit is not None:
        _write(emit, choices[0].source())
    measured = look_up(choices, deterministic=not allow_nondeterministic)
    if as_json:
        typer.echo(to_json(choices, measured))
    else:
        print_table(choices, measured)
        if emit is not None:
            typer.echo(f"C++ of the first: {emit}")


@app.command()
def space(
    name: Annotated[str, typer.Option("--space", help="paper (arXiv 2609.35587) or extended.")] = "paper",
    layout: Layout = "TN",
    dtype: DType = "bf16",
    shape: Annotated[
        tuple[str, str, str] | None,
        typer.Option(
            metavar="M N K", help="Leave out kernels whose tile is more than twice as long as this problem's side."
        ),
    ] = None,
    count: Annotated[
        bool, typer.Option("--count", help="Print how many kernels there are instead of their names.")
    ] = False,
) -> None:
    """List every valid kernel of a search space by its procedural name, one a line."""
    from .generator import Problem, columns, enumerate_configs, names, parse_dtype

    problem = None if shape is None else Problem(*_sizes(*shape), layout, parse_dtype(dtype))
    configs = enumerate_configs(layout, dtype, name, problem)
    if count:
        typer.echo(columns.size(configs))
    else:
        sys.stdout.writelines(f"{line}\n" for line in names(configs, parse_dtype(dtype)))


collect = typer.Typer(
    help="Measure on your own GPU: plan, build, run and merge a campaign kept in one folder.", no_args_is_help=True
)
app.add_typer(collect, name="collect")
Campaign = Annotated[
    Path, typer.Argument(metavar="DIR", help="Folder of the campaign; it holds plan/, build/ and rows/.")
]


@collect.command()
def plan(
    directory: Campaign,
    name: Annotated[str | None, typer.Option(help="Name of the campaign; that of the folder unless given.")] = None,
    catalogue: Annotated[
        str | None,
        typer.Option(help="Measure the kernels of this shipped catalogue; default unless given."),
    ] = None,
    repeat: Annotated[
        Path | None, typer.Option(help="Measure rows of the campaign in this folder again, for the noise floor.")
    ] = None,
    rows: Annotated[int, typer.Option(help="How many rows to repeat.")] = 1000,
    retake: Annotated[
        Path | None,
        typer.Option(help="Decide between the best candidates of every problem in this folder's tables again."),
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of everything drawn.")] = 0,
) -> None:
    """Plan kernels on the evaluation problems and on drawn training problems of every layout."""
    from .datasets import load, make_plan, make_repeat_plan, make_retake_plan, read_plan, write_plan
    from .generator import load_catalogue

    title = name or directory.resolve().name
    if repeat is not None:
        from .datasets.records import read_rows

        planned = make_repeat_plan(title, read_plan(repeat / "plan"), read_rows(repeat / "rows"), rows=rows, seed=seed)
    elif retake is not None:
        planned = make_retake_plan(title, load(path=retake), seed=seed)
    else:
        planned = make_plan(title, None if catalogue is None else load_catalogue(catalogue), seed=seed)
    write_plan(planned, directory / "plan")
    typer.echo(
        f"{title}: {len(planned.kernels):,} kernels, {len(planned.problems):,} problems, "
        f"{len(planned.candidates):,} candidates"
    )


@collect.command()
def build(
    directory: Campaign,
    jobs: Annotated[
        int | None, typer.Option(help="Compilers at once; as many as cores and 20 GB allow unless given.")
    ] = None,
) -> None:
    """Compile the planned kernels and the runner. Needs nvcc, no GPU; building again compiles nothing."""
    from .datasets import read_plan
    from .datasets.build import build as compile_kernels
    from .datasets.engine import build_engine
    from .generator import CONFIG_COLUMNS

    kernels = read_plan(directory / "plan").kernels
    configs = {column: kernels[column].to_numpy(dtype="int32") for column in CONFIG_COLUMNS}
    manifest = compile_kernels(configs, directory / "build", jobs=jobs)
    build_engine(directory / "build")
    built = int((manifest["build_status"] == "ok").sum())
    typer.echo(
        f"{built:,} kernels compiled, {len(manifest) - built:,} failed, "
        f"{manifest['build_seconds'].mean():.1f} s of one core a kernel"
    )


@collect.command()
def run(
    directory: Campaign,
    seconds: Annotated[float, typer.Option(help="Time to measure for, in seconds.", min=1.0)],
    gpus: Annotated[
        str | None, typer.Option(help="GPUs as CUDA_VISIBLE_DEVICES names them, e.g. 0,1; all SM90 ones unless given.")
    ] = None,
    operands: Annotated[
        str | None,
        typer.Option(help="cold (L2 flushed before each launch) or warm; as planned or cold unless given."),
    ] = None,
    mode: Annotated[
        str | None,
        typer.Option(help="offline (back to back) or server (random idle gaps); as planned or offline unless given."),
    ] = None,
) -> None:
    """Measure on every GPU. May be killed at any moment; run again, it goes on where it stopped."""
    from .datasets import read_plan
    from .datasets.run import run_campaign

    read_plan(directory / "plan")
    listed = None if gpus is None else [gpu.strip() for gpu in gpus.split(",")]
    given = {"operands": operands, "mode": mode}
    options = {name: value for name, value in given.items() if value is not None}
    done = run_campaign(directory / "plan", directory / "build", directory / "rows", seconds, listed, options=options)
    typer.echo(
        f"{done.rows:,} rows in {done.seconds:.0f} s; {done.problems_done} of {done.problems} problems are finished"
        + ("; run again to go on" if done.stopped else "")
    )


@collect.command()
def merge(
    directory: Campaign,
    data: Annotated[Path, typer.Option(help="Folder of the Parquet tables to add to; made if missing.")],
) -> None:
    """Merge what was measured into Parquet tables; merging again replaces the campaign's rows."""
    from .datasets import data_info
    from .datasets import merge as merge_tables

    typer.echo(data_info(merge_tables(directory / "rows", directory / "plan", directory / "build", data)).text())


data = typer.Typer(help="Look at the measured data.", no_args_is_help=True)
app.add_typer(data, name="data")
DataPath = Annotated[
    Path | None, typer.Option("--data", help="Folder of the Parquet tables; the shipped ones unless given.")
]


@data.command()
def info(path: DataPath = None) -> None:
    """Print campaigns, GPU, counts by status and the noise floor."""
    from .datasets import data_info, load

    typer.echo(data_info(load(path=path)).text())


@data.command()
def check(path: DataPath = None) -> None:
    """Check types, ids, duplicates, names, ranges, roofline floor and splits; exit status 1 if anything is wrong."""
    from .datasets import data_check, load

    findings = data_check(load(path=path))
    for finding in findings:
        typer.echo(finding)
    if any(finding.level == "error" for finding in findings):
        raise typer.Exit(1)
    typer.echo("the tables are sound")


@app.command()
def train(
    out: Annotated[Path, typer.Option(help="Folder to write: manifest, weights and model card.")],
    kind: Annotated[str | None, typer.Option(help="xgboost, mlp or ridge.  [default: xgboost]")] = None,
    objective: Annotated[str | None, typer.Option(help="lambdarank, ranknet or mse.  [default: lambdarank]")] = None,
    features: Annotated[str | None, typer.Option(help="full or structural.  [default: full]")] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of everything drawn.  [default: 0]")] = None,
    config: Annotated[
        Path | None, typer.Option(help="JSON or TOML file of settings; options given here override it.")
    ] = None,
    hardware: Annotated[str, typer.Option(help="GPU that the data was measured on.")] = "h200",
    path: DataPath = None,
) -> None:
    """Train a ranker on the training problems and evaluate it on the others."""
    from .features import feature_names
    from .models import InvalidTraining, TrainingConfig, train_and_save

    settings = TrainingConfig() if config is None else TrainingConfig.from_file(config)
    given: dict[str, Any] = {"kind": kind, "objective": objective, "feature_set": features, "seed": seed}
    settings = replace(settings, **{key: value for key, value in given.items() if value is not None})
    try:
        feature_names(settings.feature_set)
    except ValueError as error:
        raise InvalidTraining(str(error)) from error
    train_and_save(out, settings, hardware=hardware, path=path, log=typer.echo)


def _mount(name: str, module: str, commands: str, text: str) -> None:
    """Add a command with commands of its own, which are imported when one of them is called."""

    def call(context: typer.Context) -> Any:
        found = getattr(import_module(module, __package__), commands)
        return found(context.args, prog_name=f"cutlass-ranker {name}", standalone_mode=False)

    settings = {"allow_extra_args": True, "ignore_unknown_options": True}
    app.command(name, help=text, add_help_option=False, context_settings=settings)(call)


_mount("tune", ".models.tune_cli", "tune", "Optuna sweeps: search, confirm, compare, export, dump.")
_mount(
    "study", ".eval.study.cli", "app", "Ablations of the rankers: features, groups, capacity, data, sampling, report."
)
_mount("ptxbench", ".eval.ptxbench.cli", "app", "PTXBench GEMM: seed packs, a checker of kernels, scores.")


@app.command()
def report(
    out: Annotated[Path, typer.Option(help="Folder for report.html, report.md, report.json and plots/.")],
    model: Annotated[
        list[str] | None,
        typer.Option(help="Name or folder of a ranker; may be repeated. All shipped ones unless given."),
    ] = None,
    hardware: Annotated[str, typer.Option(help="GPU that the data was measured on.")] = "h200",
    seed: Annotated[int, typer.Option(help="Seed of the bootstrap.")] = 0,
    path: DataPath = None,
) -> None:
    """Evaluate rankers and baselines on the evaluation problems. Regrets are fractions of 1, times are in µs."""
    from .datasets import load
    from .eval import make_report

    made = make_report(out, None if path is None else load(path=path), model, hardware, seed)
    typer.echo(f"{out / 'report.html'}: {made['evaluation']['groups']} evaluation problems")


def _sizes(m: str, n: str, k: str) -> tuple[int, int, int]:
    """Read problem sizes from the command line."""
    return _size("M", m), _size("N", n), _size("K", k)


def _size(name: str, text: str) -> int:
    """Read a problem size from the command line."""
    from .generator import InvalidProblem

    try:
        return int(text)
    except ValueError as error:
        raise InvalidProblem(f"{name} is {text!r}; it must be a whole number of elements, such as 4096") from error


def _write(path: Path, text: str) -> None:
    """Write a file, with a one-line error if that fails."""
    from .generator import CutlassRankerError

    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise CutlassRankerError(f"cannot write {path}: {error.strerror}") from error


def main() -> None:
    """Run the command line and exit: 0 on success, 2 on a refused request."""
    # Imports and model files make many objects and no garbage: looking for it takes a sixth of a short command.
    gc.set_threshold(100_000)
    try:
        status = app(standalone_mode=False)
    except _UsageError as error:
        status = _fail(error.format_message())
    except (KeyboardInterrupt, typer.Abort):
        status = 130
    except BrokenPipeError:
        # The reader (head, less) has seen enough; nothing more may be flushed to it at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        status = 141
    except Exception as error:
        from .generator import CutlassRankerError

        if not isinstance(error, CutlassRankerError):
            raise
        status = _fail(str(error))
    sys.exit(status)


def _fail(message: str) -> int:
    """Print an error as one line on standard error and return the exit status."""
    typer.echo("cutlass-ranker: " + " ".join(message.split()), err=True)
    return 2


if __name__ == "__main__":
    main()
