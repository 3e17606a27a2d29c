"""Units of work, the devices' shares of them, and the size of a piece of work."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol, TypeAlias

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
    def array_bytes(self) -> int:
        """The bytes of ``src_ids`` and of the local CSR, in this process."""
        return self.src_ids.nbytes + self.indptr.nbytes + self.indices.nbytes

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


@dataclass(frozen=True, slots=True)
class Sizes:
    """The sizes of mini-batches or partitions, which stand for a graph that is not there.

    An epoch has ``rounds`` rounds of mini-batches of the sizes ``batch``, one for each trainer, of
    which ``walked`` are gone through. A full graph's partitions are of equal size, and a vertex has
    ``replication`` copies on average, itself among them. ``share`` is the share of graph, memories
    and fixed times that is gone through.
    """

    batch: BatchProfile | None = None
    rounds: float = 0.0
    walked: int = 0
    replication: float = 1.0
    share: float = 1.0


#: AGGREGATE's result from the rows of a destination's neighbours: their sum, the sum with a value
#: for each edge, that with constants and the own row (GCN), their mean beside the own row (SAGE),
#: their sum and the own row (GIN), the sum by attention (GAT), or with a gate of every value
#: (GGCN).
Form = Literal["plain", "weighted", "scaled", "mean", "plus-own", "attention", "gated"]


#: How rows of host memory reach an accelerator: gathered into pinned memory that stays, gathered
#: into newly allocated pageable memory, or read in place over the link.
Loading = Literal["blocks", "staged", "in-place"]


class ReadOrder(Protocol):
    """The order in which AGGREGATE over a block reads rows."""

    def kept(self, rows: float, *, backward: bool = False) -> float:
        """Return the share of reads of a row that is among the ``rows`` distinct rows read last."""


class SampleWork(NamedTuple):
    """The drawing of a mini-batch of ``edges`` edges in ``layers`` layers, from ``seeds`` seeds.

    ``threads`` of the host's threads draw it, 0 meaning all, and ``starts`` workers of a loader
    start first.
    """

    edges: int = 0
    seeds: int = 0
    threads: int = 0
    layers: int = 0
    starts: int = 0


class CopyWork(NamedTuple):
    """The movement of ``bytes`` over a link, or within a memory: contiguous rows, or other data.

    ``rows`` is their number, 0 if they are not rows. Within a host's memory ``threads`` threads
    copy, 0 meaning all. A transfer between host and device takes ``remote_bytes`` of the bytes
    across the host's sockets. A ``fresh`` copy allocates its target. ``loss`` says that it is the
    loss of an update, which the optimiser's step belongs to.
    """

    bytes: int = 0
    rows: int = 0
    threads: int = 0
    remote_bytes: int = 0
    fresh: bool = False
    loss: bool = False


class RowsWork(NamedTuple):
    """The movement of ``rows`` rows of ``features`` values that are picked or scattered one by one.

    They move over a link, or within a memory. ``loading`` is how rows of host memory reach an
    accelerator, and ``processes`` the number of processes that load side by side. ``apart`` is the
    number of host threads that each do such a work at once; 0 is one work for all ``threads``.
    ``bytes``, ``threads``, ``remote_bytes`` and ``fresh`` are those of :class:`CopyWork`.
    """

    rows: int = 0
    features: int = 0
    bytes: int = 0
    threads: int = 0
    remote_bytes: int = 0
    loading: Loading = "blocks"
    processes: int = 1
    apart: int = 0
    fresh: bool = False


class ProductSize(NamedTuple):
    """The products of a layer that multiplies rows by its weights before it aggregates.

    The forward product has ``macs`` multiply-accumulates, and a backward pass has ``backward`` such
    products. If rows are sparse, ``columns`` is their width, and only their stored values are
    multiplied; it is 0 if rows are dense.
    """

    macs: int = 0
    backward: int = 1
    columns: int = 0


class AggregateWork(NamedTuple):
    """AGGREGATE over ``edges`` edges of width ``features`` into ``rows`` rows.

    ``sources`` is the number of rows that it reads from, 0 if unknown. Values have ``itemsize``
    bytes, and ``threads`` of the host's threads compute, 0 meaning all. ``form`` is its result. If
    ``weighted``, it multiplies by a weight of every edge, in any form. ``fresh`` says that a kernel
    sees the block, in this direction, and its rows for the first time. ``order`` is the order in
    which it reads rows, if it is known. ``product`` is done before, without one if it has no
    ``macs``.
    """

    edges: int = 0
    rows: int = 0
    features: int = 0
    sources: int = 0
    itemsize: int = 4
    threads: int = 0
    form: Form = "plain"
    weighted: bool = False
    backward: bool = False
    fresh: bool = False
    order: ReadOrder | None = None
    product: ProductSize = ProductSize()

    @property
    def macs(self) -> int:
        """The multiply-accumulates of the product before the sums."""
        return self.product.macs


class UpdateWork(NamedTuple):
    """UPDATE of ``rows`` rows of ``features`` output values by ``macs`` multiply-accumulates.

    ``products`` is the number of matrix products in a backward pass for each one in the forward
    pass, and ``macs`` covers all of them. A hidden layer ends with ``relu``. ``itemsize``,
    ``threads`` and ``fresh`` are those of :class:`AggregateWork`.
    """

    rows: int = 0
    features: int = 0
    macs: int = 0
    itemsize: int = 4
    threads: int = 0
    relu: bool = False
    backward: bool = False
    products: int = 1
    fresh: bool = False


class LossWork(UpdateWork):
    """The loss of a mini-batch and its gradients, with all work that a mini-batch does once."""

    __slots__ = ()


#: The size of one piece of work, from which a clock or a kernel derives its duration.
Work: TypeAlias = SampleWork | CopyWork | RowsWork | AggregateWork | UpdateWork
#: The work that a kernel does.
KernelWork: TypeAlias = AggregateWork | UpdateWork


def count_moved(work: Work) -> int:
    """Return the bytes that a piece of work moves, 0 if it computes."""
    return work.bytes if isinstance(work, CopyWork | RowsWork) else 0
