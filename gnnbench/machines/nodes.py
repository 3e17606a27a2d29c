"""The machine of a job on several nodes, assembled from each node's description of itself.

Every node has the whole data set, so the host's rows are on every node. One ``host`` stands for
all of them: it has the rates of the first node's host, and the memory of the smallest. Devices are
numbered through all nodes, in the order of the ranks. Transfers between nodes share the network
cards at both ends.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, product
from typing import Annotated, TypeVar

from gnnbench.constants import Constant, Mark
from gnnbench.machines.machine import Device, Link, Platform
from gnnbench.machines.tables import replace_fields

#: The network between nodes where the operating system does not state its speed.
NETWORK_BYTES_PER_S: Annotated[float, Constant("B/s", "assumed", "10 Gb/s Ethernet")] = 1.25e9
NETWORK_LATENCY_S: Annotated[
    float, Constant("s", "assumed", "one message over TCP in a data centre, order of magnitude")
] = 3e-5
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Node:
    """A node of a job.

    It has the name of its host, the devices of its ranks, and the speed of its network card, one
    way, if the operating system states it.
    """

    host: str
    platform: Platform
    card_bytes_per_s: float | None = None


def join_nodes(nodes: Sequence[Node]) -> Platform:
    """Return the platform of all nodes, in the order of their ranks."""
    if len(nodes) == 1:
        return nodes[0].platform
    first = nodes[0].platform
    devices: list[tuple[Device, ...]] = []
    links: list[Link] = []
    sources, marks = dict[str, str](), dict[str, Mark]()
    for node in nodes:
        begin = sum(map(len, devices))
        names = {
            device.name: f"{re.sub('[0-9]+$', '', device.name)}{begin + number}"
            for number, device in enumerate(node.platform.accelerators)
        }
        names[node.platform.host.name] = first.host.name
        devices.append(
            tuple(
                dataclasses.replace(device, name=names[device.name])
                for device in node.platform.accelerators
            )
        )
        own = {link.name: "-".join(names[end] for end in link.ends) for link in node.platform.links}
        links += [
            dataclasses.replace(
                link,
                name=own[link.name],
                ends=(names[link.ends[0]], names[link.ends[1]]),
                via=tuple(names.get(stop, stop) for stop in link.via),
            )
            for link in node.platform.links
        ]
        sources = _rename(node.platform.sources, names | own) | sources
        marks = _rename(node.platform.marks, names | own) | marks
    for (i, one), (j, other) in combinations(enumerate(nodes), 2):
        crossing = _cross(devices[i], devices[j], one, other, (f"card{i}", f"card{j}"))
        links += crossing
        sources |= _list_sources(crossing, one, other)
    memory_bytes = min(node.platform.host.hardware.memory_bytes for node in nodes)
    told = "; ".join(f"{node.host}: {node.platform.description}" for node in nodes)
    return dataclasses.replace(
        first,
        description=f"{len(nodes)} nodes, {told}",
        host=replace_fields(first.host, memory_bytes=memory_bytes),
        accelerators=tuple(device for own in devices for device in own),
        links=tuple(links),
        sources=sources,
        marks=marks,
    )


def _cross(
    here: Sequence[Device], there: Sequence[Device], one: Node, other: Node, cards: tuple[str, str]
) -> list[Link]:
    """Return the links between the devices of two nodes."""
    known = [node.card_bytes_per_s or NETWORK_BYTES_PER_S for node in (one, other)]
    return [
        Link(
            f"{a.name}-{b.name}",
            (a.name, b.name),
            min(known),
            NETWORK_LATENCY_S,
            cards,
            shared=True,
        )
        for a, b in product(here, there)
    ]


def _list_sources(links: Sequence[Link], one: Node, other: Node) -> dict[str, str]:
    stated = one.card_bytes_per_s and other.card_bytes_per_s
    speed = "the operating systems: the slower card of the two nodes" if stated else "10 Gb/s"
    return {f"{link.name}.bandwidth": speed for link in links} | {
        f"{link.name}.latency": "one message over TCP, order of magnitude" for link in links
    }


def _rename(known: Mapping[str, T], names: Mapping[str, str]) -> dict[str, T]:
    """Return entries by dotted keys, with the devices and links under their new names."""
    return {
        f"{names.get(name, name)}{dot}{rest}": value
        for (name, dot, rest), value in ((key.partition("."), known[key]) for key in known)
    }
