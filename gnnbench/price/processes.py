"""Who takes the steps of a program whose devices are processes on cores of this machine.

On a described machine the host's threads and the links work beside the devices. Where each device
is a process there is nobody else: a process draws, loads, computes and sends, one step after the
other. So steps of such a platform are held by processes, and by nothing beside them but links of a
stated bandwidth, on which what has been sent stays under way.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from gnnbench.lowering import Lowering
from gnnbench.lowering.memory import compute_resource
from gnnbench.program import Collective, Item, Step
from gnnbench.run.ranks import assign_ranks


def hold_processes(items: Iterable[Item], lowering: Lowering) -> Iterator[Item]:
    """The same items, each step held by the processes that take it, whose devices a lowering's
    trainers are."""
    processes = _Processes(lowering)
    for item in items:
        if isinstance(item, Collective):
            for step in item.steps:
                processes.hold(step)
        elif isinstance(item, Step):
            processes.hold(item)
        yield item


class _Processes:
    """Of each trainer that which has it, by its slot."""

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
        """Say whose a step is, and by whose rates it is priced.

        What one device sends another the sender copies into memory that both have, and the receiver
        out of it; each sends about as much as it is sent, so both copies are the sender's here. Of
        a step that no device takes each process does its part, for which the host's rates stand,
        those of all cores; but a mini-batch each draws whole. What a process has loaded is where
        it trains already.
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
