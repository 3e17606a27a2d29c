"""The nouns that pass from hand to hand: what a run is made of, from graph to result.

Frozen and slotted; those made for every piece of work are named tuples, which take a third of the
time of a frozen dataclass to make. Arrays inside them are never written to after construction.
Identifiers of vertices are ``int64`` when global and ``int32`` when local to a block. The papers'
symbols stand beside the fields they correspond to.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

IntArray = npt.NDArray[np.int64]
IndexArray = npt.NDArray[np.int32]
BoolArray = npt.NDArray[np.bool_]
FloatArray = npt.NDArray[np.float32]

Mode = Literal["mini-batch", "full-graph"]
Stage = Literal[
    "sample", "load", "transfer", "aggregate", "update", "synchronize", "recompute", "offload"
]
STAGES: tuple[Stage, ...] = (
    "sample",
    "load",
    "transfer",
    "aggregate",
    "update",
    "synchronize",
    "recompute",
    "offload",
)
Provenance = Literal["measured", "modelled", "quoted"]
Status = Literal["done", "out-of-memory", "skipped", "error"]
PartKind = Literal["sampler", "placement", "communication", "memory", "kernel"]
PART_KINDS: tuple[PartKind, ...] = ("sampler", "placement", "communication", "memory", "kernel")
FeatureScaling = Literal["rows", "columns", "none"]


# --------------------------------------------------------------------------- data


@dataclass(frozen=True, slots=True, eq=False)
class Graph:
    """A symmetric graph as in-neighbour CSR, without self loops or duplicates, rows sorted.

    ``indptr`` int64 ``(V+1,)``, ``indices`` int32 ``(E,)``. Every undirected edge is stored twice;
    ``num_edges`` counts both, which is the papers' convention for traversed edges.
    """

    indptr: IntArray
    indices: IndexArray

    @property
    def num_vertices(self) -> int:
        return len(self.indptr) - 1

    @property
    def num_edges(self) -> int:
        return len(self.indices)

    @property
    def degrees(self) -> IntArray:
        """D(v), int64 ``(V,)``, without the self loop."""
        return np.diff(self.indptr)


@dataclass(frozen=True, slots=True, eq=False)
class Dataset:
    """A graph with features, labels and a split.

    ``features`` is dense float32 ``(V, f)`` or a SciPy CSR of that shape (rows are made dense when
    they are loaded). ``labels`` int64 ``(V,)``, -1 where there is none. ``origin`` says in a few
    words where it comes from; ``notes`` names whatever was made up (a stand-in, random features,
    a split), and is printed above every comparison. ``feature_scaling`` says how the features were
    brought to one scale (``gnnbench.datasets.scale_features``), and ``stored_digest`` is the digest
    from before that, which stays the data set's.
    """

    name: str
    graph: Graph
    features: FloatArray | sp.csr_matrix
    labels: IntArray
    num_classes: int
    train_mask: BoolArray
    val_mask: BoolArray
    test_mask: BoolArray
    origin: str = "in memory"
    notes: tuple[str, ...] = ()
    feature_scaling: FeatureScaling = "none"
    stored_digest: str = ""

    @property
    def num_features(self) -> int:
        return int(self.features.shape[1])

    @property
    def train_ids(self) -> IntArray:
        """Labelled training vertices, ascending, int64."""
        return np.flatnonzero(self.train_mask & (self.labels >= 0)).astype(np.int64)

    def rows(self, ids: IntArray | IndexArray) -> FloatArray:
        """Feature rows of ``ids``, dense float32 ``(len(ids), f)``, a fresh array."""
        if isinstance(self.features, np.ndarray):
            return self.features.take(ids, axis=0)
        return np.asarray(self.features[ids].toarray(), dtype=np.float32)

    def sparse_rows(self, ids: IntArray | IndexArray) -> sp.csr_matrix:
        """Feature rows of ``ids`` as CSR ``(len(ids), f)``; only where they are stored so."""
        if isinstance(self.features, np.ndarray):
            raise TypeError("these features are stored dense")
        return self.features[ids]

    def count_stored(self, ids: IntArray, num_first: int) -> tuple[int, int]:
        """How many values the sparse feature rows of ``ids`` have, and the first of these rows."""
        if isinstance(self.features, np.ndarray):
            raise TypeError("these features are stored dense")
        counts = np.diff(self.features.indptr)[ids]
        return int(counts.sum()), int(counts[:num_first].sum())

    def digest(self) -> str:
        """SHA-256 (first 16 hex digits) over topology, features as stored, labels and split."""
        if self.stored_digest:
            return self.stored_digest
        h = hashlib.sha256()
        h.update(self.graph.indptr.tobytes())
        h.update(self.graph.indices.tobytes())
        if isinstance(self.features, np.ndarray):
            h.update(np.ascontiguousarray(self.features).tobytes())
        else:
            for array in (self.features.data, self.features.indices, self.features.indptr):
                h.update(array.tobytes())
        for array in (self.labels, self.train_mask, self.val_mask, self.test_mask):
            h.update(array.tobytes())
        return h.hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class Workload:
    """What is trained, the same for every strategy of a comparison.

    ``model`` is the name of a bundled model (``gnnbench.models.MODELS``) or of a plugin's.
    ``dims`` are f^0 .. f^L. ``batch_size`` counts the seeds of one iteration over *all* trainers,
    so that every strategy takes the same optimisation steps. ``fanouts`` are given from the seeds
    outwards (the papers' "25, 10": 25 for the seeds' layer); 0 means every neighbour.
    ``weight_decay`` was chosen by trial on cora, citeseer and amazon_photo: with 1e-4 a GCN is more
    than a point less accurate than an independent script's on the last, with 3e-5 on the first.
    """

    model: str
    dims: tuple[int, ...]
    epochs: int
    batch_size: int
    fanouts: tuple[int, ...]
    seed: int
    learning_rate: float = 0.01
    weight_decay: float = 7e-5
    dtype: Literal["float32", "float64"] = "float32"
    threads: int = 0

    @property
    def num_layers(self) -> int:
        return len(self.dims) - 1

    @property
    def itemsize(self) -> int:
        """S_feat, bytes of one feature."""
        return 4 if self.dtype == "float32" else 8


# --------------------------------------------------------------------------- units of work


class BlockSize(NamedTuple):
    """How many sources, destinations and edges a block has; an edge that a layer adds from every
    vertex to itself is among them. ``own`` says that it lists its destinations' own rows."""

    num_src: int
    num_dst: int
    num_edges: int
    own: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Block:
    """One layer's bipartite graph: the in-edges of some destination vertices.

    ``src_ids`` int64 ``(S,)``: global ids of the source rows. The first ``num_dst`` of them are the
    destinations themselves, or those at the distinct positions ``own``, int32 ``(num_dst,)``, where
    the rows stand in a buffer that fixes their places; such a block may have sources that no edge
    and no destination reads. ``indptr`` int64 ``(num_dst+1,)`` and ``indices`` int32 ``(E,)`` are
    the local CSR: row = destination, value = position in ``src_ids``. No self loops are stored;
    models that want one read the destination's own row, which is always there.
    """

    src_ids: IntArray
    num_dst: int
    indptr: IntArray
    indices: IndexArray
    own: IndexArray | None = None

    @property
    def num_src(self) -> int:
        return len(self.src_ids)

    @property
    def num_edges(self) -> int:
        return len(self.indices)

    @property
    def dst_ids(self) -> IntArray:
        return self.src_ids[: self.num_dst] if self.own is None else self.src_ids[self.own]

    @property
    def topology_bytes(self) -> int:
        """Bytes of the local CSR with 32-bit indices, and of ``own``, as a device stores them."""
        positions = 0 if self.own is None else len(self.own)
        return 4 * (len(self.indptr) + len(self.indices) + positions)


