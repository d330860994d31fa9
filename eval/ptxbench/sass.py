"""Gate 3: whether the candidate executes Hopper's own instructions, enough of them to have done the work.

Two looks must agree: the disassembly of the library holds the instruction, and Nsight Compute counts executed instances
in the kernels of one call. The families are ``*GMMA`` (matrix multiply of a warpgroup), ``UTMALDG``, ``UTMASTG`` and
``UTMAREDG`` (tensor copies by TMA). Prefetches and cache control (``UTMAPF``, ``UTMACCTL``, ``UTMACMDFLUSH`` ...) count
for nothing. A token instance beside work of another kind is no use of the instruction either: a family counts only if
what was executed could have carried half of its part of the problem.
"""

from __future__ import annotations

import csv
import io
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from ...generator import Problem

TMA_FAMILIES: Final = ("UTMALDG", "UTMASTG", "UTMAREDG")
MOST_TMA_BYTES: Final = 227 * 1024
"""Most bytes that one TMA instruction can move: all of a CTA's shared memory."""
ENOUGH: Final = 0.5
"""Share of its part of the problem that a family's instances must be able to carry."""

_LINE: Final = re.compile(r"^\s*/\*[0-9a-fA-F]{4,}\*/\s+(?P<text>[^;]*);")
_INSTRUCTION: Final = re.compile(
    r"^\s*(?:\{\s*)?(?:@!?U?P\w+\s+)?(?P<opcode>[A-Z][A-Z0-9_]*(?:\.[A-Za-z0-9_]+)*)(?=[\s;]|$)"
)
_SHAPE: Final = re.compile(r"\.(\d+)x(\d+)x(\d+)(?=\.|$)")
_COUNT_COLUMNS: Final = ("thread_inst_executed_true", "Predicated-On Thread Instructions Executed")
_WARP_COLUMNS: Final = ("inst_executed", "Instructions Executed")


class Used(StrEnum):
    """Whether the target instruction was executed."""

    YES = "yes"
    NO = "no"
    UNKNOWN = "unknown"


def opcode_of(instruction: str) -> str:
    """Return the opcode with its modifiers of one SASS instruction, predicates aside; empty if there is none."""
    match = _INSTRUCTION.match(instruction)
    return match["opcode"] if match else ""


def family_of(opcode: str) -> str | None:
    """Return ``GMMA``, ``UTMALDG``, ``UTMASTG`` or ``UTMAREDG`` for an opcode of the target families."""
    base = opcode.split(".")[0]
    if re.fullmatch(r"[A-Z]*GMMA", base):
        return "GMMA"
    return base if base in TMA_FAMILIES else None


def gmma_flops(opcode: str) -> int:
    """Return floating-point operations of one warpgroup's instruction, from the shape in its name; 0 if it has none."""
    match = _SHAPE.search(opcode)
    if not match:
        return 0
    m, n, k = (int(part) for part in match.groups())
    return 2 * m * n * k


@dataclass(frozen=True)
class Disassembly:
    """Target instructions of a library."""

    families: Mapping[str, int]
    """Instructions by family."""
    functions: tuple[str, ...]
    """Mangled names of the kernels."""
    architectures: tuple[str, ...]

    @property
    def found(self) -> bool:
        """True if there is a target instruction."""
        return sum(self.families.values()) > 0


def parse_disassembly(text: str) -> Disassembly:
    """Read what ``cuobjdump -sass`` prints."""
    families: Counter[str] = Counter()
    functions: list[str] = []
    architectures: dict[str, None] = {}
    for line in text.splitlines():
        stripped = line.strip()
        if stripped.startswith("Function :"):
            functions.append(stripped.partition(":")[2].strip())
        elif stripped.startswith("arch ="):
            architectures.setdefault(stripped.partition("=")[2].strip())
        else:
            match = _LINE.match(line)
            family = family_of(opcode_of(match["text"])) if match else None
            if family:
                families[family] += 1
    return Disassembly(dict(families), tuple(dict.fromkeys(functions)), tuple(architectures))


@dataclass(frozen=True)
class Executed:
    """Executed target instructions of one kernel launch."""

    kernel: str
    instances: Mapping[str, int]
    """Executed instructions by family: of a warpgroup for GMMA, of a thread's request for TMA."""
    threads: Mapping[str, int]
    """``thread_inst_executed_true`` by family."""
    flops: float
    """Floating-point operations of the executed GMMA instructions."""
    lines: int
    """Instructions of the kernel that the profiler listed."""


def parse_profile(text: str) -> list[Executed]:
    """Read the source page that ``ncu --page source --csv`` prints: one table of instructions a launch.

    Returns
    -------
    list of Executed
        One entry a table; empty if the text holds none with counts of executed threads.
    """
    launches: list[Executed] = []
    kernel, header = "", list[str]()
    current: _Counts | None = None
    for row in csv.reader(io.StringIO(text)):
        cells = [cell.strip() for cell in row]
        if cells and cells[0].rstrip(":") in ("Kernel Name", "Function Name"):
            kernel = cells[1] if len(cells) > 1 else ""
            continue
        if "Source" in cells and any(name in cells for name in _COUNT_COLUMNS):
            header, current = cells, _Counts()
            launches.append(current.entry(kernel))
            continue
        if current is None or len(cells) != len(header):
            continue
        current.add(dict(zip(reversed(header), reversed(cells), strict=True)))
        launches[-1] = current.entry(kernel)
    return launches


