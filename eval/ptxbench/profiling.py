"""Gate 3's evidence: disassembling a candidate, and counting executed instructions with Nsight Compute."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from ...generator import MeasurementError
from .correctness import DISTRIBUTIONS, find_tool
from .gemm import Gemm
from .harness_process import Draw, Program, draws, output_file, problem_arguments, run_script
from .processes import run, scratch_folder
from .sass import Disassembly, Executed, InstructionCheck, Used, judge, parse_disassembly, parse_profile

METRICS: Final = "inst_executed,thread_inst_executed_true"
DISASSEMBLY_SECONDS: Final = 120.0


def disassemble(library: Path) -> Disassembly | None:
    """Disassemble a library with ``cuobjdump -sass``; None if that fails.

    Raises
    ------
    MeasurementError
        If cuobjdump is missing.
    """
    tool = find_tool("cuobjdump")
    if tool is None:
        raise MeasurementError("cuobjdump is missing; it comes with the CUDA toolkit")
    # cuobjdump calls nvdisasm, which lies beside it.
    environment = {**os.environ, "PATH": f"{Path(tool).parent}:{os.environ.get('PATH', '')}"}
    try:
        done = subprocess.run(
            [tool, "-sass", str(library)], capture_output=True, text=True, errors="replace", check=False,
            timeout=DISASSEMBLY_SECONDS, env=environment,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return None
    return parse_disassembly(done.stdout) if done.returncode == 0 else None


def profile(
    program: Program, library: Path, entry: str, gemm: Gemm, values: Mapping[str, int], seconds: float
) -> tuple[list[Executed] | None, str]:
    """Count executed instructions of one call at the public sizes.

    Returns
    -------
    list of Executed or None
        Launches of the call; None if the profiler or the candidate failed.
    str
        What went wrong, or nothing.

    Raises
    ------
    MeasurementError
        If Nsight Compute is missing.
    """
    tool = find_tool("ncu")
    if tool is None:
        raise MeasurementError("ncu (Nsight Compute) is missing")
    problem = gemm.problem(dict(values))
    with scratch_folder("profile") as folder, output_file(folder, 2 * problem.m * problem.n) as output:
        local, report = folder / "candidate.so", folder / "report.ncu-rep"
        shutil.copyfile(library, local)
        operand = Draw(DISTRIBUTIONS["normal"], 1.0, 1)
        commands: list[tuple[str, dict[str, Any]]] = [
            ("output", {"path": output.path}),
            ("load", {"path": local, "entry": entry}),
            ("problem", problem_arguments(problem)),
            ("case", {"set": 0, **draws(operand, operand)}),  # set-up of the first call stays out of the range
            ("profile", draws(operand, operand)),
        ]
        prefix = [
            tool, "--clock-control", "none", "--profile-from-start", "off", "--target-processes", "all",
            "--graph-profiling", "node", "--metrics", METRICS, "--force-overwrite", "--export", str(report),
        ]  # fmt: skip
        done, answers = run_script(program, prefix, commands, folder, seconds)
        if done.timed_out:
            return None, f"the profiler took over {seconds:.0f} s"
        failed = next((str(answer["failed"]) for answer in answers if "failed" in answer), None)
        if failed is not None or len(answers) != len(commands) or not report.is_file():
            said = (done.output.strip().splitlines() or ["it said nothing"])[-1]
            return None, f"the profiler failed: {failed or said[:300]}"
        page = run(
            [tool, "--import", str(report), "--page", "source", "--csv", "--print-source", "sass",
             "--print-metric-name", "name"],
            folder, seconds,
        )  # fmt: skip
        launches = parse_profile(page.output)
        if not launches:  # the option that names metrics differs between versions; the labels are known too
            page = run([tool, "--import", str(report), "--page", "source", "--csv"], folder, seconds)
            launches = parse_profile(page.output)
    said = "" if launches else f"the report cannot be read: {page.output.strip()[:300]}"
    return launches, said


def check_instructions(
    program: Program, library: Path, entry: str, gemm: Gemm, values: Mapping[str, int], seconds: float
) -> InstructionCheck:
    """Run gate 3 on a candidate: disassemble, and profile if there is something to count.

    Raises
    ------
    MeasurementError
        If a tool is missing.
    """
    problem = gemm.problem(dict(values))
    disassembly = disassemble(library)
    if disassembly is None or not disassembly.found:
        return judge(disassembly, None, problem)
    launches, said = profile(program, library, entry, gemm, values, seconds)
    verdict = judge(disassembly, launches, problem)
    if verdict.used is Used.UNKNOWN and said:
        return InstructionCheck(Used.UNKNOWN, said, verdict.static)
    return verdict
