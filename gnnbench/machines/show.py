"""A platform as rows for a reader, and as the text of a file."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import TYPE_CHECKING, NamedTuple

from gnnbench.errors import PlatformError
from gnnbench.machines.libraries import list_numbers
from gnnbench.machines.machine import Device, Link, Platform, RateCurve
from gnnbench.machines.schema import BASE_UNIT
from gnnbench.units import format_si, unit_scale

if TYPE_CHECKING:
    from tomlkit.items import InlineTable


class PlatformRow(NamedTuple):
    """One line of ``platforms show``: a dotted key, its value as text, its mark and its source."""

    key: str
    value: str
    mark: str = ""
    source: str = ""


Numbers = dict[str, float | int]


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
        if device.pipelined:
            rows.append(PlatformRow(f"{key}.pipelined", "true"))
        rows += _show_numbers(platform, key, numbers)
        rows += _show_numbers(platform, key, _device_curves(device))
        for library, rates in device.libraries.items():
            rows += _show_numbers(platform, f"{key}.libraries.{library}", list_numbers(rates))
    for ends, link, numbers in _link_entries(platform):
        if link.via:
            rows.append(PlatformRow(f"{'-'.join(ends)}.via", ", ".join(link.via)))
        if link.shared:
            rows.append(PlatformRow(f"{'-'.join(ends)}.shared", "true"))
        rows += _show_numbers(platform, "-".join(ends), numbers)
    if platform.step_s:
        rows.append(_show_number(platform, "step", format_si(platform.step_s, "s")))
    return rows


def _show_numbers(
    platform: Platform, key: str, numbers: Mapping[str, float | int | RateCurve]
) -> Iterator[PlatformRow]:
    for name, number in numbers.items():
        if isinstance(number, RateCurve):
            text = _describe_curve(name, number)
        else:
            text = format_si(number, BASE_UNIT[name]) if name in BASE_UNIT else str(number)
        yield _show_number(platform, f"{key}.{name}", text)


def _show_number(platform: Platform, dotted: str, text: str) -> PlatformRow:
    mark, source = platform.mark(dotted), platform.sources.get(dotted, "")
    if mark.fitted_on:
        source = f"on {', '.join(mark.fitted_on)}: {source}"
    return PlatformRow(dotted, text, mark.kind, source)


def to_toml(platform: Platform) -> str:
    """Return a description that :func:`read_platform` reads back equal, except which devices are
    virtual and the freed memory that this process keeps.

    Raises ``PlatformError`` when a number has no source.
    """
    import tomlkit

    hosts: list[dict[str, object]] = []
    accelerators: list[dict[str, object]] = []
    for key, device, numbers in _device_entries(platform):
        measured: dict[str, object] = {
            **_write_numbers(platform, key, {**numbers, **_device_curves(device)})
        }
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
            accelerators.append({**named, "pipelined": device.pipelined, **measured})
    links: list[dict[str, object]] = []
    for (one, other), link, numbers in _link_entries(platform):
        choices = {"via": link.via, "shared": link.shared}
        given = {key: choice for key, choice in choices.items() if choice}
        written = _write_numbers(platform, f"{one}-{other}", numbers)
        links.append({"from": one, "to": other, **given, **written})
    described = {"hosts": hosts} if platform.other_hosts else {"host": hosts[0]}
    entries = {**described, "accelerators": accelerators, "links": links}
    top: dict[str, object] = {"name": platform.name, "description": platform.description}
    if platform.step_s:
        top |= _write_numbers(platform, "", {"step": platform.step_s})
    return tomlkit.dumps({**top, **{key: entry for key, entry in entries.items() if entry}})


def _describe_curve(name: str, curve: RateCurve) -> str:
    """Return ``"2.10 GB/s at width 16 to 9.81 GB/s at 1024, one core 1.90 GB/s to 9.02 GB/s"``."""

    def text(rate: float) -> str:
        return format_si(rate, BASE_UNIT[name])

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
    platform: Platform, key: str, numbers: Mapping[str, float | int | RateCurve]
) -> dict[str, InlineTable]:
    """Return an inline table for each number or curve of an entry, with its unit, mark and source.
    Numbers of the whole platform have no ``key``."""
    import tomlkit

    tables = {name: tomlkit.inline_table() for name in numbers}
    for name, table in tables.items():
        table.update(_write_number(name, numbers[name]))
        dotted = f"{key}.{name}" if key else name
        mark = platform.mark(dotted)
        table["mark"] = mark.kind
        if mark.fitted_on:
            table["fitted_on"] = list(mark.fitted_on)
        table["source"] = _source_of(platform, dotted)
    return tables


def _device_entries(platform: Platform) -> Iterator[tuple[str, Device, Numbers]]:
    """Yield the hosts, and one accelerator for each entry of the file: its key, itself, its
    numbers."""
    for host in platform.hosts:
        yield host.name, host, _device_numbers(host)
    groups: dict[str, list[Device]] = {}
    for device in platform.accelerators:
        groups.setdefault(_entry_key(platform, device.name), []).append(device)
    for key, (first, *rest) in groups.items():
        count: Numbers = {} if key == first.name else {"count": 1 + len(rest)}
        yield key, first, count | _device_numbers(first)


def _link_entries(platform: Platform) -> Iterator[tuple[tuple[str, str], Link, Numbers]]:
    """Yield the ends of each ``[[links]]`` entry of the file, one of its links, and its numbers."""
    entries: dict[tuple[str, str], tuple[Link, Numbers]] = {}
    for link in platform.links:
        one, other = ((_entry_key(platform, end), end) for end in link.ends)
        ends = next(
            (ends for ends in itertools.product(one, other) if _has_source(platform, ends)),
            link.ends,
        )
        numbers: Numbers = {
            "bandwidth": link.bandwidth_bytes_per_s,
            "latency": link.latency_s,
        }
        entries[ends] = (link, numbers)
    for ends, (link, numbers) in entries.items():
        yield ends, link, numbers


def _has_source(platform: Platform, ends: tuple[str, ...]) -> bool:
    return f"{'-'.join(ends)}.bandwidth" in platform.sources


def _entry_key(platform: Platform, device: str) -> str:
    """Return the name of the entry that a device came from: its group's, or its own."""
    group = device.rstrip("0123456789")
    grouped = f"{group}.count" in platform.sources and f"{device}.flops" not in platform.sources
    return group if grouped else device


