"""Units of work, the devices' shares of them, and the size of a piece of work."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol

from gnnbench.records.data import IndexArray, IntArray


class BlockSize(NamedTuple):
    """The number of sources, destinations and edges of a block.

    Self-loops that a layer adds to every vertex are counted as edges. ``own`` says that the block
    lists its destinations' own rows.
    """

    num_src: int
    num_dst: int
    num_edges: int
    own: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Block:
    """One layer's bipartite graph: the in-edges of some destination vertices.

    ``src_ids`` int64 ``(S,)``: global ids of the source rows. The first ``num_dst`` of them are the
    destinations themselves, unless ``own`` is given. ``own``, int32 ``(num_dst,)``, has the
    distinct positions of the destinations if the rows stand in a buffer with fixed places. Such a
    block may have sources that no edge and no destination reads. ``indptr`` int64 ``(num_dst+1,)``
    and ``indices`` int32 ``(E,)`` are the local CSR: row = destination, value = position in
    ``src_ids``. No self loops are stored; models that want one read the destination's own row,
    which is always present.
    """

    src_ids: IntArray
    num_dst: int
    indptr: IntArray
    indices: IndexArray
    own: IndexArray | None = None

    @property
    def num_src(self) -> int:
        """The number of source rows, S."""
        return len(self.src_ids)

    @property
    def num_edges(self) -> int:
        """The number of edges, E."""
        return len(self.indices)

    @property
    def lists_edges(self) -> bool:
        """Whether ``indices`` holds the edges.

        If only a graph's sizes are known, ``indices`` is one value broadcast to the number of
        edges.
        """
        return len(self.indices) < 2 or self.indices.strides[0] != 0

    @property
    def dst_ids(self) -> IntArray:
        """The ids of the destinations, ``(D,)``."""
        return self.src_ids[: self.num_dst] if self.own is None else self.src_ids[self.own]

    @property
    def topology_bytes(self) -> int:
        """The bytes of the local CSR with 32-bit indices, and of ``own``, on a device."""
        positions = 0 if self.own is None else len(self.own)
        return 4 * (len(self.indptr) + len(self.indices) + positions)


@dataclass(frozen=True, slots=True, eq=False)
class Unit:
    """The work of one device at a time: a mini-batch (L blocks) or a chunk (one block).

    ``slot`` is the position of its device among the placement's trainers. ``blocks`` run from the
    input layer to the output layer; a chunk has one block, used at every layer.
    """

    slot: int
    blocks: tuple[Block, ...]

    @property
    def input_ids(self) -> IntArray:
        """V^0: the vertices with feature rows that this unit reads (N_ij in HongTu), int64."""
        return self.blocks[0].src_ids

    @property
    def output_ids(self) -> IntArray:
        """V^L: the vertices this unit computes, int64."""
        return self.blocks[-1].dst_ids

    @property
    def edges(self) -> tuple[int, ...]:
        """|E^l| for each block."""
        return tuple([len(block.indices) for block in self.blocks])

    @property
    def vertices(self) -> tuple[int, ...]:
        """|V^0| .. |V^L| (|B^l| in HP-GNN)."""
        return (self.blocks[0].num_src, *[block.num_dst for block in self.blocks])


@dataclass(frozen=True, slots=True, eq=False)
class Round:
    """The units that run at the same time on different devices.

    HyScale-GNN calls it an iteration, HongTu a batch.
    """

    index: int
    units: tuple[Unit, ...]


@dataclass(frozen=True, slots=True)
class Shard:
    """A device's part of a matrix of vertices by features, two half-open ranges.

    ``slot`` is the position of the device among the placement's trainers. ``vertices`` are
    positions in a round's unit, ``features`` columns.
    """

    slot: int
    vertices: tuple[int, int]
    features: tuple[int, int]


class Share(NamedTuple):
    """A trainer's part of a mini-batch round: ``seeds`` of them on the trainer ``slot``.

    ``threads`` is the number of host threads that compute it (0 for an accelerator). ``samples``
    says that the trainer, an accelerator, draws its mini-batch itself.
    """

    slot: int
    seeds: int
    threads: int = 0
    samples: bool = False


class HostThreads(NamedTuple):
    """The division of the host's threads over its stages; 0 means all of them."""

    sample: int = 0
    load: int = 0
    train: int = 0


