"""Full-graph training: all units of a layer, then the next layer, forward and then backward.

The flow is HongTu's Algorithm 1. Per layer and round: the rows that the units read arrive as the
communication part planned, every device aggregates and updates its unit, and the outputs go where
the memory part keeps vertex data. Backward, the gradients of the input rows go back the same ways.
The gradient of the input features is nobody's need and is not computed.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence

from gnnbench.footprint import ChunkSize, adjacency_bytes, size_of
from gnnbench.lowering.base import Lowering
from gnnbench.lowering.capacity import TrainerCapacity, plan_rounds
from gnnbench.lowering.memory import allocate_host_graph, allocate_model
from gnnbench.lowering.units import needs_aggregate_gradient, update_gemms
from gnnbench.models import Layer
from gnnbench.parts import Bundle, FullGraphSampler, OffloadingMemory, Session, Setting
from gnnbench.program import Buffer, Ledger, Step
from gnnbench.records import Block, IntArray, PartKind, Round, RoundTraffic, Unit


class FullGraphLowering(Lowering):
    """What is the same wherever vertex data lives; see the module's docstring.

    ``rounds`` are those of every epoch, once prepared.
    """

    rounds: Sequence[Round]
    #: What the ledger calls chunks' topologies that stay on a device.
    _topologies = "chunk topologies"

    def __init__(self, bundle: Bundle, setting: Setting, layers: tuple[Layer, ...]) -> None:
        super().__init__(bundle, setting, layers)
        if not isinstance(bundle.sampler, FullGraphSampler):
            raise TypeError("a full-graph lowering takes full-graph samplers")
        self._sampler = bundle.sampler
        self._shapes = tuple(layer.shape for layer in layers)

    def prepare(self, ledger: Ledger) -> None:
        """Partition, plan the traffic, and place what stays for the whole run."""
        setting, bundle = self.setting, self.bundle
        allocate_host_graph(ledger, setting)
        capacity = TrainerCapacity(bundle, ledger, self.trainers, self._shapes, self._itemsize)
        cut = self._sampler.chunks(setting, len(self.trainers), capacity)
        self.rounds, self.cut_notes = cut.rounds, cut.notes
        self._traffic = self._open_traffic(cut.owner)
        self._adopt(plan_rounds(self._traffic, self.rounds), cut.owner)
        topology = dict.fromkeys((device.name for device in self.trainers), 0)
        for round_ in self.rounds:
            for unit in round_.units:
                if not self.streams:
                    topology[self.trainers[unit.slot].name] += sum(
                        adjacency_bytes(self._shapes, size, self._itemsize, bundle.kernel)
                        for size in self._sizes_of(unit)
                    )
        for device in self.trainers:
            ledger.allocate(device.name, self._topologies, topology[device.name])
            allocate_model(ledger, setting, device)
        self._place(ledger)

    @property
    def streams(self) -> bool:
        """Whether chunks' topologies wait on the host."""
        memory = self.bundle.memory
        return isinstance(memory, OffloadingMemory) and memory.streams_topology()

    def sessions(self) -> Mapping[PartKind, Session]:
        return {"communication": self._traffic}

    def count_seeds(self) -> tuple[int, ...]:
        """All training vertices, in one update."""
        return (len(self.setting.dataset.train_ids),)

    @abstractmethod
    def _adopt(self, traffic: Sequence[RoundTraffic], owner: IntArray) -> None:
        """Take over the plan of where the rows of each round come from."""

    @abstractmethod
    def _place(self, ledger: Ledger) -> None:
        """Account for vertex data, where it lives, and for what else stays for the whole run."""

    def _sizes_of(self, unit: Unit) -> tuple[ChunkSize, ...]:
        """The sizes of a unit's blocks."""
        return tuple(size_of(block) for block in unit.blocks)

    # ------------------------------------------------------------------ one unit of one layer

    @staticmethod
    def block_at(unit: Unit, number: int) -> Block:
        """A unit's block of a layer; a chunk has one for all layers."""
        return unit.blocks[number] if len(unit.blocks) > 1 else unit.blocks[0]

    def _forward_unit(
        self,
        number: int,
        round_: Round,
        unit: Unit,
        inputs: tuple[Buffer, ...],
        into: tuple[Buffer, ...],
        num_inputs: int,
    ) -> Iterator[Step]:
        """AGGREGATE of the ``num_inputs`` rows that ``inputs`` have, and UPDATE, which adds to the
        buffers ``into``.

        A pipelined device updates rows while it aggregates others, so that neither waits for the
        other, and both add.
        """
        device, key = self.trainers[unit.slot], (number, round_.index, unit.slot)
        block, layer = self.block_at(unit, number), self.layers[number]
        aggregate = Buffer("aggregate")
        step = self._compute(
            "aggregate forward",
            device,
            number,
            key,
            round_index=round_.index,
            reads=inputs,
            writes=(aggregate,),
            adds=into if device.pipelined else (),
            block=block,
        )
        step.edges = block.num_edges
        step.vertices = block.num_dst + (num_inputs if number == 0 else 0)
        step.arithmetic = float(
            block.num_edges * layer.in_features + block.num_dst * layer.macs_per_row
        )
        yield step
        yield self._compute(
            "update forward",
            device,
            number,
            key,
            round_index=round_.index,
            reads=inputs if device.pipelined else (aggregate,),
            adds=into,
            block=block,
        )

    def _backward_unit(
        self,
        number: int,
        round_: Round,
        unit: Unit,
        upper: tuple[Buffer, ...],
        into: tuple[Buffer, ...],
    ) -> Iterator[Step]:
        """Both passes back, from the gradients of the outputs to those of the input rows, which are
        added to the buffers ``into``; the first layer's go nowhere."""
        device, key = self.trainers[unit.slot], (number, round_.index, unit.slot)
        block, layer, first = self.block_at(unit, number), self.layers[number], number == 0
        goes_on = needs_aggregate_gradient(layer, first=first)
        aggregate = Buffer("gradient of the aggregate")
        yield self._compute(
            "update backward",
            device,
            number,
            key,
            round_index=round_.index,
            reads=upper,
            writes=(aggregate,),
            adds=into if device.pipelined or not goes_on else (),
            block=block,
            gemms=update_gemms(layer, first=first),
        )
        if goes_on:
            yield self._compute(
                "aggregate backward",
                device,
                number,
                key,
                round_index=round_.index,
                reads=upper if device.pipelined else (aggregate,),
                adds=into,
                block=block,
            )
