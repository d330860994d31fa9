"""The checker's GPU processes as Python sees them: building the program, talking to it, judging its silence.

A *candidate* process loads code that is not trusted and runs it; a *reference* process runs cuBLASLt and compares
outputs. Only the second one, and this Python process, decide anything.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import secrets
import select
import shutil
import subprocess
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any, Final

from ...datasets.engine import library_directories
from ...generator import BuildError, Problem
from .processes import Child, Finished, run

SOURCES: Final = ("kernels.cu", "activity.cpp", "cublas.cpp", "session.cpp", "main.cpp")
HEADERS: Final = ("kernels.h", "activity.h", "cublas.h", "session.h")
SHARED_HEADERS: Final = ("cublaslt.h", "library.h", "support.h")
"""Headers of the measuring engine that the program uses too."""
FLAGS: Final = (
    "-std=c++17", "-O2", "-gencode=arch=compute_90a,code=sm_90a", "-cudart", "static", "-Xcompiler", "-Wall,-Wextra",
)  # fmt: skip

_VENDOR_FILE: Final = re.compile(
    r"/lib(?:cublas|cudnn|cusparse|cusolver|cufft|curand|cutensor|nvrtc|nvJitLink|nvinfer|nccl|torch)[^/]*$"
)


def build_harness(out_dir: str | Path) -> Path:
    """Compile the program unless ``out_dir`` holds one of the same sources; return it.

    Raises
    ------
    BuildError
        If the compiler is missing or fails.
    """
    package = __package__ or ""
    with (
        as_file(files(package) / "harness") as own,
        as_file(files(package.rsplit(".", 2)[0] + ".datasets") / "runner") as shared,
    ):
        digest = hashlib.sha256("\0".join(FLAGS).encode())
        for path in (*(own / name for name in (*SOURCES, *HEADERS)), *(shared / name for name in SHARED_HEADERS)):
            digest.update(f"\0{path.name}\0".encode() + path.read_bytes())
        program = Path(out_dir) / f"harness-{digest.hexdigest()[:16]}"
        if program.is_file():
            return program.resolve()
        nvcc = shutil.which("nvcc") or shutil.which("/usr/local/cuda/bin/nvcc")
        if nvcc is None:
            raise BuildError(
                "no CUDA compiler; install the CUDA toolkit (13.0 or newer) to build the checker's program"
            )
        program.parent.mkdir(parents=True, exist_ok=True)
        part = program.with_name(f"{program.name}.{os.getpid()}.part")
        units = [str(own / name) for name in SOURCES]
        command = [nvcc, *FLAGS, f"-I{own}", f"-I{shared}", *units, "-o", str(part), "-ldl", "-lpthread"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise BuildError(f"nvcc could not build the checker's program:\n{done.stderr[-4000:]}")
        part.replace(program)
        return program.resolve()


@dataclass(frozen=True)
class Program:
    """The checker's program, and as whom candidates run in it."""

    path: Path
    unprivileged: bool = True
    """Run candidates as ``nobody`` where the checker is root."""

    def copy_to(self, folder: Path) -> Path:
        """Copy it to a folder that every user may enter, unless it is there; return the copy."""
        local = folder / "harness"
        if not local.exists():
            shutil.copyfile(self.path, local)
            local.chmod(0o755)
        return local


class Misbehaved(Exception):
    """A candidate's process did not answer as it should.

    Parameters
    ----------
    kind
        ``timeout``, ``died``, ``failed`` (a CUDA error, or the program refused) or ``forged``.
    """

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


class OutputFile:
    """A file in memory that a candidate's output is handed over in."""

    def __init__(self, folder: Path, size: int) -> None:
        shared = Path("/dev/shm")
        place = shared if shared.is_dir() and shutil.disk_usage(shared).free > 2 * size else folder
        self.path = place / f"cutlass-ranker-{secrets.token_hex(8)}"
        with self.path.open("wb") as out:
            out.truncate(size)
        self.path.chmod(0o666)

    def remove(self) -> None:
        """Delete the file."""
        self.path.unlink(missing_ok=True)


@contextlib.contextmanager
def output_file(folder: Path, size: int) -> Iterator[OutputFile]:
    """Make an output file of ``size`` bytes and delete it in the end."""
    made = OutputFile(folder, size)
    try:
        yield made
    finally:
        made.remove()


@dataclass(frozen=True)
class Draw:
    """How an operand is filled."""

    distribution: int
    scale: float
    seed: int

    def arguments(self, matrix: str) -> dict[str, Any]:
        """Return the program's arguments for matrix ``a`` or ``b``."""
        return {
            f"{matrix}_distribution": self.distribution,
            f"{matrix}_scale": f"{self.scale:.9g}",
            f"{matrix}_seed": self.seed,
        }


def draws(a: Draw, b: Draw) -> dict[str, Any]:
    """Return the program's arguments for both operands."""
    return {**a.arguments("a"), **b.arguments("b")}


def problem_arguments(problem: Problem, guarded: bool = True) -> dict[str, Any]:
    """Return the program's arguments for a problem."""
    return {
        "m": problem.m, "n": problem.n, "k": problem.k, "layout": problem.layout, "element": problem.dtype.name,
        "guarded": int(guarded),
    }  # fmt: skip


def _line(command: str, arguments: dict[str, Any], nonce: str) -> str:
    words = [command, *(f"{name}={value}" for name, value in arguments.items()), f"nonce={nonce}"]
    return " ".join(words) + "\n"


