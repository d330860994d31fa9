"""Gate 3: disassembly and profile are read, and what counts."""

from pathlib import Path

import pytest

from cutlass_ranker import Problem
from cutlass_ranker.eval.ptxbench.sass import (
    Used,
    family_of,
    gmma_flops,
    judge,
    opcode_of,
    parse_disassembly,
    parse_profile,
    work_share,
)

DISASSEMBLY = Path(__file__).with_name("data") / "cuobjdump.txt"
PROBLEM = Problem(128, 256, 64)
"""2MNK is 4,194,304: exactly 4 warpgroup instructions of 64x256x16 for each of two row blocks."""


def page(kernel: str, rows: list[tuple[str, int, int]], names: bool = True) -> str:
    """A source page as Nsight Compute prints it: addresses, instructions, warp and thread counts."""
    columns = (
        ("inst_executed", "thread_inst_executed_true")
        if names
        else ("Instructions Executed", "Predicated-On Thread Instructions Executed")
    )
    lines = [f'"Kernel Name","{kernel}"', f'"#","Address","Source","Warp Stall Sampling","{columns[0]}","{columns[1]}"']
    lines += [
        f'"{i}","0x7f{i:04x}","      {text}","0","{warps:,}","{threads:,}"'
        for i, (text, warps, threads) in enumerate(rows)
    ]
    return "==PROF== Connected\n" + "\n".join(lines) + "\n"


HGMMA = "HGMMA.64x256x16.F32.BF16 R24, gdesc[UR20], R24, gsb0"
FULL = [("LDC R1, c[0x0][0x28]", 8, 256), ("@P0 UTMALDG.2D [UR8], [UR4]", 4, 4), (HGMMA, 32, 1024)]


@pytest.mark.parametrize(
    ("text", "opcode"),
    [
        ("HGMMA.64x16x16.F32.BF16 R24, gdesc[UR20], RZ, !UPT", "HGMMA.64x16x16.F32.BF16"),
        ("@!P0 UTMALDG.2D.MULTICAST [UR8], [UR4], UR6", "UTMALDG.2D.MULTICAST"),
        ("@UP1 UTMASTG.2D [UR4], [UR6]", "UTMASTG.2D"),
        ("      EXIT", "EXIT"),
        ('(*"HGMMA"*)', ""),
    ],
)
def test_opcodes(text: str, opcode: str) -> None:
    assert opcode_of(text) == opcode


@pytest.mark.parametrize(
    ("opcode", "family"),
    [
        ("HGMMA.64x16x16.F32", "GMMA"), ("QGMMA.64x64x32.F32.E4M3.E4M3", "GMMA"), ("IGMMA.64x8x32", "GMMA"),
        ("UTMALDG.3D", "UTMALDG"), ("UTMASTG.2D", "UTMASTG"), ("UTMAREDG.2D.ADD", "UTMAREDG"),
        ("UTMAPF.2D", None), ("UTMACCTL.PF", None), ("UTMACMDFLUSH", None), ("HMMA.16816.F32", None),
        ("UBLKCP", None), ("GMMAX", None),
    ],
)  # fmt: skip
def test_what_counts_as_target_instruction(opcode: str, family: str | None) -> None:
    assert family_of(opcode) == family


def test_flops_of_an_instruction() -> None:
    assert gmma_flops("HGMMA.64x256x16.F32.BF16") == 2 * 64 * 256 * 16
    assert gmma_flops("HGMMA") == 0


def test_a_real_disassembly() -> None:
    found = parse_disassembly(DISASSEMBLY.read_text(encoding="utf-8"))
    # Counted by hand in the file, which has a UTMACCTL.PF and a name with HGMMA in it besides.
    assert found.families == {"GMMA": 3, "UTMALDG": 2, "UTMASTG": 1}
    assert found.functions == ("_Z12my_HGMMA_fooPf", "_ZN7cutlass13device_kernelE")
    assert found.architectures == ("sm_90a",)


@pytest.mark.parametrize("names", [True, False])
def test_a_profile_of_two_launches(names: bool) -> None:
    text = page("first", FULL, names) + page("second", [("FFMA R1, R2, R3, R4", 100, 3200)], names)
    first, second = parse_profile(text)
    assert first.kernel == "first"
    assert first.instances == {"GMMA": 8, "UTMALDG": 4}  # 32 warps are 8 warpgroups
    assert first.threads == {"GMMA": 1024, "UTMALDG": 4}
    assert first.flops == 8 * 2 * 64 * 256 * 16
    assert (second.kernel, second.instances, second.lines) == ("second", {}, 1)


def test_shares_of_the_work() -> None:
    shares = work_share(parse_profile(page("k", FULL)), PROBLEM)
    # 8 instructions of 524,288 FLOP are all of 4,194,304. The smaller operand, 16 KiB, fits one TMA copy.
    assert shares == {"GMMA": 1.0, "UTMALDG": 1.0}
    assert work_share(parse_profile(page("k", [(HGMMA, 4, 128)])), PROBLEM) == {"GMMA": 0.125}


def test_verdicts() -> None:
    library = parse_disassembly(DISASSEMBLY.read_text(encoding="utf-8"))
    without = parse_disassembly("\t\tFunction : f\n        /*0000*/   UTMACCTL.PF [UR6] ;   /* 0x0 */\n")
    executed = parse_profile(page("k", FULL))
    assert judge(library, executed, PROBLEM).used is Used.YES
    assert judge(without, executed, PROBLEM).used is Used.NO
    idle = parse_profile(page("k", [(HGMMA, 0, 0), ("FFMA R1, R2, R3, R4", 9, 288)]))
    assert judge(library, idle, PROBLEM).used is Used.NO
    predicated_off = parse_profile(page("k", [("@P0 UTMALDG.2D [UR8], [UR4]", 4, 0)]))
    assert judge(library, predicated_off, PROBLEM).used is Used.NO
    token = judge(library, parse_profile(page("k", [(HGMMA, 4, 128)])), PROBLEM)
    assert token.used is Used.NO
    assert "token" in token.reason


def test_what_cannot_be_seen_is_unknown_and_never_yes() -> None:
    library = parse_disassembly(DISASSEMBLY.read_text(encoding="utf-8"))
    for profile in (None, [], parse_profile("==ERROR== no permission\n")):
        assert judge(library, profile, PROBLEM).used is Used.UNKNOWN
    assert judge(None, parse_profile(page("k", FULL)), PROBLEM).used is Used.UNKNOWN
