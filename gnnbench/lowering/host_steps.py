"""The steps of full-graph training from the host's memory, each by itself: what moves and how much.

``host_resident`` says in which order they come, and what they read and write.
"""

from __future__ import annotations

from typing import Literal

from gnnbench.footprint import HostKind, crossing_topology_bytes
from gnnbench.lowering.host_plan import HostPlan, UnitPlan, page_bytes
from gnnbench.lowering.movement import Exchange
from gnnbench.models import Layer
from gnnbench.models.saved import SavedSizes
from gnnbench.parts import Setting
from gnnbench.platforms.machine import DISK, Device, Route
from gnnbench.program import Step
from gnnbench.records import BlockSize, IndexArray, IntArray, Stage, Work

#: A unit's rows beside its input rows, which have a tensor of this kind on the host.
Part = Literal["outputs", "aggregates", "gradients"]
KINDS: dict[Part, HostKind] = {
    "outputs": "representations",
    "aggregates": "intermediates",
    "gradients": "gradients",
}


class HostSteps:
    """Makes steps of the current ``round``; of several, those of one piece of work in their order.

    A transfer's rows that lie at another socket of the host are its remote bytes. The pages of a
    spilled tensor move when they are touched, which is in the body of the step that copies the
    rows; the disk has a step of its own.
    """

    def __init__(
        self,
        setting: Setting,
        trainers: tuple[Device, ...],
        layers: tuple[Layer, ...],
        host: HostPlan,
        saved: SavedSizes,
    ) -> None:
        self.round = 0
        self._platform = setting.platform
        self._trainers = trainers
        self._layers = layers
        self._itemsize = setting.workload.itemsize
        self._num_vertices = setting.dataset.graph.num_vertices
        self._train_ids = setting.dataset.train_ids
        self._host = host
        self._saved = saved
        there = setting.platform.host
        self._from_host = [setting.platform.route(there, device) for device in trainers]
        self._to_host = [setting.platform.route(device, there) for device in trainers]
        self._between: dict[tuple[int, int, bool], Route] = {}

    # ------------------------------------------------------------------ between host and devices

    def bring(self, number: int, plan: UnitPlan) -> list[Step]:
        """Input rows from the host, those that stay from the round before left out."""
        move, row_bytes = plan.move, self._layers[number].in_features * self._itemsize
        work = _copy(move.rows_from_host, row_bytes, plan.remote_loaded)
        step = self._transfer("bring rows", "host to device", number, plan, work)
        step.moves += (("reused", move.rows_reused * row_bytes),)
        kind: HostKind = "representations" if number else "features"
        return [*self._page("load", number, kind, number, move.host_ids, row_bytes), step]

    def fetch(self, number: int, plan: UnitPlan, part: Part) -> list[Step]:
        """Rows of a unit's outputs to its device."""
        row_bytes = self._row_bytes(number, part)
        work = _copy(plan.chunk.num_dst, row_bytes, plan.remote_outputs)
        step = self._transfer(f"fetch {part}", f"{part} to device", number, plan, work)
        ids = plan.unit.output_ids
        return [*self._page("load", number, KINDS[part], number + 1, ids, row_bytes), step]

    def store(self, number: int, plan: UnitPlan, part: Part) -> list[Step]:
        """And to the host."""
        row_bytes = self._row_bytes(number, part)
        work = _copy(plan.chunk.num_dst, row_bytes, plan.remote_outputs)
        step = self._transfer(f"store {part}", f"{part} to host", number, plan, work, to_host=True)
        ids = plan.unit.output_ids
        return [step, *self._page("offload", number, KINDS[part], number + 1, ids, row_bytes)]

    def _row_bytes(self, number: int, part: Part) -> int:
        layer = self._layers[number]
        width = layer.aggregate_features if part == "aggregates" else layer.out_features
        return width * self._itemsize

    def saved_bytes(self, number: int, plan: UnitPlan) -> int:
        """What autograd saves of a unit's forward pass."""
        block, device = plan.move.block, self._trainers[plan.slot].torch_device
        size = BlockSize(block.num_src, block.num_dst, block.num_edges, block.own is not None)
        return self._saved.size_bytes(number, size, device)

    def offload(self, number: int, plan: UnitPlan) -> list[Step]:
        """What autograd has saved, to the host."""
        work = Work("copy", bytes=self.saved_bytes(number, plan))
        label = "intermediates to host"
        step = self._transfer("offload saved", label, number, plan, work, to_host=True)
        spilled = self._host.is_spilled("intermediates", number + 1)
        return [step, self._disk("offload", number, work.bytes)] if spilled else [step]

    def restore(self, number: int, plan: UnitPlan) -> list[Step]:
        """And back to the device."""
        work = Work("copy", bytes=self.saved_bytes(number, plan))
        step = self._transfer("restore saved", "intermediates to device", number, plan, work)
        spilled = self._host.is_spilled("intermediates", number + 1)
        return [self._disk("load", number, work.bytes), step] if spilled else [step]

    def send_topology(self, number: int, plan: UnitPlan, *, backward: bool) -> Step:
        """A chunk's topology to its device, where it does not stay there. It is copied when a
        kernel first needs it, which is in that kernel's step."""
        shape = self._layers[number].shape
        size = crossing_topology_bytes(shape, plan.chunk, self._itemsize, backward=backward)
        return self._transfer("", "topology to device", number, plan, Work("copy", bytes=size))

    def accumulate(self, number: int, plan: UnitPlan) -> list[Step]:
        """Algorithm 3, lines 6 and 7: gradients cross the link and are added by the CPU, in whose
        step both are done, some rows after the other."""
        ids, row_bytes = plan.move.leaving_ids, self._layers[number].in_features * self._itemsize
        work, label = _copy(len(ids), row_bytes, plan.remote_leaving), "gradients to host"
        # Each element is read twice and written once by the addition.
        added, key = _copy(len(ids), 3 * row_bytes), (number, self.round, plan.slot)
        return [
            self._transfer("", label, number, plan, work, to_host=True),
            *self._page("load", number, "gradients", number, ids, row_bytes),
            self._on_host("accumulate", key, "offload", "accumulate on host", number, added),
            *self._page("offload", number, "gradients", number, ids, row_bytes),
        ]

    def _transfer(
        self, op: str, label: str, number: int, plan: UnitPlan, work: Work, *, to_host: bool = False
    ) -> Step:
        """Something of a unit over its device's link with the host."""
        route = (self._to_host if to_host else self._from_host)[plan.slot]
        return Step(
            op,
            (number, self.round, plan.slot),
            "offload" if to_host else "transfer",
            label,
            route.place,
            route.lanes,
            work,
            number,
            self.round,
            moves=(("device_to_host" if to_host else "host_to_device", work.bytes),),
        )

    # ------------------------------------------------------------------ the host and its disk

    def take_loss(self) -> list[Step]:
        """Mean cross entropy over the training vertices, and the gradient of h^L."""
        depth, row_bytes = len(self._layers), self._layers[-1].out_features * self._itemsize
        size = 2 * self._num_vertices * row_bytes
        work = Work("copy", rows=len(self._train_ids), bytes=size)
        return [
            *self._page("load", depth, "representations", depth, self._train_ids, row_bytes),
            self._on_host("loss", (), "update", "loss", depth, work),
            *self._page("offload", depth, "gradients", depth, None, row_bytes),
        ]

    def clear_gradients(self, number: int) -> list[Step]:
        """The layer's input gradients, zero."""
        row_bytes, label = self._layers[number].in_features * self._itemsize, "clear gradients"
        work = _copy(self._num_vertices, row_bytes)
        return [
            self._on_host(label, (number,), "offload", label, number, work),
            *self._page("offload", number, "gradients", number, None, row_bytes),
        ]

    def _on_host(
        self,
        op: str,
        operands: tuple[object, ...],
        stage: Stage,
        label: str,
        number: int,
        work: Work,
    ) -> Step:
        host = self._platform.host.name
        return Step(op, operands, stage, label, host, (host,), work, number, self.round)

    def _page(
        self,
        stage: Literal["load", "offload"],
        number: int,
        kind: HostKind,
        served: int,
        ids: IntArray | IndexArray | None,
        row_bytes: int,
    ) -> list[Step]:
        """Rows ``ids`` (all where None) of the tensor that serves a layer, between the host's
        memory and its disk, if they lie there."""
        if not self._host.is_spilled(kind, served):
            return []
        size = self._num_vertices * row_bytes if ids is None else page_bytes(ids, row_bytes)
        return [self._disk(stage, number, size)]

    def _disk(self, stage: Literal["load", "offload"], number: int, size: int) -> Step:
        label = "read from disk" if stage == "load" else "write to disk"
        work = Work("copy", bytes=size)
        return Step("", (), stage, label, DISK, (DISK,), work, number, self.round)

    # ------------------------------------------------------------------ within and between devices

    def exchange(self, number: int, plan: UnitPlan, exchange: Exchange, *, push: bool) -> Step:
        """Rows between two buffers, of two devices or of one, of which one peer at a time reads or
        adds to a device's."""
        key = (plan.slot, exchange.slot, push)
        if key not in self._between:
            self._between[key] = self._route(*key)
        route, between = self._between[key], plan.slot != exchange.slot
        work = _copy(exchange.rows, self._layers[number].in_features * self._itemsize)
        return Step(
            "push gradients" if push else "pull rows",
            (plan.move, exchange),
            "transfer",
            "device to device" if between else "copy between buffers",
            route.place,
            route.lanes,
            work,
            number,
            self.round,
            moves=(("device_to_device", work.bytes),) if between else (),
        )

    def _route(self, slot: int, other: int, push: bool) -> Route:
        """To a peer's buffer or from there, and the buffer."""
        device, peer = self._trainers[slot], self._trainers[other]
        route = self._platform.route(*((device, peer) if push else (peer, device)))
        return route if slot == other else Route(route.place, (*route.lanes, f"{peer.name}.buffer"))

    def clear_buffer(self, number: int, plan: UnitPlan) -> Step:
        """Start a round's gradients: zero, but for rows that stay from the round before."""
        row_bytes = self._layers[number].in_features * self._itemsize
        work, label = _copy(plan.move.rows_cleared, row_bytes), "clear gradients on device"
        step = self._within("clear buffer", "transfer", label, number, plan, work)
        step.moves = (("reused", plan.move.rows_reused * row_bytes),)
        return step

    def compact(self, number: int, plan: UnitPlan) -> Step:
        """HongTu Figure 7 (b): gathered in the device's memory, so that whole copies cross."""
        row_bytes = self._layers[number].in_features * self._itemsize
        work = _copy(len(plan.move.leaving_ids), row_bytes)
        return self._within("", "offload", "compact gradients", number, plan, work)

    def _within(
        self, op: str, stage: Stage, label: str, number: int, plan: UnitPlan, work: Work
    ) -> Step:
        device, key = self._trainers[plan.slot].name, (number, self.round, plan.slot)
        return Step(op, key, stage, label, device, (device,), work, number, self.round)


def _copy(rows: int, row_bytes: int, remote_rows: int = 0) -> Work:
    # By position: there are hundreds of thousands in an epoch of many chunks.
    return Work("copy", 0, rows, 0, rows * row_bytes, 0, 4, 0, remote_rows * row_bytes)
