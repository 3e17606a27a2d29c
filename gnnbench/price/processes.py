"""The assignment of a program's steps to devices that are processes on cores of this machine.

On a described machine the host's threads and the links work beside the devices. If each device is a
process, nothing else works: the process draws, loads, computes and sends, one step after the other.
So the steps hold processes as their resources. The only other resources are links of a stated
bandwidth, on which sent data stays in flight.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from gnnbench.lowering import Lowering
from gnnbench.lowering.memory import compute_resource
from gnnbench.program import Collective, Item, Step
from gnnbench.run.ranks import assign_ranks


def hold_processes(items: Iterable[Item], lowering: Lowering) -> Iterator[Item]:
    """Yield the items, with each step held by the processes that take it.

    The processes are the devices of the lowering's trainers.
    """
    processes = _Processes(lowering)
    for item in items:
        if isinstance(item, Collective):
            for step in item.steps:
                processes.hold(step)
        elif isinstance(item, Step):
            processes.hold(item)
        yield item


class _Processes:
    """The rank that owns each trainer, by device index."""

    def __init__(self, lowering: Lowering) -> None:
        platform = lowering.platform
        self._devices = lowering.trainers
        names = [compute_resource(each, platform.host, "train")[0] for each in self._devices]
        ranks = assign_ranks(self._devices, platform)
        self._names = [names[ranks.index(rank)] for rank in ranks]
        self._hosts = {host.name for host in platform.hosts}
        self._limited = {link.name for link in platform.links if link.limited}
        self._slowest = min(self._devices, key=lambda device: device.speed)
        self._loads_itself = lowering.bundle.mode == "mini-batch"

    def hold(self, step: Step) -> None:
        """Set the resources of a step to its processes, and its place to the device that prices it.

        In a transfer between devices, the sender copies into shared memory and the receiver out of
        it. Each device sends about as much as it receives, so both copies are counted at the
        sender. If no device takes the step, each process does its part, at the host's rates with
        all cores. But each process draws whole mini-batches. Loaded rows are already where the
        process trains.
        """
        if step.place in self._limited:
            return
        taker = step.device if step.source is None else step.source
        if taker is None:
            step.resources = tuple(dict.fromkeys(self._names))
            if step.stage == "sample":
                step.place = self._slowest.name
            return
        step.resources = (self._names[taker],)
        if step.place in self._hosts:
            step.place = self._devices[taker].name
        elif self._loads_itself and step.source is None and step.stage == "transfer":
            step.place, step.work = self._devices[taker].name, step.work._replace(bytes=0)
