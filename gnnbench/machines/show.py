"""A platform as rows for a reader, and as the text of a file."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from decimal import Decimal
from typing import TYPE_CHECKING, NamedTuple

from gnnbench.errors import PlatformError
from gnnbench.machines.machine import Device, Link, Platform, RateCurve
from gnnbench.machines.tables import Number, list_numbers
from gnnbench.units import format_si, unit_scale

if TYPE_CHECKING:
    from tomlkit.items import InlineTable


class PlatformRow(NamedTuple):
    """One line of ``platforms show``: a dotted key, its value as text, its mark and its source."""

    key: str
    value: str
    mark: str = ""
    source: str = ""


def show_platform(platform: Platform) -> list[PlatformRow]:
    """Return a platform as rows, in the file's order; devices of a group share their rows."""
    rows = [
        PlatformRow("name", platform.name),
        PlatformRow("description", platform.description),
    ]
    for key, device, numbers in _device_entries(platform):
        rows.append(PlatformRow(f"{key}.kind", device.kind))
        rows.append(PlatformRow(f"{key}.model", device.model))
        if device.pinned:
            rows.append(PlatformRow(f"{key}.pinned", ", ".join(map(str, device.pinned))))
            rows.append(PlatformRow(f"{key}.speed", f"{device.speed:g}"))
        if device.hardware.pipelined:
            rows.append(PlatformRow(f"{key}.pipelined", "true"))
        rows += _show_numbers(platform, key, numbers)
        for library, rates in device.libraries.items():
            rows += _show_numbers(platform, f"{key}.libraries.{library}", list_numbers(rates))
    for ends, link, numbers in _link_entries(platform):
        if link.via:
            rows.append(PlatformRow(f"{'-'.join(ends)}.via", ", ".join(link.via)))
        if link.shared:
            rows.append(PlatformRow(f"{'-'.join(ends)}.shared", "true"))
        rows += _show_numbers(platform, "-".join(ends), numbers)
    rows += _show_numbers(platform, "", _step_numbers(platform))
    for key, numbers in _calibration_numbers(platform):
        rows += _show_numbers(platform, f"calibration.{key}", numbers)
    return rows


def _show_numbers(platform: Platform, key: str, numbers: Iterable[Number]) -> Iterator[PlatformRow]:
    for name, unit, value in numbers:
        dotted = _join(key, name)
        mark, source = platform.mark(dotted), platform.sources.get(dotted, "")
        if mark.fitted_on:
            source = f"on {', '.join(mark.fitted_on)}: {source}"
        if isinstance(value, RateCurve):
            text = _describe_curve(value, unit)
        else:
            text = format_si(value, unit) if unit else f"{value:.4g}"
        yield PlatformRow(dotted, text, mark.kind, source)


def _join(key: str, name: str) -> str:
    """Return a dotted key; numbers of the whole platform have no ``key``."""
    return f"{key}.{name}" if key else name


def _step_numbers(platform: Platform) -> list[Number]:
    return [Number("step", "s", platform.step_s)] if platform.step_s else []


def _calibration_numbers(platform: Platform) -> Iterator[tuple[str, list[Number]]]:
    for key, times in platform.calibration.items():
        yield key, list(list_numbers(times, platform.sources, f"calibration.{key}."))


def to_toml(platform: Platform) -> str:
    """Return a description that :func:`read_platform` reads back equal.

    It lacks which devices are virtual, and the freed memory that this process keeps.

    Raises ``PlatformError`` when a number has no source.
    """
    import tomlkit

    hosts: list[dict[str, object]] = []
    accelerators: list[dict[str, object]] = []
    for key, device, numbers in _device_entries(platform):
        measured: dict[str, object] = {**_write_numbers(platform, key, numbers)}
        if device.libraries:
            measured["libraries"] = {
                name: _write_numbers(platform, f"{key}.libraries.{name}", list_numbers(rates))
                for name, rates in device.libraries.items()
            }
        if device in platform.hosts:
            named = {"name": key} if platform.other_hosts else {}
            hosts.append({**named, "model": device.model, **measured})
        else:
            named = {"name": key, "kind": device.kind, "model": device.model}
            accelerators.append({**named, "pipelined": device.hardware.pipelined, **measured})
    links: list[dict[str, object]] = []
    for (one, other), link, numbers in _link_entries(platform):
        choices = {"via": link.via, "shared": link.shared}
        given = {key: choice for key, choice in choices.items() if choice}
        written = _write_numbers(platform, f"{one}-{other}", numbers)
        links.append({"from": one, "to": other, **given, **written})
    described = {"hosts": hosts} if platform.other_hosts else {"host": hosts[0]}
    fitted = {
        key: _write_numbers(platform, f"calibration.{key}", numbers)
        for key, numbers in _calibration_numbers(platform)
    }
    entries = {**described, "accelerators": accelerators, "links": links, "calibration": fitted}
    top: dict[str, object] = {"name": platform.name, "description": platform.description}
    top |= _write_numbers(platform, "", _step_numbers(platform))
    return tomlkit.dumps({**top, **{key: entry for key, entry in entries.items() if entry}})


