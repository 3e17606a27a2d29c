"""Whether chunks fit the trainers' memories, before anything is allocated."""

from __future__ import annotations

from collections.abc import Sequence

from gnnbench.footprint import ChunkSize, device_bytes, size_of
from gnnbench.parts import Bundle, LayerShape, OffloadingMemory, RowTransfer, TrafficSession
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
        self._shapes = shapes
        self._itemsize = itemsize

    @property
    def device_bytes(self) -> int:
        return min(self._free_bytes)

    def holds(self, rounds: Sequence[Round], owner: IntArray) -> bool:
        """Whether the largest working set of every trainer fits beside its chunks' topologies.

        Where vertex data lives on the devices, chunks of any size leave the same there: True.
        """
        memory = self._bundle.memory
        if not isinstance(memory, OffloadingMemory):
            return True
        chunks: list[list[ChunkSize]] = [[] for _ in self._free_bytes]
        for round_, traffic in zip(rounds, self._plan(rounds, owner), strict=True):
            rows = traffic.buffer_rows() if self._bundle.shares_rows else {}
            for unit in round_.units:
                chunks[unit.slot].append(size_of(unit.blocks[0], rows.get(unit.slot)))
        return all(
            device_bytes(self._shapes, memory, sizes, self._itemsize, self._bundle.kernel)
            <= free_bytes
            for sizes, free_bytes in zip(chunks, self._free_bytes, strict=True)
        )

    def _plan(self, rounds: Sequence[Round], owner: IntArray) -> list[RoundTraffic]:
        """The traffic, planned by a session of its own: that of the run counts what is run."""
        communication = self._bundle.communication
        if not isinstance(communication, RowTransfer):
            raise TypeError(f"communication {communication.name!r} transfers no rows")
        return plan_rounds(communication.open(owner), rounds)


def plan_rounds(session: TrafficSession, rounds: Sequence[Round]) -> list[RoundTraffic]:
    """The traffic of rounds that follow each other."""
    traffic: list[RoundTraffic] = []
    for round_ in rounds:
        traffic.append(session.plan(round_, traffic[-1] if traffic else None))
    return traffic