@dataclass(frozen=True, slots=True, eq=False)
class Unit:
    """What one device computes at a time: a mini-batch (L blocks) or a chunk (one block).

    ``slot`` is the position of its device among the placement's trainers. ``blocks`` run from the
    input layer to the output layer; a chunk has one block, used at every layer.
    """

    slot: int
    blocks: tuple[Block, ...]

    @property
    def input_ids(self) -> IntArray:
        """V^0: the vertices whose feature rows this unit reads (N_ij in HongTu), int64."""
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

    @property
    def topology_bytes(self) -> int:
        """Bytes of all blocks as a device stores them."""
        return sum([block.topology_bytes for block in self.blocks])


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
    """How the host's threads are divided over its stages; 0 means all of them."""

    sample: int = 0
    load: int = 0
    train: int = 0


@dataclass(frozen=True, slots=True)
class BatchProfile:
    """|V^l| and |E^l| of one sampled mini-batch of some size.

    A design phase samples a few sizes; they do not grow in proportion, since neighbours are shared.
    ``sampling_s`` is what sampling it took with some numbers of threads, ascending; empty where
    that was not measured, or not on the platform in question.

    ``fetched`` is how many of the |V^0| rows an accelerator needs of the host's memory, where it
    has others itself, and ``fetched_bytes`` what they have when they cross, where they are rounded;
    None means all rows, as they are.

    ``stored`` is how many values the rows of V^0, and those of V^1 among them, have where features
    go to the first layer sparse, as they are stored; None where they are dense.
    """

    seeds: int
    vertices: tuple[int, ...]
    edges: tuple[int, ...]
    sampling_s: tuple[tuple[int, float], ...] = ()
    fetched: int | None = None
    fetched_bytes: int | None = None
    stored: tuple[int, int] | None = None


