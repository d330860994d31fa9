"""PTXBench's GEMM: a checker for CUDA kernels, seed packs from the selector, scores of trajectories.

A candidate is CUDA C++ that exports ::

    extern "C" void run(const void* A, const void* B, void* C, int M, int N, int K, cudaStream_t stream);

with inputs and output in the order of the definition, M, N and K as :mod:`.gemm` reads them, all work enqueued on
``stream`` (or joined with it), and no return value. It passes four gates: *static* (:mod:`.static`), *correct*
(:mod:`.correctness`), *target instruction* (:mod:`.sass`, :mod:`.profiling`) and *fast* (:mod:`.timing`);
:mod:`.evaluate` runs them.

What is trusted
---------------
The candidate is taken to be hostile: it wants a verdict that it does not deserve. It runs in processes of its own,
with a time limit and without the caller's environment, as an unprivileged user where the checker is root (not under
sanitizer and profiler); they are killed with all their descendants. The judge is another process, which loads no
candidate, and the Python process that started both.

* References, expected values and cuBLAS are in the judge's process alone. The candidate's process hands over raw
  outputs; their contents decide. It answers with the nonce of the command; one that exits, hangs or is answered for is
  refused.
* The program in the candidate's process links the CUDA runtime statically and exports nothing, and the candidate is
  opened with ``RTLD_LOCAL``: its own ``cudaEventRecord`` or ``clock_gettime`` reaches nobody. Three timers of
  different kinds must agree, every GPU activity of the process is accounted for, and every timed output is compared
  with its inputs.
* Inputs, their addresses, hidden sizes and the vectors that outputs are compared by are drawn anew for every
  evaluation.
* What would reach past that is refused before it runs, by symbol or by instruction: loading code, other processes,
  memory protection, system calls, files, signals, the environment, the profiler.

Out of scope: a candidate that finds and patches the checker's code or data in its own process without any of these (by
walking the loader's tables in memory, say), that attacks the driver or the GPU's firmware, or that is compiled by a
compiler that was tampered with. Against the first, verdicts still need an output that the judge finds right; times
would be forgeable. One GPU, one evaluation at a time: nothing else may run on the GPU while it is timed.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .evaluate import Evaluator, Options, Outcome, load_solutions, write_outcomes
    from .gemm import Gemm, load_definition, read_gemm
    from .schema import Definition, Evaluation, Solution, Status, Trace, TraceSet, Workload
    from .score import Scores, read_trajectories
    from .seeds import make_seeds, write_pack

_HOMES = {
    "Evaluator": "evaluate", "Options": "evaluate", "Outcome": "evaluate", "load_solutions": "evaluate",
    "write_outcomes": "evaluate",
    "Gemm": "gemm", "load_definition": "gemm", "read_gemm": "gemm",
    "Definition": "schema", "Evaluation": "schema", "Solution": "schema", "Status": "schema", "Trace": "schema",
    "TraceSet": "schema", "Workload": "schema",
    "Scores": "score", "read_trajectories": "score",
    "make_seeds": "seeds", "write_pack": "seeds",
}  # fmt: skip

__all__ = [
    "Definition",
    "Evaluation",
    "Evaluator",
    "Gemm",
    "Options",
    "Outcome",
    "Scores",
    "Solution",
    "Status",
    "Trace",
    "TraceSet",
    "Workload",
    "load_definition",
    "load_solutions",
    "make_seeds",
    "read_gemm",
    "read_trajectories",
    "write_outcomes",
    "write_pack",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f".{_HOMES[name]}", __name__), name)
    globals()[name] = value
    return value
