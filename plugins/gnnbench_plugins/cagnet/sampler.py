"""Random partitions of vertices."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from gnnbench.datasets.partitioning import deal_out
from gnnbench.kernels import dispatch
from gnnbench.parts import Chunks, DeviceCapacity, FullGraphSampler, Setting
from gnnbench.records import Round, Unit


@dataclass(frozen=True)
class RandomPartitionSampler(FullGraphSampler):
    """A random part of |V| / m vertices for each device.

    Degrees average out, so computation is balanced, but most edges are cut. "CAGNET and Sancus have
    balanced computation because [they adopt] random partition" (MixGCN, section 4.3).
    """

    name: ClassVar[str] = "random"
    summary: ClassVar[str] = "one-level partition: as many vertices for each device, at random"

    def chunks(
        self, setting: Setting, num_slots: int, capacity: DeviceCapacity | None = None
    ) -> Chunks:
        """Return one unit per slot; a slot without vertices has none."""
        graph, workload = setting.dataset.graph, setting.workload
        owner = deal_out(graph.num_vertices, num_slots, workload.seed)
        parts = [np.flatnonzero(owner == slot) for slot in range(num_slots)]
        units = tuple(
            Unit(slot, (setting.keep(dispatch.induce_block(graph.indptr, graph.indices, ids)),))
            for slot, ids in enumerate(parts)
            if len(ids)
        )
        return Chunks((Round(0, units),), owner)
