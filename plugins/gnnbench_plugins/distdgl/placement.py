"""Seeds go to the trainer that has their partition."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from gnnbench.parts import MINI_BATCH, Placement, Setting, option
from gnnbench.platforms.machine import Device, Platform
from gnnbench.records import IntArray, Mode, Share
from gnnbench_plugins.hongtu.partition import choose_partitioner, partition


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
    _num_trainers: int = field(init=False, repr=False, compare=False)

    def begin(self, setting: Setting) -> None:
        graph = setting.dataset.graph
        self._num_trainers = len(self.trainers(setting.platform))
        self._partition = partition(
            graph, self._num_trainers, choose_partitioner(graph), setting.workload.seed
        )

    def trainers(self, platform: Platform) -> tuple[Device, ...]:
        return platform.accelerators[: self.accelerators or None] or (platform.host,)

    def split(self, num_seeds: int) -> tuple[Share, ...]:
        raise TypeError("how many seeds a partition has depends on which; ask share_out")

    def share_out(self, seeds: IntArray) -> tuple[tuple[Share, IntArray], ...]:
        """Each trainer's seeds in the order in which they were drawn."""
        owner = self._partition[seeds]
        parts = [seeds[owner == slot] for slot in range(self._num_trainers)]
        return tuple((Share(slot, len(part)), part) for slot, part in enumerate(parts))