# --------------------------------------------------------------------------- traffic


@dataclass(frozen=True, slots=True, eq=False)
class PeerFetch:
    """Rows that one trainer reads of another's transition set, N_ij ∩ T_kj in HongTu.

    ``ids`` are copied now. ``kept`` were read from a peer for the round before as well, are still
    there and do not come again (N_ij ∩ N_i,j-1, HongTu §6).
    """

    slot: int
    ids: IntArray
    kept: IntArray = field(default_factory=lambda: np.empty(0, dtype=np.int64))


@dataclass(frozen=True, slots=True, eq=False)
class Fetch:
    """Where the rows that one trainer needs for one round come from. All id arrays ascend.

    ``needed`` (N_ij) are the rows its unit reads. ``transition`` (T_ij) are the rows this trainer
    brings in for itself and its peers: the disjoint union of ``from_host`` (N_ij^cpu), which cross
    the host link now, and ``reused`` (N_ij^gpu), which stay from the round before. ``from_peers``
    says which needed rows are in other trainers' transition sets, in the order in which peers are
    asked. Every needed row is in the own transition set, or in exactly one peer fetch, where it is
    copied or kept.
    """

    slot: int
    needed: IntArray
    from_host: IntArray
    reused: IntArray
    from_peers: tuple[PeerFetch, ...] = ()

    @property
    def transition(self) -> IntArray:
        if len(self.reused) == 0:
            return self.from_host
        return np.union1d(self.from_host, self.reused)

    @property
    def read_from_peers(self) -> IntArray:
        """The needed rows of peers' transition sets, copied or kept, ascending."""
        parts = [ids for peer in self.from_peers for ids in (peer.ids, peer.kept)]
        return np.unique(np.concatenate(parts)) if parts else np.empty(0, dtype=np.int64)


@dataclass(frozen=True, slots=True)
class BufferRows:
    """How many rows a trainer's two buffers have: ``neighbour``, which its kernel reads, and
    ``transition``, which its peers read. Where both are one merged buffer, ``transition`` is None.
    """

    neighbour: int
    transition: int | None = None

    def at_least(self, other: BufferRows) -> BufferRows:
        """Buffers that are large enough for either; both must be merged, or neither."""
        neighbour = max(self.neighbour, other.neighbour)
        if self.transition is None or other.transition is None:
            return BufferRows(neighbour)
        return BufferRows(neighbour, max(self.transition, other.transition))


