"""Durations and sizes as people write and read them."""

from __future__ import annotations

import math
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwise.core.errors import GpuwiseError, UnknownNameError, nearest_names
from gpuwise.core.units import (
    UNLIMITED,
    cpu_milli,
    format_bytes,
    format_duration,
    parse_bytes,
    parse_duration_s,
    remaining,
    whole_bytes,
)

DURATIONS = {
    "90": 90.0,
    "90s": 90.0,
    " 1.5h ": 1.5 * 3600,
    "2d": 2 * 86400.0,
    "3m": 180.0,
    "3min": 180.0,
    "250ms": 0.25,
    "10 s": 10.0,
    "01:30:00": 90 * 60.0,
    "2:05": 2 * 60 + 5.0,
    "100:00:01": 360001.0,
}


@pytest.mark.parametrize(("text", "seconds"), DURATIONS.items(), ids=DURATIONS)
def test_a_duration_is_read(text: str, seconds: float):
    assert parse_duration_s(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "soon", "1w", "-5", "1:2:3:4", "1,5h", "h", "1e3s", "1:234", "inf"])
def test_what_is_not_a_duration_is_shown_with_what_to_write(text: str):
    with pytest.raises(
        GpuwiseError, match="is not a duration; write seconds, or a number with ms, s, m, h or d, or h:mm:ss"
    ):
        parse_duration_s(text)


SIZES = {
    "0": 0.0,
    "512": 512.0,
    "1e9": 1e9,
    "16G": 16 * 2.0**30,
    "16GB": 16 * 2.0**30,
    "16 GiB": 16 * 2.0**30,
    "1.5k": 1536.0,
    "512MiB": 512 * 2.0**20,
    "2T": 2 * 2.0**40,
    "7B": 7.0,
}


@pytest.mark.parametrize(("text", "size"), SIZES.items(), ids=SIZES)
def test_a_size_is_read_in_powers_of_1024(text: str, size: float):
    assert parse_bytes(text) == size


@pytest.mark.parametrize("text", ["", "much", "-1", "1X", "1,5G", "G", "16 G i B"])
def test_what_is_not_a_size_is_shown_with_what_to_write(text: str):
    with pytest.raises(GpuwiseError, match=r"is not a size; write bytes, or a number with K, M, G or T"):
        parse_bytes(text)


SHOWN = {
    0.0: "0.0s",
    42.0: "42.0s",
    59.94: "59.9s",
    59.96: "1m00s",  # would else read 60.0s
    190.0: "3m10s",
    3599.4: "59m59s",
    3599.6: "1h00m",
    18120.0: "5h02m",
    86400.0: "1d00h",
    1051200.0: "12d04h",
    -90.0: "-1m30s",
    math.inf: "never",
    math.nan: "-",
}


@pytest.mark.parametrize(("seconds", "text"), SHOWN.items(), ids=SHOWN.values())
def test_a_duration_is_shown_in_its_two_largest_units(seconds: float, text: str):
    assert format_duration(seconds) == text


@given(st.floats(0, 1e9))
def test_a_duration_is_shown_to_within_one_of_its_smaller_unit(seconds: float):
    shown = format_duration(seconds)
    units = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
    total, digits = 0.0, ""
    for letter in shown:
        if letter in units:
            total, digits = total + float(digits) * units[letter], ""
        else:
            digits += letter
    assert total == pytest.approx(seconds, abs=0.051 if "." in shown else units[shown[-1]] / 2 + 1e-6)


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1 KiB"),
        (512 * 2**20, "512 MiB"),
        (15.8 * 2**30, "15.8 GiB"),
        (2**41, "2 TiB"),
    ],
)
def test_a_size_is_shown_in_its_largest_unit(size: float, text: str):
    assert format_bytes(size) == text


def test_unknown_names_come_with_the_nearest_known_ones():
    assert nearest_names("srft", ["fifo", "srtf", "srsf", "las"])[0] == "srtf"
    assert nearest_names("V-100", ["V100", "A100", "T4"])[0] == "V100"
    error = UnknownNameError("policy", "srft", ["fifo", "srtf"])
    assert str(error).startswith("unknown policy 'srft'; did you mean srtf")


def test_all_names_are_shown_when_they_are_few_and_none_is_near():
    assert nearest_names("zzz", ["fifo", "srtf"]) == ["fifo", "srtf"]
    assert nearest_names("zzz", [f"name{i}" for i in range(13)]) == []


@given(st.decimals(0, 10**6, places=3))
def test_thousandths_of_cpus_are_exact_up_to_three_decimals(cpus: Decimal):
    assert cpu_milli(float(cpus)) == 1000 * cpus


@given(st.floats(0, 2.0**60), st.floats(0, 2.0**60))
def test_amounts_are_rounded_down_and_keep_their_order(one: float, other: float):
    assert whole_bytes(one) <= one < whole_bytes(one) + 1
    if one <= other:
        assert whole_bytes(one) <= whole_bytes(other)
        assert cpu_milli(one) <= cpu_milli(other)


def test_an_infinite_amount_is_unlimited_and_stays_so():
    assert cpu_milli(math.inf) == whole_bytes(math.inf) == remaining(UNLIMITED, 5) == UNLIMITED
    assert remaining(5, 7) == -2
