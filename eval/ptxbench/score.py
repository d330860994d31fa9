"""Scores trajectories: how often turns are right, with the target instruction, and how fast the best ones are.

A *trajectory* is up to 8 turns of an agent at one task; each turn is a kernel. A *prompt variant* is a set of
trajectories that were started alike. Within the first k turns (k = 1, 4, 8):

* turn correctness: correct turns / turns taken;
* target-instruction correctness: turns that are correct and execute the target instruction / turns taken;
* best speed-up: the largest speed-up of any correct turn of any trajectory, 0 if none is correct; also over the turns
  *with* the target instruction alone, and over those *without* it (unknown counts as without);
* Fast_p: trajectories with a correct turn whose speed-up is above p / trajectories; Fast_0 is "correct at all";
* Fast_p^Inst: the same, counting only turns that execute the target instruction.

Every number is computed for each prompt variant; tables show the mean over variants with their minimum and maximum.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from ...generator import DataError, MissingDependency
from .sass import Used
from .schema import Status, Trace, read_json, read_traces, write_json
from .static import load_evidence

MOST_TURNS: Final = 8
BUDGETS: Final = (1, 4, 8)
THRESHOLDS: Final = (0.0, 0.25, 0.5, 0.75, 0.9, 0.95, 1.0)
TRACE_FILE: Final = "trace.json"
SOURCE_SUFFIXES: Final = (".cu", ".cpp", ".json")


@dataclass(frozen=True)
class Turn:
    """Outcome of one turn."""

    correct: bool
    instruction: Used
    speedup: float
    """Against cuBLAS; 0 unless the turn is correct."""

    @property
    def counts_for_instruction(self) -> bool:
        """True if it is correct and seen to execute the target instruction."""
        return self.correct and self.instruction is Used.YES


NO_TURN: Final = Turn(False, Used.UNKNOWN, 0.0)
"""A turn that left nothing to evaluate."""


@dataclass(frozen=True)
class Trajectory:
    """The turns of one attempt, in order."""

    name: str
    variant: str
    turns: tuple[Turn, ...]

    def __post_init__(self) -> None:
        if not 1 <= len(self.turns) <= MOST_TURNS:
            raise DataError(f"trajectory {self.name} has {len(self.turns)} turns; 1 to {MOST_TURNS} are scored")

    def best(self, budget: int, counts: Callable[[Turn], bool]) -> float | None:
        """Return the largest speed-up of the turns that count, within a budget of turns; None if none counts."""
        return max((turn.speedup for turn in self.turns[:budget] if counts(turn)), default=None)


def turn_of_trace(trace: Trace) -> Turn:
    """Return a turn's outcome from its trace; the instruction check is read from the evidence in the log."""
    evaluation = trace.evaluation
    if evaluation is None:
        return NO_TURN
    evidence = load_evidence(evaluation.log)
    used = evidence.get("gates", {}).get("instruction", {}).get("used", Used.UNKNOWN.value)
    correct = evaluation.status is Status.PASSED and evaluation.performance is not None
    speedup = evaluation.performance.speedup_factor if evaluation.performance is not None and correct else 0.0
    return Turn(correct, Used(used), speedup)


def read_trajectories(path: Path) -> list[Trajectory]:
    """Read trajectories.

    Parameters
    ----------
    path
        A JSON file with ``{"trajectories": [{"name", "variant", "turns": [{"correct", "instruction", "speedup"}]}]}``,
        or a folder: ``[variant/]trajectory/turn_<i>/trace.json``, or ``[variant/]trajectory.jsonl`` with one trace a
        line. A turn number that is left out, or a turn without a source, is a turn that failed.

    Raises
    ------
    DataError
        If there are none, or a turn has a source and no trace: it must be evaluated first.
    """
    if path.is_file() and path.suffix == ".json":
        found = _from_json(path)
    elif path.is_dir():
        found = _from_folder(path)
    else:
        raise DataError(f"{path} is neither a folder of trajectories nor a JSON file")
    if not found:
        raise DataError(f"{path} holds no trajectories")
    return found


