"""The command line: answers, JSON, files, and one-line refusals with status 2."""

import json
import re
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from cutlass_ranker import __version__, cli, rank_kernels, select_kernel
from cutlass_ranker.generator import parse_name

COMMAND = [sys.executable, "-m", "cutlass_ranker.cli"]


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):  # type: ignore[no-untyped-def]
    """Run the command line in this process; returns status, standard output and standard error."""

    def run(*arguments: object) -> tuple[object, str, str]:
        monkeypatch.setattr(sys, "argv", ["cutlass-ranker", *map(str, arguments)])
        with pytest.raises(SystemExit) as info:
            cli.main()
        captured = capsys.readouterr()
        return info.value.code or 0, captured.out, captured.err

    return run


def test_select_prints_a_table(call) -> None:  # type: ignore[no-untyped-def]
    status, out, err = call("select", 8192, 7168, 5120, "--top", 3)
    assert (status, err) == (0, "")
    choices = rank_kernels(8192, 7168, 5120, top_k=3)
    for choice in choices:
        tile = f"{choice.config.tile_m}x{choice.config.tile_n}x{choice.config.tile_k}"
        cluster = f"{choice.config.cluster_m}x{choice.config.cluster_n}"
        (line,) = [line for line in out.splitlines() if re.match(rf"\s*{choice.rank}\s", line)]
        assert tile in line
        assert cluster in line
        assert choice.config.schedule.name.lower() in line
        assert f"{100 * choice.relative_speed:.1f}%" in line
    assert choices[0].name in out
    assert "Expected regret" in out


def test_select_shows_measured_times_of_a_problem_in_the_data(call) -> None:  # type: ignore[no-untyped-def]
    _, out, _ = call("select", 8192, 7168, 5120)
    assert re.search(r"\d+\.\d\d µs", out)
    assert "Fastest measured candidate on this problem" in out
    _, out, _ = call("select", 8192, 7168, 5128)
    assert "µs" not in out


def test_select_json_is_what_the_library_answers(call) -> None:  # type: ignore[no-untyped-def]
    status, out, err = call("select", 16, 8192, 8192, "--layout", "tn", "--dtype", "bfloat16", "--top", 4, "--json")
    assert (status, err) == (0, "")
    answer = json.loads(out)
    assert answer["problem"] == {"m": 16, "n": 8192, "k": 8192, "layout": "TNT", "dtype": "bf16"}
    assert answer["hardware"] == "h200"
    choices = rank_kernels(16, 8192, 8192, top_k=4)
    assert [c["name"] for c in answer["choices"]] == [c.name for c in choices]
    assert [c["rank"] for c in answer["choices"]] == [1, 2, 3, 4]
    for entry, choice in zip(answer["choices"], choices, strict=True):
        assert entry["swapped"] == choice.swapped
        assert entry["launch"]["swizzle"] == choice.launch.swizzle
        assert entry["expected_regret"] == pytest.approx(1 - entry["relative_speed"])
        config = parse_name(entry["name"])
        assert entry["tile"] == [config.tile_m, config.tile_n, config.tile_k]


def test_atomic_adds_are_allowed_on_request(call) -> None:  # type: ignore[no-untyped-def]
    asked = ("select", 256, 256, 32768, "--json", "--top", 2000)  # every kernel of the catalogue
    listed = [json.loads(call(*asked, *more)[1])["choices"] for more in ((), ("--allow-nondeterministic",))]
    assert all(entry["deterministic"] for entry in listed[0])
    choices = rank_kernels(256, 256, 32768, top_k=2000, deterministic=False)
    assert [entry["launch"]["splits"] for entry in listed[1]] == [choice.launch.splits for choice in choices]
    assert not all(entry["deterministic"] for entry in listed[1])


