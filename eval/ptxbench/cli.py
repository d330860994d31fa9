"""``cutlass-ranker ptxbench seed | build | evaluate | suite | collect | score | feedback``."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(
    help="PTXBench's GEMM: seed packs from the selector, a checker for kernels, scores of trajectories.",
    no_args_is_help=True,
)

Size = Annotated[int, typer.Option("--m", help="M, if the definition leaves it free, in elements.")]
DefinitionOption = Annotated[
    str, typer.Option("--definition", help="A definition's JSON file, or a name such as gemm_n7168_k5120.")
]
Cache = Annotated[
    Path | None, typer.Option(help="Folder of builds, kept between runs; OUT/builds unless given.", show_default=False)
]
Jobs = Annotated[
    int | None, typer.Option(help="Compilers at once; half of the cores unless given.", show_default=False)
]
Seed = Annotated[
    int | None, typer.Option(help="Seed of the hidden inputs; drawn anew unless given.", show_default=False)
]


@app.command()
def seed(
    definition: Annotated[str, typer.Argument(metavar="DEFINITION", help="JSON file or name of a dense GEMM.")],
    out: Annotated[Path, typer.Option(help="Folder for the seed pack.")],
    m: Size = 8192,
    top: Annotated[int, typer.Option(help="Seeds of the pack.")] = 8,
    retrieve: Annotated[int, typer.Option(help="How many of them are the best of the nearest measured problems.")] = 2,
    neighbours: Annotated[int, typer.Option(help="Nearest measured problems to look at.")] = 4,
    hardware: Annotated[str, typer.Option(help="GPU: h200, h100_sxm, h100_pcie, gh200 or h20.")] = "h200",
    model: Annotated[str, typer.Option(help="Name of a shipped ranker, or the folder of a saved one.")] = "default",
) -> None:
    """Write the selector's candidates as CUDA sources with their rationale. Needs no GPU."""
    from .gemm import load_definition, read_gemm
    from .seeds import make_seeds, write_pack

    gemm = read_gemm(load_definition(definition))
    values = _values(gemm.free_axes, m)
    seeds, measured = make_seeds(
        gemm, values, top, retrieve=retrieve, neighbours=neighbours, hardware=hardware, model=model
    )
    typer.echo(f"{write_pack(out, gemm, values, seeds, measured)}: {len(seeds)} seeds")


@app.command()
def build(
    solutions: Annotated[Path, typer.Argument(metavar="SOLUTIONS", help="Trace set, folder of sources, or one file.")],
    cache: Annotated[Path, typer.Option(help="Folder of builds.")],
    definition: DefinitionOption = "gemm_n7168_k5120",
    jobs: Jobs = None,
) -> None:
    """Run gate 1 alone (nvcc, no GPU) and keep the builds, and the checker's program, for a later evaluation."""
    from .evaluate import load_solutions
    from .gemm import load_definition, read_gemm
    from .harness_process import build_harness
    from .static import Builder, describe

    gemm = read_gemm(load_definition(definition))
    build_harness(cache)
    candidates = load_solutions(solutions, gemm.definition.name)
    for solution, made in zip(candidates, Builder(cache, _jobs(jobs)).build_all(candidates), strict=True):
        typer.echo(f"{solution.name}: {describe(made)} ({made.seconds:.1f} s)")


@app.command()
def evaluate(
    solutions: Annotated[Path, typer.Argument(metavar="SOLUTIONS", help="Trace set, folder of sources, or one file.")],
    out: Annotated[Path, typer.Option(help="Folder for traces and evidence.")],
    definition: DefinitionOption = "gemm_n7168_k5120",
    m: Size = 8192,
    cache: Cache = None,
    jobs: Jobs = None,
    hidden_seed: Seed = None,
) -> None:
    """Run candidates through the four gates on the first visible GPU, and write traces."""
    from .evaluate import Evaluator, Options, load_solutions, outcome_table, write_evidence, write_outcomes
    from .gemm import load_definition, read_gemm

    gemm = read_gemm(load_definition(definition))
    options = Options(jobs=_jobs(jobs), seed=hidden_seed, log=typer.echo, finished=partial(write_evidence, out))
    evaluator = Evaluator(gemm, cache or out / "builds", options)
    outcomes = evaluator.run(load_solutions(solutions, gemm.definition.name), _values(gemm.free_axes, m))
    write_outcomes(out, gemm, outcomes, evaluator.info)
    table = outcome_table(outcomes)
    (out / "outcomes.md").write_text(table + "\n", encoding="utf-8")
    typer.echo(table)


