"""One rank of several reads a program: the steps of its own device, and its part of collectives.

It knows no strategy. All ranks read the same items in the same order. A step that another's device
takes is recorded and not executed; what goes from one rank's device to another's is sent where its
source is and received where its target is, and a collective is one of the process group.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from gnnbench.program import Collective, Item, Step
from gnnbench.records import BYTE_KINDS, EpochTrace
from gnnbench.run.collectives import Processes
from gnnbench.run.execute import Bodies
from gnnbench.run.recorder import Recorder

#: The operation of a step that brings something from another rank.
ARRIVAL = "arrival"


@dataclass(frozen=True, slots=True)
class Transfer:
    """The body of a step between two devices, in halves: ``send`` gives the tensor, at the source,
    and ``receive`` is handed it first, at the target, flat or in its shape.

    Where both devices are in this process one half follows the other.
    """

    send: Callable[..., Tensor]
    receive: Callable[..., None]

    def __call__(self, *operands: object) -> None:
        self.receive(self.send(*operands), *operands)


class Rank:
    """This process among others, each of which has the device whose index is its rank.

    ``bodies`` execute the items that ``take`` gives; what is sent is of ``dtype``.
    """

    def __init__(
        self, processes: Processes, recorder: Recorder, dtype: torch.dtype, bodies: Bodies
    ) -> None:
        self.processes = processes
        self.dtype = dtype
        self.bodies: Bodies = {**bodies, ARRIVAL: self._receive}
        self._recorder = recorder
        self._takers: list[int] = []

    def start_epoch(self) -> None:
        """Wait for the others, so that times of all ranks can be laid side by side."""
        self._takers.clear()
        with self._recorder.excluded():
            self.processes.sum(torch.zeros(1, dtype=torch.float64))

    def take(self, items: Iterable[Item]) -> Iterator[Item]:
        """The same items, of which those of other ranks have no body."""
        here = self.processes.rank
        for item in items:
            if isinstance(item, Collective):
                yield from self._take_together(item.steps)
            elif isinstance(item, Step) and item.source is not None:
                yield from self._take_together((item,))
            elif isinstance(item, Step):
                self._takers.append(item.device or 0)
                yield item if item.device in (None, here) else dataclasses.replace(item, op="")
            else:
                yield item

    def _take_together(self, steps: tuple[Step, ...]) -> Iterator[Step]:
        """Steps between devices, as one collective; bytes are counted from what is sent."""
        here, under_way = self.processes.rank, _UnderWay(self, steps)
        for step in steps:
            self._takers.append(step.device or 0)
            if step.device != here:
                yield dataclasses.replace(step, op="", moves=())
            elif step.source != here:
                yield dataclasses.replace(step, op=ARRIVAL, operands=(under_way, step), moves=())
            else:
                yield step
        under_way.finish()

    def _receive(self, under_way: _UnderWay, step: Step) -> None:
        self._transfer_of(step).receive(under_way.bring(step), *step.operands)

    def send(self, step: Step) -> Tensor:
        """What a step takes from this rank, ``(n,)``, counted."""
        tensor = self._transfer_of(step).send(*step.operands).reshape(-1)
        for kind, _ in step.moves:
            self._recorder.count_bytes(kind, tensor.numel() * tensor.element_size())
        return tensor

    def _transfer_of(self, step: Step) -> Transfer:
        body = self.bodies[step.op]
        if not isinstance(body, Transfer):
            raise TypeError(f"a step between ranks needs a body in two halves: {step.op!r}")
        return body

    def merge(self, trace: EpochTrace) -> EpochTrace:
        """The epoch of all ranks: losses and bytes added up, and every span's wall time from the
        rank that took it."""
        here, measured = self.processes.rank, self._recorder.measures
        walls = [
            time if taker == here else 0.0
            for span, taker in zip(trace.spans, self._takers, strict=True)
            for time in (span.wall_start_s, span.wall_s)
        ]
        counted = [float(trace.bytes[kind]) for kind in BYTE_KINDS]
        values = torch.tensor([trace.loss, *counted, *walls], dtype=torch.float64)
        loss, *rest = self.processes.sum(values).tolist()
        counted, walls = rest[: len(BYTE_KINDS)], rest[len(BYTE_KINDS) :]
        spans = tuple(
            span._replace(
                wall_start_s=start_s, wall_s=wall_s, seconds=wall_s if measured else span.seconds
            )
            for span, start_s, wall_s in zip(trace.spans, walls[::2], walls[1::2], strict=True)
        )
        return dataclasses.replace(
            trace,
            spans=spans,
            bytes={kind: int(size) for kind, size in zip(BYTE_KINDS, counted, strict=True)},
            loss=loss,
            round_losses=(loss,),
        )


class _UnderWay:
    """Transfers packed by rank, which are under way from the first that is asked for."""

    def __init__(self, rank: Rank, steps: tuple[Step, ...]) -> None:
        self._rank = rank
        self._steps = steps
        self._arrived: dict[Step, Tensor] | None = None

    def bring(self, step: Step) -> Tensor:
        """What arrives here by a step, ``(n,)``."""
        return self.finish()[step]

    def finish(self) -> dict[Step, Tensor]:
        """Take part, once; what arrives, by its step."""
        if self._arrived is None:
            processes, dtype = self._rank.processes, self._rank.dtype
            here = processes.rank
            leaving = [step for step in self._steps if step.source == here != step.device]
            coming = [step for step in self._steps if step.device == here != step.source]
            leaving.sort(key=lambda step: step.device or 0)
            coming.sort(key=lambda step: step.source or 0)
            parts = [self._rank.send(step) for step in leaving]
            sent = torch.cat(parts) if parts else torch.empty(0, dtype=dtype)
            sizes = [step.work.bytes // dtype.itemsize for step in coming]
            send_counts, receive_counts = [0] * processes.size, [0] * processes.size
            for step, part in zip(leaving, parts, strict=True):
                send_counts[step.device or 0] += part.numel()
            for step, size in zip(coming, sizes, strict=True):
                receive_counts[step.source or 0] += size
            received = processes.all_to_all(sent.to(processes.device), send_counts, receive_counts)
            self._arrived = dict(zip(coming, torch.split(received, sizes), strict=True))
        return self._arrived
