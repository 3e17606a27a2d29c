"""The assignment of a platform's devices to processes."""

from __future__ import annotations

from collections.abc import Sequence

from gnnbench.machines.machine import Device, Platform


def assign_ranks(trainers: Sequence[Device], platform: Platform) -> tuple[int, ...]:
    """Return the rank that has each device, by device index.

    Each device has a rank, except a host that trains beside accelerators. That host shares the rank
    of the first accelerator that belongs to it, unless it is made of separate cores.
    """
    if platform.host.pinned and not platform.shares_cores:
        return tuple(range(len(trainers)))
    hosts = {host.name for host in platform.hosts}
    if all(device.name in hosts for device in trainers):
        return tuple(range(len(trainers)))
    ranks, first = [], dict[str, int]()
    others = [device for device in trainers if device.name not in hosts]
    for rank, device in enumerate(others):
        first.setdefault(platform.host_of(device).name, rank)
    for device in trainers:
        shared = first.get(device.name, 0)
        ranks.append(shared if device.name in hosts else others.index(device))
    return tuple(ranks)
