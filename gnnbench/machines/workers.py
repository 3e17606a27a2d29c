"""Devices made of this machine: one for each of its GPUs, or sets of its cores.

``cores:1,1`` has two devices of one core each. ``cores:1+1`` has one device beside a host that
trains on a separate core. A file can also limit a device's memory and speed, and the bandwidth of
transfers between devices:

    name = "unequal"
    description = "two cores of this machine, one at half its speed"

    [[cores]]
    count = 1

    [[cores]]
    count = 1
    speed = 0.5
    memory = { value = 2, unit = "GB", source = "a budget" }

    [host]
    count = 1

    [link]
    bandwidth = { value = 500, unit = "MB/s", source = "a limit" }
    blocking = false

Only ``[[cores]]`` is required. Every device is a process pinned to its cores, so times are
measured.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate, combinations
from pathlib import Path
from typing import Annotated, Any, TypeVar

from gnnbench.constants import Constant
from gnnbench.errors import PlatformError
from gnnbench.host.cores import count_cores
from gnnbench.machines.files import CoreSet, Sets
from gnnbench.machines.local import load_local
from gnnbench.machines.machine import Device, Link, Platform, RateCurve
from gnnbench.machines.tables import map_numbers, replace_fields

#: Passes over memory for a transfer between two processes: a copy into shared memory and a copy out
#: of it, each a read and a write.
PASSES: Annotated[float, Constant("", "assumed", "two copies, a read and a write each")] = 4.0
#: The seconds of the shortest message between two processes.
LATENCY_S: Annotated[float, Constant("s", "assumed", "order of magnitude, loopback")] = 1e-4


def parse_cores(spec: str) -> Sets:
    """Parse ``cores:2,1`` or ``cores:1+1,1``, which states the host's cores first.

    Raises ``PlatformError``.
    """
    found = re.fullmatch(r"cores:(?:(\d{1,6})\+)?(\d{1,6}(?:,\d{1,6})*)", spec)
    counts = [int(each) for each in found[2].split(",")] if found else []
    host = int(found[1]) if found and found[1] else None
    if not counts or 0 in counts or host == 0:
        raise PlatformError(
            f"{spec!r} is not cores:A,B,... with the number of cores of each device, such as "
            f"cores:1,1; cores:1+1,1 gives the host one as well."
        )
    return Sets(tuple(map(CoreSet, counts)), None if host is None else CoreSet(host))


def make_workers(sets: Sets, name: str, description: str = "") -> Platform:
    """Return the platform of devices made of this machine's cores.

    Cores are assigned in order, to the devices first. Rates are ``local``'s for as many cores while
    all others work, scaled by the device's speed.

    Raises ``PlatformError`` if the machine has fewer cores, or less memory.
    """
    local = load_local()
    asked = [*sets.devices, *([sets.host] if sets.host else [])]
    here, wanted = list_cores(), sum(each.cores for each in asked)
    _check_they_fit(asked, len(here), local.host, name)
    ends = list(accumulate((each.cores for each in asked), initial=0))

    def make(number: int, name: str) -> Device:
        of = asked[number]
        at_work = sum(each.cores * each.speed for each in asked) + of.cores * (1.0 - of.speed)
        memory_bytes = of.memory_bytes or local.host.hardware.memory_bytes // len(asked)
        return replace_fields(
            slow_down(take_cores(local.host, of.cores, at_work), of.speed),
            name=name,
            sockets=1,
            pinned=tuple(here[ends[number] : ends[number + 1]]),
            memory_bytes=memory_bytes,
        )

    workers = tuple(make(number, f"worker{number}") for number in range(len(sets.devices)))
    # A host without separate cores has all cores; its work runs in the process that needs it.
    host = replace_fields(take_cores(local.host, wanted), sockets=1, pinned=tuple(here[: ends[-1]]))
    if sets.host is not None:
        host = make(len(workers), host.name)
    copied = local.host.bandwidth_bytes_per_s(1) / PASSES
    links = _join(
        (host, *workers),
        sets.link.bandwidth_bytes_per_s or copied,
        LATENCY_S,
        limited=sets.link.bandwidth_bytes_per_s is not None,
        blocking=sets.link.blocking,
    )
    own = f", beside a host of {_describe(sets.host)}" if sets.host else ""
    described = f"{local.host.model}: {', '.join(map(_describe, sets.devices))}{own}"
    return dataclasses.replace(
        local,
        name=name,
        step_s=local.step_s * len(asked),
        # A calibration is of the undivided machine.
        calibration={},
        description=description or f"devices made of this machine's cores, {described}",
        host=host,
        accelerators=workers,
        links=links,
        sources=_of_all(local.sources, workers)
        | {
            f"{worker.name}.memory": "its share of the machine's, or its budget"
            for worker in workers
        }
        | _list_sources(links, sets)
        | {"step": f"{len(asked)} processes read all steps; one: {local.sources.get('step', '')}"},
        marks=_of_all(local.marks, workers) | {"step": local.mark("step")},
    )


def _check_they_fit(asked: Sequence[CoreSet], cores: int, host: Device, name: str) -> None:
    """Raise ``PlatformError`` if sets of cores exceed ``cores`` or the host's memory."""
    wanted = sum(each.cores for each in asked)
    if wanted > cores:
        raise PlatformError(
            f"platform {name} is made of {wanted} cores, and this process may use {cores}; ask "
            f"for {cores} or fewer."
        )
    budgets = sum(each.memory_bytes or 0 for each in asked)
    if budgets > host.hardware.memory_bytes:
        raise PlatformError(
            f"the devices of platform {name} may hold {budgets:,} bytes together, and this machine "
            f"has {host.hardware.memory_bytes:,}; give them less memory."
        )


