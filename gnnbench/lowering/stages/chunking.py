"""Chunks of a full graph: cut by the sampler, with a traffic plan for their rows."""

from __future__ import annotations

from collections.abc import Iterable

from gnnbench.errors import PluginError
from gnnbench.lowering.capacity import TrainerCapacity, plan_rounds
from gnnbench.lowering.footprint import ChunkSize, adjacency_bytes
from gnnbench.lowering.frame import Frame, open_traffic
from gnnbench.lowering.memory import allocate_host_graph, allocate_model
from gnnbench.parts import Chunks, FullGraphSampler, Setting, TrafficSession
from gnnbench.parts.sizes import cut_evenly
from gnnbench.program import Ledger
from gnnbench.records import RoundTraffic


def require_coverage(sampler: FullGraphSampler, cut: Chunks, setting: Setting) -> None:
    """Raise ``PluginError`` unless every vertex of the graph is in exactly one unit."""
    fault = cut.find_fault(setting.dataset.graph.num_vertices)
    if fault is not None:
        raise PluginError(f"sampler {sampler.name!r} has {fault}")


class Chunking:
    """The cutting of a full graph into the devices' units; ``traffic`` planned their rows.

    ``topologies`` is the name in a ledger of chunks' topologies that stay on a device.
    """

    traffic: TrafficSession

    def __init__(self, frame: Frame, topologies: str) -> None:
        self._frame = frame
        self._topologies = topologies
        if not isinstance(frame.bundle.sampler, FullGraphSampler):
            raise TypeError("a full-graph lowering takes full-graph samplers")
        self._sampler = frame.bundle.sampler

    def cut(self, ledger: Ledger) -> tuple[Chunks, list[RoundTraffic]]:
        """Place the graph in host memory, cut it, and plan the traffic of every round."""
        frame, setting = self._frame, self._frame.setting
        allocate_host_graph(ledger, setting, frame.homes)
        capacity = TrainerCapacity(
            frame.bundle, ledger, frame.trainers, frame.shapes, frame.itemsize
        )
        if setting.sizes is None:
            cut = self._sampler.chunks(setting, len(frame.trainers), capacity)
            require_coverage(self._sampler, cut, setting)
        else:
            cut = cut_evenly(setting, frame.bundle.communication, len(frame.trainers))
        self.traffic = open_traffic(frame.bundle, cut.owner)
        return cut, plan_rounds(self.traffic, cut.rounds, setting.keep)

    def place(self, ledger: Ledger, chunks: Iterable[tuple[int, ChunkSize]]) -> None:
        """Place the model, and the topologies of ``chunks``, by slot, on the devices."""
        trainers = self._frame.trainers
        topology = dict.fromkeys((device.name for device in trainers), 0)
        for slot, chunk in chunks:
            topology[trainers[slot].name] += self.adjacency_bytes(chunk)
        for device in trainers:
            ledger.allocate(device.name, self._topologies, topology[device.name])
            allocate_model(ledger, self._frame.setting, device)

    def adjacency_bytes(self, chunk: ChunkSize) -> int:
        """Return the bytes of a chunk's topology as the kernel stores it."""
        frame = self._frame
        return adjacency_bytes(frame.shapes, chunk, frame.itemsize, frame.bundle.kernel)
