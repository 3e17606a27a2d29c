"""The steps of full-graph training from the host's memory: what each moves, and how much.

``host_resident`` orders the steps and sets the buffers that they read and write.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Literal, NamedTuple

from gnnbench.lowering.footprint import HostKind, crossing_topology_bytes
from gnnbench.lowering.homes import Homes
from gnnbench.lowering.host_plan import HostPlan, HostRows, PeerCopy, UnitPlan, page_bytes
from gnnbench.lowering.stages.unit_passes import UnitKey
from gnnbench.machines.machine import DISK, Device
from gnnbench.models import Layer
from gnnbench.models.saved import SavedSizes
from gnnbench.parts import Setting
from gnnbench.program import NOTHING, Access, Counts, Place, Step
from gnnbench.program.step import new_step
from gnnbench.records import ByteKind, CopyWork, IndexArray, IntArray, RowsWork, Stage, Work

ON_DISK = Place(DISK, (DISK,))
NOWHERE = Access()
#: Make records of all their fields, without a Python frame for each.
_new_copy, _new_counts = partial(tuple.__new__, CopyWork), partial(tuple.__new__, Counts)


class BringRows(NamedTuple):
    """The transfer of a unit's input rows from the host."""

    key: UnitKey


class FetchAggregates(NamedTuple):
    """The transfer of a unit's cached aggregates from the host."""

    key: UnitKey


class FetchGradients(NamedTuple):
    """The transfer of the gradients of a unit's outputs from the host."""

    key: UnitKey


class StoreOutputs(NamedTuple):
    """The transfer of a unit's outputs to the host."""

    key: UnitKey


class StoreAggregates(NamedTuple):
    """The transfer of a unit's aggregates to the host, which caches them."""

    key: UnitKey


class OffloadSaved(NamedTuple):
    """The transfer to the host of the tensors that autograd has saved for a unit."""

    key: UnitKey


class RestoreSaved(NamedTuple):
    """The transfer back to the device of the tensors that autograd has saved for a unit."""

    key: UnitKey


class AccumulateGradients(NamedTuple):
    """The transfer of gradients of a unit's input rows to the host, and their addition there."""

    key: UnitKey


class ClearBuffer(NamedTuple):
    """The clearing of a device's gradient buffer before a unit, except for rows that stay."""

    key: UnitKey


class PullRows(NamedTuple):
    """The ``place``-th copy of a unit's rows from a peer's buffer in a round."""

    round: int
    slot: int
    place: int


class PushGradients(NamedTuple):
    """The ``place``-th addition of a unit's gradients to a peer's buffer in a round."""

    round: int
    slot: int
    place: int


class TakeLoss(NamedTuple):
    """The mean cross entropy over all training vertices, and the gradient of the logits."""


class ClearGradients(NamedTuple):
    """The clearing of the host's gradients of a layer's input."""

    layer: int


class Part(NamedTuple):
    """Rows of a unit other than its input rows, and the kind of tensor that the host has of them.

    ``fetch`` and ``store`` are the operations that transfer them, if there are such transfers.
    """

    name: str
    kind: HostKind
    fetch: Callable[[UnitKey], object] | None = None
    store: Callable[[UnitKey], object] | None = None


OUTPUTS = Part("outputs", "representations", store=StoreOutputs)
AGGREGATES = Part("aggregates", "intermediates", FetchAggregates, StoreAggregates)
GRADIENTS = Part("gradients", "gradients", FetchGradients)


