"""Platform files, read as platforms.

A platform file is TOML. Every number is an inline table with its unit, its source, and its mark:
``"measured"``, ``"quoted"``, ``"assumed"``, or ``"fitted"`` with the cells in ``fitted_on``.
Without a mark the number counts as assumed.

    memory_bandwidth = { value = 205, unit = "GB/s", mark = "quoted", source = "HyScale, Table II" }

A count (``cores``, ``count``) has no unit. An ``[[accelerators]]`` entry with a ``count`` is a
group: ``name = "gpu"`` and a count of 4 make ``gpu0`` to ``gpu3``. Without a count it is one device
with that name. A ``[[links]]`` entry joins two devices or groups, with one link for each pair of
devices, ``host-gpu0`` and so on. From a group to itself it makes one link for each unordered pair.
``via = "host"`` says that the two have no direct link, so a transfer between them occupies both
their links to the host. ``via`` may also name a switch, or a list of intermediate stops, such as
the network cards of two machines. Transfers take turns on a lane. With ``shared = true`` they share
its bandwidth instead, as transfers through NVSwitch or a network card do.

A file with ``[[cores]]`` has devices that are made of this machine's cores
(:mod:`gnnbench.machines.workers`). Several nodes are ``[[hosts]]``, each with a name, in place of
``[host]``. Every accelerator is linked with the host of its node and no other, and any two hosts
with each other. In memory, all numbers are unprefixed SI
(:class:`gnnbench.machines.machine.Platform`).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, TypeAdapter, ValidationError

from gnnbench.constants import find_marked
from gnnbench.errors import PlatformError
from gnnbench.host.files import FileRefusedError
from gnnbench.host.toml import read_toml
from gnnbench.machines.machine import (
    DISK,
    Count,
    Device,
    Link,
    MemoryRates,
    PathTimes,
    Platform,
    Seconds,
)
from gnnbench.machines.refusals import explain, suggest
from gnnbench.machines.tables import Key, Positive, Table, Text, list_leaves, read_mark

_HOST = {"kind": "cpu", "pipelined": False}
_HOST_NEEDS = ("cores", "core_bandwidth", "sampling")
_HOST_KEYS = frozenset(each.key.name for each in list_leaves(MemoryRates).values())


@dataclass(frozen=True, slots=True)
class _Accelerators:
    """An entry of a file: a device, or a group of ``count`` equal ones."""

    device: Device
    count: Annotated[int, Field(gt=0, le=1024), Key(unit="")] | None = None


@dataclass(frozen=True, slots=True)
class _Links:
    """An entry of a file: the links between all devices of two entries."""

    start: Annotated[str, Key("from")]
    end: Annotated[str, Key("to")]
    link: Link


_AcceleratorList = list[Annotated[_Accelerators, Table(without=_HOST_KEYS)]]
_Calibration = Mapping[str, Annotated[PathTimes, Table()]]
_LinkList = list[Annotated[_Links, Table(fixed={"name": "", "ends": ("", "")})]]


@dataclass(frozen=True, slots=True, kw_only=True)
class _PlatformFile:
    name: Annotated[Text, Key()]
    description: Annotated[Text, Key()]
    step_s: Annotated[Seconds, Key("step", "s")] = 0.0
    host: Annotated[Device, Table({**_HOST, "name": "host"}, needs=_HOST_NEEDS), Key()]
    accelerators: Annotated[_AcceleratorList, Key()] = field(default_factory=list)
    links: Annotated[_LinkList, Key()] = field(default_factory=list)
    calibration: Annotated[_Calibration, Key()] = field(default_factory=dict)

    @property
    def hosts(self) -> list[Device]:
        return [self.host]


@dataclass(frozen=True, slots=True)
class _ClusterFile:
    name: Annotated[Text, Key()]
    description: Annotated[Text, Key()]
    hosts: Annotated[list[Annotated[Device, Table(_HOST, needs=_HOST_NEEDS)]], Key()]
    accelerators: Annotated[_AcceleratorList, Key()] = field(default_factory=list)
    links: Annotated[_LinkList, Key()] = field(default_factory=list)
    calibration: Annotated[_Calibration, Key()] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CoreSet:
    """A number of cores, throttled to a fraction of their speed, with at most ``memory_bytes``.

    None means an even share of the machine's memory.
    """

    cores: Annotated[Count, Key("count")]
    speed: Annotated[float, Field(gt=0, le=1, allow_inf_nan=False), Key()] = 1.0
    memory_bytes: Annotated[int, Key("memory", "B")] | None = None


@dataclass(frozen=True, slots=True)
class CoreLink:
    """The link between any two sets of cores.

    Without ``bandwidth_bytes_per_s`` it is as fast as the memory.
    """

    bandwidth_bytes_per_s: Annotated[Positive, Key("bandwidth", "B/s")] | None = None
    blocking: Annotated[bool, Key()] = False


@dataclass(frozen=True, slots=True)
class Sets:
    """Devices made of cores, an optional host with separate cores, and the link between any two."""

    devices: Annotated[
        tuple[Annotated[CoreSet, Table()], ...],
        Field(min_length=1, max_length=1024, strict=False),
        Key("cores"),
    ]
    host: Annotated[CoreSet, Table(), Key()] | None = None
    link: Annotated[CoreLink, Table(), Key()] = CoreLink()


@dataclass(frozen=True, slots=True)
class _CoresFile:
    name: Annotated[Text, Key()]
    description: Annotated[Text, Key()]
    sets: Sets


#: The kind of a file by the key that identifies it.
_ROOTS: Mapping[str, Any] = {
    "cores": Annotated[_CoresFile, Table()],
    "hosts": Annotated[_ClusterFile, Table()],
}
_PLATFORM: Any = Annotated[_PlatformFile, Table()]


def is_cores_file(data: Mapping[str, object]) -> bool:
    """Return whether a file with these keys has devices made of this machine's cores."""
    return "cores" in data


