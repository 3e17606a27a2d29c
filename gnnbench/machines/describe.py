"""Platform files: read, checked and listed.

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

import contextlib
import difflib
import itertools
import socket
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict

from pydantic import ValidationError

from gnnbench.constants import Bound
from gnnbench.errors import PlatformError
from gnnbench.host.files import FileRefusedError, user_cache
from gnnbench.host.toml import read_toml
from gnnbench.machines.libraries import read_libraries, read_rates
from gnnbench.machines.machine import DISK, Device, LibraryRates, Link, Platform, RateCurve
from gnnbench.machines.schema import (
    AcceleratorTable,
    Bandwidth,
    ClusterTable,
    CoreSetTable,
    CoresTable,
    HostTable,
    LinkTable,
    Marked,
    NodeTable,
    PlatformTable,
    TomlTable,
    explain,
    suggest,
    table_of,
)

BUNDLED = Path(__file__).parent
#: The platform to model if there is no CUDA device.
FALLBACK = "epyc7763x2-4xa5000"
LOCAL = "local"
#: The prefix of a platform made of this machine's cores: ``cores:1,1``.
CORES = "cores:"
#: The least similarity of a name that an error message suggests.
_LIKE: Bound[float] = 0.4


# --------------------------------------------------------------------------- finding and listing


@dataclass(frozen=True, slots=True)
class PlatformEntry:
    """One line of ``platforms list``; ``path`` is None for a ``local`` that was never probed."""

    name: str
    description: str
    path: Path | None


def local_path() -> Path:
    """Return the file for the probed description of this machine, whether or not it exists.

    Nodes of a cluster often share the home folder, so each has a folder by its host's name.
    """
    return user_cache() / "platforms" / socket.gethostname() / f"{LOCAL}.toml"


def find_file(spec: str) -> Path | None:
    """Return the file that describes the platform ``spec``, whether or not it exists; None for a
    name that no platform has."""
    path = Path(spec)
    if spec == LOCAL:
        return local_path()
    if path.suffix == ".toml" or len(path.parts) > 1:
        return path
    return next((path for path in BUNDLED.glob("*.toml") if path.stem == spec), None)


def find_all_files() -> tuple[Path, ...]:
    """Return the files of every platform with a name."""
    return (local_path(), *sorted(BUNDLED.glob("*.toml")))


def load_platform(spec: str) -> Platform:
    """Return the platform called ``spec``, or described by the ``.toml`` file at that path.

    ``local`` is this machine: as probed, if it was, else as the operating system describes it.
    ``cores:1,1`` has devices that are made of this machine's cores
    (:mod:`gnnbench.machines.workers`). Devices of every other platform are virtual. Raises
    ``PlatformError``.
    """
    if spec.startswith(CORES):
        from gnnbench.machines.workers import make_workers, parse_cores

        return make_workers(parse_cores(spec), spec)
    if spec == LOCAL:
        from gnnbench.machines.local import load_local

        return load_local()
    path = find_file(spec)
    if path is not None:
        return read_platform(path)
    names = (LOCAL, *(path.stem for path in sorted(BUNDLED.glob("*.toml"))))
    close = difflib.get_close_matches(spec, names, n=2, cutoff=_LIKE)
    hint = f"did you mean {' or '.join(close)}" if close else f"choose from {', '.join(names)}"
    raise PlatformError(f"there is no platform called {spec!r}; {hint}, or name a .toml file.")


def is_made_of_cores(spec: str) -> bool:
    """Return whether a platform's devices are this machine's cores; False if its file is missing or
    unreadable."""
    if spec.startswith(CORES):
        return True
    path = find_file(spec)
    with contextlib.suppress(FileRefusedError, OSError, ValueError):
        return path is not None and path.is_file() and table_of(read_toml(path)) is CoresTable
    return False


def list_platforms() -> tuple[PlatformEntry, ...]:
    """Return ``local`` first, then the bundled platforms by name."""
    unknown = "this machine, not measured yet (gnnbench platforms probe --save)"
    local = PlatformEntry(LOCAL, unknown, None)
    if local_path().is_file():
        local = PlatformEntry(LOCAL, "this machine, as last probed", local_path())
    bundled = (
        PlatformEntry(path.stem, read_platform(path).description, path)
        for path in sorted(BUNDLED.glob("*.toml"))
    )
    return (local, *bundled)


def default_platform() -> Platform:
    """Return ``local`` if there is a CUDA device, else HyScale-GNN's CPU-GPU server, modelled."""
    import torch

    return load_platform(LOCAL if torch.cuda.is_available() else FALLBACK)


