"""Placement of seeds on the trainer that has their partition."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from gnnbench.datasets.partitioning import choose_partitioner, partition
from gnnbench.machines.machine import Device, Platform
from gnnbench.parts import MINI_BATCHES, Bundle, Handed, Placement, SeedSession, Setting, option
from gnnbench.records import BatchProfile, HostThreads, IntArray, Mode, Share


class PartitionShares(SeedSession):
    """Each trainer's seeds, in the order of their draw.

    ``owner`` is the trainer of each vertex, int64 ``(V,)``.
    """

    def __init__(self, owner: IntArray, num_trainers: int, threads: HostThreads) -> None:
        self._owner = owner
        self._num_trainers = num_trainers
        self._threads = threads

    def share_out(self, seeds: IntArray) -> Handed:
        owner = self._owner[seeds]
        parts = [seeds[owner == slot] for slot in range(self._num_trainers)]
        return tuple((Share(slot, len(part)), part) for slot, part in enumerate(parts))

    def host_threads(self) -> HostThreads:
        return self._threads


@dataclass(frozen=True)
class DistDGLPlacement(Placement):
    """One partition for each accelerator, or for the host without accelerators, trains its seeds.

    A round's seeds are drawn from all partitions at once, so that every strategy takes the same
    steps. A trainer has on average its partition's share of them; in DistDGL each trainer draws a
    batch of fixed size from its own partition. METIS balances vertices. It does not balance
    training vertices, as DistDGL requires.
    """

    name: ClassVar[str] = "distdgl"
    summary: ClassVar[str] = "accelerators train the seeds of their own METIS partitions"
    modes: ClassVar[frozenset[Mode]] = MINI_BATCHES

    accelerators: int = option(0, "how many accelerators to use; 0 = all", tried=(0, 1, 2))

    def open(
        self, setting: Setting, profiles: Sequence[BatchProfile], prefetch: Literal[0, 1, 2]
    ) -> SeedSession:
        return self.share_partitions(setting, HostThreads())

    def share_partitions(self, setting: Setting, threads: HostThreads) -> PartitionShares:
        """Return the shares of a run, each trainer's from its own partition."""
        return PartitionShares(
            self._partition(setting), len(self.owners(setting.platform)), threads
        )

    def _partition(self, setting: Setting) -> IntArray:
        """Return the slot that has each vertex's partition, int64 ``(V,)``.

        If sizes stand for the graph, partitions take turns.
        """
        graph, count = setting.dataset.graph, len(self.owners(setting.platform))
        if setting.sizes is not None:
            return np.arange(graph.num_vertices, dtype=np.int64) % count
        return partition(graph, count, choose_partitioner(graph), setting.workload.seed)

    def owners(self, platform: Platform) -> tuple[Device, ...]:
        """Return the devices that each have a partition."""
        return platform.accelerators[: self.accelerators or None] or (platform.host,)

    def trainers(self, platform: Platform) -> tuple[Device, ...]:
        return self.owners(platform)

    def sockets(self, setting: Setting, owner: IntArray) -> IntArray:
        """Return the socket of each row: its owner's, as in DistDGL's key-value store."""
        platform = setting.platform
        devices = self.owners(platform)
        if devices == (platform.host,):
            return super().sockets(setting, owner)
        attached = np.array([platform.socket(device) for device in devices])
        return attached[self._partition(setting)]


class StaticMapping(SeedSession):
    """Each accelerator's seeds, in the order of their draw.

    The CPU, in the last slot, has the last seeds of each partition.
    """

    def __init__(self, accelerators: PartitionShares, cpu_share: float) -> None:
        self._accelerators = accelerators
        self._cpu_share = cpu_share

    def share_out(self, seeds: IntArray) -> Handed:
        kept, given = [], []
        for share, part in self._accelerators.share_out(seeds):
            count = len(part) - round(self._cpu_share * len(part))
            kept.append((Share(share.slot, count), part[:count]))
            given.append(part[count:])
        on_cpu = np.concatenate(given)
        cpu = Share(len(kept), len(on_cpu), threads=self.host_threads().train)
        return (*kept, (cpu, on_cpu))

    def host_threads(self) -> HostThreads:
        return self._accelerators.host_threads()

    def notes(self) -> tuple[str, ...]:
        return (f"static task mapping: {self._cpu_share:.0%} of the seeds on the CPU",)


@dataclass(frozen=True)
class DistDGLv2Placement(Placement):
    """DistDGL's placement, in which the CPU also trains a fixed part of every partition's seeds.

    It follows HyScale-GNN's description of DistDGLv2 (section VI-E2): it uses "both the processor
    and the accelerator", on partitions, with "a static task mapping". The CPU's share is an option
    here. Its cores are divided once. With prefetching, sampling and loading get a quarter each, and
    training the rest. Without it, all cores work on each stage in turn.
    """

    name: ClassVar[str] = "distdgl-v2"
    summary: ClassVar[str] = "METIS partitions' seeds on accelerators, a fixed part on the CPU"
    modes: ClassVar[frozenset[Mode]] = MINI_BATCHES
    divides_threads: ClassVar[bool] = True

    accelerators: int = option(0, "how many accelerators to use; 0 = all", tried=(0, 1, 2))
    cpu_share: float = option(
        0.1, "part of every round's seeds that the CPU trains, from 0 to 1", tried=(0.0, 0.1, 0.3)
    )

    def refuses(self, bundle: Bundle, setting: Setting) -> str | None:
        if not 0 <= self.cpu_share <= 1:
            return f"placement.cpu_share is {self.cpu_share}; give a part of the seeds, 0 to 1."
        return None

    @property
    def _partitions(self) -> DistDGLPlacement:
        """The placement of partitions on the accelerators alone."""
        return DistDGLPlacement(self.accelerators)

    def trainers(self, platform: Platform) -> tuple[Device, ...]:
        """Return the accelerators, followed by the host."""
        owners = self._partitions.owners(platform)
        return owners if platform.host in owners else (*owners, platform.host)

    def open(
        self, setting: Setting, profiles: Sequence[BatchProfile], prefetch: Literal[0, 1, 2]
    ) -> SeedSession:
        platform = setting.platform
        threads = divide_cores(platform.host) if prefetch else HostThreads()
        shares = self._partitions.share_partitions(setting, threads)
        if self.trainers(platform) == self._partitions.owners(platform):
            return shares
        return StaticMapping(shares, self.cpu_share)

    def sockets(self, setting: Setting, owner: IntArray) -> IntArray:
        return self._partitions.sockets(setting, owner)


def divide_cores(host: Device) -> HostThreads:
    """Return a quarter of the cores each to sampling and loading, and the rest to training."""
    ahead = max(1, host.cores // 4)
    return HostThreads(ahead, ahead, max(1, host.cores - 2 * ahead))