@dataclass
class _Counts:
    """Counts of one launch, while its table is read."""

    instances: Counter[str] = field(default_factory=Counter)
    threads: Counter[str] = field(default_factory=Counter)
    flops: float = 0.0
    lines: int = 0

    def add(self, row: Mapping[str, str]) -> None:
        self.lines += 1
        opcode = opcode_of(row.get("Source", ""))
        family = family_of(opcode)
        if family is None:
            return
        threads = _whole(next((row[name] for name in _COUNT_COLUMNS if name in row), ""))
        if threads <= 0:
            return
        warps = _whole(next((row[name] for name in _WARP_COLUMNS if name in row), ""))
        # The four warps of a warpgroup execute a GMMA together; one thread of a warp issues a TMA request.
        count = warps / 4 if family == "GMMA" else warps
        count = count or (threads / 128 if family == "GMMA" else 1)
        self.threads[family] += threads
        self.instances[family] += round(count)
        self.flops += count * gmma_flops(opcode) if family == "GMMA" else 0.0

    def entry(self, kernel: str) -> Executed:
        return Executed(kernel, dict(self.instances), dict(self.threads), self.flops, self.lines)


def _whole(text: str) -> int:
    """Read a count as the profiler writes it, with or without separators; 0 if it is none."""
    cleaned = text.replace(",", "").strip()
    try:
        return int(float(cleaned))
    except ValueError:
        return 0


@dataclass(frozen=True)
class InstructionCheck:
    """Verdict of the gate with its evidence."""

    used: Used
    reason: str
    static: Mapping[str, int] = field(default_factory=dict)
    executed: Mapping[str, int] = field(default_factory=dict)
    """Executed instances by family, over all kernels of the call."""
    threads: Mapping[str, int] = field(default_factory=dict)
    """``thread_inst_executed_true`` by family."""
    work_share: Mapping[str, float] = field(default_factory=dict)
    """Upper bound of the share of its part of the problem that each family carried, at most 1."""
    kernels: tuple[str, ...] = ()

    def evidence(self) -> dict[str, Any]:
        """Return what a trace keeps."""
        return {
            "used": self.used.value,
            "reason": self.reason,
            "static": dict(self.static),
            "executed": dict(self.executed),
            "thread_inst_executed_true": dict(self.threads),
            "work_share": {name: round(share, 4) for name, share in self.work_share.items()},
            "kernels": list(self.kernels),
        }


def work_share(executed: Iterable[Executed], problem: Problem) -> dict[str, float]:
    """Return, by family, the most of its part of the problem that the executed instructions can have carried.

    GMMA: their floating-point operations over 2MNK. ``UTMALDG``: instances times the most bytes of one, over the
    smaller operand. ``UTMASTG`` and ``UTMAREDG``: the same over the output. At most 1.
    """
    entries = list(executed)
    size = problem.dtype.bytes
    smaller = size * problem.k * min(problem.m, problem.n)
    output = size * problem.m * problem.n
    shares: dict[str, float] = {}
    for family in ("GMMA", *TMA_FAMILIES):
        count = sum(entry.instances.get(family, 0) for entry in entries)
        if not count:
            continue
        if family == "GMMA":
            share = sum(entry.flops for entry in entries) / problem.flops
        else:
            share = count * MOST_TMA_BYTES / (smaller if family == "UTMALDG" else output)
        shares[family] = min(share, 1.0)
    return shares


def judge(disassembly: Disassembly | None, profile: list[Executed] | None, problem: Problem) -> InstructionCheck:
    """Decide whether a candidate uses a target instruction.

    Parameters
    ----------
    disassembly
        Of the library; None if it could not be made.
    profile
        Launches of one call; None if the profiler did not run, empty if it listed nothing.
    """
    if disassembly is None:
        return InstructionCheck(Used.UNKNOWN, "the library could not be disassembled")
    if not disassembly.found:
        return InstructionCheck(Used.NO, "no target instruction in the library")
    static = disassembly.families
    if not profile or not any(entry.lines for entry in profile):
        return InstructionCheck(Used.UNKNOWN, "the profiler listed no executed instructions", static)
    executed: Counter[str] = Counter()
    threads: Counter[str] = Counter()
    for entry in profile:
        executed.update(entry.instances)
        threads.update(entry.threads)
    shares = work_share(profile, problem)
    kernels = tuple(dict.fromkeys(entry.kernel for entry in profile))
    evidence = (static, dict(executed), dict(threads), shares, kernels)
    if not threads:
        return InstructionCheck(
            Used.NO, "the library holds the instruction, but the call does not execute it", *evidence
        )
    enough = [family for family, share in shares.items() if share >= ENOUGH]
    if not enough:
        return InstructionCheck(Used.NO, "too few executed for the problem: a token beside other work", *evidence)
    return InstructionCheck(Used.YES, f"executed: {', '.join(enough)}", *evidence)
