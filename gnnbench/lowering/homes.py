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
    """The home of every vertex: the host that ``numbers`` says; a single host needs none."""

    def __init__(self, platform: Platform, num_vertices: int, numbers: IntArray | None) -> None:
        self.hosts = platform.hosts
        self._numbers = numbers
        self.counts = (num_vertices,) if numbers is None else self._count(numbers)

    @classmethod
    def spread(cls, platform: Platform, num_vertices: int) -> Homes:
        """Vertices in turn, for which nobody has a reason to choose."""
        if not platform.other_hosts:
            return cls(platform, num_vertices, None)
        numbers = np.arange(num_vertices, dtype=np.int64) % len(platform.hosts)
        return cls(platform, num_vertices, numbers)

    @classmethod
    def at_sockets(cls, platform: Platform, sockets: IntArray) -> Homes:
        """Each vertex with the host that its socket is of."""
        if not platform.other_hosts:
            return cls(platform, len(sockets), None)
        numbers = [platform.hosts.index(host) for host in platform.sockets]
        return cls(platform, len(sockets), np.array(numbers, dtype=np.int64)[sockets])

    def count(self, ids: IntArray | IndexArray) -> tuple[int, ...]:
        """How many of the vertices ``ids`` are at home at each host."""
        return (len(ids),) if self._numbers is None else self._count(self._numbers[ids])

    def _count(self, numbers: IntArray) -> tuple[int, ...]:
        return tuple(np.bincount(numbers, minlength=len(self.hosts)).tolist())

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