@dataclass(frozen=True, slots=True, eq=False)
class RoundTraffic:
    """The fetches of all trainers of a round, one per unit, in the units' order.

    ``merged``: a trainer holds T_ij and N_ij in one buffer (HongTu §6, data buffer deduplication),
    or else in one each. It is the same for all rounds of a run.
    """

    fetches: tuple[Fetch, ...]
    merged: bool = True

    def buffer_rows(self) -> dict[int, BufferRows]:
        """By slot, the rows that this round needs room for: those of N_ij and
        T_ij together, or of each.

        Rows that stay keep their places, and that costs no room: over several rounds the buffers
        are as large as the largest of them.
        """
        rows = {}
        for fetch in self.fetches:
            transition = len(fetch.from_host) + len(fetch.reused)
            if self.merged:
                # N_ij without T_ij is what peers have.
                read = sum(len(peer.ids) + len(peer.kept) for peer in fetch.from_peers)
                rows[fetch.slot] = BufferRows(transition + read)
            else:
                rows[fetch.slot] = BufferRows(len(fetch.needed), transition)
        return rows


class StageTimes(NamedTuple):
    """Seconds of each stage of one round: the input of HyScale-GNN's Algorithm 1.

    ``sample_accelerator`` is None where no accelerator can sample, ``train_cpu`` None where no CPU
    trainer exists, ``train_accelerator`` None where there is no accelerator.
    """

    sample_cpu: float
    load: float
    transfer: float
    sample_accelerator: float | None = None
    train_cpu: float | None = None
    train_accelerator: float | None = None


# --------------------------------------------------------------------------- trace


class Work(NamedTuple):
    """The size of one piece of work, from which a clock or a kernel derives its duration.

    ``op``: ``sample`` (``edges`` drawn), ``copy`` (``bytes`` moved over a link or within a
    memory), ``aggregate`` (``edges`` of width ``features`` into ``rows``) or ``update`` (``macs``
    multiply-accumulates over ``rows``). ``threads`` of the host do it, 0 meaning all.
    ``remote_bytes`` is the part of ``bytes`` that a transfer between host and device takes across
    the host's sockets.
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

    def on_threads(self, threads: int) -> Work:
        """The same work, done by so many of the host's threads."""
        return Work(*self[:-2], threads, self.remote_bytes)


class Span(NamedTuple):
    """One recorded piece of work: what, where, how much, after what, and how long.

    ``place`` names the device or link it runs on; ``resources`` are the names it holds exclusively
    while it runs (a device may have several: an FPGA's aggregate and update kernels run at once).
    ``seconds`` is the platform clock's duration; ``wall_s`` what this machine took, from
    ``wall_start_s`` on its monotonic clock. ``after`` lists ids of spans it waits for.
    """

    id: int
    stage: Stage
    label: str
    place: str
    resources: tuple[str, ...]
    work: Work
    after: tuple[int, ...]
    epoch: int
    round: int
    layer: int
    seconds: float
    wall_start_s: float
    wall_s: float


@dataclass(frozen=True, slots=True)
class Scheduled:
    """A span's place on the timeline, seconds from the start of its epoch."""

    span: Span
    start_s: float
    end_s: float


ByteKind = Literal[
    "host_to_device",
    "device_to_host",
    "device_to_device",
    "host_to_host",
    "reused",
    "all_to_all",
    "all_reduce",
]
BYTE_KINDS: tuple[ByteKind, ...] = (
    "host_to_device",
    "device_to_host",
    "device_to_device",
    "host_to_host",
    "reused",
    "all_to_all",
    "all_reduce",
)


