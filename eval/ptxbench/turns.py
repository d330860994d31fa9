"""Evaluates the turns of trajectories that have a source and no trace yet."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from .evaluate import Evaluator, Options, load_solutions
from .gemm import load_definition, read_gemm
from .schema import write_json
from .score import TRACE_FILE, turn_folders, turn_source


def evaluate_turns(root: Path, definition: str, m: int, cache: Path, log: Callable[[str], None]) -> int:
    """Evaluate and write ``trace.json`` beside each source.

    Parameters
    ----------
    root
        ``[variant/]trajectory/turn_<i>/``.
    m
        Value of the free axis, if the definition has one.
    cache
        Folder of builds.

    Returns
    -------
    int
        Turns that were evaluated.
    """
    gemm = read_gemm(load_definition(definition))
    folders = [
        turn
        for parent in sorted({root, *(path for path in root.rglob("*") if path.is_dir())})
        for _, turn in sorted(turn_folders(parent).items())
    ]
    waiting = {}
    for folder in folders:
        source = turn_source(folder)
        if source is not None and not (folder / TRACE_FILE).is_file():
            (solution,) = load_solutions(source, gemm.definition.name)
            name = "-".join(folder.relative_to(root).parts)
            waiting[name] = folder, replace(solution, name=name)
    if not waiting:
        return 0
    evaluator = Evaluator(gemm, cache, Options(log=log))
    outcomes = evaluator.run([solution for _, solution in waiting.values()], dict.fromkeys(gemm.free_axes, m))
    for outcome in outcomes:
        write_json(waiting[outcome.solution.name][0] / TRACE_FILE, outcome.trace(evaluator.info).to_dict())
    return len(outcomes)
