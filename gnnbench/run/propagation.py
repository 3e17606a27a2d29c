"""Propagation of mini-batches: the bodies of ``lowering/stages/propagation.py``'s steps."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from gnnbench.lowering.stages.propagation import (
    AggregateBlock,
    AggregateBlockBackward,
    TakeLoss,
    UpdateBlock,
    UpdateBlockBackward,
)
from gnnbench.lowering.units import needs_aggregate_gradient
from gnnbench.models import BoundBlock
from gnnbench.program.reader import Bodies
from gnnbench.records import Block, IntArray
from gnnbench.run.base import Here
from gnnbench.run.input_rows import InputRows
from gnnbench.run.passes import (
    AggregateTape,
    UpdateTape,
    run_aggregate,
    run_aggregate_backward,
    run_update,
    run_update_backward,
    take_gradients,
)
from gnnbench.run.replicas import Replicas


class Propagation:
    """A trainer's state of the unit that it computes.

    ``rows`` are its rows or their gradients, ``(n, f)``. It has the blocks and tapes of its layers
    so far. At the end it has the sum of its seeds' losses, and its part of the gradients of the
    round's mean loss.
    """

    __slots__ = ("aggregates", "bounds", "gradients", "loss_sum", "rows", "updates")
    rows: Tensor

    def __init__(self) -> None:
        self.bounds: list[BoundBlock] = []
        self.aggregates: list[AggregateTape] = []
        self.updates: list[UpdateTape] = []
        self.loss_sum = 0.0
        self.gradients: list[Tensor] = []


class Passes:
    """The forward and backward passes of a process's trainers.

    ``bind`` returns a block as a layer reads it, for a device index, the layer's number and the
    block. ``keep_logits`` receives the seeds of a unit, their logits ``(n, classes)``, and its
    round.
    """

    def __init__(
        self,
        here: Here,
        bind: Callable[[int, int, Block], BoundBlock],
        replicas: Replicas,
        rows: InputRows,
        keep_logits: Callable[[IntArray, Tensor, int], None],
    ) -> None:
        self._here, self.bind, self._rows, self._keep_logits = here, bind, rows, keep_logits
        self._labels = torch.from_numpy(here.setting.dataset.labels)
        self.stacks = {slot: replicas.on(here.trainers[slot]).stack for slot in here.slots}

    def start_epoch(self) -> None:
        """Forget the units of the last epoch."""
        self.at_work = [Propagation() for _ in self._here.trainers]

    def list_bodies(self) -> Bodies:
        """Return the bodies of the steps of propagation, by operation."""
        return {
            AggregateBlock: self._aggregate_forward,
            UpdateBlock: self._update_forward,
            TakeLoss: self._take_loss,
            UpdateBlockBackward: self._update_backward,
            AggregateBlockBackward: self._aggregate_backward,
        }

    def _aggregate_forward(self, operation: AggregateBlock) -> None:
        key, number, block = operation
        at_work, bound = self.at_work[key[1]], self.bind(key[1], number, block)
        rows = at_work.rows if number else self._rows.inputs.pop(key)
        tape = run_aggregate(self.stacks[key[1]][number], bound, rows, first=number == 0)
        at_work.bounds.append(bound)
        at_work.aggregates.append(tape)

    def _update_forward(self, operation: UpdateBlock) -> None:
        key, number, _ = operation
        at_work, layer = self.at_work[key[1]], self.stacks[key[1]][number]
        aggregate = at_work.aggregates[number].output
        needs = needs_aggregate_gradient(layer, first=number == 0)
        tape = run_update(layer, at_work.bounds[number], aggregate, needs_input_gradient=needs)
        at_work.updates.append(tape)
        at_work.rows = tape.output.detach()

    def _take_loss(self, operation: TakeLoss) -> None:
        key, ids, weight = operation
        at_work = self.at_work[key[1]]
        self._keep_logits(ids, at_work.rows, key[0])
        labels = self._labels[torch.from_numpy(ids)].to(at_work.rows.device)
        logits = at_work.rows.requires_grad_()
        loss = torch.nn.functional.cross_entropy(logits, labels, reduction="sum")
        torch.autograd.backward(loss, torch.full_like(loss, weight))
        if logits.grad is None:
            raise RuntimeError("the loss has no gradient")
        at_work.rows, at_work.loss_sum = logits.grad, loss.item()

    def _update_backward(self, operation: UpdateBlockBackward) -> None:
        key = operation.unit
        at_work = self.at_work[key[1]]
        below = run_update_backward(at_work.updates.pop(), at_work.rows)
        if below is None:
            self.end(key[1])
        else:
            at_work.rows = below

    def _aggregate_backward(self, operation: AggregateBlockBackward) -> None:
        key, number, _ = operation
        at_work, layer = self.at_work[key[1]], self.stacks[key[1]][number]
        bound, tape = at_work.bounds.pop(), at_work.aggregates.pop()
        source = run_aggregate_backward(layer, bound, tape, at_work.rows, first=number == 0)
        if number == 0:
            self.end(key[1])
        elif source is None:
            raise RuntimeError("a layer above the first returned no gradient")
        else:
            at_work.rows = source

    def end(self, slot: int) -> None:
        """Take the unit's gradients from the model once the first layer is done."""
        at_work = self.at_work[slot]
        at_work.bounds.clear()
        at_work.aggregates.clear()
        del at_work.rows
        at_work.gradients = take_gradients(self.stacks[slot])
