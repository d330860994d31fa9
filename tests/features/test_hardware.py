import dataclasses
import json
import pickle

import pytest

from cutlass_ranker.features import HARDWARE, Hardware, get_hardware
from cutlass_ranker.generator import UnknownHardware

H200 = HARDWARE["h200"]


def test_names():
    assert set(HARDWARE) == {"h200", "h100_sxm", "h100_pcie", "gh200", "h20"}
    assert all(HARDWARE[name].name == name for name in HARDWARE)


def test_only_the_h200_is_measured():
    assert [name for name, gpu in HARDWARE.items() if gpu.measured] == ["h200"]
    assert all(gpu.source.startswith("Datasheet: ") for gpu in HARDWARE.values() if not gpu.measured)


@pytest.mark.parametrize("spelling", ["H200", "h200", "NVIDIA H200", " nvidia-h200 "])
def test_spellings(spelling):
    assert get_hardware(spelling) is H200


def test_spelling_of_a_name_with_a_separator():
    assert get_hardware("H100-PCIe") is HARDWARE["h100_pcie"]
    assert get_hardware("h100 sxm") is HARDWARE["h100_sxm"]


def test_a_description_is_its_own_name():
    other = dataclasses.replace(H200, name="mine", sm_count=100)
    assert get_hardware(other) is other


@pytest.mark.parametrize("name", ["", "a100", "h", "nvidia", None])
def test_unknown_name(name):
    with pytest.raises(UnknownHardware, match="use one of h200, h100_sxm"):
        get_hardware(name)


def test_datasheet_peak_is_sms_times_clock():
    # GH100's tensor cores do 4096 dense BF16 FLOP per clock and SM: 132 · 4096 · 1.83e9 = 989.4e12, 114 · 4096 · 1.62e9
    # = 756.4e12. (H20's rate is cut below that on purpose.)
    for name in ("h100_sxm", "h100_pcie", "gh200"):
        gpu = HARDWARE[name]
        assert gpu.peak("bf16") == pytest.approx(gpu.sm_count * 4096 * gpu.clock_hz, rel=2e-3)


def test_datasheet_clusters():
    # 114 SMs = 6 GPCs of 18 and 6 left. Clusters of 4: 4 a GPC and 1 = 25; of 8: 2 a GPC and 0 = 12; of 16: 1 each = 6.
    assert HARDWARE["h100_pcie"].active_clusters == {1: 114, 2: 57, 4: 25, 8: 12, 16: 6}


def test_active_ctas():
    gpu = dataclasses.replace(H200, active_clusters={1: 132, 4: 30, 8: 15})
    table = gpu.active_ctas
    assert table[1] == 132
    assert table[4] == 120
    assert table[8] == 120
    # Not listed: 2 and 3 count as clusters of 4 (30 of them); 16 is beyond the list: one cluster.
    assert list(table[[2, 3, 16]]) == [60, 90, 16]


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("sm_count", 0, "sm_count is 0"),
        ("l2_bytes", -1, "l2_bytes is -1"),
        ("dram_bandwidth", float("nan"), "dram_bandwidth is nan"),
        ("peak_flops", {}, "peak_flops"),
        ("peak_flops", {"bf16": 0.0}, "peak_flops"),
        ("active_clusters", {2: 66}, "entry for single CTAs"),
        ("active_clusters", {1: 132, 2: 0}, "positive counts"),
    ],
)
def test_impossible_values(field, value, message):
    with pytest.raises(UnknownHardware, match=message):
        dataclasses.replace(H200, **{field: value})


def test_missing_peak():
    with pytest.raises(UnknownHardware, match=r"no peak_flops for 'e4m3'; it has bf16, f16"):
        H200.peak("e4m3")


def test_json_round_trip():
    assert Hardware.from_json(json.dumps(dataclasses.asdict(H200))) == H200


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"name": "x", "active_clusters": {"1": 1}}', '{"active_clusters": 3}']
)
def test_bad_json(text):
    with pytest.raises(UnknownHardware, match="not a hardware description"):
        Hardware.from_json(text)


def test_hashable_and_picklable():
    assert {H200: 1}[pickle.loads(pickle.dumps(H200))] == 1
