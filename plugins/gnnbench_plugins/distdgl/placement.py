"""Seeds go to the trainer that has their partition."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

import numpy as np

from gnnbench.partitioning import choose_partitioner, partition
from gnnbench.parts import MINI_BATCH, Bundle, Placement, Setting, option
from gnnbench.platforms.machine import Device, Platform
from gnnbench.records import HostThreads, IntArray, Mode, Share


@dataclass
class DistDGLPlacement(Placement):
    """Every accelerator trains the seeds of one partition; the host does where there is none.

    A round's seeds are drawn from all partitions at once, so that every strategy takes the same
    steps: a trainer has on average its partition's share of them, where in DistDGL each draws a
    batch of the same size from its own. Partitions have about as many vertices each, METIS's; that
    they have as many training vertices, which DistDGL asks METIS for, is not seen to.
    """

    name: ClassVar[str] = "distdgl"
    summary: ClassVar[str] = "accelerators train the seeds of their own METIS partitions"
    modes: ClassVar[frozenset[Mode]] = MINI_BATCH

    accelerators: int = option(0, "how many accelerators to use; 0 = all")

    _partition: IntArray = field(init=False, repr=False, compare=False)
    _num_partitions: int = field(init=False, repr=False, compare=False)

    def begin(self, setting: Setting) -> None:
        graph = setting.dataset.graph
        self._num_partitions = len(self.owners(setting.platform))
        self._partition = partition(
            graph, self._num_partitions, choose_partitioner(graph), setting.workload.seed
        )

    def owners(self, platform: Platform) -> tuple[Device, ...]:
        """The devices that have a partition each."""
        return platform.accelerators[: self.accelerators or None] or (platform.host,)

    def trainers(self, platform: Platform) -> tuple[Device, ...]:
        return self.owners(platform)

    def sockets(self, platform: Platform, owner: IntArray) -> IntArray:
        """A partition's rows lie where its owner is attached, as in DistDGL's key-value store."""
        devices = self.owners(platform)
        if devices == (platform.host,):
            return super().sockets(platform, owner)
        return np.array([platform.socket(device) for device in devices])[self._partition]

    def split(self, num_seeds: int) -> tuple[Share, ...]:
        raise TypeError("how many seeds a partition has depends on which; ask share_out")

    def share_out(self, seeds: IntArray) -> tuple[tuple[Share, IntArray], ...]:
        """Each trainer's seeds in the order in which they were drawn."""
        owner = self._partition[seeds]
        parts = [seeds[owner == slot] for slot in range(self._num_partitions)]
        return tuple((Share(slot, len(part)), part) for slot, part in enumerate(parts))


@dataclass
class DistDGLv2Placement(DistDGLPlacement):
    """The same, and the CPU trains a fixed part of every partition's seeds beside them.

    Of DistDGLv2 this is what HyScale-GNN §VI-E2 says: it uses "both the processor and the
    accelerator", on partitions, with "a static task mapping". How much goes to the CPU is an option
    here, and its cores are divided once: with prefetching a quarter each to sampling and loading
    and the rest to training, without it all of them to each in turn.
    """

    name: ClassVar[str] = "distdgl-v2"
    summary: ClassVar[str] = "METIS partitions' seeds on accelerators, a fixed part on the CPU"

    cpu_share: float = option(0.1, "part of every round's seeds that the CPU trains, from 0 to 1")

    _threads: HostThreads = field(default_factory=HostThreads, init=False, repr=False)
    _host: Device = field(init=False, repr=False, compare=False)
    _hybrid: bool = field(default=False, init=False, repr=False)

    def refuses(self, bundle: Bundle, setting: Setting) -> str | None:
        if not 0 <= self.cpu_share <= 1:
            return f"placement.cpu_share is {self.cpu_share}; give a part of the seeds, 0 to 1."
        return None

    def begin(self, setting: Setting) -> None:
        super().begin(setting)
        self._host = setting.platform.host
        self._hybrid = len(self.trainers(setting.platform)) > self._num_partitions

    def trainers(self, platform: Platform) -> tuple[Device, ...]:
        """The accelerators, and after them the host."""
        owners = self.owners(platform)
        return owners if platform.host in owners else (*owners, platform.host)

    def overlap(self, prefetch: Literal[0, 1, 2]) -> None:
        ahead = max(1, self._host.cores // 4)
        train = max(1, self._host.cores - 2 * ahead)
        self._threads = HostThreads(ahead, ahead, train) if prefetch else HostThreads()

    def share_out(self, seeds: IntArray) -> tuple[tuple[Share, IntArray], ...]:
        """Each accelerator's seeds in the order in which they were drawn; the CPU has the last of
        each partition."""
        shares = super().share_out(seeds)
        if not self._hybrid:
            return shares
        kept, given = [], []
        for share, part in shares:
            count = len(part) - round(self.cpu_share * len(part))
            kept.append((Share(share.slot, count), part[:count]))
            given.append(part[count:])
        on_cpu = np.concatenate(given)
        cpu = Share(self._num_partitions, len(on_cpu), threads=self._threads.train)
        return (*kept, (cpu, on_cpu))

    def host_threads(self) -> HostThreads:
        return self._threads

    def notes(self) -> tuple[str, ...]:
        if not self._hybrid:
            return ()
        return (f"static task mapping: {self.cpu_share:.0%} of the seeds on the CPU",)