@dataclass(frozen=True, slots=True)
class EpochTrace:
    """Everything recorded in one epoch.

    ``loss`` is the mean over the epoch's training seeds, of which there were ``seeds``;
    ``round_losses`` the mean of each round.
    ``work_by_device`` counts traversed edges times width, for the imbalance. ``wall_s`` spans the
    whole epoch on this machine; ``harness_s`` is the part of it outside every span.
    """

    epoch: int
    spans: tuple[Span, ...]
    bytes: Mapping[ByteKind, int]
    edges: int
    vertices: int
    seeds: int
    loss: float
    round_losses: tuple[float, ...]
    work_by_device: Mapping[str, float]
    wall_s: float
    harness_s: float


@dataclass(frozen=True, slots=True)
class Trace:
    """What an engine returns: the epochs, peak memory by device, and the trained parameters.

    ``parameters`` maps a parameter's name to its final value (NumPy, the workload's dtype).
    ``notes`` are sentences a reader of the result should see (a plan that was made, a choice),
    ``idle`` names ideas of the parts that did nothing.
    """

    epochs: tuple[EpochTrace, ...]
    peak_bytes: Mapping[str, int]
    parameters: Mapping[str, npt.NDArray[np.generic]]
    preprocessing_s: float
    notes: tuple[str, ...] = ()
    idle: tuple[str, ...] = ()


# --------------------------------------------------------------------------- results


@dataclass(frozen=True, slots=True)
class Metric:
    """A number with its unit and origin; ``samples`` are the raw values, an epoch each.

    The first ``warmup`` of them are in no summary: the run was not steady yet.
    """

    value: float
    unit: str
    provenance: Provenance
    samples: tuple[float, ...] = ()
    warmup: int = 0

    @property
    def steady(self) -> tuple[float, ...]:
        """The samples that ``value`` summarises."""
        return self.samples[self.warmup :]


@dataclass(frozen=True, slots=True)
class Equivalence:
    """Whether a run computed what plain single-device training computes on the same data.

    ``reference`` is ``"full-graph"`` or ``"mini-batch"``, and ``sampling`` what plain training drew
    there. ``fault`` is a sentence that names what is off by more than rounding, empty where nothing
    is. ``max_relative_loss_error`` is the largest |loss - reference| / |reference| of the updates
    that were checked, each from the run's own parameters.
    """

    reference: Mode
    max_relative_loss_error: float
    fault: str = ""
    sampling: str = ""

    @property
    def holds(self) -> bool:
        return not self.fault


@dataclass(frozen=True, slots=True)
class EpochWork:
    """What a run did in an epoch, by which rows may be ranked beside each other.

    ``updates`` of the parameters, from ``seeds`` whose loss was taken, over ``edges`` that were
    drawn, summed over layers; ``devices`` are the names of those that trained, and ``sampling`` the
    law by which mini-batches were drawn, ``"every neighbour"`` of a full graph.
    """

    updates: int
    seeds: int
    edges: int
    devices: tuple[str, ...]
    sampling: str


@dataclass(frozen=True, slots=True)
class Parts:
    """The names of the five parts of a strategy."""

    sampler: str
    placement: str
    communication: str
    memory: str
    kernel: str

    def named(self, kind: PartKind) -> str:
        names: dict[PartKind, str] = {
            "sampler": self.sampler,
            "placement": self.placement,
            "communication": self.communication,
            "memory": self.memory,
            "kernel": self.kernel,
        }
        return names[kind]


@dataclass(frozen=True, slots=True)
class Ablation:
    """One step of an ablation: a strategy with ``swaps`` of its parts (kind, name) and ``options``
    of them set (kind, option, text).

    ``quoted`` is the largest speed-up over the first step that the strategy's paper reports.
    """

    label: str
    swaps: tuple[tuple[PartKind, str], ...] = ()
    options: tuple[tuple[PartKind, str, str], ...] = ()
    quoted: float | None = None