def _from_json(path: Path) -> list[Trajectory]:
    try:
        return [
            Trajectory(
                str(item["name"]),
                str(item.get("variant", "default")),
                tuple(
                    Turn(
                        bool(turn["correct"]),
                        Used(turn.get("instruction", "unknown")),
                        float(turn.get("speedup") or 0.0) if turn["correct"] else 0.0,
                    )
                    for turn in item["turns"]
                ),
            )
            for item in read_json(path)["trajectories"]
        ]
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(f"{path}: no trajectories in the expected form ({error})") from error


def _from_folder(root: Path) -> list[Trajectory]:
    found = []
    for entry in sorted(root.iterdir()):
        if _is_trajectory(entry):
            found.append(_read_trajectory(entry, "default"))
        elif entry.is_dir():
            found += [_read_trajectory(item, entry.name) for item in sorted(entry.iterdir()) if _is_trajectory(item)]
    return found


def _is_trajectory(path: Path) -> bool:
    return path.suffix == ".jsonl" if path.is_file() else bool(turn_folders(path))


def turn_folders(path: Path) -> dict[int, Path]:
    """Return the folders of a trajectory's turns by the number that their names end with."""
    numbered = (
        (re.fullmatch(r"(?:turn|t)[_-]?(\d+)", entry.name), entry) for entry in path.iterdir() if entry.is_dir()
    )
    return {int(match[1]): entry for match, entry in numbered if match}


def _read_trajectory(path: Path, variant: str) -> Trajectory:
    if path.is_file():
        return Trajectory(path.stem, variant, tuple(turn_of_trace(trace) for trace in read_traces(path)))
    folders = turn_folders(path)
    first = min(min(folders), 1)
    turns = [_read_turn(folders[number]) if number in folders else NO_TURN for number in range(first, max(folders) + 1)]
    return Trajectory(path.name, variant, tuple(turns))


def _read_turn(folder: Path) -> Turn:
    trace = folder / TRACE_FILE
    if trace.is_file():
        return turn_of_trace(Trace.from_dict(read_json(trace)))
    if turn_source(folder) is not None:
        raise DataError(f"{folder} has a source and no {TRACE_FILE}; evaluate it first (score --evaluate)")
    return NO_TURN


def turn_source(folder: Path) -> Path | None:
    """Return the source, or solution, of a turn's folder; None if it left none.

    Raises
    ------
    DataError
        If there are several.
    """
    files = [file for file in sorted(folder.iterdir()) if file.suffix in SOURCE_SUFFIXES and file.name != TRACE_FILE]
    if len(files) > 1:
        raise DataError(f"{folder} holds {len(files)} sources; a turn is one kernel")
    return files[0] if files else None


@dataclass(frozen=True)
class Band:
    """A number over prompt variants."""

    mean: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Band:
        """Summarise one value a variant."""
        return cls(sum(values) / len(values), min(values), max(values))

    def to_dict(self) -> dict[str, float]:
        """Return plain values for JSON."""
        return {"mean": self.mean, "min": self.low, "max": self.high}


def turn_correctness(trajectories: Sequence[Trajectory], budget: int, instruction: bool = False) -> float:
    """Return the share of turns taken within the budget that are correct (and execute the target instruction)."""
    turns = [turn for trajectory in trajectories for turn in trajectory.turns[:budget]]
    return sum(turn.counts_for_instruction if instruction else turn.correct for turn in turns) / len(turns)


def best_speedup(trajectories: Sequence[Trajectory], budget: int, instruction: bool | None = None) -> float:
    """Return the largest speed-up of a correct turn within the budget; 0 if there is none.

    Parameters
    ----------
    instruction
        True for turns that execute the target instruction alone, False for the others alone, None for all.
    """

    def counts(turn: Turn) -> bool:
        return turn.correct and (instruction is None or instruction == turn.counts_for_instruction)

    return max((trajectory.best(budget, counts) or 0.0 for trajectory in trajectories), default=0.0)