def read_platform(path: Path) -> Platform:
    """Return the platform described by a TOML file, with virtual devices.

    Raises ``PlatformError`` with one sentence when the file cannot be read, is not TOML, violates
    the schema, or contradicts itself.
    """
    try:
        data = read_toml(path)
        root = next((root for key, root in _ROOTS.items() if key in data), _PLATFORM)
        return _build(_adapt(root).validate_python(data), data)
    except FileRefusedError as error:
        raise PlatformError(f"platform file {error}") from None
    except ValidationError as error:
        raise PlatformError(f"platform file {path}: {explain(error, data, root)}.") from None
    except _ConflictError as error:
        raise PlatformError(f"platform file {path}: {error}.") from None


@cache
def _adapt(root: Any) -> TypeAdapter[Any]:
    return TypeAdapter(root)


class _ConflictError(Exception):
    """Entries that are valid one by one and contradict each other."""


def _build(found: _PlatformFile | _ClusterFile | _CoresFile, data: dict[str, Any]) -> Platform:
    if isinstance(found, _CoresFile):
        from gnnbench.machines.workers import make_workers

        return make_workers(found.sets, found.name, found.description)
    hosts = found.hosts
    tables = data["hosts"] if isinstance(found, _ClusterFile) else [data["host"]]
    _check_hosts(found, tables)
    numbers: dict[str, Mapping[str, Any]] = {}
    groups: dict[str, tuple[Device, ...]] = {host.name: (host,) for host in hosts}
    for host, table in zip(hosts, tables, strict=True):
        numbers.update(find_marked(table, host.name))
    for entry, table in zip(found.accelerators, data.get("accelerators", ()), strict=True):
        name = entry.device.name
        if name == DISK:
            raise _ConflictError(
                f"[[accelerators]] {DISK} has the name of the host's disk; rename it"
            )
        if name in groups:
            raise _ConflictError(
                f"two entries are called {name!r}; give each [[accelerators]] its own name"
            )
        groups[name] = tuple(_expand_accelerators(entry))
        numbers.update(find_marked(table, name))
    devices = tuple(itertools.chain.from_iterable(groups.values()))
    twice = _first_duplicate(device.name for device in devices)
    if twice is not None:
        raise _ConflictError(
            f"two devices are called {twice!r}; give each [[accelerators]] its own name"
        )
    links: list[Link] = []
    for joined, table in zip(found.links, data.get("links", ()), strict=True):
        ends = _order_ends(joined, hosts, groups)
        links += (expanded := _expand_links(joined, ends, groups))
        if expanded:
            numbers.update(find_marked(table, "-".join(ends)))
    _check_links(links)
    _check_nodes(hosts, devices[len(hosts) :], links)
    if "step" in data:
        numbers["step"] = data["step"]
    numbers.update(find_marked(data.get("calibration", {}), "calibration"))
    return Platform(
        found.name,
        found.description,
        hosts[0],
        devices[len(hosts) :],
        tuple(links),
        {key: str(number["source"]) for key, number in numbers.items()},
        step_s=found.step_s if isinstance(found, _PlatformFile) else 0.0,
        other_hosts=tuple(hosts[1:]),
        marks={key: read_mark(number) for key, number in numbers.items()},
        calibration=found.calibration,
    )


