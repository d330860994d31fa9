"""Seed packs: the selector's candidates as solutions that an agent can start from, each with its rationale."""

from __future__ import annotations

import math
from collections.abc import Sequence, Set
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from ...datasets import Group, Tables, groups, load
from ...features import Hardware, get_hardware
from ...generator import (
    Candidate,
    DataError,
    Problem,
    emit_source,
    swap_family,
)
from ...generator import columns as col
from ...selector import rank_kernels
from ...selector.display import launch_text
from .gemm import Gemm
from .rationale import Rationale, explain
from .schema import Solution, Source, TraceSet, write_json

AUTHOR: Final = "cutlass-ranker"

ENTRY: Final = """
// What the checker calls: C = A * B on device pointers, asynchronous on `stream`. Arguments follow the definition.
extern "C" __attribute__((visibility("default"))) void run(void const* a, void const* b, void* c, int m, int n, int k,
                                                           cudaStream_t stream) {
  static void *workspace = nullptr, *flags = nullptr;
  static size_t workspace_bytes = 0, flag_bytes = 0;
  auto const reserve = [stream](void*& memory, size_t& bytes, size_t needed) {
    if (needed <= bytes) return;
    if (memory != nullptr) cudaFree(memory);
    bytes = cudaMalloc(&memory, needed) == cudaSuccess ? needed : 0;
    cudaMemsetAsync(memory, 0, bytes, stream);
  };
  reserve(workspace, workspace_bytes, gemm_workspace_size(m, n, k));
  reserve(flags, flag_bytes, gemm_flag_bytes(m, n, k));
  gemm(m, n, k, static_cast<Element const*>(a), static_cast<Element const*>(b), static_cast<Element*>(c), workspace,
       workspace_bytes, stream, static_cast<uint32_t*>(flags));
}
"""


@dataclass(frozen=True)
class Seed:
    """One candidate as a solution."""

    candidate: Candidate
    solution: Solution
    rationale: Rationale
    origin: str
    """``selector`` or ``retrieved``."""
    relative_speed: float
    """The selector's expectation, of 1; NaN for a retrieved one."""
    measured: tuple[dict[str, Any], ...]
    """How the same kernel and launch did on the nearest measured problems, nearest first."""


@dataclass(frozen=True)
class Neighbour:
    """A measured problem near the one in question."""

    group: Group
    distance: float
    """Euclidean distance of (log2 M, log2 N, log2 K)."""
    cublaslt_us: float
    """cuBLASLt's first answer; NaN if not measured."""

    def best(self, count: int) -> list[tuple[Candidate, float]]:
        """Return its fastest candidates with their times in microseconds, one a kernel and swap."""
        rows: list[int] = []
        seen: set[tuple[int, bool]] = set()
        for row in np.argsort(self.group.time_us, kind="stable").tolist():
            key = int(self.group.kernel_id[row]), bool(self.group.columns["swapped"][row])
            if not self.group.coarse[row] and key not in seen:
                seen.add(key)
                rows.append(row)
            if len(rows) == count:
                break
        dtype = self.group.problem.dtype
        return [(col.candidate_at(self.group.columns, row, dtype), float(self.group.time_us[row])) for row in rows]

    def time_of(self, candidate: Candidate) -> float | None:
        """Return the fastest time of a candidate's kernel and swap with any launch, in microseconds."""
        wanted = col.from_candidates([candidate])
        names = (*col.CONFIG_COLUMNS, "swapped")
        same = np.logical_and.reduce([self.group.columns[name] == wanted[name][0] for name in names])
        same &= ~self.group.coarse
        return float(self.group.time_us[same].min()) if same.any() else None


def nearest_problems(problem: Problem, tables: Tables, count: int) -> list[Neighbour]:
    """Return the nearest measured problems of the same layout and type, by distance of the logarithms of their sizes.

    A problem whose D is column-major is compared as its transposed one, as it was measured. Times in server mode, of
    calls that find the GPU idle as PTXBench's do, count where there are such.
    """
    asked = problem.transposed() if problem.layout[2] == "N" else problem
    rows = tables.problems
    rows = rows[(rows["layout"] == asked.layout) & (rows["dtype"] == asked.dtype.name)]
    sizes = rows[["M", "N", "K"]].to_numpy(dtype=np.float64)
    distances = np.sqrt(np.square(np.log2(sizes / np.array([asked.m, asked.n, asked.k]))).sum(axis=1))
    # A few more than asked for, in case one has no timed candidate.
    order = np.argsort(distances, kind="stable")[: 2 * count]
    chosen = rows.iloc[order]
    ids = chosen["problem_id"]
    subset = replace(
        tables,
        problems=chosen,
        measurements=tables.measurements[tables.measurements["problem_id"].isin(ids)],
    )
    campaigns = tables.campaigns
    idle = campaigns[(campaigns["mode"] == "server") & (campaigns["operands"] == "cold")]
    measured = _measured(subset) | _measured(replace(subset, campaigns=idle.assign(purpose="main")))
    found = [
        Neighbour(measured[problem_id][0], float(distance), measured[problem_id][1])
        for problem_id, distance in zip(ids.tolist(), distances[order].tolist(), strict=True)
        if problem_id in measured
    ]
    return found[:count]