@app.command()
def suite(
    kernels: Annotated[Path, typer.Argument(metavar="DIR", help="Sources whose first line says '// expect: GATE'.")],
    out: Annotated[Path, typer.Option(help="Folder for traces and evidence.")],
    definition: DefinitionOption = "gemm_n7168_k5120",
    m: Size = 512,
    cache: Cache = None,
    jobs: Jobs = None,
    only: Annotated[list[str] | None, typer.Option(help="Kernels to run; may be repeated. All unless given.")] = None,
) -> None:
    """Check the checker: every kernel must be refused by the gate that it names. Exit status 1 if one is not."""
    from .evaluate import Evaluator, Options, write_evidence, write_outcomes
    from .gemm import load_definition, read_gemm
    from .suite import run_suite, suite_table

    gemm = read_gemm(load_definition(definition))
    options = Options(jobs=_jobs(jobs), log=typer.echo, finished=partial(write_evidence, out))
    evaluator = Evaluator(gemm, cache or out / "builds", options)
    results = run_suite(kernels, gemm, _values(gemm.free_axes, m), evaluator, only or ())
    write_outcomes(out, gemm, [result.outcome for result in results], evaluator.info)
    table = suite_table([result.row for result in results])
    (out / "suite.md").write_text(table + "\n", encoding="utf-8")
    typer.echo(table)
    if not all(result.met for result in results):
        raise typer.Exit(1)


@app.command()
def collect(
    folders: Annotated[
        list[Path], typer.Argument(metavar="OUT...", help="Folders that 'evaluate' and 'suite' wrote to.")
    ],
    into: Annotated[Path, typer.Option(help="Folder for baseline/ and suite/; what they held is replaced.")],
) -> None:
    """Gather evaluated candidates and a suite's traces in one place, for the report."""
    from .collect import collect as gather

    for kind, count in gather(folders, into).items():
        typer.echo(f"{into / kind}: {count} traces")


@app.command()
def score(
    trajectories: Annotated[
        Path, typer.Argument(metavar="TRAJECTORIES", help="Folder of trajectories, or a JSON file.")
    ],
    out: Annotated[Path, typer.Option(help="Folder for scores.md, scores.json and plots/.")],
    run: Annotated[
        bool, typer.Option("--evaluate", help="First evaluate turns that have a source and no trace.")
    ] = False,
    definition: DefinitionOption = "gemm_n7168_k5120",
    m: Size = 8192,
) -> None:
    """Score trajectories of up to 8 turns: correctness, target instruction, best speed-up, Fast_p and Fast_p^Inst."""
    from .score import read_trajectories, write_scores

    if run:
        from .turns import evaluate_turns

        evaluate_turns(trajectories, definition, m, out / "builds", typer.echo)
    typer.echo(write_scores(out, read_trajectories(trajectories)).markdown())


@app.command()
def feedback(
    trace: Annotated[Path, typer.Argument(metavar="TRACE", help="Evidence (JSON), a trace (JSON), or traces (JSONL).")],
    solution: Annotated[str | None, typer.Option(help="Which solution of a JSONL file; the last unless given.")] = None,
) -> None:
    """Print what an agent gets after a turn, as JSON."""
    from ...generator import DataError
    from .feedback import feedback as make
    from .feedback import feedback_of_trace
    from .schema import Trace, read_json, read_traces

    if trace.suffix == ".jsonl":
        found = [item for item in read_traces(trace) if solution is None or item.solution == solution]
        if not found:
            raise DataError(f"{trace} holds no trace of {solution}")
        told = feedback_of_trace(found[-1])
    else:
        values = read_json(trace)
        told = make(values) if "gates" in values else feedback_of_trace(Trace.from_dict(values))
    typer.echo(json.dumps(told, indent=2, ensure_ascii=False))


def _values(free: tuple[str, ...], m: int) -> dict[str, int]:
    """Give the free axis of a definition its value."""
    from ...generator import DataError

    if len(free) > 1:
        raise DataError(f"the definition leaves {', '.join(free)} free; one free axis is evaluated")
    return dict.fromkeys(free, m)


def _jobs(given: int | None) -> int:
    import os

    return given or max(1, (os.cpu_count() or 2) // 2)