@dataclass(frozen=True, slots=True)
class Strategy:
    """A named bundle of parts, one bundle for each mode it supports, its usual mode first.

    ``ablation`` are its paper's steps from a plain baseline to the whole strategy, each of which
    adds something to the one before; empty where the paper has none. ``plain`` names the strategy
    that does the same with plain parts, beside which this one is shown; empty stands for the first
    step of the ablation. ``platform`` names the bundled machine of its paper, on which it is
    modelled where nobody names one.
    """

    name: str
    summary: str
    source: str
    bundles: Mapping[Mode, Parts]
    ablation: tuple[Ablation, ...] = ()
    plain: str = ""
    platform: str = ""

    @property
    def default_mode(self) -> Mode:
        return next(iter(self.bundles))


@dataclass(frozen=True, slots=True)
class RunResult:
    """One row of a comparison.

    ``strategy`` is the strategy's name; ``label`` what the table calls the row, ``strategy·part``
    when a part was swapped. ``stages`` are the busy seconds of the busiest resource in each stage,
    per epoch. ``timeline`` is the last epoch's. ``other_maths`` says in a word or two by which
    design the maths differ, such as ``"stale"`` where rows of earlier epochs were read; there is
    then no ``equivalence``. ``work`` is there where the run is done. ``idle``
    names ideas that did nothing, such as ``"the cache (no row was found in it)"``. Runs with
    the same ``lot`` took turns, so that their samples are pairs.
    """

    strategy: str
    label: str
    mode: Mode
    parts: Parts
    repeat: int
    status: Status
    reason: str = ""
    loss: tuple[float, ...] = ()
    accuracy: Mapping[str, float] = field(default_factory=dict)
    equivalence: Equivalence | None = None
    other_maths: str = ""
    work: EpochWork | None = None
    metrics: Mapping[str, Metric] = field(default_factory=dict)
    stages: Mapping[Stage, Metric] = field(default_factory=dict)
    timeline: tuple[Scheduled, ...] = ()
    notes: tuple[str, ...] = ()
    idle: tuple[str, ...] = ()
    lot: int = 0


@dataclass(frozen=True, slots=True)
class Comparison:
    """What ``compare`` returns: the setting once, and a row for every run.

    ``model_title`` is what reports call the workload's model. ``noise`` says what disturbed times
    that were measured, ``interrupted`` in which stages the comparison was ended; both are empty
    where nothing did.
    """

    created: str
    gnnbench: str
    command: tuple[str, ...]
    machine: Mapping[str, str | int | float | None]
    dataset: Mapping[str, str | int | float | tuple[str, ...]]
    workload: Workload
    model_title: str
    platform: str
    platform_description: str
    modelled: bool
    runs: tuple[RunResult, ...]
    noise: str = ""
    interrupted: str = ""


@dataclass(frozen=True, slots=True)
class Cell:
    """One entry of a table: a number with its unit and origin, or ``text`` where there is none.

    A count is an int, and printed whole.

    ``quoted`` is a paper's number for the same thing, in the same unit; the error of ``value`` is
    taken against it. ``text`` stands for what is not a number, such as "out of memory", and
    ``quoted_text`` for what the paper has instead of one.
    """

    value: float | None = None
    unit: str = ""
    provenance: Provenance = "modelled"
    quoted: float | None = None
    text: str = ""
    quoted_text: str = ""

    @property
    def error(self) -> float | None:
        """(value - quoted) / quoted, where both are known and ``quoted`` is not zero."""
        if self.value is None or not self.quoted:
            return None
        return (self.value - self.quoted) / self.quoted


@dataclass(frozen=True, slots=True)
class TableRow:
    """A labelled row: one cell a column."""

    label: str
    cells: tuple[Cell, ...]


@dataclass(frozen=True, slots=True)
class Table:
    """What ``plan`` and ``reproduce`` print: cells in rows and columns, and what to know.

    Where the columns are numbers along an axis, ``axis`` says what they count; a row is a curve.
    """

    name: str
    title: str
    columns: tuple[str, ...]
    rows: tuple[TableRow, ...]
    notes: tuple[str, ...] = ()
    axis: str = ""

    @property
    def cells(self) -> tuple[Cell, ...]:
        """Of all rows, one after the other."""
        return tuple(cell for row in self.rows for cell in row.cells)
