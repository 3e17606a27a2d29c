"""A check whether chunks fit the trainers' memories, before anything is allocated."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from gnnbench.lowering.footprint import ChunkSize, size_of
from gnnbench.lowering.frame import open_traffic
from gnnbench.lowering.movement import largest_buffers
from gnnbench.lowering.working_sets import choose_sets
from gnnbench.machines.machine import Device
from gnnbench.parts import Bundle, LayerShape, OffloadingMemory, TrafficSession
from gnnbench.program import Ledger
from gnnbench.records import IntArray, Round, RoundTraffic


class TrainerCapacity:
    """The room that trainers have for chunks, from the bytes that are free now.

    A full-graph sampler asks it (``gnnbench.parts.DeviceCapacity``).
    """

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
        """The free bytes of the fullest trainer."""
        return min(self._free_bytes)

    def holds(self, rounds: Sequence[Round], owner: IntArray, pieces: int = 1) -> bool:
        """Return whether every trainer's largest working set fits beside its chunks' topologies.

        The answer is True where vertex data lives on the devices, since it does not depend on the
        size of the chunks there.
        """
        if not isinstance(self._bundle.memory, OffloadingMemory):
            return True
        chunks: list[list[ChunkSize]] = [[] for _ in self._free_bytes]
        shares = self._bundle.shares_rows
        rows = largest_buffers(self._plan(rounds, owner)) if shares else {}
        for unit in (unit for round_ in rounds for unit in round_.units):
            chunks[unit.slot].append(size_of(unit.blocks[0], rows.get(unit.slot)))
        return self.fits(chunks, pieces)

    def fits(self, chunks: Sequence[Collection[ChunkSize]], pieces: int = 1) -> bool:
        """Return whether chunks of these sizes fit, by trainer; vertex data is on the host."""
        sets = choose_sets(self._bundle, self._shapes, self._itemsize, pieces)
        return all(
            sets.device_bytes(sizes) <= free_bytes
            for sizes, free_bytes in zip(chunks, self._free_bytes, strict=True)
        )

    def _plan(self, rounds: Sequence[Round], owner: IntArray) -> list[RoundTraffic]:
        """Plan the traffic in a separate session: the run's own session counts what is run."""
        return plan_rounds(open_traffic(self._bundle, owner), rounds)


def plan_rounds(
    session: TrafficSession,
    rounds: Sequence[Round],
    keep: Callable[[RoundTraffic], RoundTraffic] = lambda planned: planned,
) -> list[RoundTraffic]:
    """Return the traffic of consecutive rounds, after ``keep`` has processed each."""
    traffic: list[RoundTraffic] = []
    previous: RoundTraffic | None = None
    for round_ in rounds:
        previous = session.plan(round_, previous)
        traffic.append(keep(previous))
    return traffic
