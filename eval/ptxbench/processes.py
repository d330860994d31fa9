"""Child processes that are not trusted: time limits, an unprivileged user, and nothing left behind."""

from __future__ import annotations

import contextlib
import os
import resource
import secrets
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

TOKEN: Final = "CUTLASS_RANKER_CHECK"
"""Environment variable by which descendants of a child are found, whatever session they moved to."""
NOBODY: Final = 65534
"""User and group of candidates where the checker runs as root."""
OUTPUT_LIMIT: Final = 2**20
"""Bytes of a child's output that are kept."""


@dataclass(frozen=True)
class Finished:
    """A child that ended or was ended."""

    returncode: int
    """Exit status; minus the signal if one ended it."""
    output: str
    """Standard output and error together, as far as they were kept."""
    seconds: float
    timed_out: bool


@contextlib.contextmanager
def scratch_folder(prefix: str) -> Iterator[Path]:
    """Make a folder that every user may enter, and remove it in the end."""
    with tempfile.TemporaryDirectory(prefix=f"{prefix}-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        folder.chmod(0o755)
        yield folder


def _limits() -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


class Child:
    """A process in a session of its own.

    Parameters
    ----------
    command
        Program and arguments.
    folder
        Working directory.
    pass_fds
        File descriptors that the child inherits.
    unprivileged
        Run as ``nobody`` if the checker runs as root.
    options
        Further arguments of :class:`subprocess.Popen`.
    """

    def __init__(
        self,
        command: Sequence[str],
        folder: Path,
        *,
        pass_fds: Sequence[int] = (),
        unprivileged: bool = False,
        environment: Mapping[str, str] | None = None,
        **options: Any,
    ) -> None:
        self._token = secrets.token_hex(16)
        # Candidates see nothing of the caller's environment but where programs and libraries lie.
        kept = (
            "PATH",
            "LD_LIBRARY_PATH",
            "CUDA_HOME",
            "CUDA_VISIBLE_DEVICES",
            "NVCC_PREPEND_FLAGS",
            "NVCC_APPEND_FLAGS",
        )
        variables = {name: os.environ[name] for name in kept if name in os.environ}
        variables |= {"HOME": str(folder), "TMPDIR": str(folder), "CUDA_CACHE_DISABLE": "1", "LC_ALL": "C"}
        user: dict[str, Any] = {}
        if unprivileged and os.geteuid() == 0:
            user = {"user": NOBODY, "group": NOBODY, "extra_groups": []}
        self.process = subprocess.Popen(
            command,
            cwd=folder,
            env={**variables, **(environment or {}), TOKEN: self._token},
            pass_fds=pass_fds,
            start_new_session=True,
            preexec_fn=_limits,
            **user,
            **options,
        )

    def kill(self) -> None:
        """End the child, its session, and whatever of its descendants left that session."""
        for _ in range(3):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.process.pid, signal.SIGKILL)
            strays = [pid for pid in self._marked() if pid != self.process.pid]
            for pid in strays:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)
            if not strays:
                break
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(timeout=30)

    def _marked(self) -> list[int]:
        """Processes that inherited the child's token."""
        mark = f"{TOKEN}={self._token}".encode()
        found = []
        for entry in Path("/proc").iterdir():
            if not entry.name.isdecimal():
                continue
            with contextlib.suppress(OSError):
                if mark in (entry / "environ").read_bytes():
                    found.append(int(entry.name))
        return found


def run(command: Sequence[str], folder: Path, seconds: float, *, unprivileged: bool = False) -> Finished:
    """Run a program to its end or to a time limit; nothing of it is left.

    Parameters
    ----------
    seconds
        Time limit.
    """
    began = time.monotonic()
    with tempfile.TemporaryFile() as output:
        child = Child(
            command, folder, unprivileged=unprivileged,
            stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
        )  # fmt: skip
        timed_out = False
        try:
            child.process.wait(timeout=seconds)
        except subprocess.TimeoutExpired:
            timed_out = True
        finally:
            child.kill()
        output.seek(0)
        text = output.read(OUTPUT_LIMIT).decode(errors="replace")
    return Finished(child.process.returncode or 0, text, time.monotonic() - began, timed_out)
