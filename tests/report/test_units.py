"""Quantities with units: read, scaled and printed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnnbench.units import format_si, parse_bytes, unit_scale


@pytest.mark.parametrize(
    ("unit", "base", "scale"),
    [
        ("B", "B", 1.0),
        ("GB", "B", 1e9),
        ("GiB", "B", 2.0**30),
        ("GB/s", "B/s", 1e9),
        ("MiB/s", "B/s", 2.0**20),
        ("TFLOP/s", "FLOP/s", 1e12),
        ("s", "s", 1.0),
        ("us", "s", 1e-6),
        ("µs", "s", 1e-6),
        ("Medges/s", "edges/s", 1e6),
        ("mW", "W", 1e-3),
    ],
)
def test_unit_scale(unit, base, scale):
    assert unit_scale(unit, base) == scale


@pytest.mark.parametrize(
    ("unit", "base"),
    [
        ("GB", "B/s"),  # a capacity is no bandwidth
        ("edges/s", "s"),
        ("ks", "s"),  # seconds take small prefixes only
        ("GiFLOP/s", "FLOP/s"),  # nor do operations take binary ones
        ("gb/s", "B/s"),
        ("", "B"),
    ],
)
def test_wrong_unit_is_named(unit, base):
    with pytest.raises(ValueError, match="is not one of") as error:
        unit_scale(unit, base)
    assert repr(unit) in str(error.value)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("0", 0),
        ("1000000", 1_000_000),
        ("1e9", 10**9),
        ("2GB", 2 * 10**9),
        ("1.5 GB", 1_500_000_000),
        ("512 MiB", 512 * 2**20),
        ("  64KiB ", 64 * 2**10),
    ],
)
def test_parse_bytes(text, size):
    assert parse_bytes(text) == size


@pytest.mark.parametrize("text", ["", "GB", "-1GB", "2 XB", "2GB/s", "two", "1,000", "0x10"])
def test_parse_bytes_refuses(text):
    with pytest.raises(ValueError, match="is not a size in bytes"):
        parse_bytes(text)


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (0, "s", "0 s"),
        (8.4e9, "B", "8.40 GB"),
        (999, "B", "999 B"),
        (1000, "B", "1.00 kB"),
        (27.8e12, "FLOP/s", "27.8 TFLOP/s"),
        (5e-6, "s", "5.00 µs"),
        (9.62e-7, "s", "962 ns"),
        (-3.5e6, "B", "-3.50 MB"),
        (42.0, "", "42.0"),
        # What rounds up to a thousand has the next prefix.
        (999.6e3, "B", "1.00 MB"),
        (999.4e3, "B", "999 kB"),
        (9.996e-4, "s", "1.00 ms"),
        (9.996, "s", "10.0 s"),
    ],
)
def test_format_si(value, unit, text):
    assert format_si(value, unit) == text


@given(st.integers(min_value=0, max_value=9 * 10**14))
def test_printed_bytes_read_back_within_their_digits(size):
    assert parse_bytes(format_si(size, "B", digits=6)) == pytest.approx(size, rel=1e-5, abs=1)