# --------------------------------------------------------------------------- reading


def read_platform(path: Path) -> Platform:
    """Return the platform described by a TOML file, with virtual devices.

    Raises ``PlatformError`` with one sentence when the file cannot be read, is not TOML, violates
    the schema, or contradicts itself.
    """
    try:
        data = read_toml(path)
        return _build(table_of(data).model_validate(data))
    except FileRefusedError as error:
        raise PlatformError(f"platform file {error}") from None
    except ValidationError as error:
        raise PlatformError(f"platform file {path}: {explain(error, data)}.") from None
    except _ContradictionError as error:
        raise PlatformError(f"platform file {path}: {error}.") from None


class _ContradictionError(Exception):
    """Entries that are valid one by one and contradict each other."""


def _build(table: TomlTable) -> Platform:
    if isinstance(table, CoresTable):
        return _make_workers(table)
    if not isinstance(table, PlatformTable | ClusterTable):
        raise TypeError(f"not a platform: {type(table).__name__}")
    hosts, groups = [], dict[str, tuple[Device, ...]]()
    numbers: dict[str, Marked] = {}
    for name, described in _name_hosts(table).items():
        hosts.append(_build_host(name, described))
        groups[name] = (hosts[-1],)
        numbers.update(_numbers_of(name, described))
    for entry in table.accelerators:
        if entry.name == DISK:
            raise _ContradictionError(
                f"[[accelerators]] {DISK} has the name of the host's disk; rename it"
            )
        if entry.name in groups:
            raise _ContradictionError(
                f"two entries are called {entry.name!r}; give each [[accelerators]] its own name"
            )
        groups[entry.name] = tuple(_expand_accelerators(entry))
        numbers.update(_numbers_of(entry.name, entry))
    devices = tuple(itertools.chain.from_iterable(groups.values()))
    twice = _first_duplicate(device.name for device in devices)
    if twice is not None:
        raise _ContradictionError(
            f"two devices are called {twice!r}; give each [[accelerators]] its own name"
        )
    links = _build_links(table.links, [host.name for host in hosts], groups, numbers)
    accelerators = devices[len(hosts) :]
    _check_nodes(hosts, accelerators, links)
    first, *others = hosts
    step = table.step if isinstance(table, PlatformTable) else None
    if step is not None:
        numbers["step"] = step
    return Platform(
        table.name,
        table.description,
        first,
        accelerators,
        tuple(links),
        {key: number.source for key, number in numbers.items()},
        step_s=step.si if step else 0.0,
        other_hosts=tuple(others),
        marks={key: number.marked for key, number in numbers.items()},
    )


def _make_workers(table: CoresTable) -> Platform:
    from gnnbench.machines.workers import CoreSet, Sets, make_workers

    def read(each: CoreSetTable) -> CoreSet:
        return CoreSet(each.count, each.speed, round(each.memory.si) if each.memory else None)

    link = table.link
    sets = Sets(
        devices=tuple(map(read, table.cores)),
        host=read(table.host) if table.host else None,
        bandwidth_bytes_per_s=link.bandwidth.si if link.bandwidth else None,
        blocking=link.blocking,
    )
    return make_workers(sets, table.name, table.description)


