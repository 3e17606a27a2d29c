"""In which host's memory what belongs to a vertex lies, on a machine of several nodes.

The topology is in every host's memory. Of features, labels and vertex data each host has the rows
of its own vertices; those that a device needs of another host's go over the network to its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate

import numpy as np

from gnnbench.platforms.machine import Device, Platform
from gnnbench.records import IndexArray, IntArray


class Homes:
    """The home of every vertex: of each host so many are there, those to which ``numbers`` gives
    its number. Without ``numbers`` they are at home in turn."""

    def __init__(
        self, platform: Platform, counts: tuple[int, ...], numbers: IntArray | None = None
    ) -> None:
        self.hosts = platform.hosts
        self.counts = counts
        self._numbers = numbers

    @classmethod
    def spread(cls, platform: Platform, num_vertices: int) -> Homes:
        """Vertices in turn, for which nobody has a reason to choose."""
        step = len(platform.hosts)
        return cls(platform, tuple(len(range(n, num_vertices, step)) for n in range(step)))

    @classmethod
    def at_sockets(cls, platform: Platform, sockets: IntArray) -> Homes:
        """Each vertex with the host that its socket is of."""
        if not platform.other_hosts:
            return cls(platform, (len(sockets),))
        hosts = [platform.hosts.index(host) for host in platform.sockets]
        numbers = np.array(hosts, dtype=np.int64)[sockets]
        return cls(platform, _count(numbers, len(platform.hosts)), numbers)

    def count(self, ids: IntArray | IndexArray) -> tuple[int, ...]:
        """How many of the vertices ``ids`` are at home at each host."""
        hosts = len(self.hosts)
        if hosts == 1:
            return (len(ids),)
        return _count(ids % hosts if self._numbers is None else self._numbers[ids], hosts)

    def divide(self, size_bytes: int) -> Iterator[tuple[Device, int]]:
        """What each host has of something of so many bytes, every vertex as much of it."""
        begin, ends = 0, list(accumulate(self.counts))
        for host, end in zip(self.hosts, ends, strict=True):
            done = size_bytes * end // ends[-1]
            yield host, done - begin
            begin = done

    def list_abroad(self, counts: tuple[int, ...], here: Device) -> Iterator[tuple[Device, int]]:
        """The hosts other than ``here`` that have any of the rows in ``counts``, and how many."""
        for host, count in zip(self.hosts, counts, strict=True):
            if count and host is not here:
                yield host, count


def _count(numbers: IntArray | IndexArray, hosts: int) -> tuple[int, ...]:
    return tuple(np.bincount(numbers, minlength=hosts).tolist())
