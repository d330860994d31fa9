"""What a person sees of a running sweep: a progress bar, and a line for each finished trial."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING

from optuna.trial import TrialState
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from .tuning import FINISHED

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial

    from .tuning import Tally


class SweepProgress:
    """Shows tallies of a study; a context in which the bar is live.

    Parameters
    ----------
    trials
        Trials to reach.
    console
        Where to print; standard error unless given.
    """

    def __init__(self, trials: int, console: Console | None = None) -> None:
        self.console = console or Console(stderr=True)
        self.bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=self.console,
            disable=not self.console.is_terminal,
        )
        self.task = self.bar.add_task("starting", total=trials)
        self._seen: set[int] | None = None

    def __enter__(self) -> SweepProgress:
        self.bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.bar.stop()

    def show(self, tally: Tally) -> None:
        """Print what has finished since the last call, and move the bar; what earlier runs did is not printed."""
        finished = [trial for trial in tally.trials if trial.state in FINISHED]
        numbers = {trial.number for trial in finished}
        new = numbers - (numbers if self._seen is None else self._seen)
        for trial in finished:
            if trial.number in new:
                self.console.print(line_of(trial), highlight=False, markup=False, soft_wrap=True)
        self._seen = numbers
        self.bar.update(self.task, completed=tally.finished, description=state_of(tally))


def line_of(trial: FrozenTrial) -> str:
    """Describe a finished trial in one line."""
    seconds = trial.duration.total_seconds() if trial.duration is not None else 0.0
    if trial.state == TrialState.COMPLETE:
        what = f"mean regret {trial.value:.4f}"
    elif trial.state == TrialState.PRUNED:
        step = trial.last_step or 0
        what = f"pruned at {trial.intermediate_values[step]:.4f} after fold {step + 1}"
    else:
        what = f"failed: {trial.user_attrs.get('error', 'its worker ended')}"
    return f"trial {trial.number}: {what}, {seconds:.0f} s"


def state_of(tally: Tally) -> str:
    """Count trials by state, with the best score."""
    count = {state: sum(trial.state == state for trial in tally.trials) for state in FINISHED}
    values = [trial.value for trial in tally.trials if trial.state == TrialState.COMPLETE and trial.value is not None]
    best = f"best {min(values):.4f}" if values else "none complete"
    return f"{best}; {count[TrialState.PRUNED]} pruned, {count[TrialState.FAIL]} failed"
