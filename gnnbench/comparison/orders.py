"""Orders from rank 0 to the other ranks, which train their share of a row when rank 0 does.

Rank 0 leads a comparison: which row is opened, which trains its next epoch, and when one is over.
Rows take turns as in one process, and each is trained for as many epochs as its times need.
"""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass, replace
from typing import Literal

import gnnbench
from gnnbench.comparison.request import PlannedRow, Request
from gnnbench.comparison.rows import options_for
from gnnbench.errors import GnnbenchError, UsageError
from gnnbench.host.rank import read_place
from gnnbench.machines.describe import LOCAL
from gnnbench.machines.machine import Platform
from gnnbench.machines.nodes import Node, join_nodes
from gnnbench.parts import Setting
from gnnbench.plugins import Registry, assemble
from gnnbench.price.clocks import clock_for
from gnnbench.run import Evidence, Training
from gnnbench.run.collectives import PeerLostError, Processes
from gnnbench.run.network import GLOO, link_bytes_per_s


@dataclass(frozen=True, slots=True)
class Order:
    """The next step of all ranks with a row's repeat.

    They open it on a ``platform``, as measured in rank 0, train an epoch, or finish it. They leave
    it when it has failed.
    """

    do: Literal["open", "train", "finish", "leave"]
    row: PlannedRow
    repeat: int
    platform: Platform | None = None


def seeded(setting: Setting, request: Request, repeat: int) -> Setting:
    """Return the setting of a repeat, with its own seed unless all repeats share one."""
    if request.same_seed or not repeat:
        return setting
    workload = setting.workload
    return replace(setting, workload=replace(workload, seed=workload.seed + repeat))


def check_agreement(request: Request, processes: Processes) -> None:
    """Check that all ranks have the same data, workload and version, on whichever machines.

    Raises ``UsageError`` in all ranks if one of them differs.
    """
    dataset = request.dataset
    everywhere = processes.gather(
        {
            "data set": f"{dataset.name} with digest {dataset.digest()}",
            "version of gnnbench": gnnbench.__version__,
            "workload": str(replace(request.workload, threads=0)),
        }
    )
    for rank, theirs in enumerate(everywhere):
        for what, value in everywhere[0].items():
            if theirs[what] != value:
                raise UsageError(
                    f"the {what} of rank {rank} is {theirs[what]}, and rank 0 has {value}; "
                    f"give all ranks the same."
                )


def gather_nodes(request: Request, processes: Processes) -> Request:
    """Return the request with the machine of all nodes, if the ranks are on several.

    A machine that is described alike in all ranks stays as it is.
    """
    if request.platform.name != LOCAL:
        return request
    interface = os.environ.get(GLOO, "")
    own = Node(socket.gethostname(), request.platform, link_bytes_per_s(interface))
    place = read_place()
    told = processes.gather((place.node if place else 0, own))
    nodes = {number: node for number, node in reversed(told)}
    return replace(request, platform=join_nodes([nodes[number] for number in sorted(nodes)]))


def obey(request: Request, registry: Registry, setting: Setting, processes: Processes) -> None:
    """Carry out rank 0's orders until it says that all is done.

    Raises ``PeerLostError`` when the other ranks are gone.
    """
    under_way: dict[tuple[PlannedRow, int], _Part] = {}
    while (order := processes.hear(Order)) is not None:
        key = order.row, order.repeat
        if order.do == "leave":
            under_way.pop(key, None)
            continue
        try:
            if order.do == "open":
                own = seeded(setting, request, order.repeat)
                if order.platform is not None:
                    own = replace(own, platform=order.platform)
                under_way[key] = _Part(request, registry, own, order.row, processes)
            elif order.do == "train":
                under_way[key].train()
            else:
                under_way.pop(key).finish()
        except PeerLostError:
            raise
        except GnnbenchError:
            # All ranks have the same memories and parts, so rank 0 fails too and reports it.
            under_way.pop(key, None)


class _Part:
    """The share of this rank in a row's training."""

    def __init__(
        self,
        request: Request,
        registry: Registry,
        setting: Setting,
        row: PlannedRow,
        processes: Processes,
    ) -> None:
        bundle = assemble(registry, row.parts, options_for(row, request.options, registry))
        clock = clock_for(bundle, setting)
        self._processes = processes
        self._evidence = Evidence(setting, 0) if request.check else None
        self._training = Training(bundle, setting, clock, self._evidence, processes)
        self._epochs = 0

    def train(self) -> None:
        self._training.run_epoch(self._epochs)
        self._epochs += 1

    def finish(self) -> None:
        """Finish the training and share its faults; rank 0 has what was recorded."""
        self._training.finish(())
        if self._evidence is not None:
            tell_faults(self._evidence, self._processes)


def tell_faults(evidence: Evidence, processes: Processes) -> None:
    """Tell all ranks the first fault that any rank found in its samples or parameter writes."""
    for rank, fault in enumerate(processes.gather(evidence.fault or "")):
        if fault and evidence.fault is None:
            evidence.fault = f"in rank {rank}, {fault}"