def _name_hosts(table: PlatformTable | ClusterTable) -> Mapping[str, HostTable]:
    """Return the hosts of a file by their names; a single one is called ``host``."""
    if isinstance(table, PlatformTable):
        return {"host": table.host}
    if len(table.hosts) < 2:
        raise _ContradictionError(
            "[[hosts]] are several; write a single one as [host], without a name"
        )
    twice = _first_duplicate(entry.name for entry in table.hosts)
    if twice is not None:
        raise _ContradictionError(
            f"two hosts are called {twice!r}; give each [[hosts]] its own name"
        )
    return {entry.name: entry for entry in table.hosts}


def _check_nodes(
    hosts: Sequence[Device], accelerators: Iterable[Device], links: Iterable[Link]
) -> None:
    """Check that every accelerator is linked with one host, and every host with every other."""
    ends = {frozenset(link.ends) for link in links}
    for one, other in itertools.combinations(hosts, 2):
        if {one.name, other.name} not in ends:
            raise _ContradictionError(
                f"hosts {one.name} and {other.name} are not linked; "
                f'add a [[links]] entry from = "{one.name}" to = "{other.name}"'
            )
    for device in accelerators:
        linked = [host.name for host in hosts if {host.name, device.name} in ends]
        if not linked:
            which = "the host" if len(hosts) == 1 else "a host"
            raise _ContradictionError(
                f"{device.name} has no link to {which}; "
                f'add a [[links]] entry from = "{hosts[0].name}" to = "{device.name}"'
            )
        if len(linked) > 1:
            raise _ContradictionError(
                f"{device.name} is linked with hosts {' and '.join(linked)}; it belongs to one"
            )


def _build_host(name: str, table: HostTable) -> Device:
    host = Device(
        name=name,
        kind="cpu",
        model=table.model,
        flops_per_s=table.flops.si,
        memory_bandwidth_bytes_per_s=table.memory_bandwidth.si,
        memory_bytes=round(table.memory.si),
        launch_s=table.launch.si,
        cores=table.cores.value,
        core_bandwidth_bytes_per_s=table.core_bandwidth.si,
        fresh_bandwidth_bytes_per_s=_rate(table.fresh_bandwidth),
        core_fresh_bandwidth_bytes_per_s=_rate(table.core_fresh_bandwidth),
        sampled_edges_per_s=table.sampling.si,
        disk_bandwidth_bytes_per_s=_rate(table.disk_bandwidth),
        sockets=table.sockets.value if table.sockets else 1,
        socket_bandwidth_bytes_per_s=_rate(table.socket_bandwidth),
        power_w=table.power.si if table.power else None,
        **_read_measured(table),
    )
    where = f"[[hosts]] {name}" if isinstance(table, NodeTable) else "[host]"
    if (table.sockets is None) != (table.socket_bandwidth is None):
        lacking = "sockets" if table.sockets is None else "socket_bandwidth"
        raise _ContradictionError(
            f"{where} has no {lacking}; give both, or neither for a single socket"
        )
    if table.sockets is not None and host.sockets == 1:
        raise _ContradictionError(
            f"{where} has a single socket; take out sockets and socket_bandwidth"
        )
    if table.fresh_bandwidth is None and table.core_fresh_bandwidth is not None:
        raise _ContradictionError(
            f"{where} has no fresh_bandwidth; give it with core_fresh_bandwidth"
        )
    return host


def _rate(number: Bandwidth | None) -> float:
    return number.si if number else 0.0


