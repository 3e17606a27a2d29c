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
from gnnbench.machines.ranks import assign_ranks
from gnnbench.program import Collective, Item, Place, Step
from gnnbench.records import CopyWork, RowsWork


def hold_processes(items: Iterable[Item], lowering: Lowering) -> Iterator[Item]:
    """Yield the items, with each step held by the processes that take it.

    The processes are the devices of the lowering's trainers.
    """
    processes = _Processes(lowering)
    for item in items:
        if isinstance(item, Collective):
            yield Collective(tuple([processes.hold(step) for step in item.steps]))
        elif isinstance(item, Step):
            yield processes.hold(item)
        else:
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

    def hold(self, step: Step) -> Step:
        """Return a step with its processes as resources, on the device that prices it.

        In a transfer between devices, the sender copies into shared memory and the receiver out of
        it. Each device sends about as much as it receives, so both copies are counted at the
        sender. If no device takes the step, each process does its part, at the host's rates with
        all cores. But each process draws whole mini-batches. Loaded rows are already where the
        process trains.
        """
        place, work = step.place, step.work
        if place.name in self._limited:
            return step
        taker = place.device if place.source is None else place.source
        if taker is None:
            name = self._slowest.name if step.stage == "sample" else place.name
            return step._replace(place=Place(name, tuple(dict.fromkeys(self._names))))
        place = place._replace(resources=(self._names[taker],))
        if place.name in self._hosts:
            place = place._replace(name=self._devices[taker].name)
        elif self._loads_itself and place.source is None and step.stage == "transfer":
            place = place._replace(name=self._devices[taker].name)
            if isinstance(work, CopyWork | RowsWork):
                work = work._replace(bytes=0)
        return step._replace(place=place, work=work)
