"""The command ``cutlass-ranker tune``: sweeps of the hyperparameters."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

if TYPE_CHECKING:
    from .config import TrainingConfig
    from .study import StudyRecord
    from .sweep import Bench

tune = typer.Typer(
    name="tune",
    help="Search hyperparameters for the lowest mean regret in cross-validation; confirm, export and dump the best.",
    invoke_without_command=True,
)

DEFAULT_STORAGE: Final = "sqlite:///cutlass-ranker-tune.db"
SEARCH: Final = {"xgboost": (5, 1), "mlp": (3, 2)}
"""Folds and seeds of a trial, by family."""

Storage = Annotated[
    str,
    typer.Option(
        help="Database, which optuna-dashboard can open: sqlite:///FILE or postgresql://USER:PASSWORD@HOST/DB."
    ),
]
StudyName = Annotated[str | None, typer.Option("--study", help="Name of the study; that of the family unless given.")]
Family = Annotated[str, typer.Option("--model", help="xgboost or mlp.")]
Workers = Annotated[int, typer.Option(help="Processes that work at the same time.", min=1)]
Threads = Annotated[int, typer.Option(help="Threads of each.", min=1)]
HardwareName = Annotated[str, typer.Option(help="GPU that the data was measured on.")]
DataPath = Annotated[
    Path | None, typer.Option("--data", help="Folder of the Parquet tables; the shipped ones unless given.")
]
Dumped = Annotated[
    Path | None, typer.Option("--from", help="File that tune dump wrote, instead of a database.", exists=True)
]


@tune.callback()
def sweep(
    context: typer.Context,
    model: Family = "xgboost",
    trials: Annotated[
        int, typer.Option(help="Trials that the study shall have in the end, those of earlier runs among them.", min=1)
    ] = 100,
    storage: Storage = DEFAULT_STORAGE,
    study: StudyName = None,
    workers: Workers = 1,
    threads: Threads = 1,
    seconds: Annotated[
        float | None, typer.Option(help="Begin no trial after this time, in seconds; run again to go on.", min=0.0)
    ] = None,
    folds: Annotated[
        int | None, typer.Option(help="Folds of a trial.  [default: 5 for xgboost, 3 for mlp]", min=2)
    ] = None,
    seeds: Annotated[
        int | None, typer.Option(help="Models trained on each fold.  [default: 1 for xgboost, 2 for mlp]", min=1)
    ] = None,
    fraction: Annotated[
        float,
        typer.Option(
            help="Share of the training shapes, drawn once, that trials use; confirm uses all.", min=0.01, max=1.0
        ),
    ] = 1.0,
    config: Annotated[
        Path | None, typer.Option(help="JSON or TOML training configuration with what is not searched.")
    ] = None,
    hardware: HardwareName = "h200",
    path: DataPath = None,
) -> None:
    """Search with Optuna (TPE, median pruning). May be killed at any moment; run again, it goes on."""
    if context.invoked_subcommand is not None:
        return
    from .spaces import require_tuned

    require_tuned(model)
    import optuna

    from .crew import run_sweep
    from .progress import SweepProgress, state_of
    from .tuning import Sweep, open_storage

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    base = _base(model, config, threads)
    default_folds, default_seeds = SEARCH[model]
    chosen = Sweep(storage, study or model, base, folds or default_folds, seeds or default_seeds, fraction)
    open_storage(storage)
    bench = _bench(hardware, base.feature_set, path)
    with SweepProgress(trials) as progress:
        tally = run_sweep(chosen, bench, trials, workers, seconds, progress.show)
    rest = "" if tally.finished >= trials else "; run again to go on"
    typer.echo(f"study {chosen.name}: {tally.finished} of {trials} trials, {state_of(tally)}{rest}")


@tune.command()
def confirm(
    model: Family = "xgboost",
    storage: Storage = DEFAULT_STORAGE,
    study: StudyName = None,
    top: Annotated[int, typer.Option(help="How many of the best trials.", min=1)] = 5,
    folds: Annotated[int, typer.Option(help="Folds.", min=2)] = 5,
    seeds: Annotated[int, typer.Option(help="Models trained on each fold.", min=1)] = 3,
    workers: Workers = 1,
    threads: Threads = 1,
    hardware: HardwareName = "h200",
    path: DataPath = None,
) -> None:
    """Score the best trials again, with more folds and seeds. Resumes where it stopped."""
    from .crew import confirm as confirm_trials
    from .tuning import read_study

    record = read_study(storage, study or model)
    bench = _bench(hardware, record.base.feature_set, path)
    done = confirm_trials(
        storage, record.name, bench, top, folds, seeds, workers, threads,
        lambda trial, seed, fold: typer.echo(f"trial {trial.number}, seed {seed}, fold {fold}: done"),
    )  # fmt: skip
    for trial in done.top(top):
        typer.echo(f"trial {trial.number}: {trial.value:.4f} in the search, {trial.confirmed_value:.4f} confirmed")


@tune.command()
def export(
    out: Annotated[Path, typer.Option(help="JSON file to write, which train --config takes.")],
    model: Family = "xgboost",
    storage: Storage = DEFAULT_STORAGE,
    study: StudyName = None,
    dumped: Dumped = None,
    trial: Annotated[int | None, typer.Option(help="Number of a trial; the best one unless given.")] = None,
) -> None:
    """Write the best trial as a training configuration: of the confirmed ones, if any are."""
    from .config import InvalidTraining

    record = _record(storage, study or model, dumped)
    if trial is None:
        chosen = record.best()
    else:
        known = {item.number: item for item in record.trials}
        if trial not in known:
            raise InvalidTraining(f"study {record.name!r} has no finished trial {trial}")
        chosen = known[trial]
    text = json.dumps(record.config(chosen).to_json(), indent=2, ensure_ascii=False)
    out.write_text(text + "\n", encoding="utf-8")
    typer.echo(f"{out}: trial {chosen.number} of study {record.name}")


@tune.command()
def dump(
    out: Annotated[Path, typer.Option(help="JSON file to write.")],
    model: Family = "xgboost",
    storage: Storage = DEFAULT_STORAGE,
    study: StudyName = None,
) -> None:
    """Write every trial, with parameters, score of each fold, state and duration, into one compact file."""
    record = _record(storage, study or model, None)
    record.dump(out)
    typer.echo(f"{out}: {len(record.trials)} trials")


@tune.command()
def compare(
    config: Annotated[
        list[Path], typer.Option(help="Training configuration; repeat it. The others are compared with the first.")
    ],
    out: Annotated[Path, typer.Option(help="Folder for comparison.json and the scores, from which a rerun goes on.")],
    vary: Annotated[
        list[str] | None,
        typer.Option(
            help="The first configuration with changes, e.g. mixed:mlp.regression_weight=10,mlp.epochs=30; repeat it.",
        ),
    ] = None,
    folds: Annotated[int, typer.Option(help="Folds.", min=2)] = 5,
    seeds: Annotated[int, typer.Option(help="Cross-validations of each, from different seeds.", min=1)] = 3,
    workers: Workers = 1,
    threads: Threads = 1,
    hardware: HardwareName = "h200",
    path: DataPath = None,
) -> None:
    """Cross-validate training configurations on the same folds and say which is better, with 95% intervals."""
    from .compare import compare as compare_configs
    from .config import InvalidTraining, TrainingConfig

    listed = [(file.stem, TrainingConfig.from_file(file)) for file in config]
    listed += [_varied(listed[0][1], text) for text in vary or ()]
    configs = dict(listed)
    sets = {each.feature_set for each in configs.values()}
    if len(configs) < len(listed) or len(sets) > 1:
        raise InvalidTraining("the configurations need different names and one feature set")
    bench = _bench(hardware, sets.pop(), path)
    found = compare_configs(configs, bench, out, folds, seeds, workers, threads, typer.echo)
    text = json.dumps([each.to_json() for each in found], indent=2)
    (out / "comparison.json").write_text(text + "\n", encoding="utf-8")
    for each in found:
        values = each.to_json()
        typer.echo(
            f"{each.name}: mean regret {values['mean_regret']:.4f}, median {values['median_regret']:.4f}, "
            f"difference {each.difference:+.4f} ({each.low:+.4f} to {each.high:+.4f})"
        )


def _record(storage: str, name: str, dumped: Path | None) -> StudyRecord:
    """Read a study from its database or its file."""
    if dumped is not None:
        from .study import load_study

        return load_study(dumped)
    from .tuning import read_study

    return read_study(storage, name)


def _varied(base: TrainingConfig, text: str) -> tuple[str, TrainingConfig]:
    """Read ``NAME:KEY=VALUE,...``, keys with dots as in the JSON of a configuration, and values as in JSON or bare."""
    from .config import InvalidTraining, TrainingConfig

    name, _, changes = text.partition(":")
    value = base.to_json()
    for change in re.split(r",(?=[a-z_.]+=)", changes):
        key, equals, given = change.partition("=")
        *parents, last = key.split(".")
        inner: Any = value
        for parent in parents:
            inner = inner.get(parent)
            if not isinstance(inner, dict):
                raise InvalidTraining(f"{key!r} is no setting of the first configuration")
        if not name or not equals:
            raise InvalidTraining(f"a variation is written NAME:KEY=VALUE,...; this one is {text!r}")
        try:
            inner[last] = json.loads(given)
        except ValueError:
            inner[last] = given
    return name, TrainingConfig.from_json(value)


def _base(model: str, path: Path | None, threads: int) -> TrainingConfig:
    """Read what is not searched."""
    from .config import TrainingConfig

    config = TrainingConfig() if path is None else TrainingConfig.from_file(path)
    return replace(config, kind=model, threads=threads)


def _bench(hardware: str, feature_set: str, path: Path | None) -> Bench:
    """Load the training groups and compute their features."""
    from ..datasets import load, training_groups
    from ..features import get_hardware
    from ..generator import DataError, load_catalogue
    from .samples import feature_matrices
    from .sweep import Bench

    training = training_groups(load(path=path), load_catalogue() if path is None else None)
    if not training:
        raise DataError("the tables have no measured training problems")
    return Bench(training, feature_matrices(training, get_hardware(hardware), feature_set))