def _build_links(
    entries: Iterable[LinkTable],
    hosts: Sequence[str],
    groups: Mapping[str, tuple[Device, ...]],
    numbers: dict[str, Marked],
) -> list[Link]:
    """Return the links between single devices, a host first; add their numbers to ``numbers``."""
    # A link may name a group or one device of it.
    named = {device.name: (device,) for group in groups.values() for device in group} | dict(groups)
    links: list[Link] = []
    for entry in entries:
        one, other = entry.from_, entry.to
        if other in hosts and one not in hosts:
            one, other = other, one
        for end in (one, other):
            if end not in named:
                raise _ContradictionError(
                    f"[[links]] {entry.from_} to {entry.to}: there is no device {end!r}; "
                    f"{suggest(end, groups)}"
                )
        expanded = _expand_link(entry, one, other, named)
        links += expanded
        if expanded:
            numbers.update(_numbers_of(f"{one}-{other}", entry))
    joined = _first_duplicate("-".join(sorted(link.ends)) for link in links)
    if joined is not None:
        one, other = joined.split("-")
        raise _ContradictionError(f"{one} and {other} are linked twice; keep one [[links]] entry")
    return links


class _Measured(TypedDict):
    """Numbers that hosts and accelerators may both state."""

    gather: RateCurve | None
    aggregate: RateCurve | None
    aggregate_backward: RateCurve | None
    update: RateCurve | None
    cache_bytes: float
    libraries: dict[str, LibraryRates]


def _read_measured(table: HostTable | AcceleratorTable) -> _Measured:
    return {
        "gather": read_rates(table.gather),
        "aggregate": read_rates(table.aggregate),
        "aggregate_backward": read_rates(table.aggregate_backward),
        "update": read_rates(table.update),
        "cache_bytes": table.cache.si if table.cache else 0.0,
        "libraries": read_libraries(table.libraries),
    }


def _expand_accelerators(entry: AcceleratorTable) -> Iterator[Device]:
    names = [entry.name]
    if entry.count is not None:
        if entry.name[-1].isdigit():
            raise _ContradictionError(
                f"[[accelerators]] {entry.name} has a count, which numbers its devices; "
                f"take the digits off its name"
            )
        names = [f"{entry.name}{i}" for i in range(entry.count.value)]
    for name in names:
        yield Device(
            name=name,
            kind=entry.kind,
            model=entry.model,
            flops_per_s=entry.flops.si,
            memory_bandwidth_bytes_per_s=entry.memory_bandwidth.si,
            memory_bytes=round(entry.memory.si),
            launch_s=entry.launch.si,
            cores=entry.cores.value if entry.cores else 1,
            sampled_edges_per_s=entry.sampling.si if entry.sampling else 0.0,
            pipelined=entry.pipelined,
            power_w=entry.power.si if entry.power else None,
            **_read_measured(entry),
        )


def _expand_link(
    entry: LinkTable, one: str, other: str, named: Mapping[str, tuple[Device, ...]]
) -> list[Link]:
    pairs: Iterable[tuple[Device, Device]] = itertools.product(named[one], named[other])
    if one == other and one not in (device.name for device in named[one]):
        pairs = itertools.combinations(named[one], 2)
    links = []
    for a, b in pairs:
        if a is b:
            raise _ContradictionError(
                f"[[links]] {entry.from_} to {entry.to} joins {a.name} to itself; "
                f"name two different devices"
            )
        ends = (a.name, b.name)
        via = (entry.via,) if isinstance(entry.via, str) else tuple(entry.via or ())
        if own := [stop for stop in via if stop in ends]:
            raise _ContradictionError(
                f"[[links]] {entry.from_} to {entry.to} goes via {own[0]}, one of its own ends; "
                f"take out via"
            )
        rate, latency_s = entry.bandwidth.si, entry.latency.si
        links.append(Link("-".join(ends), ends, rate, latency_s, via, entry.shared))
    return links


def _numbers_of(prefix: str, table: TomlTable) -> Iterator[tuple[str, Marked]]:
    """Yield ``("host.flops", ...)`` for every number of an entry."""
    for key, value in table:
        if isinstance(value, Marked):
            yield f"{prefix}.{key}", value
        elif isinstance(value, dict):
            for name, inner in value.items():
                yield from _numbers_of(f"{prefix}.{key}.{name}", inner)


def _first_duplicate(names: Iterable[str]) -> str | None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            return name
        seen.add(name)
    return None