def _measured(tables: Tables) -> dict[int, tuple[Group, float]]:
    """Return each problem's group and cuBLASLt's first answer, µs or NaN, as the main campaigns measured them."""
    main = tables.campaigns.loc[tables.campaigns["purpose"] == "main", "campaign_id"]
    first = tables.baselines[tables.baselines["method"] == "cublaslt_first"]
    first = first[first["campaign_id"].isin(main)].sort_values("campaign_id")
    baseline = first.groupby("problem_id")["time_us"].last()  # the newest campaign counts
    return {group.problem_id: (group, float(baseline.get(group.problem_id, math.nan))) for group in groups(tables)}


def seed_source(candidate: Candidate, problem: Problem) -> str:
    """Return the CUDA source of a candidate with the entry function that the checker calls."""
    return "#define CUTLASS_RANKER_NO_MAIN\n" + emit_source(candidate, problem) + ENTRY


def make_seeds(
    gemm: Gemm,
    values: dict[str, int],
    top: int = 8,
    *,
    retrieve: int = 2,
    neighbours: int = 4,
    hardware: str | Hardware = "h200",
    model: str | Path = "default",
    tables: Tables | None = None,
) -> tuple[list[Seed], list[Neighbour]]:
    """Choose seeds for a definition.

    Parameters
    ----------
    gemm
        The definition.
    values
        Values of its free axes.
    top
        Seeds of the pack.
    retrieve
        How many of them are the fastest of the nearest measured problems, with their launch, that the selector's are
        not; where there are fewer, the selector names more.
    neighbours
        Measured problems to look at.
    tables
        Measurements; those shipped with the package unless given.

    Raises
    ------
    UnsupportedProblem
        If no kernel of this project takes the problem.
    DataError
        If ``retrieve`` or ``neighbours`` is negative, nothing is asked for, or ``retrieve`` is more than ``top``.
    """
    if min(retrieve, neighbours) < 0 or top < max(retrieve, 1):
        raise DataError("a seed pack needs at least one seed; retrieve counts from 0 to top, neighbours from 0")
    problem, gpu = gemm.problem(values), get_hardware(hardware)
    measured: list[Neighbour] = []
    if neighbours:
        wanted = ("problems", "kernels", "measurements", "baselines", "campaigns")
        measured = nearest_problems(problem, load(wanted) if tables is None else tables, neighbours)
    choices = rank_kernels(
        problem.m, problem.n, problem.k, top,
        layout=problem.layout, dtype=problem.dtype.name, hardware=gpu, model=model,
    )  # fmt: skip
    first = {choice.candidate for choice in choices[: top - retrieve]}
    retrieved = _retrieve(measured, problem, first, retrieve)
    named = [choice for choice in choices if choice.candidate not in retrieved][: top - len(retrieved)]
    picked = [(choice.candidate, "selector", choice.relative_speed) for choice in named]
    picked += [(candidate, "retrieved", math.nan) for candidate in retrieved]
    return [
        _seed(gemm, problem, gpu, number, candidate, origin, speed, measured)
        for number, (candidate, origin, speed) in enumerate(picked, start=1)
    ], measured


def _retrieve(measured: Sequence[Neighbour], problem: Problem, known: Set[Candidate], count: int) -> list[Candidate]:
    """Return the fastest candidates of the nearest problems, with their launches, that are not known."""
    found: list[Candidate] = []
    for neighbour in measured:
        for candidate, _ in neighbour.best(4):
            turned = replace(candidate, swapped=candidate.swapped != (problem.layout[2] == "N"))
            family = swap_family(problem.layout) if turned.swapped else problem.layout
            if turned not in known and turned not in found and turned.config.family == family:
                found.append(turned)
    return found[:count]


def _seed(
    gemm: Gemm, problem: Problem, gpu: Hardware, number: int, candidate: Candidate, origin: str, speed: float,
    measured: Sequence[Neighbour],
) -> Seed:  # fmt: skip
    rationale = explain(candidate, problem, gpu)
    sizes = "_".join(
        f"{axis.lower()}{size}" for axis, size in zip(gemm.axes, (problem.m, problem.n, problem.k), strict=True)
    )
    solution = Solution(
        name=f"seed_{sizes}_{number:02d}_{origin}",
        definition=gemm.definition.name,
        author=AUTHOR,
        language="cuda",
        target_hardware=(gpu.name.upper(),),
        entry_point="kernel.cu::run",
        sources=(Source("kernel.cu", seed_source(candidate, problem)),),
        dependencies=("cutlass",),
        description=f"{candidate.config.name}; {launch_text(candidate.launch)}; {problem}",
    )
    flip = problem.layout[2] == "N"
    seen = []
    for neighbour in measured:
        time = neighbour.time_of(replace(candidate, swapped=candidate.swapped != flip))
        if time is not None:
            seen.append(
                {"problem": _name(neighbour), "time_us": time, "relative_speed": neighbour.group.oracle_us / time}
            )
    return Seed(candidate, solution, rationale, origin, speed, tuple(seen))


