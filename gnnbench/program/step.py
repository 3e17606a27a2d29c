"""What a program is made of: steps over buffers, and what memories hold between them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from gnnbench.records import ByteKind, Stage, Work


class Buffer:
    """Values that steps read and write: rows of a shard, a unit's aggregate, the model's gradients.

    It stands for itself: two of the same name are two buffers. A *meeting* of devices, after which
    none goes on before all have come, is a buffer that each adds to and that all read.
    """

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

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


Item: TypeAlias = Step | Collective | Hold | Free
