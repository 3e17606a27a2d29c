"""Whether chunks fit the trainers' memories, before anything is allocated."""

from __future__ import annotations

import copy
from collections.abc import Collection, Sequence

from gnnbench.footprint import ChunkSize, size_of
from gnnbench.lowering.movement import largest_buffers
from gnnbench.lowering.working_sets import WorkingSets
from gnnbench.parts import Bundle, LayerShape
from gnnbench.platforms.machine import Device
from gnnbench.program import Ledger
from gnnbench.records import IntArray, Round, RoundTraffic


class TrainerCapacity:
    """Answers a full-graph sampler (``gnnbench.parts.DeviceCapacity``) from what is free now."""

    def __init__(
        self,
        bundle: Bundle,
        ledger: Ledger,
        trainers: tuple[Device, ...],
        shapes: tuple[LayerShape, ...],
        itemsize: int,
    ) -> None:
        self._bundle = bundle
        self._free_bytes = [ledger.free_bytes(device.name) for device in trainers]
        self._sets = WorkingSets(bundle, shapes, itemsize)

    @property
    def device_bytes(self) -> int:
        return min(self._free_bytes)

    def holds(self, rounds: Sequence[Round], owner: IntArray) -> bool:
        """Whether the largest working set of every trainer fits beside its chunks' topologies.

        Where vertex data lives on the devices, chunks of any size leave the same there: True.
        """
        if self._bundle.memory.vertex_data == "device":
            return True
        chunks: list[list[ChunkSize]] = [[] for _ in self._free_bytes]
        shares = self._bundle.communication.shares_rows
        rows = largest_buffers(self._plan(rounds, owner)) if shares else {}
        for unit in (unit for round_ in rounds for unit in round_.units):
            chunks[unit.slot].append(size_of(unit.blocks[0], rows.get(unit.slot)))
        return self.fits(chunks)

    def fits(self, chunks: Sequence[Collection[ChunkSize]]) -> bool:
        """The same of each trainer's chunks by their sizes, where vertex data is on the host."""
        return all(
            self._sets.device_bytes(sizes) <= free_bytes
            for sizes, free_bytes in zip(chunks, self._free_bytes, strict=True)
        )

    def _plan(self, rounds: Sequence[Round], owner: IntArray) -> list[RoundTraffic]:
        """The traffic, planned by a copy of the part: the part itself counts what is run."""
        communication = copy.deepcopy(self._bundle.communication)
        traffic: list[RoundTraffic] = []
        for round_ in rounds:
            traffic.append(communication.plan(round_, traffic[-1] if traffic else None, owner))
        return traffic
