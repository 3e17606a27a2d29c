"""Units with blocks that include the remote rows that their device computes."""

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from gnnbench.datasets.partitioning import choose_partitioner, partition
from gnnbench.kernels.dispatch import induce_block
from gnnbench.parts import Chunks, DeviceCapacity, FullGraphSampler, Setting, option
from gnnbench.records import Block, IntArray, Round, Unit
from gnnbench.units import format_si
from gnnbench_plugins.neutronstar.dependencies import Dependencies, Rules
from gnnbench_plugins.neutronstar.prices import price_rows


@dataclass(frozen=True)
class NeutronStarSampler(FullGraphSampler):
    """A METIS partition a device, with NeutronStar's hybrid of DepCache and DepComm.

    Dependencies that are cheaper to recompute than to read are added to the partition.
    """

    name: ClassVar[str] = "neutronstar"
    summary: ClassVar[str] = "one-level partition, and rows of others that are cheaper computed"
    layered: ClassVar[bool] = True

    split: Literal["auto", "cached", "communicated"] = option(
        "auto",
        "remote rows above the features: auto: recomputed if faster than reading them, cached: "
        "all recomputed, communicated: all read from their owners",
        tried=("auto", "cached", "communicated"),
    )
    features: Literal["kept", "crossing"] = option(
        "kept",
        "features of others: kept on the device from before the first epoch, or crossing in each",
        tried=("kept", "crossing"),
    )
    spare_bytes: int = option(
        0,
        "what each device may spend on features of others that it keeps and rows that it computes "
        "again; 0 = no bound",
        unit="bytes",
    )

    def chunks(
        self, setting: Setting, num_slots: int, capacity: DeviceCapacity | None = None
    ) -> Chunks:
        """Return one unit per slot; a slot with an empty partition has none."""
        graph, named = setting.dataset.graph, choose_partitioner(setting.dataset.graph)
        owner = partition(graph, num_slots, named, setting.workload.seed)
        units, kept, found = [], {}, []
        for slot in range(num_slots):
            members = np.flatnonzero(owner == slot)
            if not len(members):
                continue
            chosen = self._choose(setting, owner, slot, num_slots)
            blocks = _make_blocks(setting, members, chosen)
            read = blocks[0].src_ids[len(members) :]
            kept[slot] = read[chosen.cached[0][read]]
            units.append(Unit(slot, blocks if num_slots > 1 else blocks[:1]))
            found.append(chosen)
        notes = (f"{named} partitions", *_describe(found))
        return Chunks((Round(0, tuple(units)),), owner, notes, kept)

    def _choose(self, setting: Setting, owner: IntArray, slot: int, num_slots: int) -> Dependencies:
        devices = setting.platform.accelerators[:num_slots] or (setting.platform.host,)
        layers, item = setting.layers, setting.workload.itemsize
        chosen = Dependencies(
            setting.dataset.graph,
            owner == slot,
            owner,
            layers,
            item,
            price_rows(layers, setting.platform, devices, slot, item),
            Rules(self.split, self.features == "kept", self.spare_bytes or None),
        )
        chosen.decide()
        return chosen


def _make_blocks(setting: Setting, members: IntArray, chosen: Dependencies) -> tuple[Block, ...]:
    """Return a block for each layer; layers that compute the same rows share one."""
    graph = setting.dataset.graph
    blocks: list[Block] = []
    computed = members
    for cached in reversed(chosen.cached):
        if not (blocks and np.array_equal(computed, blocks[-1].dst_ids)):
            made = induce_block(
                graph.indptr, graph.indices, computed, threads=setting.workload.threads
            )
            block = setting.keep(made)
        blocks.append(block)
        read = block.src_ids[len(members) :]
        computed = np.concatenate((members, read[cached[read]]))
    return tuple(reversed(blocks))


def _describe(found: list[Dependencies]) -> tuple[str, ...]:
    """Describe the remote rows that devices keep, compute and read."""
    halos = sum(len(each.halo) for each in found)
    if not halos:
        return ()
    kept = sum(int(each.cached[0].sum()) for each in found)
    above = [(each.halo, rows) for each in found for rows in each.cached[1:]]
    wanted = sum(int(rows[halo].sum()) for halo, rows in above)
    depend = sum(int(rows.sum()) for _, rows in above) - wanted
    spent = max(each.spent_bytes for each in found)
    layers_above = len(found[0].cached) - 1
    return (
        f"of {layers_above * halos:,} remote rows that devices read above the first layer "
        f"{wanted:,} are recomputed, with {depend:,} that these depend on; the rest are read from "
        f"their owners; features of {kept:,} remote vertices are kept, at most "
        f"{format_si(spent, 'B')} a device",
    )
