"""What a sweep found, in a compact file that needs no database and no Optuna to read."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from .config import InvalidTraining, TrainingConfig
from .spaces import Recorded, suggest

FORMAT: Final = 1
"""Version of the file's layout."""
STATES: Final = ("complete", "pruned", "fail")
"""How a trial can end."""


@dataclass(frozen=True)
class TrialRecord:
    """One finished trial."""

    number: int
    state: str
    """One of ``STATES``."""
    seconds: float
    """How long it took, rounded to a tenth; 0 if it is unknown."""
    folds: tuple[float, ...]
    """Mean regret on each fold, as far as the trial came."""
    parameters: Mapping[str, Any]
    """Parameters of the space (:mod:`.spaces`)."""
    confirmed: tuple[tuple[float, ...], ...] = ()
    """Mean regret on each fold of the confirmation, for each seed; empty if it was not confirmed."""

    @property
    def value(self) -> float:
        """Score of a complete trial: the mean over its folds."""
        return sum(self.folds) / len(self.folds)

    @property
    def confirmed_value(self) -> float:
        """Mean over seeds and folds of the confirmation."""
        return sum(sum(seed) / len(seed) for seed in self.confirmed) / len(self.confirmed)


@dataclass(frozen=True)
class StudyRecord:
    """All finished trials of a study, and what they have in common."""

    name: str
    base: TrainingConfig
    """Family, and everything that was not searched."""
    folds: int
    seeds: int
    """Models trained on each fold of a trial."""
    fraction: float
    """Share of the training shapes that trials use; the confirmation uses all."""
    data: str
    """Fingerprint of the training data."""
    trials: tuple[TrialRecord, ...]

    def best(self) -> TrialRecord:
        """Return the trial with the lowest confirmed score, or if none was confirmed, with the lowest score.

        Only trials that were confirmed with the most seeds are compared.

        Raises
        ------
        InvalidTraining
            If no trial is complete.
        """
        complete = [trial for trial in self.trials if trial.state == "complete"]
        if not complete:
            raise InvalidTraining(f"study {self.name!r} has no complete trial yet")
        most = max(len(trial.confirmed) for trial in complete)
        if most:
            return min((t for t in complete if len(t.confirmed) == most), key=lambda t: (t.confirmed_value, t.number))
        return min(complete, key=lambda trial: (trial.value, trial.number))

    def top(self, count: int) -> list[TrialRecord]:
        """Return the complete trials with the lowest scores, best first."""
        complete = [trial for trial in self.trials if trial.state == "complete"]
        return sorted(complete, key=lambda trial: (trial.value, trial.number))[:count]

    def config(self, trial: TrialRecord) -> TrainingConfig:
        """Return the training configuration of a trial."""
        return suggest(Recorded(trial.parameters), self.base)

    def dump(self, path: str | Path) -> Path:
        """Write a JSON file with one line a trial; :func:`load_study` reads it."""
        head: dict[str, Any] = {"format": FORMAT, "name": self.name, "base": self.base.to_json()}
        head |= {"folds": self.folds, "seeds": self.seeds, "fraction": self.fraction, "data": self.data}
        lines = [json.dumps(_row(trial), separators=(",", ":"), allow_nan=False) for trial in self.trials]
        text = json.dumps(head, ensure_ascii=False, allow_nan=False)
        Path(path).write_text(f'{text[:-1]}, "trials": [\n' + ",\n".join(lines) + "\n]}\n", encoding="utf-8")
        return Path(path)


def load_study(path: str | Path) -> StudyRecord:
    """Read a file that :meth:`StudyRecord.dump` wrote.

    Raises
    ------
    InvalidTraining
        If it cannot be read or is damaged.
    """
    try:
        value = json.loads(Path(path).read_text(encoding="utf-8"))
        if value["format"] != FORMAT:
            raise InvalidTraining(f"{path} has format {value['format']!r}; this version reads format {FORMAT}")
        trials = tuple(_trial(row) for row in value["trials"])
        base = TrainingConfig.from_json(value["base"])
        folds, seeds, fraction = int(value["folds"]), int(value["seeds"]), float(value["fraction"])
        return StudyRecord(value["name"], base, folds, seeds, fraction, value["data"], trials)
    except InvalidTraining:
        raise
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InvalidTraining(f"{path} is not a readable record of a study: {error!r}") from error


def _row(trial: TrialRecord) -> list[Any]:
    """Turn a trial into a list; six digits of a regret are plenty."""
    folds = [round(value, 6) for value in trial.folds]
    row: list[Any] = [trial.number, trial.state, round(trial.seconds, 1), folds, dict(trial.parameters)]
    if trial.confirmed:
        row.append([[round(value, 6) for value in seed] for seed in trial.confirmed])
    return row


def _trial(row: list[Any]) -> TrialRecord:
    """Read a trial from its list."""
    number, state, seconds, folds, parameters, *rest = row
    if state not in STATES or len(rest) > 1:
        raise ValueError(f"trial {number} is damaged")
    confirmed = tuple(tuple(float(value) for value in seed) for seed in (rest[0] if rest else ()))
    return TrialRecord(int(number), state, float(seconds), tuple(map(float, folds)), dict(parameters), confirmed)
