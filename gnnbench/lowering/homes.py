"""The home of each vertex, a host that has its data, on a machine of several nodes.

Every host's memory has the topology. Each host has the features, labels and vertex data of its
vertices. Rows that a device needs of another host cross the network to the device's own host.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate

import numpy as np

from gnnbench.machines.machine import Device, Platform
from gnnbench.records import IndexArray, IntArray


class Homes:
    """The home of every vertex.

    Each host has ``counts`` vertices, namely those to which ``numbers`` gives the host's index.
    Without ``numbers`` the vertices are dealt to the hosts in turn.
    """

    def __init__(
        self, platform: Platform, counts: tuple[int, ...], numbers: IntArray | None = None
    ) -> None:
        self.hosts = platform.hosts
        self.counts = counts
        self._numbers = numbers

    @classmethod
    def spread(cls, platform: Platform, num_vertices: int) -> Homes:
        """Deal vertices to the hosts in turn, where nothing favours another order."""
        step = len(platform.hosts)
        return cls(platform, tuple(len(range(n, num_vertices, step)) for n in range(step)))

    @classmethod
    def at_sockets(cls, platform: Platform, sockets: IntArray) -> Homes:
        """Assign each vertex to the host of its socket."""
        if not platform.other_hosts:
            return cls(platform, (len(sockets),))
        hosts = [platform.hosts.index(host) for host in platform.sockets]
        numbers = np.array(hosts, dtype=np.int64)[sockets]
        return cls(platform, _count(numbers, len(platform.hosts)), numbers)

    def count(self, ids: IntArray | IndexArray) -> tuple[int, ...]:
        """Return how many of the vertices ``ids`` are at home at each host."""
        hosts = len(self.hosts)
        if hosts == 1:
            return (len(ids),)
        return _count(ids % hosts if self._numbers is None else self._numbers[ids], hosts)

    def divide(self, size_bytes: int) -> Iterator[tuple[Device, int]]:
        """Yield each host's part of ``size_bytes``, of which all vertices have equal parts."""
        begin, ends = 0, list(accumulate(self.counts))
        for host, end in zip(self.hosts, ends, strict=True):
            done = size_bytes * end // ends[-1]
            yield host, done - begin
            begin = done

    def list_abroad(self, counts: tuple[int, ...], here: Device) -> Iterator[tuple[Device, int]]:
        """Yield the hosts other than ``here`` with rows in ``counts``, and their number of rows."""
        for host, count in zip(self.hosts, counts, strict=True):
            if count and host is not here:
                yield host, count


def _count(numbers: IntArray | IndexArray, hosts: int) -> tuple[int, ...]:
    return tuple(np.bincount(numbers, minlength=hosts).tolist())
