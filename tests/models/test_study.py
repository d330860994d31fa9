"""The compact record of a study."""

from pathlib import Path

import pytest

from cutlass_ranker.models import InvalidTraining, TrainingConfig
from cutlass_ranker.models.study import StudyRecord, TrialRecord, load_study

PARAMETERS = {
    "loss": "mse", "learning_rate": 0.0123456789012, "max_depth": 5, "min_child_weight": 2.0, "subsample": 0.9,
    "colsample_bytree": 0.6, "reg_lambda": 1.0, "reg_alpha": 0.1, "gamma": 0.0, "rounds": 400,
}  # fmt: skip


def record(*trials: TrialRecord) -> StudyRecord:
    base = TrainingConfig(kind="xgboost", folds=4, threads=1)
    return StudyRecord("made", base, 2, 1, 0.25, "3 groups", trials)


def trial(number: int, *folds: float, state: str = "complete", confirmed: tuple = ()) -> TrialRecord:
    return TrialRecord(number, state, 1.5, folds, PARAMETERS, confirmed)


def test_round_trip(tmp_path: Path) -> None:
    study = record(
        trial(0, 0.25, 0.125, confirmed=((0.5, 0.25), (0.75, 0.5))),
        trial(1, 0.5, state="pruned"),
        TrialRecord(3, "fail", 0.0, (), {}),
    )
    path = study.dump(tmp_path / "study.json")
    loaded = load_study(path)
    assert loaded == study
    assert len(path.read_text().splitlines()) == 1 + 3 + 1
    assert loaded.config(loaded.trials[0]).xgboost.learning_rate == 0.0123456789012


def test_best_is_the_lowest_mean_over_folds() -> None:
    study = record(trial(0, 0.5, 0.25), trial(1, 0.125, 0.25), trial(2, 0.0, state="pruned"), trial(3, 0.1875, 0.1875))
    assert study.best().number == 1
    assert [item.number for item in study.top(2)] == [1, 3]
    with pytest.raises(InvalidTraining, match="no complete trial"):
        record(trial(0, 0.0, state="pruned")).best()


def test_confirmation_decides_where_there_is_one() -> None:
    study = record(
        trial(0, 0.125, 0.125, confirmed=((0.4, 0.2), (0.2, 0.2))),
        trial(1, 0.2, 0.2, confirmed=((0.2, 0.2), (0.3, 0.1))),
        trial(2, 0.3, 0.3, confirmed=((0.0, 0.0),)),
        trial(3, 0.0, 0.0),
    )
    assert study.trials[0].confirmed_value == pytest.approx(0.25)
    assert study.trials[1].confirmed_value == pytest.approx(0.20)
    assert study.best().number == 1


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "not a readable record"),
        ('{"format": 2}', "format 2; this version reads format 1"),
        ('{"format": 1, "trials": []}', "not a readable record"),
        ('{"format": 1, "trials": [[0, "lost", 1.0, [], {}]]}', "trial 0 is damaged"),
    ],
)
def test_damage_is_named(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "study.json"
    path.write_text(text)
    with pytest.raises(InvalidTraining, match=words):
        load_study(path)
    with pytest.raises(InvalidTraining, match="missing"):
        load_study(tmp_path / "missing.json")
