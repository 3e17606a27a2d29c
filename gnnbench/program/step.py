"""The items of a program: steps over buffers, and changes of what memories hold."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from gnnbench.program.ledger import Held
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


@dataclass(slots=True, eq=False)
class Step:
    """One piece of work: what it computes, where, how much of it, and over which buffers.

    ``op`` names a body, and ``operands`` are the body's arguments. A step without a body takes its
    time all the same. ``place`` is the device or link that prices ``work``. ``resources`` are the
    names that the step holds exclusively meanwhile.

    A step ``reads`` what was written and added before. It ``writes`` a buffer after all steps that
    wrote, added to or read it. It ``adds`` to what was written, in any order with other steps that
    add.

    ``device`` is the index of the trainer that takes the step, or None if every trainer does its
    own part. For a transfer between trainers, ``device`` receives and ``source`` sends.

    Accounting: ``moves`` are bytes by kind. ``edges`` and ``vertices`` are traversed.
    ``arithmetic`` is the place's work, from which the imbalance of devices is computed.

    ``index_work`` is done by every reader, with bodies or without. It draws a sample, or counts,
    and sets the step's sizes.

    ``seconds`` is how long the step took. After a step with ``index_work`` or one that is
    ``asked``, the reader sets it before the next item, for all steps so far. It sets that of other
    steps at the end of their section. A lowering asks for it if its parts rebalance.
    """

    op: str
    operands: tuple[object, ...]
    stage: Stage
    label: str
    place: str
    resources: tuple[str, ...]
    work: Work
    layer: int = -1
    round: int = 0
    reads: tuple[Buffer, ...] = ()
    writes: tuple[Buffer, ...] = ()
    adds: tuple[Buffer, ...] = ()
    moves: tuple[tuple[ByteKind, int], ...] = ()
    edges: int = 0
    vertices: int = 0
    arithmetic: float = 0.0
    device: int | None = None
    source: int | None = None
    index_work: Callable[[Step], None] | None = None
    asked: bool = False
    seconds: float = 0.0


@dataclass(slots=True, eq=False)
class Collective:
    """Transfers between trainers that are independent of each other.

    No trainer sends what another transfer brings. Examples are one all-to-all and one step of a
    ring.
    """

    steps: tuple[Step, ...]


@dataclass(slots=True, eq=False)
class Hold:
    """From here on a memory holds ``size_bytes`` under the name ``tensor``.

    The size replaces the previous size under that name.
    """

    memory: str
    tensor: str
    size_bytes: int


@dataclass(slots=True, eq=False)
class Free:
    """From here on a memory no longer holds ``tensor``."""

    memory: str
    tensor: str


@dataclass(slots=True, eq=False)
class Take:
    """From here on a memory holds tensors of these sizes beside all others.

    A ``Drop`` of this item releases them together.
    """

    memory: str
    sizes_bytes: Mapping[str, int]
    held: Held | None = None


@dataclass(slots=True, eq=False)
class Drop:
    """From here on a memory no longer holds the tensors of ``taken``."""

    taken: Take


@dataclass(slots=True, eq=False)
class Section:
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


Item: TypeAlias = Step | Collective | Hold | Free | Take | Drop | Section