def fast_p(trajectories: Sequence[Trajectory], budget: int, p: float, instruction: bool = False) -> float:
    """Return the share of trajectories with a correct turn within the budget whose speed-up is above ``p``."""

    def counts(turn: Turn) -> bool:
        return turn.counts_for_instruction if instruction else turn.correct

    best = [trajectory.best(budget, counts) for trajectory in trajectories]
    return sum(value is not None and (value > p or p == 0.0) for value in best) / len(best)


@dataclass(frozen=True)
class Scores:
    """All numbers, each over prompt variants."""

    variants: tuple[str, ...]
    trajectories: int
    turns: int
    correctness: dict[int, Band]
    instruction_correctness: dict[int, Band]
    best: dict[int, Band]
    best_with: dict[int, Band]
    best_without: dict[int, Band]
    fast: dict[int, dict[float, Band]]
    fast_instruction: dict[int, dict[float, Band]]

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""

        def plain(bands: dict[int, Band]) -> dict[str, Any]:
            return {str(budget): band.to_dict() for budget, band in bands.items()}

        def nested(bands: dict[int, dict[float, Band]]) -> dict[str, Any]:
            return {str(k): {f"{p:g}": band.to_dict() for p, band in inner.items()} for k, inner in bands.items()}

        return {
            "variants": list(self.variants),
            "trajectories": self.trajectories,
            "turns": self.turns,
            "turn_correctness": plain(self.correctness),
            "target_instruction_correctness": plain(self.instruction_correctness),
            "best_speedup": plain(self.best),
            "best_speedup_with_instruction": plain(self.best_with),
            "best_speedup_without_instruction": plain(self.best_without),
            "fast_p": nested(self.fast),
            "fast_p_inst": nested(self.fast_instruction),
        }

    def markdown(self) -> str:
        """Return the tables."""
        heads = [f"≤ {budget} turn{'s' if budget > 1 else ''}" for budget in self.correctness]
        rule = "|---" * (len(heads) + 1) + "|"

        def row(name: str, bands: Iterable[Band], percent: bool) -> str:
            cells = [_band_text(band, percent) for band in bands]
            return f"| {name} | " + " | ".join(cells) + " |"

        lines = [
            f"{self.trajectories} trajectories, {self.turns} turns, {len(self.variants)} prompt variants. Mean over "
            "variants, with minimum and maximum in brackets.",
            "",
            "| | " + " | ".join(heads) + " |",
            rule,
            row("turn correctness", self.correctness.values(), True),
            row("target-instruction correctness", self.instruction_correctness.values(), True),
            row("best speed-up over cuBLAS", self.best.values(), False),
            row("best speed-up with the target instruction", self.best_with.values(), False),
            row("best speed-up without the target instruction", self.best_without.values(), False),
        ]
        for title, table in (("Fast_p", self.fast), ("Fast_p^Inst", self.fast_instruction)):
            thresholds = list(next(iter(table.values())))
            lines += ["", f"| {title} | " + " | ".join(heads) + " |", rule]
            lines += [row(f"p = {p:g}", [table[k][p] for k in table], True) for p in thresholds]
        return "\n".join(lines) + "\n"


def _band_text(band: Band, percent: bool) -> str:
    def text(value: float) -> str:
        return f"{value:.1%}" if percent else f"{value:.3f}×"

    return f"{text(band.mean)} ({text(band.low)}–{text(band.high)})"


def score(
    trajectories: Sequence[Trajectory], budgets: Sequence[int] = BUDGETS, thresholds: Sequence[float] = THRESHOLDS
) -> Scores:
    """Score trajectories.

    Raises
    ------
    DataError
        If there are none.
    """
    if not trajectories:
        raise DataError("there are no trajectories to score")
    groups: dict[str, list[Trajectory]] = {}
    for trajectory in trajectories:
        groups.setdefault(trajectory.variant, []).append(trajectory)

    def band(measure: Callable[..., float], *arguments: object) -> Band:
        return Band.of([measure(members, *arguments) for members in groups.values()])

    return Scores(
        variants=tuple(groups),
        trajectories=len(trajectories),
        turns=sum(len(trajectory.turns) for trajectory in trajectories),
        correctness={k: band(turn_correctness, k) for k in budgets},
        instruction_correctness={k: band(turn_correctness, k, True) for k in budgets},
        best={k: band(best_speedup, k) for k in budgets},
        best_with={k: band(best_speedup, k, True) for k in budgets},
        best_without={k: band(best_speedup, k, False) for k in budgets},
        fast={k: {p: band(fast_p, k, p) for p in thresholds} for k in budgets},
        fast_instruction={k: {p: band(fast_p, k, p, True) for p in thresholds} for k in budgets},
    )