@dataclass(frozen=True, slots=True)
class BatchProfile:
    """|V^l| and |E^l| of one sampled mini-batch of some size.

    A design phase samples a few sizes; they do not grow in proportion, since neighbours are shared.
    ``sampling_s`` are pairs of a number of threads, ascending, and the seconds of sampling with
    them. It is empty if that was not measured, or not on the platform in question.

    ``fetched`` is the number of the |V^0| rows that an accelerator reads from the host's memory, if
    it holds the others itself. ``fetched_bytes`` is the size of these rows as they cross, if they
    are rounded. None means all rows, unchanged.

    ``stored`` is the number of stored values in the rows of V^0, and in those of V^1 among them, if
    features enter the first layer sparse; None if they are dense.
    """

    seeds: int
    vertices: tuple[int, ...]
    edges: tuple[int, ...]
    sampling_s: tuple[tuple[int, float], ...] = ()
    fetched: int | None = None
    fetched_bytes: int | None = None
    stored: tuple[int, int] | None = None


#: AGGREGATE's result from the rows of a destination's neighbours: their sum, the sum with a value
#: for each edge, that with constants and the own row (GCN), their mean beside the own row (SAGE),
#: their sum and the own row (GIN), the sum by attention (GAT), or with a gate of every value
#: (GGCN). UPDATE may end with ReLU. ``loss`` stands for all work that a mini-batch does once.
Form = Literal[
    "plain", "weighted", "scaled", "mean", "plus-own", "attention", "gated", "relu", "loss"
]


#: How rows of host memory reach an accelerator: gathered into pinned memory that stays, gathered
#: into newly allocated pageable memory, or read in place over the link.
Loading = Literal["blocks", "staged", "in-place"]


class ReadOrder(Protocol):
    """The order in which AGGREGATE over a block reads rows."""

    def kept(self, rows: float, *, backward: bool = False) -> float:
        """Return the share of reads of a row that is among the ``rows`` distinct rows read last."""


class Work(NamedTuple):
    """The size of one piece of work, from which a clock or a kernel derives its duration.

    ``op``: ``sample`` (``edges`` drawn), ``copy`` (``bytes`` moved over a link or within a memory),
    ``aggregate`` (``edges`` of width ``features`` into ``rows``) or ``update`` (``macs``
    multiply-accumulates over ``rows``). ``threads`` is the number of host threads, 0 meaning all.
    ``remote_bytes`` is the part of ``bytes`` that a transfer between host and device takes across
    the host's sockets.

    ``sources`` is the number of rows that AGGREGATE reads from, 0 if unknown. ``form`` is
    AGGREGATE's result, or UPDATE's last step. ``products`` is the number of matrix products in a
    backward pass for each one in the forward pass. ``macs`` covers all of them in UPDATE, and one
    in AGGREGATE. A sample has ``layers`` layers, and starts ``starts`` workers of a loader.
    ``loading`` is how rows of host memory reach an accelerator, and ``processes`` the number of
    processes that load side by side. ``apart`` is the number of host threads that each do such a
    work at once; 0 is one work for all threads. ``fresh`` says that a kernel sees the block, in
    this direction, and its rows for the first time, and that a copy allocates its target. If
    ``weighted``, AGGREGATE multiplies by a weight of every edge, in any form. ``columns`` is the
    width of the sparse rows that AGGREGATE multiplies first, whose stored values alone ``macs``
    counts; 0 if rows are dense. ``order`` is the order in which AGGREGATE reads rows, if it is
    known.
    """

    op: Literal["sample", "copy", "aggregate", "update"]
    edges: int = 0
    rows: int = 0
    features: int = 0
    bytes: int = 0
    macs: int = 0
    itemsize: int = 4
    threads: int = 0
    remote_bytes: int = 0
    sources: int = 0
    form: Form = "plain"
    backward: bool = False
    products: int = 1
    layers: int = 0
    starts: int = 0
    loading: Loading = "blocks"
    processes: int = 1
    apart: int = 0
    fresh: bool = False
    weighted: bool = False
    columns: int = 0
    order: ReadOrder | None = None

    def on_threads(self, threads: int) -> Work:
        """Return this work, done by ``threads`` of the host."""
        return self._replace(threads=threads)
