"""Described machines whose accelerators differ in every rate, so that no two of them are alike."""

from __future__ import annotations

import dataclasses

from gnnbench.conformance.graphs import Kind, make_platform
from gnnbench.parts import Setting
from gnnbench.platforms.machine import Platform

#: How much slower, or smaller, each further accelerator is.
COMPUTES, READS, HOLDS, LAUNCHES = 0.7, 0.8, 0.9, 1.3
#: The same for its link to the host, and for each further link between accelerators.
CROSSES = 0.6


def make_uneven(count: int = 3, kind: Kind = "gpu") -> Platform:
    """The machine of the conformance checks with unequal accelerators and links."""
    platform = make_platform(count, kind)
    accelerators = tuple(
        dataclasses.replace(
            device,
            flops_per_s=device.flops_per_s * COMPUTES**number,
            memory_bandwidth_bytes_per_s=device.memory_bandwidth_bytes_per_s * READS**number,
            memory_bytes=int(device.memory_bytes * HOLDS**number),
            launch_s=device.launch_s * LAUNCHES**number,
        )
        for number, device in enumerate(platform.accelerators)
    )
    links = tuple(
        dataclasses.replace(
            link, bandwidth_bytes_per_s=link.bandwidth_bytes_per_s * CROSSES ** (number % count)
        )
        for number, link in enumerate(platform.links)
    )
    return dataclasses.replace(platform, accelerators=accelerators, links=links)


def on_cpus(setting: Setting) -> Setting:
    """Return the setting with CPU nodes as accelerators, on which every kernel runs."""
    platform = setting.platform
    nodes = tuple(dataclasses.replace(each, kind="cpu") for each in platform.accelerators)
    return dataclasses.replace(setting, platform=dataclasses.replace(platform, accelerators=nodes))
