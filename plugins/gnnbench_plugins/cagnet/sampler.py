"""Vertices dealt out at random."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from gnnbench.kernels import dispatch
from gnnbench.partitioning import deal_out
from gnnbench.parts import FullGraphSampler, Setting
from gnnbench.records import IntArray, Round, Unit


@dataclass
class RandomPartitionSampler(FullGraphSampler):
    """A part of |V| / m vertices drawn at random for each device.

    Their degrees even out, so that computation is balanced; most edges are cut. "CAGNET and Sancus
    have balanced computation because [they adopt] random partition" (MixGCN, section 4.3).
    """

    name: ClassVar[str] = "random"
    summary: ClassVar[str] = "one-level partition: as many vertices for each device, at random"

    _owner: IntArray = field(init=False, repr=False, compare=False)

    def chunks(self, setting: Setting, num_slots: int) -> tuple[Round, ...]:
        """One unit per slot; a slot that is left without a vertex has none."""
        graph, workload = setting.dataset.graph, setting.workload
        self._owner = deal_out(graph.num_vertices, num_slots, workload.seed)
        parts = [np.flatnonzero(self._owner == slot) for slot in range(num_slots)]
        units = tuple(
            Unit(slot, (dispatch.induce_block(graph.indptr, graph.indices, ids),))
            for slot, ids in enumerate(parts)
            if len(ids)
        )
        return (Round(0, units),)

    def owner(self) -> IntArray:
        return self._owner
