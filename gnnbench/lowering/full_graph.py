"""Full-graph training: all units of a layer, then the next layer, forward and then backward.

The flow is HongTu's Algorithm 1. Per layer and round: the rows that the units read arrive as the
communication part planned, every device aggregates and updates its unit, and the outputs go where
the memory part keeps vertex data. Backward, the gradients of the input rows go back the same ways.
The gradient of the input features is nobody's need and is not computed.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence

from gnnbench.footprint import ChunkSize, adjacency_bytes
from gnnbench.lowering.base import Lowering
from gnnbench.lowering.capacity import TrainerCapacity, plan_rounds
from gnnbench.lowering.memory import allocate_host_graph, allocate_model
from gnnbench.lowering.units import needs_aggregate_gradient, update_gemms
from gnnbench.models import Layer
from gnnbench.parts import Bundle, Chunks, FullGraphSampler, Session, Setting
from gnnbench.program import Buffer, Ledger, Step
from gnnbench.records import Block, BlockSize, PartKind, RoundTraffic

#: A layer, a round and a slot: one unit's pass over one layer.
UnitKey = tuple[int, int, int]


class FullGraphLowering(Lowering):
    """What is the same wherever vertex data lives; see the module's docstring.

    Its programs follow from the sizes of units and of what moves for them: those of a graph that is
    partitioned, or counts without one.
    """

    #: What the ledger calls chunks' topologies that stay on a device.
    _topologies = "chunk topologies"

    def __init__(self, bundle: Bundle, setting: Setting, layers: tuple[Layer, ...]) -> None:
        super().__init__(bundle, setting, layers)
        if not isinstance(bundle.sampler, FullGraphSampler):
            raise TypeError("a full-graph lowering takes full-graph samplers")
        self._sampler = bundle.sampler
        self._shapes = tuple(bundle.kernel.shape_of(layer.shape) for layer in layers)

    def prepare(self, ledger: Ledger) -> None:
        """Partition, plan the traffic, and place what stays for the whole run."""
        setting, bundle = self.setting, self.bundle
        allocate_host_graph(ledger, setting, self.frame.homes)
        capacity = TrainerCapacity(bundle, ledger, self.trainers, self._shapes, self._itemsize)
        cut = self._sampler.chunks(setting, len(self.trainers), capacity)
        self.cut_notes = cut.notes
        self._traffic = self._open_traffic(cut.owner)
        traffic = plan_rounds(self._traffic, cut.rounds, setting.keep)
        self._adopt(ledger, cut, traffic)

    def sessions(self) -> Mapping[PartKind, Session]:
        return {"communication": self._traffic}

    def count_seeds(self) -> tuple[int, ...]:
        """All training vertices, in one update."""
        return (len(self.setting.dataset.train_ids),)

    @abstractmethod
    def _adopt(self, ledger: Ledger, cut: Chunks, traffic: Sequence[RoundTraffic]) -> None:
        """Take over the units of a cut graph and the plan of where their rows come from, and place
        what stays for the whole run."""

    def _place_on_devices(self, ledger: Ledger, chunks: Iterable[tuple[int, ChunkSize]]) -> None:
        """Account for the model, and for the topologies of ``chunks``, by slot, that stay."""
        topology = dict.fromkeys((device.name for device in self.trainers), 0)
        for slot, chunk in chunks:
            topology[self.trainers[slot].name] += self._adjacency_bytes(chunk)
        for device in self.trainers:
            ledger.allocate(device.name, self._topologies, topology[device.name])
            allocate_model(ledger, self.setting, device)

    def _adjacency_bytes(self, chunk: ChunkSize) -> int:
        return adjacency_bytes(self._shapes, chunk, self._itemsize, self.bundle.kernel)

    # ------------------------------------------------------------------ one unit of one layer

    def _forward_unit(
        self,
        key: UnitKey,
        block: Block | BlockSize,
        inputs: tuple[Buffer, ...],
        into: tuple[Buffer, ...],
        num_inputs: int,
    ) -> Iterator[Step]:
        """AGGREGATE of a ``block`` from the ``num_inputs`` rows that ``inputs`` have, and UPDATE,
        which adds to the buffers ``into``.

        A pipelined device updates rows while it aggregates others, so that neither waits for the
        other, and both add.
        """
        pipelined, made = self.trainers[key[2]].pipelined, (Buffer("aggregate"),)
        step = self._make_aggregate(key, block, inputs, num_inputs)
        step.writes, step.adds = made, into if pipelined else ()
        yield step
        yield self._make_update(key, block, inputs if pipelined else made, into)

    def _make_aggregate(
        self,
        key: UnitKey,
        block: Block | BlockSize,
        inputs: tuple[Buffer, ...],
        num_inputs: int,
    ) -> Step:
        """AGGREGATE of a ``block``, and what is traversed and computed with it."""
        number, index, slot = key
        device, layer = self.trainers[slot], self.layers[number]
        step = self._compute(
            "aggregate forward",
            device,
            number,
            key,
            round_index=index,
            reads=inputs,
            block=block,
        )
        step.edges = block.num_edges
        step.vertices = block.num_dst + (num_inputs if number == 0 else 0)
        step.arithmetic = float(
            block.num_edges * layer.in_features + block.num_dst * layer.macs_per_row
        )
        return step

    def _make_update(
        self,
        key: UnitKey,
        block: Block | BlockSize,
        aggregates: tuple[Buffer, ...],
        into: tuple[Buffer, ...],
    ) -> Step:
        """UPDATE of a block's destinations."""
        number, index, slot = key
        return self._compute(
            "update forward",
            self.trainers[slot],
            number,
            key,
            round_index=index,
            reads=aggregates,
            adds=into,
            block=block,
        )

    def _backward_unit(
        self,
        key: UnitKey,
        block: Block | BlockSize,
        upper: tuple[Buffer, ...],
        into: tuple[Buffer, ...],
    ) -> Iterator[Step]:
        """Both passes back, from the gradients of the outputs to those of the input rows, which are
        added to the buffers ``into``; the first layer's go nowhere."""
        pipelined, made = self.trainers[key[2]].pipelined, (Buffer("gradient of the aggregate"),)
        goes_on = self._goes_on(key[0])
        step = self._make_update_backward(key, block, upper, made)
        step.adds = into if pipelined or not goes_on else ()
        yield step
        if goes_on:
            yield self._make_aggregate_backward(key, block, upper if pipelined else made, into)

    def _goes_on(self, number: int) -> bool:
        """Whether a layer's aggregate needs a gradient."""
        return needs_aggregate_gradient(self.layers[number], first=number == 0)

    def _make_update_backward(
        self,
        key: UnitKey,
        block: Block | BlockSize,
        upper: tuple[Buffer, ...],
        made: tuple[Buffer, ...],
    ) -> Step:
        """UPDATE's pass back, from the gradients of the outputs to those of the aggregate."""
        number, index, slot = key
        return self._compute(
            "update backward",
            self.trainers[slot],
            number,
            key,
            round_index=index,
            reads=upper,
            writes=made,
            block=block,
            gemms=update_gemms(self.layers[number], first=number == 0),
        )

    def _make_aggregate_backward(
        self,
        key: UnitKey,
        block: Block | BlockSize,
        upper: tuple[Buffer, ...],
        into: tuple[Buffer, ...],
    ) -> Step:
        """AGGREGATE's pass back, on to the gradients of a block's input rows."""
        number, index, slot = key
        return self._compute(
            "aggregate backward",
            self.trainers[slot],
            number,
            key,
            round_index=index,
            reads=upper,
            adds=into,
            block=block,
        )