def test_emit_writes_the_program(call, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    target = tmp_path / "kernel.cu"
    status, out, _ = call("select", 64, 4096, 4096, "--emit", target)
    assert status == 0
    assert str(target) in out.replace("\n", "")
    assert target.read_text(encoding="utf-8") == select_kernel(64, 4096, 4096).source()


def test_emit_with_json_keeps_the_json_clean(call, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    _, out, _ = call("select", 64, 4096, 4096, "--emit", tmp_path / "kernel.cu", "--json")
    assert json.loads(out)["choices"]
    assert (tmp_path / "kernel.cu").is_file()


def test_hardware_and_space_options(call) -> None:  # type: ignore[no-untyped-def]
    _, out, _ = call("select", 4096, 4096, 4096, "--hardware", "H100-SXM", "--json", "--top", 1)
    assert json.loads(out)["hardware"] == "h100_sxm"
    _, out, _ = call("select", 4096, 4096, 4096, "--layout", "NN", "--space", "paper", "--json", "--top", 1)
    assert json.loads(out)["choices"][0]["family"] == "NNT"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("select", "0", "8", "8"), "M is 0; it must lie between 1 and"),
        (("select", "8", "-8", "8"), "N is -8; it must lie between 1 and"),
        (("select", "8", "8", "8.5"), "K is '8.5'; it must be a whole number"),
        (("select", "8", "8", "many"), "K is 'many'; it must be a whole number"),
        (("select", "8", "8", "True"), "K is 'True'; it must be a whole number"),
        (("select", "9" * 40, "8", "8"), "it must lie between 1 and"),
        (("select", "8205", "5921", "2949"), "nearest sizes that work: 2944 or 2952"),
        (("select", "64", "64", "64", "--layout", "AB"), "layout 'AB' is unknown"),
        (
            ("select", "64", "64", "64", "--dtype", "f16"),
            "it covers bf16 with layouts NNN, NNT",
        ),
        (("select", "64", "64", "64", "--dtype", "int3"), "dtype 'int3' is not supported"),
        (("select", "64", "64", "64", "--hardware", "a100"), "a100"),
        (("select", "64", "64", "64", "--model", "none-such"), "none-such"),
        (("select", "64", "64", "64", "--space", "all"), "space 'all' is unknown"),
        (("select", "64", "64", "64", "--top", "0"), "top_k is 0"),
        (("select", "64", "64", "64", "--top", "x"), "--top"),
        (("select", "64", "64", "64", "--emit", "/no/such/folder/k.cu"), "cannot write /no/such/folder/k.cu"),
        (("select", "64", "64", "64", "--colour"), "--colour"),
        (("select", "64", "64"), "Missing argument"),
        (("space", "--space", "all"), "space 'all' is unknown"),
        (("space", "--shape", "64", "64", "x"), "K is 'x'"),
        (("space", "--shape", "64", "64"), "--shape"),
        (("data", "info", "--data", "/no/such/folder"), "cannot read table"),
        (("collect", "build", "/no/such/folder"), "not a plan directory"),
        (("collect", "run", "/no/such/folder", "--seconds", "1"), "/no/such/folder"),
        (("collect", "plan", "/tmp/x", "--catalogue", "none-such"), "no catalogue named 'none-such'"),
        (("train", "--out", "/tmp/x", "--kind", "oracle"), "kind 'oracle' is unknown"),
        (("train", "--out", "/tmp/x", "--features", "best"), "use one of structural, full"),
        (("train", "--out", "/tmp/x", "--config", "/no/such/file.toml"), "/no/such/file.toml"),
        (("report", "--out", "/tmp/x", "--data", "/no/such/folder"), "cannot read table"),
        (("bogus",), "bogus"),
    ],
)
def test_refusals_are_one_line_and_status_2(call, arguments: tuple[str, ...], message: str) -> None:  # type: ignore[no-untyped-def]
    status, out, err = call(*arguments)
    assert status == 2
    assert out == ""
    assert err.count("\n") == 1
    assert err.startswith("cutlass-ranker: ")
    assert message in err


def test_space_counts(call) -> None:  # type: ignore[no-untyped-def]
    # arXiv 2609.35587: 60,795 BF16 TN kernels; Table 9 has what is left for a shape.
    assert call("space", "--count") == (0, "60795\n", "")
    assert call("space", "--space", "paper", "--layout", "TN", "--shape", 8192, 8192, 8192, "--count")[1] == "60795\n"


def test_space_lists_names(call) -> None:  # type: ignore[no-untyped-def]
    _, out, _ = call("space", "--layout", "NN", "--shape", 64, 16, 4096)
    names = out.splitlines()
    assert int(call("space", "--layout", "NN", "--shape", 64, 16, 4096, "--count")[1]) == len(names) == len(set(names))
    for name in names[::997]:
        config = parse_name(name)
        assert config.family == "NNT"
        assert config.tile_m <= 128
        assert config.tile_n <= 32


def test_a_reader_that_stops_early_is_no_error() -> None:
    listing = subprocess.run(
        f"{' '.join(COMMAND)} space | head -n 1", shell=True, capture_output=True, text=True, check=True
    )
    assert listing.stderr == ""
    assert listing.stdout.startswith("cutlass3x_sm90_tensorop_gemm_bf16")


def test_collect_plan_writes_a_plan_that_build_and_run_read(call, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    pytest.importorskip("nvMatmulHeuristics")
    from cutlass_ranker.datasets import read_plan

    status, out, err = call("collect", "plan", tmp_path / "mine", "--catalogue", "default", "--seed", 3)
    assert (status, err) == (0, "")
    plan = read_plan(tmp_path / "mine" / "plan")
    assert out == (
        f"mine: {len(plan.kernels):,} kernels, {len(plan.problems):,} problems, {len(plan.candidates):,} candidates\n"
    )
    assert plan.meta["seed"] == 3
    status, out, err = call("collect", "merge", tmp_path / "mine", "--data", tmp_path / "data")
    assert status == 2
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ([], ["select", "space", "collect", "data", "train", "report"]),
        (["select"], ["elements", "default: TN", "default: bf16", "default: h200", "µs", "default: 8"]),
        (["space"], ["paper", "extended", "default: paper"]),
        (["collect"], ["plan", "build", "run", "merge"]),
        (["collect", "run"], ["seconds"]),
        (["train"], ["xgboost", "lambdarank", "default: h200"]),
        (["report"], ["report.html", "µs"]),
    ],
)
def test_help_says_units_and_defaults(call, command: list[str], words: list[str]) -> None:  # type: ignore[no-untyped-def]
    status, out, _ = call(*command, "--help")
    assert status == 0
    for word in words:
        assert word in out


def test_version(call) -> None:  # type: ignore[no-untyped-def]
    assert call("--version") == (0, f"cutlass-ranker {__version__}\n", "")


def test_a_whole_select_takes_under_one_and_a_half_seconds() -> None:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([*COMMAND, "select", "8192", "7168", "5120"], check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 1.5


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys; sys.argv = ['x', '--help']\n"
        "from cutlass_ranker.cli import main\n"
        "try: main()\n"
        "except SystemExit: print([n for n in ('numpy', 'pandas', 'torch') if n in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    assert out.splitlines()[-1] == "[]"


def test_an_unexpected_error_keeps_its_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr("cutlass_ranker.selector.rank_kernels", broken)
    monkeypatch.setattr(sys, "argv", ["cutlass-ranker", "select", "8", "8", "8"])
    with pytest.raises(ZeroDivisionError):
        cli.main()
