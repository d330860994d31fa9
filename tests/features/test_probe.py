import json
import shutil
import stat

import pytest

from cutlass_ranker.features import Hardware, probe

SEEN = {
    "gpu": "NVIDIA H200", "compute_capability": "9.0", "sm_count": 132, "shared_memory_per_sm": 233472,
    "registers_per_sm": 65536, "l2_bytes": 62914560, "clock_hz": 1.98e9, "dram_bandwidth": 4.25e12,
    "clusters": {
        "1": {"active": 132, "sms": 132, "query": 132}, "2": {"active": 66, "sms": 132, "query": 66},
        "4": {"active": 32, "sms": 128, "query": 30},
    },
}  # fmt: skip


@pytest.fixture
def program(tmp_path):
    """Return a maker of stand-ins for the probe program."""

    def make(text, status=0):
        path = tmp_path / "probe"
        path.write_text(f"#!/bin/sh\ncat <<'END'\n{text}\nEND\necho broken >&2\nexit {status}\n")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        return path

    return make


def test_description_from_what_the_probe_saw(program, tmp_path):
    out = tmp_path / "h200.json"
    arguments = ["--binary", str(program(json.dumps(SEEN))), "--tensor-tflops", "790", "--json", str(out)]
    assert probe.main(arguments) == 0
    gpu = Hardware.from_json(out.read_text())
    assert gpu.measured
    assert gpu.name == "h200"
    assert gpu.active_clusters == {1: 132, 2: 66, 4: 32}
    assert gpu.peak_flops == {"bf16": 790e12, "f16": 790e12}
    assert (gpu.sm_count, gpu.l2_bytes, gpu.dram_bandwidth, gpu.clock_hz) == (132, 62914560, 4.25e12, 1.98e9)
    assert "30 of 4" in gpu.source


def test_standard_output(program, capsys):
    assert probe.main(["--binary", str(program(json.dumps(SEEN))), "--tensor-tflops", "700", "--name", "mine"]) == 0
    assert json.loads(capsys.readouterr().out)["name"] == "mine"


@pytest.mark.parametrize(
    ("text", "status", "message"),
    [
        ("", 1, "broken"),
        ("no json", 0, "cannot run"),
        (json.dumps(SEEN | {"compute_capability": "8.0", "gpu": "A100"}), 0, "A100 has compute capability 8.0"),
    ],
)
def test_failures_are_one_line_and_status_2(program, capsys, text, status, message):
    assert probe.main(["--binary", str(program(text, status)), "--tensor-tflops", "790"]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_missing_program(tmp_path, capsys):
    assert probe.main(["--binary", str(tmp_path / "none")]) == 2
    assert "cannot run" in capsys.readouterr().err


def test_missing_compiler(monkeypatch, capsys):
    monkeypatch.setattr(shutil, "which", lambda name: None)
    assert probe.main([]) == 2
    assert "nvcc is not on PATH" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("nvcc") is None, reason="needs nvcc")
def test_probe_compiles(tmp_path):
    assert probe.main(["--build", str(tmp_path / "probe")]) == 0
    assert (tmp_path / "probe").read_bytes()[:4] == b"\x7fELF"


@pytest.mark.gpu
@pytest.mark.skipif(shutil.which("nvidia-smi") is None, reason="needs an NVIDIA Hopper GPU")
@pytest.mark.skipif(shutil.which("nvcc") is None, reason="needs nvcc")
def test_probe_on_a_gpu(tmp_path):
    probe.build_probe(tmp_path / "probe")
    seen = probe.run_probe(tmp_path / "probe")
    assert seen["clusters"]["1"]["active"] == seen["sm_count"]
    for size, counts in seen["clusters"].items():
        assert 0 < counts["active"] * int(size) <= seen["sm_count"]
    assert 1e12 < seen["dram_bandwidth"] < 1e13
