"""The items of a program: steps over buffers, and changes of what memories hold."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Literal, NamedTuple, TypeAlias

from gnnbench.records import ByteKind, Stage, Work


class Buffer:
    """Values that steps read and write: rows of a shard, a unit's aggregate, the model's gradients.

    Two buffers of the same name are different buffers. A *meeting* of devices is a buffer that each
    device adds to and that all devices read. No device continues before all have added to it.

    ``Waits`` that ``follow`` the steps of an epoch store here the numbers of the steps that wrote
    the buffer last, and of those that have added to it and read it since.
    """

    __slots__ = ("added", "follow", "name", "read", "written")
    written: tuple[int, ...]
    added: list[int]
    read: list[int]

    def __init__(self, name: str) -> None:
        self.name = name
        self.follow: object = None

    def __repr__(self) -> str:
        return f"Buffer({self.name!r})"


class Place(NamedTuple):
    """The place of a step: the device or link ``name`` that prices it, and who takes it.

    ``resources`` are the names that the step holds exclusively meanwhile. ``device`` is the index
    of the trainer that takes the step, or None if every trainer does its own part. For a transfer
    between trainers, ``device`` receives and ``source`` sends.
    """

    name: str
    resources: tuple[str, ...] = ()
    device: int | None = None
    source: int | None = None


class Access(NamedTuple):
    """The buffers of a step.

    A step ``reads`` what was written and added before. It ``writes`` a buffer after all steps that
    wrote, added to or read it. It ``adds`` to what was written, in any order with other steps that
    add.
    """

    reads: tuple[Buffer, ...] = ()
    writes: tuple[Buffer, ...] = ()
    adds: tuple[Buffer, ...] = ()


class Counts(NamedTuple):
    """The quantities that a step adds to its epoch's.

    ``moves`` are bytes by kind. ``edges`` and ``vertices`` are traversed. ``arithmetic`` is the
    place's work, from which the imbalance of devices is computed.
    """

    moves: tuple[tuple[ByteKind, int], ...] = ()
    edges: int = 0
    vertices: int = 0
    arithmetic: float = 0.0


#: The counts of a step that adds nothing.
NOTHING = Counts()


class Sizes(NamedTuple):
    """The sizes of a step that are known once its index work is done."""

    work: Work
    counts: Counts = NOTHING


class Times:
    """The seconds of steps, which a reader adds in their order.

    A lowering that reads them yields an ``Account`` first.
    """

    __slots__ = ("seconds",)

    def __init__(self) -> None:
        self.seconds: list[float] = []

    @property
    def total(self) -> float:
        """The seconds of all these steps together."""
        return sum(self.seconds)


class Step(NamedTuple):
    """One piece of work: what it computes, where, how much of it, and over which buffers.

    ``operation`` is a record of the operation's own type, by which a reader finds the body. A step
    without one has no body and takes its time all the same. ``place`` prices ``work``.

    ``index_work`` is done by every reader, with bodies or without. It draws a sample, or counts,
    and returns the step's sizes if they were unknown before. A reader adds the seconds of the step
    to ``times``, if they are given. A lowering asks for them if its parts rebalance.
    """

    operation: object
    stage: Stage
    label: str
    place: Place
    work: Work
    layer: int = -1
    round: int = 0
    counts: Counts = NOTHING
    index_work: Callable[[], Sizes | None] | None = None
    times: Times | None = None
    access: Access = Access()

    def over(
        self,
        reads: tuple[Buffer, ...] = (),
        writes: tuple[Buffer, ...] = (),
        adds: tuple[Buffer, ...] = (),
    ) -> Step:
        """Return the step over these buffers alone."""
        return new_step((*self[:-1], _new_access((reads, writes, adds))))

    def timed(self, times: Times) -> Step:
        """Return the step with seconds that are added to ``times``."""
        return new_step((*self[:-2], times, self[-1]))


#: Makes a step of all its fields, without a Python frame: programs of many chunks are long.
new_step = partial(tuple.__new__, Step)
_new_access = partial(tuple.__new__, Access)


@dataclass(frozen=True, slots=True, eq=False)
class Collective:
    """Transfers between trainers that are independent of each other.

    No trainer sends what another transfer brings. Examples are one all-to-all and one step of a
    ring.
    """

    steps: tuple[Step, ...]


class Hold(NamedTuple):
    """From here on a memory holds ``size_bytes`` under the name ``tensor``.

    The size replaces the previous size under that name.
    """

    memory: str
    tensor: str
    size_bytes: int


#: Makes a hold of all its fields, without a Python frame.
new_hold = partial(tuple.__new__, Hold)


class Free(NamedTuple):
    """From here on a memory no longer holds ``tensor``."""

    memory: str
    tensor: str


@dataclass(frozen=True, slots=True, eq=False)
class Take:
    """From here on a memory holds tensors of these sizes beside all others.

    A ``Drop`` of this item releases them together.
    """

    memory: str
    sizes_bytes: Mapping[str, int]


@dataclass(frozen=True, slots=True, eq=False)
class Drop:
    """From here on a memory no longer holds the tensors of ``taken``."""

    taken: Take


class Section(NamedTuple):
    """The start of a part of a round that one thread executes, up to the next section.

    ``rank`` orders the sections of a round, and its second number is the device index of the
    section. Steps are listed by rounds, then by ranks, in whatever order they are executed.
    ``threads`` is the number of host threads that compute it; 0 means all, and None leaves the
    number as it is. On a device with streams, it runs on the stream ``stream``.
    """

    round: int
    rank: tuple[int, int]
    threads: int | None = None
    stream: Literal["copy", "compute"] | None = None


class Account(NamedTuple):
    """The moment at which a lowering reads ``Times``; the seconds of all steps so far are known."""


Item: TypeAlias = Step | Collective | Hold | Free | Take | Drop | Section | Account