class HarnessProcess:
    """A running program that answers commands.

    Parameters
    ----------
    program
        The program.
    role
        ``"candidate"`` or ``"reference"``.
    folder
        A scratch folder that every user may enter; the program is copied there.
    trace
        Keep activity records, which timing needs.
    """

    def __init__(self, program: Program, role: str, folder: Path, *, trace: bool) -> None:
        local = program.copy_to(folder)
        unprivileged = role == "candidate" and program.unprivileged
        readable, writable = os.pipe()
        command = [str(local), role, "--answers", str(writable), "--libraries", ":".join(library_directories())]
        self._child = Child(
            [*command, "--trace"] if trace else command, folder, pass_fds=(writable,), unprivileged=unprivileged,
            stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
        )  # fmt: skip
        os.close(writable)
        self._answers = readable
        os.set_blocking(readable, False)
        assert self._child.process.stderr is not None
        os.set_blocking(self._child.process.stderr.fileno(), False)
        self._buffer = b""
        self._errors = b""

    @property
    def pid(self) -> int:
        """Process id."""
        return self._child.process.pid

    def ask(self, command: str, seconds: float = 60.0, **arguments: Any) -> dict[str, Any]:
        """Send a command and return the answer.

        Raises
        ------
        Misbehaved
            If the process dies, takes too long, reports a failure, or something that does not know the command's nonce
            answers in its place.
        """
        nonce = secrets.token_hex(8)
        assert self._child.process.stdin is not None
        try:
            self._child.process.stdin.write(_line(command, arguments, nonce).encode())
            self._child.process.stdin.flush()
        except OSError as error:
            raise self._died() from error
        answer = self._read(command, time.monotonic() + seconds)
        if not isinstance(answer, dict) or answer.pop("nonce", None) != nonce:
            raise Misbehaved("forged", "something other than the checker wrote to the checker's pipe")
        if "failed" in answer:
            raise Misbehaved("failed", str(answer["failed"]))
        return answer

    def _read(self, command: str, deadline: float) -> Any:
        assert self._child.process.stderr is not None
        errors = self._child.process.stderr.fileno()
        while b"\n" not in self._buffer:
            left = deadline - time.monotonic()
            if left <= 0:
                raise Misbehaved("timeout", f"no answer to {command!r} within the time limit")
            ready, _, _ = select.select([self._answers, errors], [], [], min(left, 1.0))
            if errors in ready:
                self._drain_errors()
            if self._answers in ready:
                piece = os.read(self._answers, 1 << 16)
                if not piece:
                    raise self._died()
                self._buffer += piece
                if len(self._buffer) > 1 << 20:
                    raise Misbehaved("forged", "something other than the checker wrote to the checker's pipe")
            elif self._child.process.poll() is not None:
                raise self._died()
        line, _, self._buffer = self._buffer.partition(b"\n")
        try:
            return json.loads(line)
        except ValueError:
            return None

    def _drain_errors(self) -> None:
        assert self._child.process.stderr is not None
        with contextlib.suppress(BlockingIOError, OSError):
            self._errors = (self._errors + os.read(self._child.process.stderr.fileno(), 1 << 16))[-4000:]

    def _died(self) -> Misbehaved:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._child.process.wait(timeout=5)
        self._drain_errors()
        code = self._child.process.returncode
        how = f"signal {-code}" if code is not None and code < 0 else f"exit status {code}"
        said = self._errors.decode(errors="replace").strip()
        return Misbehaved("died", f"the process ended in the middle with {how}" + (f": {said[-500:]}" if said else ""))

    def vendor_libraries(self) -> list[str]:
        """Return libraries of vendors that the process has mapped."""
        try:
            maps = Path(f"/proc/{self.pid}/maps").read_text(encoding="utf-8", errors="replace")
        except OSError:
            return []
        paths = {line.split(maxsplit=5)[-1] for line in maps.splitlines() if "/" in line}
        return sorted(Path(path).name for path in paths if _VENDOR_FILE.search(path))

    def close(self) -> None:
        """End the process and everything that it started."""
        self._child.kill()
        for stream in (self._child.process.stdin, self._child.process.stderr):
            with contextlib.suppress(OSError):
                if stream is not None:
                    stream.close()
        with contextlib.suppress(OSError):
            os.close(self._answers)

    def __enter__(self) -> HarnessProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def run_script(
    program: Program,
    prefix: Sequence[str],
    commands: Sequence[tuple[str, dict[str, Any]]],
    folder: Path,
    seconds: float,
) -> tuple[Finished, list[dict[str, Any]]]:
    """Run a candidate's process under a tool (sanitizer, profiler), with its commands from a file.

    Returns
    -------
    Finished
        How the tool ended and what it printed.
    list of dict
        Answers that carry the nonces of the commands, in order, up to the first that does not.
    """
    script, replies = folder / f"script-{secrets.token_hex(4)}", folder / f"replies-{secrets.token_hex(4)}"
    nonces = [secrets.token_hex(8) for _ in commands]
    lines = [_line(name, arguments, nonce) for (name, arguments), nonce in zip(commands, nonces, strict=True)]
    script.write_text("".join(lines), encoding="utf-8")
    command = [*prefix, str(program.copy_to(folder)), "candidate", "--script", str(script), "--replies", str(replies)]
    done = run(command, folder, seconds)
    answers: list[dict[str, Any]] = []
    if replies.is_file():
        for line, nonce in zip(
            replies.read_text(encoding="utf-8", errors="replace").splitlines(), nonces, strict=False
        ):
            with contextlib.suppress(ValueError):
                answer = json.loads(line)
                if isinstance(answer, dict) and answer.pop("nonce", None) == nonce:
                    answers.append(answer)
                    continue
            break
    return done, answers
