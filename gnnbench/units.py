"""Quantities with units: read from text, printed for people. In memory, all are unprefixed SI."""

from __future__ import annotations

import re

_PREFIXES = {"": 1.0, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}
_SMALL_PREFIXES = {"m": 1e-3, "u": 1e-6, "µ": 1e-6, "n": 1e-9}
_BINARY_PREFIXES = {"Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30, "Ti": 2.0**40}

#: The base units of quantities, and the prefixes that each takes.
_BASE_UNITS = {
    "B": ("bytes", _PREFIXES | _BINARY_PREFIXES),
    "B/s": ("bytes per second", _PREFIXES | _BINARY_PREFIXES),
    "FLOP/s": ("floating-point operations per second", _PREFIXES),
    "Hz": ("hertz", _PREFIXES),
    "s": ("seconds", {"": 1.0} | _SMALL_PREFIXES),
    "edges/s": ("edges per second", _PREFIXES),
    "W": ("watts", _PREFIXES | _SMALL_PREFIXES),
}

#: The largest size, in bytes.
LARGEST_SIZE = 1e18

_SIZE = re.compile(r"^\s*([0-9]*\.?[0-9]+(?:[eE][+-]?[0-9]{1,2})?)\s*([kKMGT]|[KMGT]i)?B?\s*$")


def unit_scale(unit: str, base: str) -> float:
    """Return the factor from ``unit`` (for example ``"GB/s"``) to ``base`` (``"B/s"``).

    Raises ``ValueError`` with one sentence when ``unit`` is not a prefixed ``base``.
    """
    prefixes = _BASE_UNITS[base][1]
    if unit.endswith(base):
        prefix = unit[: len(unit) - len(base)]
        if prefix in prefixes:
            return prefixes[prefix]
    examples = ", ".join(f"{prefix}{base}" for prefix in list(prefixes)[:4])
    raise ValueError(f"unit {unit!r} is not one of {_BASE_UNITS[base][0]} (such as {examples})")


def parse_bytes(text: str) -> int:
    """Parse ``"2GB"``, ``"512 MiB"``, ``"1e9"`` as a number of bytes; ``ValueError`` otherwise."""
    match = _SIZE.match(text)
    if match is None:
        raise ValueError(f"{text!r} is not a size in bytes (such as 2GB, 512MiB or 1000000)")
    number, prefix = match.groups()
    scale = (_PREFIXES | _BINARY_PREFIXES)[prefix or ""]
    size = float(number) * scale
    if size >= LARGEST_SIZE:
        raise ValueError(f"{text[:24]!r} is more bytes than can be counted, {LARGEST_SIZE:.0e}")
    return round(size)


def format_si(value: float, unit: str, digits: int = 3) -> str:
    """Return a value with a prefixed unit: ``format_si(8.4e9, "B")`` is ``"8.40 GB"``.

    It has three significant digits by default. Prefixes below one are used for seconds and joules
    only.
    """
    if value == 0:
        return f"0 {unit}".rstrip()
    rounded = float(f"{value:.{digits - 1}e}")
    factors = [(factor, symbol) for symbol, factor in _PREFIXES.items() if symbol != "K"]
    if unit in ("s", "J"):
        factors += [(factor, symbol) for symbol, factor in _SMALL_PREFIXES.items() if symbol != "u"]
    fitting = [item for item in factors if abs(rounded) >= item[0]]
    factor, symbol = max(fitting) if fitting else min(factors) if unit in ("s", "J") else (1.0, "")
    scaled = rounded / factor
    decimals = max(0, digits - len(str(int(abs(scaled)))))
    return f"{scaled:.{decimals}f} {symbol}{unit}".rstrip()