def write_scores(folder: Path, trajectories: Sequence[Trajectory]) -> Scores:
    """Score and write ``scores.json``, ``scores.md`` and, where matplotlib is installed, ``plots/*.png``."""
    scores = score(trajectories)
    write_json(folder / "scores.json", scores.to_dict())
    (folder / "scores.md").write_text(scores.markdown(), encoding="utf-8")
    (folder / "turns.json").write_text(json.dumps(_turn_rows(trajectories), indent=1) + "\n", encoding="utf-8")
    plot_scores(folder / "plots", trajectories)
    return scores


def _turn_rows(trajectories: Sequence[Trajectory]) -> list[dict[str, Any]]:
    return [
        {
            "variant": trajectory.variant, "trajectory": trajectory.name, "turn": number,
            "correct": turn.correct, "instruction": turn.instruction.value, "speedup": turn.speedup,
        }
        for trajectory in trajectories
        for number, turn in enumerate(trajectory.turns, start=1)
    ]  # fmt: skip


def plot_scores(folder: Path, trajectories: Sequence[Trajectory]) -> None:
    """Plot Fast_p against p, and correctness and best speed-up against turns, means with min–max bands.

    Raises
    ------
    MissingDependency
        If matplotlib is missing.
    """
    try:
        import matplotlib as mpl
    except ImportError as error:
        raise MissingDependency("plots need matplotlib; pip install 'cutlass-ranker[report]'") from error
    mpl.use("Agg")
    import matplotlib.pyplot as plt

    folder.mkdir(parents=True, exist_ok=True)
    grid = [step / 50 for step in range(61)]
    turns = list(range(1, MOST_TURNS + 1))
    fine = score(trajectories, turns, grid)

    def band(axes: Any, x: Sequence[float], bands: Sequence[Band], label: str) -> None:
        (line,) = axes.plot(x, [item.mean for item in bands], label=label)
        axes.fill_between(
            x,
            [item.low for item in bands],
            [item.high for item in bands],
            alpha=0.2,
            color=line.get_color(),
            linewidth=0,
        )

    def save(name: str, axes: Any, figure: Any, xlabel: str, ylabel: str) -> None:
        axes.set_xlabel(xlabel)
        axes.set_ylabel(ylabel)
        axes.set_ylim(bottom=0)
        axes.grid(alpha=0.3)
        axes.legend()
        figure.tight_layout()
        figure.savefig(folder / name, dpi=150)
        plt.close(figure)

    for name, table, title in (
        ("fast_p.png", fine.fast, "Fast_p"),
        ("fast_p_inst.png", fine.fast_instruction, "Fast_p^Inst"),
    ):
        figure, axes = plt.subplots(figsize=(6, 4))
        for budget in BUDGETS:
            band(axes, grid, [table[budget][p] for p in grid], f"≤ {budget} turns")
        save(name, axes, figure, "speed-up threshold p", f"{title} (share of trajectories)")
    figure, axes = plt.subplots(figsize=(6, 4))
    for label, bands in (
        ("correct", fine.correctness),
        ("correct with target instruction", fine.instruction_correctness),
    ):
        band(axes, turns, [bands[turn] for turn in turns], label)
    save("correctness.png", axes, figure, "turns", "share of turns")
    figure, axes = plt.subplots(figsize=(6, 4))
    for label, bands in (("any correct turn", fine.best), ("with target instruction", fine.best_with)):
        band(axes, turns, [bands[turn] for turn in turns], label)
    axes.axhline(1.0, color="grey", linewidth=0.8, linestyle="--")
    save("best_speedup.png", axes, figure, "turns", "best speed-up over cuBLAS")
