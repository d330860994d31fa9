"""Optuna sweeps: a study in a database, worked on by several processes, that survives the death of any of them.

The parent process hands out trials one at a time and watches its workers. A trial whose worker dies is marked failed
and queued again; so is one whose heartbeat stopped, which is how the trials of a machine that vanished are found. An
exception inside a trial is recorded with it and costs nothing else. Several parents, on any machines that reach the
database, can work on one study.
"""

from __future__ import annotations

import json
import os
import socket
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import chain
from statistics import median
from typing import TYPE_CHECKING, Any, Final

from ..generator.errors import CutlassRankerError, MissingDependency
from .config import TrainingConfig
from .spaces import suggest
from .study import StudyRecord, TrialRecord
from .sweep import Bench

try:
    import optuna
    import sqlalchemy
    from optuna.trial import FrozenTrial, Trial, TrialState
except ImportError as missing:
    raise MissingDependency("tuning needs optuna: pip install 'cutlass-ranker[train]'") from missing

if TYPE_CHECKING:
    from optuna import Study

FINISHED: Final = (TrialState.COMPLETE, TrialState.PRUNED, TrialState.FAIL)
HEARTBEAT: Final = 10
"""Seconds between signs of life of a running trial."""
GRACE: Final = 60
"""Seconds without one after which a trial is given up and queued again."""
ATTEMPTS: Final = 3
"""Times that a trial is begun before it is left failed: it may be what kills its workers."""
STARTUP_TRIALS: Final = 10
"""Complete trials before any is pruned."""


class SweepError(CutlassRankerError):
    """A study that cannot be opened, continued or worked on."""


@dataclass(frozen=True)
class Sweep:
    """A study and how its trials are made."""

    storage: str
    """URL of the database, as SQLAlchemy writes it: ``sqlite:///FILE`` or ``postgresql://USER:PASSWORD@HOST/NAME``."""
    name: str
    """Name of the study in it."""
    base: TrainingConfig
    """Family, and everything that is not searched; its seed deals the folds."""
    folds: int
    seeds: int
    """Models trained on each fold; their regrets are averaged."""
    fraction: float = 1.0
    """Share of the training shapes that trials use; drawn with the seed of ``base``."""

    @property
    def searched(self) -> TrainingConfig:
        """The configuration whose values are searched: one network at a time, one thread each unless said."""
        return replace(self.base, mlp=replace(self.base.mlp, members=1))


class RunningMedianPruner(optuna.pruners.BasePruner):
    """Stops a trial whose mean regret so far is above the median of the complete trials' at the same fold.

    Optuna's own median pruner compares the lowest value that a trial ever reported. Here every value is a mean over
    the folds so far; an easy first fold would protect a trial to its end.

    Parameters
    ----------
    startup
        Complete trials before any is pruned.
    """

    def __init__(self, startup: int = STARTUP_TRIALS) -> None:
        self.startup = startup

    def prune(self, study: Study, trial: FrozenTrial) -> bool:
        """Return True if the trial should stop."""
        step = trial.last_step
        complete = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
        if step is None or len(complete) < self.startup:
            return False
        others = [other.intermediate_values[step] for other in complete if step in other.intermediate_values]
        return bool(others) and trial.intermediate_values[step] > median(others)


class Objective:
    """Score of a trial: mean over the folds of the mean regret on each, reported fold by fold.

    A trial that was queued again goes on after the folds that it had finished.

    Parameters
    ----------
    sweep, bench
        The study's settings, and the groups that its trials use.
    """

    def __init__(self, sweep: Sweep, bench: Bench) -> None:
        self.sweep = sweep
        self.bench = bench

    def __call__(self, trial: Trial) -> float:
        """Run a trial.

        Raises
        ------
        optuna.TrialPruned
            If the pruner stops it.
        Exception
            Whatever goes wrong in training; the message is kept with the trial.
        """
        trial.set_user_attr("worker", worker_tag(os.getpid()))
        try:
            return self._run(trial)
        except optuna.TrialPruned:
            raise
        except Exception as error:
            trial.set_user_attr("error", f"{type(error).__name__}: {error}"[:500])
            raise

    def _run(self, trial: Trial) -> float:
        config = suggest(trial, self.sweep.searched)
        seeds = range(config.seed, config.seed + self.sweep.seeds)
        before = list(trial.user_attrs.get("folds", ()))
        done: list[float] = []
        for step, regret in enumerate(
            chain(before, self.bench.fold_regrets(config, self.sweep.folds, seeds, len(before)))
        ):
            done.append(regret)
            trial.set_user_attr("folds", done)
            trial.report(sum(done) / len(done), step)
            if step + 1 < self.sweep.folds and trial.should_prune():
                raise optuna.TrialPruned
        return sum(done) / len(done)


