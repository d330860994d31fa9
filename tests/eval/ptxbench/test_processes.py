"""Children end in time and leave nothing behind."""

import sys
import time
from pathlib import Path

import pytest

from cutlass_ranker.eval.ptxbench.harness_process import HarnessProcess, Misbehaved, Program, run_script
from cutlass_ranker.eval.ptxbench.processes import run, scratch_folder

ESCAPE = """
import os, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        open(sys.argv[1], "w").write(str(os.getpid()))
        time.sleep(60)
    os._exit(0)
time.sleep(float(sys.argv[2]))
"""


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in ("Z", "X")
    except OSError:
        return False


@pytest.mark.parametrize("seconds", ["0.3", "30"])
def test_descendants_that_left_the_session_are_ended_too(tmp_path: Path, seconds: str) -> None:
    note = tmp_path / "pid"
    done = run([sys.executable, "-c", ESCAPE, str(note), seconds], tmp_path, 2.0)
    assert done.timed_out == (seconds == "30")
    assert done.seconds < 20
    deadline = time.monotonic() + 5
    while alive(int(note.read_text())) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not alive(int(note.read_text()))


def test_the_callers_environment_stays_outside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CALLERS_SECRET", "x")
    done = run([sys.executable, "-c", "import os; print(sorted(os.environ))"], tmp_path, 20)
    assert "CALLERS_SECRET" not in done.output
    assert "TMPDIR" in done.output


def test_exit_status_and_output(tmp_path: Path) -> None:
    done = run(["/bin/sh", "-c", "echo out; echo err >&2; exit 3"], tmp_path, 20)
    assert (done.returncode, done.output.split(), done.timed_out) == (3, ["out", "err"], False)


def candidate(tmp_path: Path, behaviour: str) -> str:
    path = tmp_path / f"{behaviour.replace(' ', '_')}.so"
    path.write_text(behaviour)
    return str(path)


def test_answers_and_how_they_can_go_wrong(fake_program: Program, tmp_path: Path) -> None:
    output = tmp_path / "out"
    output.write_text("none")
    for behaviour, kind in (("honest", None), ("dies", "died"), ("hangs", "timeout"), ("forges", "forged")):
        with scratch_folder("test") as folder, HarnessProcess(fake_program, "candidate", folder, trace=False) as child:
            assert child.ask("hello")["sm_count"] == 132
            child.ask("output", path=str(output))
            child.ask("load", path=candidate(tmp_path, behaviour), entry="run")
            if kind is None:
                assert child.ask("case", set=0) == {"inputs_changed": False, "guard_bytes": 0}
                assert child.vendor_libraries() == []
            else:
                with pytest.raises(Misbehaved) as caught:
                    child.ask("case", 1.0, set=0)
                assert caught.value.kind == kind
            pid = child.pid
        assert not alive(pid)


def test_a_script_under_a_tool_stops_at_the_first_silence(fake_program: Program, tmp_path: Path) -> None:
    output = tmp_path / "out"
    output.write_text("none")
    commands = [
        ("hello", {}),
        ("output", {"path": output}),
        ("load", {"path": candidate(tmp_path, "dies")}),
        ("case", {}),
    ]
    done, answers = run_script(fake_program, ["/usr/bin/env"], commands, tmp_path, 30)
    assert done.returncode == 0
    assert len(answers) == 3
    assert "nonce" not in answers[0]


def test_a_program_that_cannot_start(tmp_path: Path, fake_program: Program) -> None:
    fake_program.path.write_text("#!/bin/sh\necho no GPU here >&2\nexit 7\n")
    with scratch_folder("test") as folder, HarnessProcess(fake_program, "reference", folder, trace=True) as child:
        with pytest.raises(Misbehaved, match="exit status 7: no GPU here") as caught:
            child.ask("hello")
        assert caught.value.kind == "died"