def _device_numbers(device: Device) -> Numbers:
    """Return the numbers of a device by their key in the file, without those that it does not
    have."""
    numbers: Numbers = {
        "cores": device.cores if device.kind == "cpu" or device.cores > 1 else 0,
        "flops": device.flops_per_s,
        "memory_bandwidth": device.memory_bandwidth_bytes_per_s,
        "core_bandwidth": device.core_bandwidth_bytes_per_s,
        "fresh_bandwidth": device.fresh_bandwidth_bytes_per_s,
        "core_fresh_bandwidth": device.core_fresh_bandwidth_bytes_per_s,
        "memory": device.memory_bytes,
        "sampling": device.sampled_edges_per_s,
        "disk_bandwidth": device.disk_bandwidth_bytes_per_s,
        "sockets": device.sockets if device.sockets > 1 else 0,
        "socket_bandwidth": device.socket_bandwidth_bytes_per_s,
        "power": device.power_w or 0,
        "cache": device.cache_bytes,
    }
    return {key: number for key, number in numbers.items() if number} | {"launch": device.launch_s}


def _device_curves(device: Device) -> dict[str, RateCurve]:
    """Return the rates by width of a device, by their key in the file."""
    curves = {
        "gather": device.gather,
        "aggregate": device.aggregate,
        "aggregate_backward": device.aggregate_backward,
        "update": device.update,
    }
    return {name: curve for name, curve in curves.items() if curve is not None}


def _write_number(key: str, number: float | int | RateCurve) -> dict[str, object]:
    """Return ``value`` and ``unit``, with a prefix under which the number reads back exactly."""
    if isinstance(number, RateCurve):
        points = {"widths": number.widths, "values": number.rates, "core_values": number.core_rates}
        return {**points, "unit": BASE_UNIT[key]}
    if key not in BASE_UNIT:
        return {"value": number}
    base = BASE_UNIT[key]
    unit = format_si(number, base).split(" ")[1].replace("µ", "u")
    scale = Decimal(repr(unit_scale(unit, base)))
    value = float(Decimal(repr(number)) / scale)
    if float(Decimal(repr(value)) * scale) != number:
        unit, value = base, float(number)
    whole = value.is_integer() and value < 1e15
    return {"value": int(value) if whole else value, "unit": unit}
