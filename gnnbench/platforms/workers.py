"""This machine shared by several processes, one worker each."""

from __future__ import annotations

import dataclasses
from itertools import combinations

from gnnbench.platforms.local import load_local
from gnnbench.platforms.machine import Device, Link, Platform, RateCurve


def divide_machine(processes: int) -> Platform:
    """``local`` as so many workers: a GPU each where there are enough, else a share of the host.

    All exist, so that their times are measured; what a processor's workers send each other goes
    through its memory, whose rate stands for the link between any two.
    """
    local = load_local()
    if len(local.accelerators) >= processes:
        return _keep_accelerators(local, processes)
    host = local.host
    workers = tuple(
        dataclasses.replace(
            host,
            name=f"worker{rank}",
            flops_per_s=host.flops_per_s / processes,
            memory_bandwidth_bytes_per_s=host.memory_bandwidth_bytes_per_s / processes,
            memory_bytes=host.memory_bytes // processes,
            cores=max(1, host.cores // processes),
            sockets=1,
        )
        for rank in range(processes)
    )
    return dataclasses.replace(
        local,
        description=f"{local.description}, shared by {processes} processes",
        accelerators=workers,
        links=tuple(_link(host, one, other) for one, other in combinations((host, *workers), 2)),
    )


def take_cores(host: Device, count: int) -> Device:
    """A host of which so many cores are used, by what they reach without the others."""

    def cut(curve: RateCurve | None) -> RateCurve | None:
        if curve is None:
            return None
        rates = tuple(curve.at(width, count) for width in curve.widths)
        return dataclasses.replace(curve, rates=rates)

    if count >= host.cores:
        return host
    return dataclasses.replace(
        host,
        cores=count,
        flops_per_s=host.flops_per_s * host.share_of_cores(count),
        memory_bandwidth_bytes_per_s=host.bandwidth_bytes_per_s(count),
        gather=cut(host.gather),
        aggregate=cut(host.aggregate),
        aggregate_backward=cut(host.aggregate_backward),
        update=cut(host.update),
        libraries={
            name: dataclasses.replace(
                rates,
                aggregate=cut(rates.aggregate),
                cached=cut(rates.cached),
                written=cut(rates.written),
                update=cut(rates.update),
            )
            for name, rates in host.libraries.items()
        },
    )


def _link(host: Device, one: Device, other: Device) -> Link:
    ends = (one.name, other.name)
    return Link("-".join(ends), ends, host.memory_bandwidth_bytes_per_s)


def _keep_accelerators(platform: Platform, count: int) -> Platform:
    kept = platform.accelerators[:count]
    names = {device.name for device in (platform.host, *kept)}
    links = tuple(link for link in platform.links if names.issuperset(link.ends))
    return dataclasses.replace(platform, accelerators=kept, links=links)