def _check_hosts(found: _PlatformFile | _ClusterFile, tables: Iterable[Mapping[str, Any]]) -> None:
    """Check the names of hosts, and the keys of their ``tables`` that go together."""
    if isinstance(found, _ClusterFile):
        if len(found.hosts) < 2:
            raise _ConflictError(
                "[[hosts]] are several; write a single one as [host], without a name"
            )
        twice = _first_duplicate(host.name for host in found.hosts)
        if twice is not None:
            raise _ConflictError(
                f"two hosts are called {twice!r}; give each [[hosts]] its own name"
            )
    for host, table in zip(found.hosts, tables, strict=True):
        where = f"[[hosts]] {host.name}" if isinstance(found, _ClusterFile) else "[host]"
        lacking = {"sockets", "socket_bandwidth"} - set(table)
        if len(lacking) == 1:
            raise _ConflictError(
                f"{where} has no {lacking.pop()}; give both, or neither for a single socket"
            )
        if "sockets" in table and host.memory.sockets == 1:
            raise _ConflictError(
                f"{where} has a single socket; take out sockets and socket_bandwidth"
            )
        if "core_fresh_bandwidth" in table and "fresh_bandwidth" not in table:
            raise _ConflictError(
                f"{where} has no fresh_bandwidth; give it with core_fresh_bandwidth"
            )


def _expand_accelerators(entry: _Accelerators) -> Iterator[Device]:
    device = entry.device
    if entry.count is None:
        yield device
        return
    if device.name[-1].isdigit():
        raise _ConflictError(
            f"[[accelerators]] {device.name} has a count, which numbers its devices; "
            f"take the digits off its name"
        )
    for index in range(entry.count):
        yield replace(device, name=f"{device.name}{index}")


def _order_ends(
    joined: _Links, hosts: Sequence[Device], groups: Mapping[str, tuple[Device, ...]]
) -> tuple[str, str]:
    """Return the ends of a ``[[links]]`` entry, a host first."""
    ends, named = (joined.start, joined.end), {host.name for host in hosts}
    if joined.end in named and joined.start not in named:
        ends = ends[::-1]
    devices = {device.name for group in groups.values() for device in group}
    for end in ends:
        if end not in groups and end not in devices:
            raise _ConflictError(
                f"[[links]] {joined.start} to {joined.end}: there is no device {end!r}; "
                f"{suggest(end, groups)}"
            )
    return ends


def _expand_links(
    joined: _Links, ends: tuple[str, str], groups: Mapping[str, tuple[Device, ...]]
) -> list[Link]:
    """Return the links between single devices. An end is a group, or one device of it."""
    named = {device.name: (device,) for group in groups.values() for device in group} | dict(groups)
    one, other = ends
    pairs: Iterable[tuple[Device, Device]] = itertools.product(named[one], named[other])
    if one == other and one not in (device.name for device in named[one]):
        pairs = itertools.combinations(named[one], 2)
    links, entry = [], f"[[links]] {joined.start} to {joined.end}"
    for a, b in pairs:
        if a is b:
            raise _ConflictError(f"{entry} joins {a.name} to itself; name two different devices")
        if own := [stop for stop in joined.link.via if stop in (a.name, b.name)]:
            raise _ConflictError(f"{entry} goes via {own[0]}, one of its own ends; take out via")
        links.append(replace(joined.link, name=f"{a.name}-{b.name}", ends=(a.name, b.name)))
    return links


def _check_links(links: Iterable[Link]) -> None:
    joined = _first_duplicate("-".join(sorted(link.ends)) for link in links)
    if joined is not None:
        one, other = joined.split("-")
        raise _ConflictError(f"{one} and {other} are linked twice; keep one [[links]] entry")


def _check_nodes(
    hosts: Sequence[Device], accelerators: Iterable[Device], links: Iterable[Link]
) -> None:
    """Check that every accelerator is linked with one host, and every host with every other."""
    ends = {frozenset(link.ends) for link in links}
    for one, other in itertools.combinations(hosts, 2):
        if {one.name, other.name} not in ends:
            raise _ConflictError(
                f"hosts {one.name} and {other.name} are not linked; "
                f'add a [[links]] entry from = "{one.name}" to = "{other.name}"'
            )
    for device in accelerators:
        linked = [host.name for host in hosts if {host.name, device.name} in ends]
        if not linked:
            which = "the host" if len(hosts) == 1 else "a host"
            raise _ConflictError(
                f"{device.name} has no link to {which}; "
                f'add a [[links]] entry from = "{hosts[0].name}" to = "{device.name}"'
            )
        if len(linked) > 1:
            raise _ConflictError(
                f"{device.name} is linked with hosts {' and '.join(linked)}; it belongs to one"
            )


def _first_duplicate(names: Iterable[str]) -> str | None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            return name
        seen.add(name)
    return None