def list_cores() -> list[int]:
    """Return the cores that this process may use, by their first hardware threads.

    There are at most as many as a control group's quota keeps busy.
    """
    if not hasattr(os, "sched_getaffinity"):
        raise PlatformError(
            "this operating system does not let a process be pinned to cores; leave out --platform "
            "and ask for --processes."
        )
    allowed = sorted(os.sched_getaffinity(0))
    chosen, taken = [], set[int]()
    for number in allowed:
        if number not in taken:
            chosen.append(number)
            taken.update(_read_siblings(number))
    return chosen[: count_cores()]


def _read_siblings(core: int) -> Iterable[int]:
    """Yield the hardware threads of a core, itself among them."""
    path = Path(f"/sys/devices/system/cpu/cpu{core}/topology/thread_siblings_list")
    with contextlib.suppress(OSError, ValueError):
        for each in path.read_text().strip().split(","):
            first, _, last = each.partition("-")
            yield from range(int(first), int(last or first) + 1)


def take_cores(host: Device, count: int, at_work: float = 0.0) -> Device:
    """Return a host with ``count`` of its cores, at the rates that they reach alone.

    With ``at_work``, that many cores, these among them, are busy on average and share the rate of
    all cores.
    """
    share = count / at_work if at_work > count else 1.0

    def cut(curve: RateCurve) -> RateCurve:
        alone = [curve.at(width, count) for width in curve.widths]
        shared = [rate * share for rate in curve.rates] if share < 1.0 else alone
        return dataclasses.replace(curve, rates=tuple(map(min, alone, shared)))

    if count >= host.cores:
        return host
    bandwidth = host.bandwidth_bytes_per_s(count)
    plain = host.hardware
    return replace_fields(
        map_numbers(host, lambda _, each: cut(each) if isinstance(each, RateCurve) else each),
        cores=count,
        flops_per_s=plain.flops_per_s * host.share_of_cores(count),
        memory_bandwidth_bytes_per_s=min(bandwidth, plain.memory_bandwidth_bytes_per_s * share),
    )


def slow_down(device: Device, speed: float) -> Device:
    """Return a device on which everything takes ``1 / speed`` as long."""
    if speed == 1.0:
        return device

    def slow(unit: str, number: Any) -> object:
        if isinstance(number, RateCurve):
            return number.map_rates(lambda rate: rate * speed)
        if unit == "s":
            return number / speed
        return number * speed if unit.endswith("/s") else number

    kept = ("disk_bandwidth_bytes_per_s", "socket_bandwidth_bytes_per_s")
    unchanged = {name: getattr(device.memory, name) for name in kept}
    return replace_fields(map_numbers(device, slow), speed=speed, **unchanged)


def _join(
    devices: Sequence[Device],
    bytes_per_s: float,
    latency_s: float = 0.0,
    *,
    limited: bool = False,
    blocking: bool = False,
) -> tuple[Link, ...]:
    """Return equal links between any two devices."""
    return tuple(
        Link(
            f"{one.name}-{other.name}",
            (one.name, other.name),
            bytes_per_s,
            latency_s,
            limited=limited,
            blocking=blocking,
        )
        for one, other in combinations(devices, 2)
    )


def _list_sources(links: Iterable[Link], sets: Sets) -> dict[str, str]:
    given = "the platform's limit" if sets.link.bandwidth_bytes_per_s else "two copies by one core"
    found = {f"{link.name}.bandwidth": given for link in links}
    return found | {f"{link.name}.latency": "order of magnitude" for link in links}


T = TypeVar("T")


def _of_all(of_host: Mapping[str, T], workers: Iterable[Device]) -> dict[str, T]:
    """Copy the entries of the host's numbers for each worker."""
    own = {key: known for key, known in of_host.items() if key.startswith("host.")}
    return own | {
        f"{worker.name}.{key.removeprefix('host.')}": known
        for worker in workers
        for key, known in own.items()
    }


def _describe(cores: CoreSet) -> str:
    count = "a core" if cores.cores == 1 else f"{cores.cores} cores"
    return count if cores.speed == 1.0 else f"{count} at {cores.speed:g} of the speed"


# --------------------------------------------------------------------------- without pinning


def divide_machine(processes: int) -> Platform:
    """Return ``local`` as ``processes`` workers.

    Each has a GPU if there are enough, else a share of the host, independent of the number of
    cores. Nothing is pinned.

    All workers exist, so their times are measured. Workers of one processor exchange data through
    its memory; the memory's bandwidth models the link between any two.
    """
    local = load_local()
    if len(local.accelerators) >= processes:
        return _keep_accelerators(local, processes)
    host = local.host
    workers = tuple(
        replace_fields(
            host,
            name=f"worker{rank}",
            flops_per_s=host.hardware.flops_per_s / processes,
            memory_bandwidth_bytes_per_s=host.hardware.memory_bandwidth_bytes_per_s / processes,
            memory_bytes=host.hardware.memory_bytes // processes,
            cores=max(1, host.cores // processes),
            sockets=1,
        )
        for rank in range(processes)
    )
    return dataclasses.replace(
        local,
        description=f"{local.description}, shared by {processes} processes",
        accelerators=workers,
        links=_join((host, *workers), host.hardware.memory_bandwidth_bytes_per_s),
    )


def _keep_accelerators(platform: Platform, count: int) -> Platform:
    kept = platform.accelerators[:count]
    names = {device.name for device in (platform.host, *kept)}
    links = tuple(link for link in platform.links if names.issuperset(link.ends))
    return dataclasses.replace(platform, accelerators=kept, links=links)
