"""What programs reach of a device, against the measurements that the bands are made of."""

import json
from pathlib import Path

import pytest

from core.catalog import bands, devices, find_device
from core.conformance import read_rows
from core.roofline import achieved_share
from core.sizes import Bytes

ROWS = read_rows(Path(__file__).parent.parent / "data" / "oracle.csv")
# What the table of llama.cpp's speeds calls a device.
DEVICES = {
    "RTX3070": "rtx-3070-8gb",
    "RTX3080": "rtx-3080-10gb",
    "RTX3090": "rtx-3090-24gb",
    "RTX4090": "rtx-4090-24gb",
    "RTXA6000": "rtx-a6000-48gb",
    "L40S": "l40s-48gb",
    "A100PCIe80": "a100-pcie-80gb",
    "A100SXM80": "a100-sxm-80gb",
    "H100PCIe": "h100-pcie-80gb",
    "M1Max32c": "apple-m1-max",
    "M2Ultra76c": "apple-m2-ultra",
    "M3Max40c": "apple-m3-max-40-core-gpu",
}


def measured() -> list[tuple[str, str, int, float]]:
    """(row, device, bits, share of the bandwidth) of every decode with bytes and a bandwidth."""
    found = []
    for row in ROWS:
        inputs = json.loads(row["inputs_json"] or "{}")
        if row["quantity"] != "decode_tok_s_measured" or "bandwidth_gb_s" not in inputs:
            continue
        if "file_mib" in inputs:
            device, read = "snapdragon-8-gen-3", Bytes.of(inputs["file_mib"], "MiB")
            bits = 16 if inputs["mode"] == "bf16" else 4
        else:
            device, read = DEVICES[(row["id"] or "").split("-")[-1]], Bytes(inputs["weight_bytes"])
            bits = 16 if "f16" in (row["id"] or "") else 4
        bandwidth = 1e9 * inputs["bandwidth_gb_s"]
        share = achieved_share(read, float(row["expected"] or 0), bandwidth)
        found.append((row["id"] or "", device, bits, share))
    return found


MEASURED = measured()


@pytest.mark.parametrize(("id", "device", "bits", "share"), MEASURED, ids=[m[0] for m in MEASURED])
def test_every_measurement_lies_in_its_band(id: str, device: str, bits: int, share: float):
    band = bands.share(find_device(device).kind, "decode", bits / 8)
    assert band is not None
    assert band.low - 0.005 <= share <= band.high + 0.005
    assert band.low < band.high


# Further figures, as their sources give them: GB a token, tok/s, GB/s of the device.
FURTHER = [
    ("apple", 16, 16.06, 22.39, 400),  # XiongjieDai README, M3 Max 40c, Llama-3 8B F16
    ("gpu-consumer", 16, 13.5, 1000 / 32.89, 936),  # bitsandbytes 347, RTX 3090, LLaMA-7B fp16
    ("gpu-datacenter", 16, 1397.31, 1, 2039),  # gpt-fast README, A100: GB/s as printed
    ("gpu-datacenter", 8, 1069.2, 1, 2039),
    ("gpu-datacenter", 8, 1322.58, 1, 2039),
    ("gpu-datacenter", 4, 862.69, 1, 2039),
    ("edge", 4, 2.02, 4.88, 17.1),  # geerlingguy/sbc-reviews 21, Raspberry Pi 5
    ("edge", 4, 4.92, 2.17, 17.1),
]
# XiongjieDai README, RTX 3090 and M2 Ultra, Llama-3 8B F16: 16.06 GB × tok/s by the bandwidth
PRINTED = [("gpu-consumer", 16, 0.80), ("apple", 16, 0.73)]


def test_bands_are_no_wider_than_what_was_measured():
    """Each end of each runtime's row is some program's figure on some device of the kind."""
    shares = [(find_device(d).kind, b, s) for _, d, b, s in MEASURED] + PRINTED
    for kind, bits, gb, rate, gb_s in FURTHER:
        share = achieved_share(Bytes.of(gb, "GB"), rate, 1e9 * gb_s)
        shares.append((kind, bits, share))
    for row in bands.seen():
        if row.work == "decode":
            mine = [s for kind, bits, s in shares if (kind, bits) == (row.kind, row.bits)]
            for end in (row.low, row.high):
                assert any(abs(end - s) < 0.006 for s in mine), (row, end)


def test_a_band_is_never_one_number_and_says_where_it_is_from():
    for seen in bands.seen():
        band = bands.share(seen.kind, seen.work, seen.bits / 8)
        assert band is not None
        assert 0 < band.low < band.high <= 1
        assert seen.runtime in band.source
        assert band.low <= seen.low <= seen.high <= band.high


def test_kinds_are_those_of_devices_and_unknown_ones_have_no_band():
    kinds = {d.kind for d in devices().values()}
    assert {s.kind for s in bands.seen()} <= kinds
    assert bands.share("abacus", "decode") is None
    assert bands.share("tpu", "decode") is None


@pytest.mark.parametrize(
    ("bytes_per_weight", "bits"),
    [(4, 16), (2, 16), (1.0625, 8), (1, 8), (0.82, 4), (0.5625, 4), (0.26, 4)],
)
def test_formats_fall_into_three_classes(bytes_per_weight: float, bits: int):
    assert bands.bits_of(bytes_per_weight) == bits


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"low": "0"}, "shares"),
        ({"low": "0.9", "high": "0.5"}, "shares"),
        ({"high": "1.2"}, "shares"),
        ({"work": "sleep"}, "work"),
        ({"bits": "5"}, "bits"),
        ({"source": ""}, "source"),
    ],
    ids=str,
)
def test_a_row_that_is_no_band_is_named(monkeypatch, tmp_path, changed, said):
    row = {
        "kind": "apple", "work": "decode", "bits": "16", "runtime": "x", "low": "0.5",
        "high": "0.6", "source": "y",
    } | changed  # fmt: skip
    (tmp_path / "bands.csv").write_text(",".join(row) + "\n" + ",".join(row.values()) + "\n")
    monkeypatch.setattr(bands, "FOLDER", tmp_path)
    with pytest.raises(ValueError, match=f"row 2.*{said}"):
        bands.seen.__wrapped__()
