"""Communications: what crosses which link, and what need not."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from gnnbench.parts.base import Part
from gnnbench.records import BoolArray, Fetch, IntArray, PartKind, Round, RoundTraffic, Unit

#: What crosses between devices at a layer: its input rows, or, backward, their gradients.
PeerData = Literal["rows", "gradients"]


@dataclass
class Communication(Part):
    """What crosses which link, and what need not.

    ``prefetch`` is how many pipeline stages feature prefetching has in a mini-batch epoch: 0 (a
    round starts when the last has finished), 1 (load and transfer as one stage) or 2 (HyScale-GNN
    §IV-B: two stages that overlap).
    """

    kind: ClassVar[PartKind] = "communication"
    #: False for a part that moves nothing, which only works when the data is on the device.
    moves_rows: ClassVar[bool] = True
    #: Where the vertex data may live that it plans for: on the host, or on the devices, of which
    #: each then has the rows of its partition.
    serves: ClassVar[frozenset[Literal["host", "device"]]] = frozenset({"host"})
    #: True where rows are kept between rounds or fetched from peers, through transition buffers.
    shares_rows: ClassVar[bool] = False
    #: True where a device sends all rows of its partition to every peer, needed there or not, and
    #: as many gradients come back. Vertex data on the devices only.
    broadcasts: ClassVar[bool] = False
    #: True where what crosses is an all-to-all between the shards of AGGREGATE and those of UPDATE,
    #: which the placement has by features and by vertices; ``plan`` is then not asked.
    exchanges: ClassVar[bool] = False
    #: How gradients are averaged: gathered by a synchroniser on the host and sent back (HyScale-GNN
    #: Equation 13), or by a ring all-reduce between the trainers.
    all_reduce: ClassVar[Literal["host", "ring"]] = "host"

    @property
    def prefetch(self) -> Literal[0, 1, 2]:
        return 0

    @property
    def stale(self) -> frozenset[PeerData]:
        """What a device may have of its peers from an earlier epoch: the maths then differ from
        full-graph training. Vertex data on the devices only."""
        return frozenset()

    @property
    def arrival_epochs(self) -> int:
        """How many epochs later what crosses, of what may be ``stale``, is read.

        0: in the same epoch, whose computation waits for it. Otherwise nothing waits, and rows and
        gradients of peers are zero until the first have arrived.
        """
        return 0

    @property
    def rounds_features(self) -> str:
        """Mini-batch only: what features are rounded to before they cross the host link, such as
        ``"int8"``; empty where they cross as they are. The maths then differ from the reference's,
        and ``pack`` and ``unpack`` say how."""
        return ""

    def pack(self, rows: Tensor) -> tuple[Tensor, ...]:
        """Feature rows ``(n, f)`` of the host's memory as they cross to an accelerator: tensors
        whose bytes are all that is counted and priced."""
        return (rows,)

    def unpack(self, crossed: tuple[Tensor, ...], dtype: torch.dtype) -> Tensor:
        """The rows ``(n, f)`` in ``dtype`` out of what ``pack`` gave, on the device it is on."""
        (rows,) = crossed
        return rows.to(dtype)

    def row_bytes(self, width: int, dtype: torch.dtype) -> int:
        """What a feature row of ``width`` values has when it crosses to an accelerator: bytes, as
        many as ``pack`` makes of it."""
        row = torch.zeros(1, width, dtype=dtype)
        packed = self.pack(row) if self.rounds_features else (row,)
        return sum(part.numel() * part.element_size() for part in packed)

    def choose_crossing(self, epoch: int, layer: int, what: PeerData, ids: IntArray) -> BoolArray:
        """Which of a peer's rows, or their gradients on the way back, cross in an epoch.

        The others stand as they were when they last crossed. Bool like ``ids``, the vertices that
        would cross otherwise; where shards are broadcast all of them or none. ``layer`` counts from
        0, whose rows are the features. Asked of what may be ``stale``, for every peer and layer, in
        each epoch; but not in the first where there are no ``arrival_epochs``: then everything
        crosses.
        """
        return np.ones(len(ids), dtype=np.bool_)

    @abstractmethod
    def plan(self, round_: Round, previous: RoundTraffic | None, owner: IntArray) -> RoundTraffic:
        """Where every row that the round's units need comes from.

        ``previous`` is the traffic of the round before (None for the first); ``owner`` maps each
        vertex to the slot of its partition.
        """


def fetch_everything(unit: Unit) -> Fetch:
    """The plain fetch: a unit's whole input set crosses the host link."""
    needed = np.sort(unit.input_ids)
    return Fetch(
        slot=unit.slot, needed=needed, from_host=needed, reused=np.empty(0, dtype=np.int64)
    )
