"""The bodies of ``lowering/host_resident.py``'s steps: rows and gradients on the host.

A unit's rows are on its device while it is worked on.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from functools import partial

import torch
from torch import Tensor

from gnnbench.kernels.buffers import pool
from gnnbench.kernels.pages import return_large_arrays, trim_heap
from gnnbench.lowering import choose_lowering
from gnnbench.lowering.host_plan import shares_features
from gnnbench.lowering.host_resident import HostResidentLowering
from gnnbench.lowering.memory import host_capacity
from gnnbench.lowering.movement import SlotMovement
from gnnbench.lowering.stages.unit_passes import UnitKey
from gnnbench.lowering.units import needs_aggregate_gradient
from gnnbench.models import BoundBlock
from gnnbench.models.saved import SavedTensors
from gnnbench.program import Item, Step
from gnnbench.records import EpochTrace
from gnnbench.run.base import Engine
from gnnbench.run.execute import Bodies
from gnnbench.run.features import fill_features
from gnnbench.run.host_movement import HostMovement
from gnnbench.run.host_share import HostShare
from gnnbench.run.host_store import HostStore, IdleMemory
from gnnbench.run.movement import put_rows, read_rows
from gnnbench.run.passes import (
    AggregateTape,
    UpdateTape,
    run_aggregate,
    run_aggregate_backward,
    run_update,
    run_update_backward,
    without_outputs,
)


class HostResidentEngine(Engine):
    """The engine for programs of :class:`HostResidentLowering`; its methods are the bodies.

    It serves other lowerings with the same operations too.
    """

    _lowering: HostResidentLowering

    # ------------------------------------------------------------------ preparation

    def prepare(self) -> None:
        """Lower, bind the blocks, and place the vertex data."""
        stack = self.replicas.master.stack
        lowering = choose_lowering(self._bundle)(self._bundle, self._setting, stack)
        if not isinstance(lowering, HostResidentLowering):
            raise TypeError("vertex data on the host takes memories that offload")
        self._lowering = lowering
        self._lowering.frame.deciding = self._recorder.inside_part
        self._lowering.lends = self.lends
        self._lowering.prepare(self.ledger)
        train_ids = self._setting.dataset.train_ids
        self._num_train = len(train_ids)
        ranks, here = self._rank_of_slots()
        share = self._share = HostShare(self._lowering.owner, ranks, here)
        self._train_places = torch.from_numpy(share.place(train_ids))
        own_ids = share.ids[self._train_places.numpy()]
        self._train_labels = self._labels[torch.from_numpy(own_ids)]
        self._movement = HostMovement(self._site, lowering, share, self._ahead)
        self._bounds: dict[tuple[int, int], BoundBlock] = {
            (index, slot): self._bind(index, move)
            for (index, slot), move in self._movement.moves.items()
            if self._has(slot)
        }
        self._place()
        self._use(self._list_bodies())

    def _bind(self, index: int, move: SlotMovement) -> BoundBlock:
        """Return the block of a unit of a round, on its device."""
        kernel, device = self._bundle.kernel, self._device(move.slot)
        return BoundBlock(move.block, kernel, self._degrees, self._dtype, device)

    def _list_bodies(self) -> Bodies:
        """Return the bodies of the steps of an epoch, by operation."""
        return {
            **self._movement.list_bodies(),
            "aggregate forward": self._aggregate,
            "update forward": self._update,
            "store outputs": self._store_outputs,
            "store aggregates": self._store_aggregates,
            "offload saved": self._offload_saved,
            "loss": self._take_loss,
            "clear gradients": self._clear_gradients,
            "fetch gradients": self._fetch_gradients,
            "fetch aggregates": self._fetch_aggregates,
            "restore saved": self._restore_saved,
            "aggregate again": partial(self._aggregate, again=True),
            "update again": partial(self._update, again=True),
            "update backward": self._update_backward,
            "aggregate backward": self._aggregate_backward,
            "step": self._update_model,
        }

    def _place(self) -> None:
        """Place h^0 .. h^L, the gradients' buffers and cached aggregates, in memory or on disk."""
        setting, plan = self._setting, self._lowering.host
        dims, vertices = setting.workload.dims, len(self._share.ids)
        share = vertices, self._share.num_vertices
        self._store = HostStore(plan, self._dtype, share)
        rows, gradients = self._movement.rows, self._movement.gradients
        #: By layer, its cached aggregates.
        self._cached: dict[int, Tensor] = {}
        idle: dict[int, Tensor] = {}
        shares = shares_features(setting)
        if shares and self._share.whole:
            rows[0] = torch.from_numpy(setting.dataset.features)
        elif shares:
            rows[0] = torch.empty((vertices, dims[0]), dtype=self._dtype)
        for tensor in plan.tensors:
            if tensor.what == "saved intermediates":
                continue
            flat, (first, *_) = self._store.empty(tensor), tensor.layers
            if tensor.kind == "intermediates":
                self._cached[first] = flat.view(vertices, -1)
            elif tensor.kind != "gradients":
                rows[first] = flat.view(vertices, -1)
            else:
                idle[first] = flat
                for number in tensor.layers:
                    gradients[number] = flat[: vertices * dims[number]].view(vertices, -1)
        self._idle = tuple(idle[first] for first in sorted(idle))
        if any(torch.device(device.torch_device).type == "cuda" for device in self._trainers):
            self._store.pin([*rows.values(), *self._idle, *self._cached.values()])
        if not (shares and self._share.whole):
            fill_features(setting, rows[0], self._share.ids)
            self._store.drop_pages()
        if plan.spilled:
            return_large_arrays()

    def idle_memory(self) -> IdleMemory:
        """Return the buffers of gradients, with the buffer of layer 1's outputs first.

        Each epoch clears them before it writes to them.
        """
        return IdleMemory(self._idle, self._store.drop_pages, self.ledger, self._host.name)

    def notes(self) -> tuple[str, ...]:
        """Return which data was not pinned, and other notes."""
        return (*self._store.notes(), *super().notes())

    # ------------------------------------------------------------------ one epoch

    def run_epoch(self, epoch: int) -> EpochTrace:
        """Run one full-graph iteration: forward, loss, backward, update."""
        self._start_epoch(epoch)
        self._loss = 0.0
        self._begin_update()
        self._store.rewind()
        self._movement.start_epoch()
        #: For current units: tapes, what autograd has saved for them, and gradients of outputs and
        #: of aggregates.
        self._aggregates: dict[UnitKey, AggregateTape] = {}
        self._updates: dict[UnitKey, UpdateTape] = {}
        self._saved: dict[UnitKey, SavedTensors] = {}
        self._upper: dict[UnitKey, Tensor] = {}
        self._below: dict[UnitKey, Tensor] = {}
        self._take(self._tidy(self._list_epoch(epoch)))
        return self._end_epoch(self._loss, [self._loss], self._num_train)

    def _tidy(self, items: Iterable[Item]) -> Iterator[Item]:
        """Yield the items, and release a round's or layer's data before the next one begins."""
        now: tuple[int, int] | None = None
        for item in items:
            if isinstance(item, Step) and now != (item.layer, item.round):
                if now is not None:
                    self._end_round(now[1])
                    if now[0] != item.layer:
                        self._movement.buffers.clear()
                        if self._is_bounded():
                            # The next layer's arrays have other widths.
                            pool.release()
                now = (item.layer, item.round)
            yield item

    def _is_bounded(self) -> bool:
        """Return whether this process must stay within the memory that was asked for."""
        free = host_capacity(self._bundle.memory, self._host) == self._host.hardware.memory_bytes
        return self._is_short() or not free

    def _is_short(self) -> bool:
        return bool(self._lowering.host.spilled or self._setting.dataset.folder)

    def _end_round(self, round_index: int) -> None:
        self._store.drop_pages()
        if self._is_short():
            # The kernel's forms of a round's blocks are made again for the next layer.
            for plan in self._lowering.plans[round_index]:
                if self._has(plan.slot):
                    self._bounds[round_index, plan.slot].release()
            pool.release()
            trim_heap()

    # ------------------------------------------------------------------ a unit

    def _take_topology(self, bound: BoundBlock) -> None:
        if self._lowering.streams:
            bound.offload()

    # ------------------------------------------------------------------ forward, and once more

    def _read(self, key: UnitKey) -> Tensor:
        """Return the input rows of a unit."""
        return self._movement.take_inputs(key)

    def _aggregate(self, number: int, round_index: int, slot: int, *, again: bool = False) -> None:
        key = (number, round_index, slot)
        layer, bound, rows = self._layer(number, slot), self._bounds[key[1:]], self._read(key)
        if self._lowering.policies[number] == "offload":
            self._saved[key] = SavedTensors(list(layer.parameters()))
        if again or self._is_taped(number):
            with self._recording(key):
                self._aggregates[key] = run_aggregate(layer, bound, rows, first=number == 0)
        else:
            with torch.no_grad():
                self._aggregates[key] = AggregateTape(None, layer.aggregate(bound, rows))

    def _update(self, number: int, round_index: int, slot: int, *, again: bool = False) -> None:
        key = (number, round_index, slot)
        layer, bound = self._layer(number, slot), self._bounds[key[1:]]
        rows = self._aggregates[key].output
        if again or self._is_taped(number):
            needs = needs_aggregate_gradient(layer, first=number == 0)
            with self._recording(key):
                tape = run_update(layer, bound, rows, needs_input_gradient=needs)
        else:
            with torch.no_grad():
                tape = UpdateTape(rows, layer.update(bound, rows))
        self._updates[key] = tape
        if not again:
            self._take_topology(bound)

    def _is_taped(self, number: int) -> bool:
        """Return whether a layer's backward pass uses the results of its first forward pass."""
        return self._lowering.policies[number] in ("keep", "offload")

    def _recording(self, key: UnitKey) -> AbstractContextManager[object]:
        """Return a context that records what autograd saves, if that is offloaded."""
        return self._saved[key].recording() if key in self._saved else nullcontext()

    def _store_outputs(self, number: int, round_index: int, slot: int) -> None:
        key, ids = (number, round_index, slot), self._movement.outputs_of(round_index, slot)
        put_rows(self._movement.rows[number + 1], ids, self._updates[key].output.detach())
        policy = self._lowering.policies[number]
        if policy == "keep":
            tapes = without_outputs(self._aggregates[key], self._updates[key])
            self._aggregates[key], self._updates[key] = tapes
        elif policy != "offload":
            del self._updates[key]
        if policy == "recompute":
            del self._aggregates[key]

    def _store_aggregates(self, number: int, round_index: int, slot: int) -> None:
        rows = self._aggregates.pop((number, round_index, slot)).output
        put_rows(self._cached[number + 1], self._movement.outputs_of(round_index, slot), rows)

    def _offload_saved(self, number: int, round_index: int, slot: int) -> None:
        key = (number, round_index, slot)
        tapes = without_outputs(self._aggregates[key], self._updates[key])
        self._aggregates[key], self._updates[key] = tapes
        self._saved[key].offload(lambda tensor: self._store.like(number + 1, tensor))

    # ------------------------------------------------------------------ loss and backward

    def _take_loss(self) -> None:
        depth = len(self.replicas.master.stack)
        logits, gradient = self._movement.rows[depth], self._movement.gradients[depth]
        self._keep_logits(self._share.ids, logits)
        gradient.zero_()
        count = len(self._train_places)
        if not count:
            return
        chosen = logits[self._train_places].requires_grad_()
        mean = torch.nn.functional.cross_entropy(chosen, self._train_labels)
        loss = mean * (count / self._num_train)
        torch.autograd.backward(loss)
        if chosen.grad is not None:
            gradient[self._train_places] = chosen.grad
        self._loss = float(loss.detach())

    def _clear_gradients(self, number: int) -> None:
        self._movement.gradients[number].zero_()
        self._store.drop_pages()

    def _fetch_gradients(self, number: int, round_index: int, slot: int) -> None:
        rows = self._movement.gradients[number + 1]
        ids = self._movement.outputs_of(round_index, slot)
        self._upper[number, round_index, slot] = read_rows(rows, ids, self._device(slot))

    def _fetch_aggregates(self, number: int, round_index: int, slot: int) -> None:
        rows, ids = self._cached[number + 1], self._movement.outputs_of(round_index, slot)
        tape = AggregateTape(None, read_rows(rows, ids, self._device(slot)))
        self._aggregates[number, round_index, slot] = tape

    def _restore_saved(self, number: int, round_index: int, slot: int) -> None:
        self._saved.pop((number, round_index, slot)).restore(self._device(slot))

    def _update_backward(self, number: int, round_index: int, slot: int) -> None:
        key = (number, round_index, slot)
        below = run_update_backward(self._updates[key], self._upper[key])
        if below is None:
            self._end_unit(key)
        else:
            self._below[key] = below

    def _aggregate_backward(self, number: int, round_index: int, slot: int) -> None:
        key, layer, first = (number, round_index, slot), self._layer(number, slot), number == 0
        bound, move = self._bounds[key[1:]], self._movement.moves[key[1:]]
        into = None if first or move.direct else self._movement.buffers["gradients"].rows(move)
        tape, below = self._aggregates[key], self._below.pop(key)
        rows = run_aggregate_backward(layer, bound, tape, below, first=first, into=into)
        self._end_unit(key)
        if rows is not None and into is None:
            self._movement.returned[key] = rows

    def _end_unit(self, key: UnitKey) -> None:
        """Release what is held for a unit up to the end of its backward pass."""
        del self._aggregates[key], self._updates[key], self._upper[key]
        self._take_topology(self._bounds[key[1:]])
