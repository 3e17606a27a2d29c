"""Described machines whose accelerators differ in every rate, so that no two of them are alike."""

import dataclasses
from functools import cache

from gnnbench.check.graphs import Kind, make_platform
from gnnbench.machines.machine import Link, Platform
from gnnbench.machines.tables import replace_fields
from gnnbench.parts import Setting


@cache
def make_uneven(count: int = 3, kind: Kind = "gpu") -> Platform:
    """Return the machine of the conformance checks with at most 8 unequal accelerators.

    Neither rates nor sizes ascend with the device index. The first, the last, the fastest and the
    smallest device differ, so that a fault that takes one for another shows.
    """
    platform = make_platform(count, kind)
    accelerators = tuple(
        replace_fields(
            device,
            flops_per_s=device.hardware.flops_per_s * (1 + 0.3 * (index % 3)),
            memory_bandwidth_bytes_per_s=device.hardware.memory_bandwidth_bytes_per_s
            * (1 - 0.07 * index),
            # The smallest of three is the last, and the largest is in the middle.
            memory_bytes=device.hardware.memory_bytes + 1_000_000 * ((index + 1) % 3),
            launch_s=device.hardware.launch_s * (1 + 0.2 * index),
        )
        for index, device in enumerate(platform.accelerators)
    )
    links = tuple(
        dataclasses.replace(
            link,
            bandwidth_bytes_per_s=link.bandwidth_bytes_per_s * (1 - 0.02 * index),
            latency_s=link.latency_s * (1 + 0.05 * index),
        )
        for index, link in enumerate(platform.links)
    )
    return dataclasses.replace(platform, accelerators=accelerators, links=links)


def split_host(platform: Platform) -> Platform:
    """Return the platform with two hosts like its one, joined by a network.

    The first host has the first half of the accelerators, rounded down."""
    names = [device.name for device in platform.accelerators]
    hosts = [dataclasses.replace(platform.host, name=f"node{number}") for number in range(2)]

    def move(link: Link) -> Link:
        if platform.host.name not in link.ends:
            return dataclasses.replace(link, via=())
        (device,) = set(link.ends) - {platform.host.name}
        host = hosts[names.index(device) >= len(names) // 2].name
        return dataclasses.replace(link, name=f"{host}-{device}", ends=(host, device))

    network = Link("network", ("node0", "node1"), 1e9, 1e-5)
    return dataclasses.replace(
        platform,
        host=hosts[0],
        other_hosts=(hosts[1],),
        links=(*map(move, platform.links), network),
    )


def on_cpus(setting: Setting) -> Setting:
    """Return the setting with CPU nodes as accelerators, on which every kernel runs."""
    platform = setting.platform
    nodes = tuple(dataclasses.replace(each, kind="cpu") for each in platform.accelerators)
    return dataclasses.replace(setting, platform=dataclasses.replace(platform, accelerators=nodes))