def _describe_curve(curve: RateCurve, unit: str) -> str:
    """Return ``"2.10 GB/s at width 16 to 9.81 GB/s at 1024, one core 1.90 GB/s to 9.02 GB/s"``."""

    def text(rate: float) -> str:
        return format_si(rate, unit)

    rates, cores, widths = curve.rates, curve.core_rates, curve.widths
    if len(widths) == 1:
        return f"{text(rates[0])}, one core {text(cores[0])}"
    return (
        f"{text(rates[0])} at width {widths[0]} to {text(rates[-1])} at {widths[-1]}, one core "
        f"{text(cores[0])} to {text(cores[-1])}"
    )


def _source_of(platform: Platform, key: str) -> str:
    source = platform.sources.get(key)
    if not source:
        raise PlatformError(
            f"platform {platform.name} has no source for {key}; "
            f"add one to its sources before writing it."
        )
    return source


def _write_numbers(
    platform: Platform, key: str, numbers: Iterable[Number]
) -> dict[str, InlineTable]:
    """Return an inline table for each number or curve, with unit, mark and source."""
    import tomlkit

    tables = {}
    for number in numbers:
        dotted = _join(key, number.key)
        table = tables[number.key] = tomlkit.inline_table()
        table.update(_write_number(number))
        mark = platform.mark(dotted)
        table["mark"] = mark.kind
        if mark.fitted_on:
            table["fitted_on"] = list(mark.fitted_on)
        table["source"] = _source_of(platform, dotted)
    return tables


def _device_entries(platform: Platform) -> Iterator[tuple[str, Device, list[Number]]]:
    """Yield the hosts, and one accelerator for each entry of the file."""
    for host in platform.hosts:
        yield host.name, host, _list_numbers(platform, host.name, host)
    groups: dict[str, list[Device]] = {}
    for device in platform.accelerators:
        groups.setdefault(_entry_key(platform, device.name), []).append(device)
    for key, (first, *rest) in groups.items():
        count = [] if key == first.name else [Number("count", "", 1 + len(rest))]
        yield key, first, count + _list_numbers(platform, key, first)


def _list_numbers(platform: Platform, key: str, record: object) -> list[Number]:
    return list(list_numbers(record, platform.sources, f"{key}."))


def _link_entries(platform: Platform) -> Iterator[tuple[tuple[str, str], Link, list[Number]]]:
    """Yield the ends of each ``[[links]]`` entry of the file, one of its links, and its numbers."""
    entries: dict[tuple[str, str], Link] = {}
    for link in platform.links:
        one, other = ((_entry_key(platform, end), end) for end in link.ends)
        ends = next(
            (ends for ends in itertools.product(one, other) if _has_source(platform, ends)),
            link.ends,
        )
        entries[ends] = link
    for ends, link in entries.items():
        yield ends, link, list(list_numbers(link))


def _has_source(platform: Platform, ends: tuple[str, ...]) -> bool:
    return f"{'-'.join(ends)}.bandwidth" in platform.sources


def _entry_key(platform: Platform, device: str) -> str:
    """Return the name of the entry that a device came from: its group's, or its own."""
    group = device.rstrip("0123456789")
    grouped = f"{group}.count" in platform.sources and f"{device}.flops" not in platform.sources
    return group if grouped else device


def _write_number(number: Number) -> dict[str, object]:
    """Return ``value`` and ``unit``, with a prefix under which the number reads back exactly."""
    _, base, value = number
    if isinstance(value, RateCurve):
        points = {"widths": value.widths, "values": value.rates, "core_values": value.core_rates}
        return {**points, "unit": base}
    if not base:
        return {"value": value}
    unit = format_si(value, base).split(" ")[1].replace("µ", "u")
    scale = Decimal(repr(unit_scale(unit, base)))
    scaled = float(Decimal(repr(value)) / scale)
    if float(Decimal(repr(scaled)) * scale) != value:
        unit, scaled = base, float(value)
    whole = scaled.is_integer() and scaled < 1e15
    return {"value": int(scaled) if whole else scaled, "unit": unit}
