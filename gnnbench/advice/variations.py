"""Platforms with one thing changed, on which the answer may differ."""

from __future__ import annotations

from dataclasses import dataclass, replace

from gnnbench.errors import UsageError
from gnnbench.machines.machine import Link, Platform
from gnnbench.machines.tables import replace_fields
from gnnbench.units import format_si


@dataclass(frozen=True, slots=True)
class Variation:
    """A ``platform`` that differs from the one asked about.

    ``what`` is the difference, as the beginning of a sentence.
    """

    what: str
    platform: Platform


def with_device_memory(platform: Platform, size: int) -> Platform:
    """Return the platform with ``size`` bytes of memory in each accelerator.

    Raises ``UsageError`` if there is no accelerator.
    """
    if not platform.accelerators:
        raise UsageError(
            f"platform {platform.name} has no accelerator, so --device-memory has nothing to "
            f"change; leave it out, or name another --platform."
        )
    devices = tuple(replace_fields(device, memory_bytes=size) for device in platform.accelerators)
    return replace(platform, accelerators=devices)


def with_host_links(platform: Platform, factor: float) -> Platform:
    """Return the platform with links between host and accelerators ``factor`` times as fast."""
    hosts = {host.name for host in platform.hosts}

    def speed_up(link: Link) -> Link:
        if len(hosts.intersection(link.ends)) != 1:
            return link
        picked = link.picked_bytes_per_s
        return replace(
            link,
            bandwidth_bytes_per_s=link.bandwidth_bytes_per_s * factor,
            picked_bytes_per_s=None if picked is None else picked * factor,
        )

    return replace(platform, links=tuple(map(speed_up, platform.links)))


def without_device(platform: Platform) -> Platform:
    """Return the platform without its last accelerator."""
    gone = platform.accelerators[-1].name
    return replace(
        platform,
        accelerators=platform.accelerators[:-1],
        links=tuple(link for link in platform.links if gone not in link.ends),
    )


def list_variations(platform: Platform, needed_bytes: float | None) -> tuple[Variation, ...]:
    """Return variations of a platform, one thing changed in each.

    Device memory is below the ``needed_bytes`` of the answer, if it needs any, or half or one and a
    half of the present memory. Host links are twice as fast, or there is one device fewer.
    """
    if not platform.accelerators:
        return ()
    has = min(device.hardware.memory_bytes for device in platform.accelerators)
    found = []
    if needed_bytes is not None:
        size = int(0.9 * needed_bytes)
        what = f"With {format_si(size, 'B')} a device, less than it takes,"
        found.append(Variation(what, with_device_memory(platform, size)))
    for share in (0.5, 1.5):
        what = f"With {format_si(share * has, 'B')} a device instead of {format_si(has, 'B')}"
        found.append(Variation(what, with_device_memory(platform, int(share * has))))
    what = "With links to the host twice as fast, as the next generation of PCIe has them,"
    found.append(Variation(what, with_host_links(platform, 2.0)))
    if len(platform.accelerators) > 1:
        count = len(platform.accelerators) - 1
        what = f"With {count} accelerator{'s' * (count > 1)} instead of {count + 1}"
        found.append(Variation(what, without_device(platform)))
    return tuple(found)
