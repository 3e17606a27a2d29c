"""Units that exchange nothing between layers."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from gnnbench.datasets.partitioning import choose_partitioner, partition
from gnnbench.kernels import dispatch
from gnnbench.parts import Chunks, DeviceCapacity, FullGraphSampler, Setting
from gnnbench.records import Round, Unit


@dataclass(frozen=True)
class MultiHopSampler(FullGraphSampler):
    """A METIS partition a device, with all dependencies of its vertices within L hops.

    DistDGL's way of full-graph training "collects all L-hop neighbors (where L is the layer number)
    before each training iteration, thereby avoiding inter-layer communication" (MixGCN, section
    5.1). Each block has the vertices of one hop fewer as destinations, in whatever partition they
    lie. Devices therefore repeat each other's computation.
    """

    name: ClassVar[str] = "multi-hop"
    summary: ClassVar[str] = (
        "one-level partition with all neighbours of L hops, computed redundantly"
    )
    layered: ClassVar[bool] = True

    def chunks(
        self, setting: Setting, num_slots: int, capacity: DeviceCapacity | None = None
    ) -> Chunks:
        """Return one unit per slot, of L blocks; a slot with an empty partition has none."""
        graph, workload = setting.dataset.graph, setting.workload
        named = choose_partitioner(graph)
        owner = partition(graph, num_slots, named, workload.seed)
        units = []
        for slot in range(num_slots):
            members = np.flatnonzero(owner == slot)
            if not len(members):
                continue
            blocks = dispatch.sample_neighbours(
                graph.indptr,
                graph.indices,
                members,
                (0,) * workload.num_layers,
                seed=workload.seed,
                epoch=0,
                threads=workload.threads,
            )
            units.append(Unit(slot, setting.keep(blocks)))
        computed = sum(block.num_dst for unit in units for block in unit.blocks)
        note = (
            f"{named} partitions; with all neighbours of {workload.num_layers} hops the devices "
            f"compute {computed / (workload.num_layers * graph.num_vertices):.2f} times the rows "
            f"of the graph"
        )
        return Chunks((Round(0, tuple(units)),), owner, (note,))