def worker_tag(pid: int) -> str:
    """Name a process on any machine."""
    return f"{socket.gethostname()}:{pid}"


def open_study(sweep: Sweep, data: str, sampler_seed: int | None = None) -> Study:
    """Open a study for work, or begin it.

    Parameters
    ----------
    sweep
        Its settings.
    data
        Fingerprint of the training data, all of it.
    sampler_seed
        Of the sampler of this process; None differs each time.

    Raises
    ------
    SweepError
        If the database cannot be opened, or the study was begun with other settings or data.
    MissingDependency
        If the database needs a driver that is not installed.
    """
    base = replace(sweep.searched, threads=1, mlp=replace(sweep.searched.mlp, device="auto")).to_json()
    mine = {
        "base": json.dumps(base, sort_keys=True),
        "folds": sweep.folds,
        "seeds": sweep.seeds,
        "fraction": sweep.fraction,
        "data": data,
    }
    study = optuna.create_study(
        storage=open_storage(sweep.storage),
        study_name=sweep.name,
        sampler=optuna.samplers.TPESampler(seed=sampler_seed, constant_liar=True),
        pruner=RunningMedianPruner(),
        direction="minimize",
        load_if_exists=True,
    )
    begun = study.user_attrs
    if different := [key for key, value in mine.items() if key in begun and begun[key] != value]:
        raise SweepError(
            f"study {sweep.name!r} was begun with another {', '.join(different)}; "
            "give what it was begun with, or another --study"
        )
    for key, value in {**mine, "members": sweep.base.mlp.members}.items():
        if key not in begun:
            study.set_user_attr(key, value)
    return study


def open_storage(url: str) -> optuna.storages.RDBStorage:
    """Open the database of studies; an SQLite file is made where there is none.

    Raises
    ------
    SweepError
        If it cannot be opened; the message has no password.
    MissingDependency
        If it needs a driver that is not installed.
    """
    shown = url
    try:
        parsed = sqlalchemy.engine.make_url(url)
        shown = parsed.render_as_string(hide_password=True)
        if parsed.drivername in ("postgresql", "postgres"):
            parsed = parsed.set(drivername="postgresql+psycopg")
        # A writer waits for the others instead of giving up; a server's idle connections may have been closed.
        options: dict[str, Any] = {"pool_pre_ping": True}
        if parsed.drivername.startswith("sqlite"):
            options["connect_args"] = {"timeout": 120}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            return optuna.storages.RDBStorage(
                parsed.render_as_string(hide_password=False),
                engine_kwargs=options,
                heartbeat_interval=HEARTBEAT,
                grace_period=GRACE,
            )
    except ImportError as error:
        raise MissingDependency(
            f"{shown} needs a database driver; for PostgreSQL: pip install 'cutlass-ranker[postgresql]'"
        ) from error
    except (sqlalchemy.exc.SQLAlchemyError, optuna.exceptions.OptunaError, ValueError) as error:
        reason = str(error).splitlines()[0]
        raise SweepError(f"cannot open the study database {shown}: {reason}") from error


@dataclass(frozen=True)
class Tally:
    """Where a study stands."""

    trials: Sequence[FrozenTrial]
    finished: int
    """Trials that count: complete, pruned, or failed for good. Lost ones that were queued again do not."""
    elsewhere: int
    """Running trials of other parents, or of the dead ones whose grace period is not over."""

    @classmethod
    def of(cls, study: Study, workers: Sequence[str]) -> Tally:
        """Count a study's trials; ``workers`` are the tags of this parent's workers."""
        trials = study.get_trials(deepcopy=False)
        retried = _retried(trials)
        finished = sum(trial.state in FINISHED and trial.number not in retried for trial in trials)
        running = [trial for trial in trials if trial.state == TrialState.RUNNING]
        return cls(trials, finished, sum(trial.user_attrs.get("worker") not in workers for trial in running))


