"""The steps of full-graph training from the host's memory: what each moves, and how much.

``host_resident`` orders the steps and sets the buffers that they read and write.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Literal

from gnnbench.lowering.footprint import HostKind, crossing_topology_bytes
from gnnbench.lowering.homes import Homes
from gnnbench.lowering.host_plan import HostPlan, HostRows, PeerCopy, UnitPlan, page_bytes
from gnnbench.machines.machine import DISK, Device, Route
from gnnbench.models import Layer
from gnnbench.models.saved import SavedSizes
from gnnbench.parts import Setting
from gnnbench.program import Step
from gnnbench.records import CopyWork, IndexArray, IntArray, RowsWork, Stage, Work

#: Rows of a unit other than its input rows, by the kind of tensor that the host has of them.
Part = Literal["outputs", "aggregates", "gradients"]
KINDS: dict[Part, HostKind] = {
    "outputs": "representations",
    "aggregates": "intermediates",
    "gradients": "gradients",
}


class HostSteps:
    """The maker of steps in the current ``round``; a list of steps is in the order of its work.

    Rows of a transfer that lie at another socket of the host are its remote bytes. The body of the
    step that copies rows reads or writes the pages of a spilled tensor. The disk's time has a
    separate step.
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
        pairs = list(zip(self._hosts, trainers, strict=True))
        self._from_host = [setting.platform.route(host, device) for host, device in pairs]
        self._to_host = [setting.platform.route(device, host) for host, device in pairs]
        self._between: dict[tuple[int, int, bool], Route] = {}

    # ------------------------------------------------------------------ between host and devices

    def bring(self, number: int, plan: UnitPlan) -> list[Step]:
        """Return the transfer of input rows from the host, without rows that are still there."""
        row_bytes = self._layers[number].in_features * self._itemsize
        work = self._pick(plan.loaded, number, plan)
        step = self._transfer("bring rows", "host to device", number, plan, work)
        step.moves += (("reused", plan.reused * row_bytes),)
        kind: HostKind = "representations" if number else "features"
        before = self._page("load", number, kind, number, row_bytes, plan.loaded_ids)
        return [*before, *self._between_hosts(number, plan, plan.loaded, row_bytes), step]

    def fetch(self, number: int, plan: UnitPlan, part: Part) -> list[Step]:
        """Return the transfer to its device of rows that belong to a unit's destinations."""
        row_bytes = self._row_bytes(number, part)
        work = _copy(plan.chunk.num_dst, row_bytes, plan.outputs.remote)
        step = self._transfer(f"fetch {part}", f"{part} to device", number, plan, work)
        before = self._page("load", number, KINDS[part], number + 1, row_bytes, plan.output_ids)
        return [*before, *self._between_hosts(number, plan, plan.outputs, row_bytes), step]

    def store(self, number: int, plan: UnitPlan, part: Part) -> list[Step]:
        """Return the transfer to the host of rows that belong to a unit's destinations."""
        row_bytes = self._row_bytes(number, part)
        work = _copy(plan.chunk.num_dst, row_bytes, plan.outputs.remote)
        step = self._transfer(f"store {part}", f"{part} to host", number, plan, work, to_host=True)
        after = self._page("offload", number, KINDS[part], number + 1, row_bytes, plan.output_ids)
        return [
            step,
            *self._between_hosts(number, plan, plan.outputs, row_bytes, home=True),
            *after,
        ]

    def _row_bytes(self, number: int, part: Part) -> int:
        layer = self._layers[number]
        width = layer.aggregate_features if part == "aggregates" else layer.out_features
        return width * self._itemsize

    def saved_bytes(self, number: int, plan: UnitPlan) -> int:
        """Return the bytes that autograd saves in a unit's forward pass."""
        return self._saved.size_bytes(number, plan.size, self._trainers[plan.slot].torch_device)

    def offload(self, number: int, plan: UnitPlan) -> list[Step]:
        """Return the transfer to the host of what autograd has saved."""
        work = CopyWork(bytes=self.saved_bytes(number, plan))
        label = "intermediates to host"
        step = self._transfer("offload saved", label, number, plan, work, to_host=True)
        spilled = self._host.is_spilled("intermediates", number + 1)
        return [step, self._disk("offload", number, work.bytes)] if spilled else [step]

    def restore(self, number: int, plan: UnitPlan) -> list[Step]:
        """Return the transfer back to the device of what autograd has saved."""
        work = CopyWork(bytes=self.saved_bytes(number, plan))
        step = self._transfer("restore saved", "intermediates to device", number, plan, work)
        spilled = self._host.is_spilled("intermediates", number + 1)
        return [self._disk("load", number, work.bytes), step] if spilled else [step]

    def send_topology(self, number: int, plan: UnitPlan, *, backward: bool) -> Step:
        """Return the transfer of a chunk's topology; the first kernel that needs it copies it."""
        shape = self._layers[number].shape
        size = crossing_topology_bytes(shape, plan.chunk, self._itemsize, backward=backward)
        return self._transfer("", "topology to device", number, plan, CopyWork(bytes=size))

    def accumulate(self, number: int, plan: UnitPlan) -> list[Step]:
        """Return the transfer of gradients and their addition (Algorithm 3, lines 6 and 7).

        The body of the CPU's step does both, for some rows at a time.
        """
        row_bytes, label = self._layers[number].in_features * self._itemsize, "gradients to host"
        work = self._pick(plan.leaving, number, plan)
        # The addition reads each element twice and writes it once, at the vertex's home. The rows
        # are scattered.
        key, add, rows = (number, self.round, plan.slot), "accumulate on host", 3 * row_bytes
        counts, width = plan.leaving.by_host, self._layers[number].in_features
        added = list(self._on_hosts("accumulate", key, "offload", add, number, counts, rows, width))
        for step in added:
            step.device = plan.slot
        return [
            self._transfer("", label, number, plan, work, to_host=True),
            *self._between_hosts(number, plan, plan.leaving, row_bytes, home=True),
            *self._page("load", number, "gradients", number, row_bytes, plan.leaving_ids),
            *added,
            *self._page("offload", number, "gradients", number, row_bytes, plan.leaving_ids),
        ]

    def _pick(self, rows: HostRows, number: int, plan: UnitPlan) -> Work:
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
        """Yield transfers of a unit's rows that lie at hosts other than its device's, host by host.

        They go to the device's host, or from there to their ``home``.
        """
        here = self._hosts[plan.slot]
        for there, count in self._homes.list_abroad(rows.by_host, here):
            route = self._platform.route(*((here, there) if home else (there, here)))
            stage: Stage = "offload" if home else "transfer"
            work = _copy(count, row_bytes)
            step = Step("", (), stage, "rows of another host", route.place, route.lanes, work)
            step.layer, step.round, step.moves = number, self.round, (("host_to_host", work.bytes),)
            yield step

    def _transfer(
        self, op: str, label: str, number: int, plan: UnitPlan, work: Work, *, to_host: bool = False
    ) -> Step:
        """Return a transfer for a unit over its device's link with the host."""
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
            device=plan.slot,
        )

    # ------------------------------------------------------------------ the host and its disk

    def take_loss(self) -> Iterator[list[Step]]:
        """Yield each host's mean cross entropy over its training vertices, and h^L's gradient."""
        depth, row_bytes = len(self._layers), self._layers[-1].out_features * self._itemsize
        counts = self._homes.counts
        for step in self._on_hosts("loss", (), "update", "loss", depth, counts, 2 * row_bytes):
            if step.op:
                step.work = step.work._replace(loss=True)
            before = self._page(
                "load", depth, "representations", depth, row_bytes, lambda: self._train_ids
            )
            yield [*before, step, *self._page("offload", depth, "gradients", depth, row_bytes)]

    def clear_gradients(self, number: int) -> Iterator[list[Step]]:
        """Yield each host's step that sets the gradients of a layer's input to zero."""
        row_bytes, label = self._layers[number].in_features * self._itemsize, "clear gradients"
        counts = self._homes.counts
        for step in self._on_hosts(label, (number,), "offload", label, number, counts, row_bytes):
            yield [step, *self._page("offload", number, "gradients", number, row_bytes)]

    def _on_hosts(
        self,
        op: str,
        operands: tuple[object, ...],
        stage: Stage,
        label: str,
        number: int,
        counts: tuple[int, ...],
        row_bytes: int,
        picked_features: int = 0,
    ) -> Iterator[Step]:
        """Yield each host's work on its vertices' rows; the first host's body computes all rows.

        Rows of ``picked_features`` features are read one by one; 0 stands for contiguous rows.
        """
        for host, rows in zip(self._homes.hosts, counts, strict=True):
            if not op and not rows:
                continue
            work: Work = _copy(rows, row_bytes)
            if picked_features:
                work = RowsWork(rows, picked_features, rows * row_bytes)
            yield self._alone(host.name, op, operands, stage, label, number, work)
            op, operands = "", ()

    def _alone(
        self,
        place: str,
        op: str,
        operands: tuple[object, ...],
        stage: Stage,
        label: str,
        number: int,
        work: Work,
    ) -> Step:
        """Return a step that occupies one device, or the disk, and no link."""
        return Step(op, operands, stage, label, place, (place,), work, number, self.round)

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
        return self._alone(DISK, "", (), stage, label, number, CopyWork(bytes=size))

    # ------------------------------------------------------------------ within and between devices

    def exchange(self, number: int, plan: UnitPlan, *, push: bool) -> list[Step]:
        """Return the transfers of a unit's rows from peers' buffers, or of gradients to them."""
        copies = plan.pushes if push else plan.pulls
        return [self._copy_rows(number, plan.slot, *each, push) for each in enumerate(copies)]

    def _copy_rows(self, number: int, slot: int, place: int, other: PeerCopy, push: bool) -> Step:
        """Return the copy of rows between two buffers; one peer at a time uses a buffer."""
        key = (slot, other.slot, push)
        if key not in self._between:
            self._between[key] = self._route(*key)
        route, between = self._between[key], slot != other.slot
        work = _copy(other.rows, self._layers[number].in_features * self._itemsize)
        return Step(
            "push gradients" if push else "pull rows",
            (self.round, slot, place),
            "transfer",
            "device to device" if between else "copy between buffers",
            route.place,
            route.lanes,
            work,
            number,
            self.round,
            moves=(("device_to_device", work.bytes),) if between else (),
            device=other.slot if push else slot,
            source=slot if push else other.slot,
        )

    def _route(self, slot: int, other: int, push: bool) -> Route:
        """Return the route to or from a peer's buffer, which holds the buffer as well."""
        device, peer = self._trainers[slot], self._trainers[other]
        route = self._platform.route(*((device, peer) if push else (peer, device)))
        return route if slot == other else Route(route.place, (*route.lanes, f"{peer.name}.buffer"))

    def clear_buffer(self, number: int, plan: UnitPlan) -> Step:
        """Return the step that clears a round's gradients, except for rows that stay."""
        row_bytes = self._layers[number].in_features * self._itemsize
        work, label = _copy(plan.cleared, row_bytes), "clear gradients on device"
        device, key = self._trainers[plan.slot].name, (number, self.round, plan.slot)
        step = self._alone(device, "clear buffer", key, "transfer", label, number, work)
        step.moves, step.device = (("reused", plan.reused * row_bytes),), plan.slot
        return step

    def compact(self, number: int, plan: UnitPlan) -> Step:
        """Return the gathering of gradients into contiguous memory (HongTu Figure 7 (b))."""
        row_bytes = self._layers[number].in_features * self._itemsize
        device, work = self._trainers[plan.slot].name, _copy(plan.leaving.total, row_bytes)
        step = self._alone(device, "", (), "offload", "compact gradients", number, work)
        step.device = plan.slot
        return step


def _copy(rows: int, row_bytes: int, remote_rows: int = 0) -> CopyWork:
    # Arguments by position are faster: an epoch of many chunks makes hundreds of thousands.
    return CopyWork(rows * row_bytes, rows, 0, remote_rows * row_bytes)
