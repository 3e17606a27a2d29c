"""What a program is made of: steps over buffers, and what memories hold between them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from gnnbench.program.ledger import Held
from gnnbench.records import ByteKind, Stage, Work


class Buffer:
    """Values that steps read and write: rows of a shard, a unit's aggregate, the model's gradients.

    It stands for itself: two of the same name are two buffers. A *meeting* of devices, after which
    none goes on before all have come, is a buffer that each adds to and that all read.

    ``Waits`` that ``follow`` the steps of an epoch note here the numbers of those that wrote the
    buffer last, and that have added to it and read it since.
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

    ``op`` names a body and ``operands`` is what the body is handed; one without a body takes its
    time all the same. ``place`` is the device or link that prices ``work``, and ``resources`` are
    the names that the step holds exclusively meanwhile.

    ``reads`` needs what was written and added before. ``writes`` replaces what is there, after
    whoever has written, added or read it. ``adds`` adds to what was written, in any order with
    others that add.

    ``device`` is the index of the trainer that takes the step, None where each does for itself; of
    a transfer between trainers it is the one that receives, and ``source`` the one that sends.

    Accounting: ``moves`` are bytes by kind, ``edges`` and ``vertices`` what is traversed, and
    ``arithmetic`` is what the place does for the imbalance of devices.

    ``index_work`` is done by whoever takes the step, with bodies or without: it draws a sample, or
    counts, and sets what the step's sizes are.

    ``seconds`` is how long the step took. It is there when the next item is asked for after a step
    with ``index_work`` or one that is ``asked``, of all steps up to that, and of others at the end
    of their section. A lowering whose parts rebalance asks so.
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
    """Transfers between trainers of which none sends what another one brings: one all-to-all, or a
    step of a ring."""

    steps: tuple[Step, ...]


@dataclass(slots=True, eq=False)
class Hold:
    """From here on a memory holds ``size_bytes`` under the name ``tensor``, whatever it held under
    that name before."""

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
    """From here on a memory holds tensors of these sizes beside all others, until a ``Drop`` of
    this lets go of them together."""

    memory: str
    sizes_bytes: Mapping[str, int]
    held: Held | None = None


@dataclass(slots=True, eq=False)
class Drop:
    """From here on a memory no longer holds what was taken."""

    taken: Take


@dataclass(slots=True, eq=False)
class Section:
    """What follows is a part of a round that one thread does, until the next section begins.

    ``rank`` is its place among the round's sections, of which the second number is the device that
    it is for: steps are listed by rounds, then by ranks, whenever they are taken. ``threads`` of
    the host compute it, 0 being all, and None as many as there are; on a device that has streams
    it runs on the one for ``stream``.
    """

    round: int
    rank: tuple[int, int]
    threads: int | None = None
    stream: Literal["copy", "compute"] | None = None


Item: TypeAlias = Step | Collective | Hold | Free | Take | Drop | Section
