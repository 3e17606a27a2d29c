"""Plugins as text, for tests of what a comparison says: samplers of other work, and parts that do
what no part may."""

from __future__ import annotations

_HEAD = """
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch

from gnnbench.hookspecs import hookimpl
from gnnbench.parts import UNIFORM, SeedPlacement, option
from gnnbench.records import PART_KINDS, Block, Parts, Strategy
from gnnbench_plugins.reference.communication import VanillaCommunication
from gnnbench_plugins.reference.kernel import TorchKernel
from gnnbench_plugins.reference.memory import HostMemory
from gnnbench_plugins.reference.placement import SinglePlacement
from gnnbench_plugins.reference.sampler import NeighbourSampler

PLAIN = dict(
    sampler="neighbour", placement="single", communication="vanilla", memory="host", kernel="torch"
)


def offer(name, **parts):
    return Strategy(name, "for a test", "gnnbench", {"mini-batch": Parts(**PLAIN | parts)})
"""

#: Samplers of other work, and a placement on several devices; a strategy for each.
OTHER_WORK = (
    _HEAD
    + '''

@dataclass
class Clusters(NeighbourSampler):
    """Ten updates an epoch, of what its own clusters would be."""

    name: ClassVar[str] = "clusters"
    law: ClassVar[str] = "ten clusters"

    def rounds(self, epoch):
        return np.array_split(np.concatenate(super().rounds(epoch)), 10)


@dataclass
class Frequent(NeighbourSampler):
    """The same law and seeds, in ten updates."""

    name: ClassVar[str] = "frequent"

    def rounds(self, epoch):
        return np.array_split(np.concatenate(super().rounds(epoch)), 10)


@dataclass(frozen=True)
class Even(SeedPlacement):
    name: ClassVar[str] = "even"
    summary: ClassVar[str] = "all accelerators, even shares"

    def trainers(self, platform):
        return platform.accelerators


SAMPLERS = [Clusters, Frequent]


@hookimpl
def gnnbench_sampler():
    return SAMPLERS


@hookimpl
def gnnbench_placement():
    return [Even]


@hookimpl
def gnnbench_strategy():
    return [offer("even", placement="even"), *(offer(s.name, sampler=s.name) for s in SAMPLERS)]
'''
)

#: A sampler that writes into an array of the data set in an epoch, by NumPy or through torch.
WRITER = (
    _HEAD
    + """

@dataclass
class Writer(NeighbourSampler):
    name: ClassVar[str] = "writer"

    array: str = option("features", "what it writes into")
    way: str = option("numpy", "by numpy, or through torch")
    epoch: int = option(0, "when it does; -1 is when it is asked whether it fits")

    def refuses(self, bundle, setting):
        if self.epoch < 0:
            self._write(setting.dataset)
        return None

    def rounds(self, epoch):
        found = super().rounds(epoch)
        if epoch == self.epoch:
            self._write(self._setting.dataset)
        return found

    written = False

    def _write(self, dataset):
        if self.written:  # twice would be as before
            return
        self.written = True
        holder = dataset.graph if hasattr(dataset.graph, self.array) else dataset
        array = getattr(holder, self.array)
        if self.way == "torch":
            view = torch.from_numpy(array).view(-1)
            view[:] = view.flip(0)
        else:
            array.flags.writeable = True
            array[...] = np.flip(array.copy())


@hookimpl
def gnnbench_sampler():
    return [Writer]


@hookimpl
def gnnbench_strategy():
    return [offer("writer", sampler="writer")]
"""
)

#: For every public method of the plain parts a strategy, "KIND-METHOD", in which a call of it ends
#: as ``ENDING`` says.
ENDING_HOOKS = (
    _HEAD
    + '''

class Unlike(BaseException):
    """No Exception."""


class Mute(Exception):
    """Cannot say what it is."""

    def __str__(self):
        raise RuntimeError("no words")


def end(*given, **named):
    if ENDING == "exit":
        raise SystemExit(0)
    raise {"unlike": Unlike("unlike others"), "mute": Mute()}[ENDING]


PLAIN_PARTS = (
    NeighbourSampler, SinglePlacement, VanillaCommunication, HostMemory, TorchKernel
)


def find_hooks(part):
    return [
        name for name in dir(part)
        if not name.startswith("_") and callable(getattr(part, name)) and name != "kind"
    ]


def make_part(kind, plain, hook):
    made = type(f"{kind}_{hook}", (plain,), {"name": f"{kind}-{hook}", hook: end})
    return dataclass(made, frozen=plain.__dataclass_params__.frozen)


MADE = {
    kind: [make_part(kind, plain, hook) for hook in find_hooks(plain)]
    for kind, plain in zip(PART_KINDS, PLAIN_PARTS)
}


@hookimpl
def gnnbench_sampler():
    return MADE["sampler"]


@hookimpl
def gnnbench_placement():
    return MADE["placement"]


@hookimpl
def gnnbench_communication():
    return MADE["communication"]


@hookimpl
def gnnbench_memory():
    return MADE["memory"]


@hookimpl
def gnnbench_kernel():
    return MADE["kernel"]


@hookimpl
def gnnbench_strategy():
    return [offer(part.name, **{kind: part.name}) for kind, parts in MADE.items() for part in parts]
'''
)

#: A sampler that is interrupted in an epoch.
INTERRUPTED = (
    _HEAD
    + """

@dataclass
class Interrupted(NeighbourSampler):
    name: ClassVar[str] = "interrupted"

    epoch: int = option(0, "when it is")

    def rounds(self, epoch):
        if epoch == self.epoch:
            raise KeyboardInterrupt
        return super().rounds(epoch)


@hookimpl
def gnnbench_sampler():
    return [Interrupted]


@hookimpl
def gnnbench_strategy():
    return [offer("interrupted", sampler="interrupted")]
"""
)