class HostSteps:
    """The maker of steps in the current ``round``; a list of steps is in the order of its work.

    Rows at another socket are a transfer's remote bytes. The body of the step that copies rows
    reads or writes the pages of a spilled tensor. The disk's time has a separate step.
    """

    def __init__(
        self,
        setting: Setting,
        trainers: tuple[Device, ...],
        layers: tuple[Layer, ...],
        host: HostPlan,
        saved: SavedSizes,
        homes: Homes,
    ) -> None:
        self.round = 0
        self._platform = setting.platform
        self._trainers = trainers
        self._layers = layers
        self._itemsize = setting.workload.itemsize
        self._homes = homes
        self._num_vertices = setting.dataset.graph.num_vertices
        self._train_ids = setting.dataset.train_ids
        self._host = host
        self._saved = saved
        self._hosts = [setting.platform.host_of(device) for device in trainers]
        pairs = list(enumerate(zip(self._hosts, trainers, strict=True)))
        self._from_host = [self._find_place(host, each, slot) for slot, (host, each) in pairs]
        self._to_host = [self._find_place(each, host, slot) for slot, (host, each) in pairs]
        self._on_device = [
            Place(device.name, (device.name,), slot) for slot, device in enumerate(trainers)
        ]
        self._at_host = [
            {host.name: Place(host.name, (host.name,), slot) for host in homes.hosts}
            for slot in range(len(trainers))
        ]
        self._between: dict[tuple[int, int, bool], Place] = {}

    def _find_place(self, source: Device, target: Device, slot: int | None = None) -> Place:
        route = self._platform.route(source, target)
        return Place(route.place, route.lanes, slot)

    # ------------------------------------------------------------------ between host and devices

    def bring(self, number: int, plan: UnitPlan) -> list[Step]:
        """Return the transfer of input rows from the host, without rows that are still there."""
        row_bytes = self._layers[number].in_features * self._itemsize
        work = self._pick(plan.loaded, number, plan)
        reused = plan.reused * row_bytes
        moved = Counts((("host_to_device", work.bytes), ("reused", reused)))
        key, place = (number, self.round, plan.slot), self._from_host[plan.slot]
        step = _transfer(BringRows(key), "host to device", place, work, key, moved)
        kind: HostKind = "representations" if number else "features"
        before = self._page("load", number, kind, number, row_bytes, plan.loaded_ids)
        return [*before, *self._between_hosts(number, plan, plan.loaded, row_bytes), step]

    def fetch(self, number: int, plan: UnitPlan, part: Part) -> list[Step]:
        """Return the transfer to its device of rows that belong to a unit's destinations."""
        row_bytes = self._row_bytes(number, part)
        work = _copy(plan.chunk.num_dst, row_bytes, plan.outputs.remote)
        step = self._bring(part.fetch, f"{part.name} to device", number, plan, work)
        before = self._page("load", number, part.kind, number + 1, row_bytes, plan.output_ids)
        return [*before, *self._between_hosts(number, plan, plan.outputs, row_bytes), step]

    def store(self, number: int, plan: UnitPlan, part: Part) -> list[Step]:
        """Return the transfer to the host of rows that belong to a unit's destinations."""
        row_bytes = self._row_bytes(number, part)
        work = _copy(plan.chunk.num_dst, row_bytes, plan.outputs.remote)
        step = self._return(part.store, f"{part.name} to host", number, plan, work)
        after = self._page("offload", number, part.kind, number + 1, row_bytes, plan.output_ids)
        return [
            step,
            *self._between_hosts(number, plan, plan.outputs, row_bytes, home=True),
            *after,
        ]

    def _row_bytes(self, number: int, part: Part) -> int:
        layer = self._layers[number]
        width = layer.aggregate_features if part is AGGREGATES else layer.out_features
        return width * self._itemsize

    def saved_bytes(self, number: int, plan: UnitPlan) -> int:
        """Return the bytes that autograd saves in a unit's forward pass."""
        return self._saved.size_bytes(number, plan.size, self._trainers[plan.slot].torch_device)

    def offload(self, number: int, plan: UnitPlan) -> list[Step]:
        """Return the transfer to the host of what autograd has saved."""
        work = CopyWork(bytes=self.saved_bytes(number, plan))
        label = "intermediates to host"
        step = self._return(OffloadSaved, label, number, plan, work)
        spilled = self._host.is_spilled("intermediates", number + 1)
        return [step, self._disk("offload", number, work.bytes)] if spilled else [step]

    def restore(self, number: int, plan: UnitPlan) -> list[Step]:
        """Return the transfer back to the device of what autograd has saved."""
        work = CopyWork(bytes=self.saved_bytes(number, plan))
        step = self._bring(RestoreSaved, "intermediates to device", number, plan, work)
        spilled = self._host.is_spilled("intermediates", number + 1)
        return [self._disk("load", number, work.bytes), step] if spilled else [step]

    def send_topology(self, number: int, plan: UnitPlan, *, backward: bool) -> Step:
        """Return the transfer of a chunk's topology; the first kernel that needs it copies it."""
        shape = self._layers[number].shape
        size = crossing_topology_bytes(shape, plan.chunk, self._itemsize, backward=backward)
        return self._bring(None, "topology to device", number, plan, CopyWork(size))

    def accumulate(self, number: int, plan: UnitPlan) -> list[Step]:
        """Return the transfer of gradients and their addition (Algorithm 3, lines 6 and 7).

        The body of the CPU's step does both, for some rows at a time.
        """
        row_bytes, label = self._layers[number].in_features * self._itemsize, "gradients to host"
        work = self._pick(plan.leaving, number, plan)
        # The addition reads each element twice and writes it once, at the vertex's home. The rows
        # are scattered.
        operation, add = AccumulateGradients((number, self.round, plan.slot)), "accumulate on host"
        counts, width = plan.leaving.by_host, self._layers[number].in_features
        added = [
            self._alone(self._at_host[plan.slot][host], each, "offload", add, number, size)
            for host, each, size in self._on_hosts(operation, counts, 3 * row_bytes, width)
        ]
        return [
            self._return(None, label, number, plan, work),
            *self._between_hosts(number, plan, plan.leaving, row_bytes, home=True),
            *self._page("load", number, "gradients", number, row_bytes, plan.leaving_ids),
            *added,
            *self._page("offload", number, "gradients", number, row_bytes, plan.leaving_ids),
        ]

    def _pick(self, rows: HostRows, number: int, plan: UnitPlan) -> CopyWork | RowsWork:
        """Return the size of a transfer of input rows that are gathered or scattered one by one."""
        width = self._layers[number].in_features
        row_bytes = width * self._itemsize
        if self._trainers[plan.slot] == self._hosts[plan.slot]:
            return _copy(rows.total, row_bytes, rows.remote)
        size, remote_bytes = rows.total * row_bytes, rows.remote * row_bytes
        return RowsWork(rows.total, width, size, 0, remote_bytes)

    def _between_hosts(
        self, number: int, plan: UnitPlan, rows: HostRows, row_bytes: int, *, home: bool = False
    ) -> Iterator[Step]:
        """Yield transfers of a unit's rows at hosts other than its device's, host by host."""
        here = self._hosts[plan.slot]
        for there, count in self._homes.list_abroad(rows.by_host, here):
            place = self._find_place(*((here, there) if home else (there, here)))
            stage: Stage = "offload" if home else "transfer"
            work = _copy(count, row_bytes)
            counts, label = Counts((("host_to_host", work.bytes),)), "rows of another host"
            yield Step(None, stage, label, place, work, number, self.round, counts)

    def _bring(
        self,
        make: Callable[[UnitKey], object] | None,
        label: str,
        number: int,
        plan: UnitPlan,
        work: CopyWork,
    ) -> Step:
        """Return a transfer for a unit from the host to its device."""
        key, place = (number, self.round, plan.slot), self._from_host[plan.slot]
        operation, moved = make and make(key), _count("host_to_device", work)
        return _transfer(operation, label, place, work, key, moved)

    def _return(
        self,
        make: Callable[[UnitKey], object] | None,
        label: str,
        number: int,
        plan: UnitPlan,
        work: CopyWork | RowsWork,
    ) -> Step:
        """Return a transfer for a unit from its device to the host."""
        key, place = (number, self.round, plan.slot), self._to_host[plan.slot]
        operation, moved = make and make(key), _count("device_to_host", work)
        return _transfer(operation, label, place, work, key, moved, "offload")

    # ------------------------------------------------------------------ the host and its disk

    def take_loss(self) -> Iterator[list[Step]]:
        """Yield each host's mean cross entropy over its training vertices, and h^L's gradient."""
        depth, row_bytes = len(self._layers), self._layers[-1].out_features * self._itemsize
        parts = self._on_hosts(TakeLoss(), self._homes.counts, 2 * row_bytes)
        for number, (host, operation, work) in enumerate(parts):
            if not number and isinstance(work, CopyWork):
                work = work._replace(loss=True)
            step = self._alone(Place(host, (host,)), operation, "update", "loss", depth, work)
            before = self._page(
                "load", depth, "representations", depth, row_bytes, lambda: self._train_ids
            )
            yield [*before, step, *self._page("offload", depth, "gradients", depth, row_bytes)]

    def clear_gradients(self, number: int) -> Iterator[list[Step]]:
        """Yield each host's step that sets the gradients of a layer's input to zero."""
        row_bytes, label = self._layers[number].in_features * self._itemsize, "clear gradients"
        parts = self._on_hosts(ClearGradients(number), self._homes.counts, row_bytes)
        for host, operation, work in parts:
            place = Place(host, (host,))
            step = self._alone(place, operation, "offload", label, number, work)
            yield [step, *self._page("offload", number, "gradients", number, row_bytes)]

    def _on_hosts(
        self,
        operation: object,
        counts: tuple[int, ...],
        row_bytes: int,
        picked_features: int = 0,
    ) -> Iterator[tuple[str, object, Work]]:
        """Yield each host's name, operation and work on its vertices' rows.

        The first host's body computes all rows. Rows of ``picked_features`` features are read one
        by one; 0 stands for contiguous rows.
        """
        for number, (host, rows) in enumerate(zip(self._homes.hosts, counts, strict=True)):
            if number and not rows:
                continue
            work: Work = _copy(rows, row_bytes)
            if picked_features:
                work = RowsWork(rows, picked_features, rows * row_bytes)
            yield host.name, None if number else operation, work

    def _alone(
        self,
        place: Place,
        operation: object,
        stage: Stage,
        label: str,
        number: int,
        work: Work,
        counts: Counts = NOTHING,
    ) -> Step:
        """Return a step of the current round."""
        return new_step(
            (operation, stage, label, place, work, number, self.round, counts, None, None, NOWHERE)
        )

    def _page(
        self,
        stage: Literal["load", "offload"],
        number: int,
        kind: HostKind,
        served: int,
        row_bytes: int,
        ids: Callable[[], IntArray | IndexArray] | None = None,
    ) -> list[Step]:
        """Return the disk's step for rows ``ids`` (all if None) of a tensor, if it lies there."""
        if not self._host.is_spilled(kind, served):
            return []
        size = page_bytes(ids(), row_bytes) if ids else self._num_vertices * row_bytes
        return [self._disk(stage, number, size)]

    def _disk(self, stage: Literal["load", "offload"], number: int, size: int) -> Step:
        label = "read from disk" if stage == "load" else "write to disk"
        return self._alone(ON_DISK, None, stage, label, number, CopyWork(size))

    # ------------------------------------------------------------------ within and between devices

    def exchange(self, number: int, plan: UnitPlan, *, push: bool) -> list[Step]:
        """Return the transfers of a unit's rows from peers' buffers, or of gradients to them."""
        copies = plan.pushes if push else plan.pulls
        return [self._copy_rows(number, plan.slot, *each, push) for each in enumerate(copies)]

    def _copy_rows(self, number: int, slot: int, place: int, other: PeerCopy, push: bool) -> Step:
        """Return the copy of rows between two buffers; one peer at a time uses a buffer."""
        between, make = (slot, other.slot, push), PushGradients if push else PullRows
        if between not in self._between:
            self._between[between] = self._find_way(*between)
        work = _copy(other.rows, self._layers[number].in_features * self._itemsize)
        crosses = slot != other.slot
        return self._alone(
            self._between[between],
            make(self.round, slot, place),
            "transfer",
            "device to device" if crosses else "copy between buffers",
            number,
            work,
            _count("device_to_device", work) if crosses else NOTHING,
        )

    def _find_way(self, slot: int, other: int, push: bool) -> Place:
        """Return the place of copies to or from a peer's buffer, which hold the buffer as well."""
        source, target = (slot, other) if push else (other, slot)
        peer = self._trainers[other].name
        place = self._find_place(self._trainers[source], self._trainers[target], target)
        lanes = place.resources if slot == other else (*place.resources, f"{peer}.buffer")
        return place._replace(resources=lanes, source=source)

    def clear_buffer(self, number: int, plan: UnitPlan) -> Step:
        """Return the step that clears a round's gradients, except for rows that stay."""
        row_bytes = self._layers[number].in_features * self._itemsize
        work, label = _copy(plan.cleared, row_bytes), "clear gradients on device"
        place, counts = self._on_device[plan.slot], Counts((("reused", plan.reused * row_bytes),))
        operation = ClearBuffer((number, self.round, plan.slot))
        return self._alone(place, operation, "transfer", label, number, work, counts)

    def compact(self, number: int, plan: UnitPlan) -> Step:
        """Return the gathering of gradients into contiguous memory (HongTu Figure 7 (b))."""
        row_bytes = self._layers[number].in_features * self._itemsize
        place, work = self._on_device[plan.slot], _copy(plan.leaving.total, row_bytes)
        return self._alone(place, None, "offload", "compact gradients", number, work)


def _transfer(
    operation: object,
    label: str,
    place: Place,
    work: Work,
    key: UnitKey,
    moved: Counts,
    stage: Stage = "transfer",
) -> Step:
    return new_step(
        (operation, stage, label, place, work, key[0], key[1], moved, None, None, NOWHERE)
    )


def _copy(rows: int, row_bytes: int, remote_rows: int = 0) -> CopyWork:
    return _new_copy((rows * row_bytes, rows, 0, remote_rows * row_bytes, False, False))


def _count(kind: ByteKind, work: CopyWork | RowsWork) -> Counts:
    return _new_counts((((kind, work.bytes),), 0, 0, 0.0))