def rescue(study: Study, dead: Sequence[str] = ()) -> None:
    """Mark trials failed whose worker is gone, and queue each lost trial again.

    Parameters
    ----------
    study
        The study.
    dead
        Tags of workers that are known to have died; of others the heartbeat decides.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        optuna.storages.fail_stale_trials(study)
    trials = study.get_trials(deepcopy=False)
    for trial in trials:
        if trial.state == TrialState.RUNNING and _gone(trial, dead):
            study.tell(trial.number, state=TrialState.FAIL, skip_if_finished=True)
    trials = study.get_trials(deepcopy=False)
    retried = _retried(trials)
    for trial in trials:
        attempt = trial.user_attrs.get("attempt", 1)
        lost = trial.state == TrialState.FAIL and "error" not in trial.user_attrs
        if lost and trial.number not in retried and attempt < ATTEMPTS:
            # Killed early, a trial may not have come to all the parameters that it was queued with.
            wanted = {**trial.system_attrs.get("fixed_params", {}), **trial.params}
            kept = {"retry_of": trial.number, "attempt": attempt + 1, "folds": trial.user_attrs.get("folds", [])}
            study.enqueue_trial(wanted, user_attrs=kept)


def _gone(trial: FrozenTrial, dead: Sequence[str]) -> bool:
    """Return whether a running trial's worker is known to be dead, or died before it could leave its name."""
    worker = trial.user_attrs.get("worker")
    if worker is not None:
        return worker in dead
    return trial.datetime_start is not None and (datetime.now() - trial.datetime_start).total_seconds() > GRACE


def _retried(trials: Sequence[FrozenTrial]) -> set[int]:
    """Return the numbers of lost trials that were queued again."""
    return {trial.user_attrs["retry_of"] for trial in trials if "retry_of" in trial.user_attrs}


def read_study(storage: str, name: str) -> StudyRecord:
    """Read what a study found so far.

    Raises
    ------
    SweepError
        If there is no such study, or it was not made here.
    """
    opened = open_storage(storage)
    try:
        study = optuna.load_study(study_name=name, storage=opened)
        about = study.user_attrs
        base = TrainingConfig.from_json(json.loads(about["base"]))
        base = replace(base, mlp=replace(base.mlp, members=about["members"]))
        folds, seeds, fraction, data = about["folds"], about["seeds"], about["fraction"], about["data"]
    except KeyError as error:
        known = ", ".join(optuna.get_all_study_names(opened)) or "none"
        raise SweepError(f"no study {name!r} of this package in the database; there are: {known}") from error
    trials = study.get_trials(deepcopy=False)
    retried = _retried(trials)
    records = tuple(
        _record(trial, about) for trial in trials if trial.state in FINISHED and trial.number not in retried
    )
    return StudyRecord(name, base, folds, seeds, fraction, data, records)


def confirmation_key(number: int, seed: int, fold: int) -> str:
    """Name of the study's attribute that holds how many folds a trial was confirmed with, and the regret on one."""
    return f"confirmed:{number}:{seed}:{fold}"


def _record(trial: FrozenTrial, about: dict[str, Any]) -> TrialRecord:
    """Turn a finished trial into its record."""
    confirmed: list[tuple[float, ...]] = []
    while seed := _confirmation(trial.number, len(confirmed), about):
        confirmed.append(seed)
    seconds = trial.duration.total_seconds() if trial.duration is not None else 0.0
    folds = tuple(trial.user_attrs.get("folds", ()))
    return TrialRecord(trial.number, trial.state.name.lower(), seconds, folds, dict(trial.params), tuple(confirmed))


def _confirmation(number: int, seed: int, about: dict[str, Any]) -> tuple[float, ...]:
    """Return the regret on each fold of a trial's confirmation with a seed; nothing if a fold is missing."""
    folds = about.get(confirmation_key(number, seed, 0), (0,))[0]
    parts = [about.get(confirmation_key(number, seed, fold), (0,)) for fold in range(folds)]
    return tuple(part[1] for part in parts) if all(part[0] == folds for part in parts) else ()