def _name(neighbour: Neighbour) -> str:
    p = neighbour.group.problem
    return f"{p.m}x{p.n}x{p.k}"


def write_pack(
    folder: Path, gemm: Gemm, values: dict[str, int], seeds: Sequence[Seed], measured: Sequence[Neighbour]
) -> Path:
    """Write a seed pack: a trace set (definition, workload, solutions), ``seeds/``, ``pack.json`` and ``PACK.md``.

    Returns
    -------
    Path
        ``PACK.md``.
    """
    problem = gemm.problem(values)
    traces = TraceSet(folder)
    traces.add_definition(gemm.definition)
    workload = gemm.workload_trace(values)
    if workload not in traces.workloads():
        traces.add_traces(gemm.definition, [workload])
    for seed in seeds:
        traces.add_solution(gemm.definition, seed.solution)
        place = folder / "seeds" / seed.solution.name
        place.mkdir(parents=True, exist_ok=True)
        (place / "kernel.cu").write_text(seed.solution.sources[0].content, encoding="utf-8")
        (place / "RATIONALE.md").write_text(_seed_text(seed), encoding="utf-8")
    pack = {
        "definition": gemm.definition.name,
        "workload": workload.workload.to_dict(),
        "problem": str(problem),
        "seeds": [_seed_dict(seed) for seed in seeds],
        "nearest": [_neighbour_dict(neighbour) for neighbour in measured],
    }
    write_json(folder / "pack.json", pack)
    text = folder / "PACK.md"
    text.write_text(_pack_text(gemm, problem, seeds, measured), encoding="utf-8")
    return text


def _seed_dict(seed: Seed) -> dict[str, Any]:
    launch = seed.candidate.launch
    return {
        "solution": seed.solution.name,
        "origin": seed.origin,
        "kernel": seed.candidate.config.name,
        "swapped": seed.candidate.swapped,
        "launch": {
            "raster": launch.raster.name.lower(),
            "swizzle": launch.swizzle,
            "decomposition": launch.decomposition.name.lower(),
            "splits": launch.splits,
        },
        "relative_speed": None if math.isnan(seed.relative_speed) else round(seed.relative_speed, 4),
        "rationale": seed.rationale.to_dict(),
        "measured_nearby": list(seed.measured),
    }


def _neighbour_dict(neighbour: Neighbour) -> dict[str, Any]:
    return {
        "problem": _name(neighbour),
        "distance": round(neighbour.distance, 4),
        "cublaslt_us": None if math.isnan(neighbour.cublaslt_us) else neighbour.cublaslt_us,
        "best": [
            {
                "kernel": candidate.config.name,
                "launch": launch_text(candidate.launch),
                "swapped": candidate.swapped,
                "time_us": time,
            }
            for candidate, time in neighbour.best(4)
        ],
    }


def _seed_text(seed: Seed) -> str:
    config = seed.candidate.config
    expected = "" if math.isnan(seed.relative_speed) else f" Expected speed: {seed.relative_speed:.1%} of the best."
    lines = [
        f"### {seed.solution.name}",
        "",
        f"`{config.name}`, launch: {launch_text(seed.candidate.launch)}"
        + (", operands swapped" if seed.candidate.swapped else "")
        + f". From the {'selector' if seed.origin == 'selector' else 'nearest measured problems'}.{expected}",
        "",
        *seed.rationale.lines(),
    ]
    if seed.measured:
        nearby = ", ".join(f"{item['relative_speed']:.0%} on {item['problem']}" for item in seed.measured)
        lines.append(f"- **measured nearby** (speed relative to the fastest there): {nearby}.")
    return "\n".join(lines) + "\n"


def _pack_text(gemm: Gemm, problem: Problem, seeds: Sequence[Seed], measured: Sequence[Neighbour]) -> str:
    lines = [
        f"# Seeds for {gemm.definition.name} at {problem.m}×{problem.n}×{problem.k}",
        "",
        f"C[{problem.m},{problem.n}] = A·B, {problem.dtype.name}, layout {problem.layout}. Each seed is a complete "
        "CUDA source (`seeds/*/kernel.cu`, CUTLASS 4.2 headers) that exports `run(A, B, C, M, N, K, stream)`. Numbers "
        "in the rationales are estimates of the feature model unless they are called measured.",
        "",
    ]
    if measured:
        lines += [
            "## Nearest measured problems",
            "",
            "| M×N×K | distance (log2) | fastest | time | cuBLASLt |",
            "|---|---|---|---|---|",
        ]
        for neighbour in measured:
            (candidate, time), *_ = neighbour.best(1)
            blas = "" if math.isnan(neighbour.cublaslt_us) else f"{neighbour.cublaslt_us:.1f} µs"
            lines.append(
                f"| {_name(neighbour)} | {neighbour.distance:.2f} | `{candidate.config.name}`, "
                f"{launch_text(candidate.launch)} | {time:.1f} µs | {blas} |"
            )
        lines.append("")
    lines += ["## Seeds", ""]
    return "\n".join(lines) + "\n" + "\n".join(_seed_text(seed) for seed in seeds)
