"""The five parts of a strategy, as abstract base classes, and what they are handed.

A part is a dataclass whose fields are its options: ``--set memory.device_bytes=2GB`` sets the field
``device_bytes`` of the memory part. Declare options with :func:`option`; the harness reads text by
the field's annotation. Class variables ``name`` and ``summary`` describe the part, ``modes`` says
which engines it works under.

Order of calls, in every run: ``refuses`` on each part, ``begin`` on each part, then the engine
asks. Parts never take times and never look at the clock; the engine does.
"""

from __future__ import annotations

import dataclasses
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import ClassVar, Literal, Protocol, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from gnnbench.platforms.machine import Device, Platform
from gnnbench.records import (
    BatchProfile,
    Block,
    BoolArray,
    Dataset,
    Fetch,
    HostThreads,
    IntArray,
    Mode,
    PartKind,
    Round,
    RoundTraffic,
    Share,
    StageTimes,
    Unit,
    Work,
    Workload,
)

T = TypeVar("T")

MINI_BATCH: frozenset[Mode] = frozenset({"mini-batch"})
FULL_GRAPH: frozenset[Mode] = frozenset({"full-graph"})
BOTH_MODES: frozenset[Mode] = MINI_BATCH | FULL_GRAPH


def option(default: T, help: str, *, unit: Literal["", "bytes"] = "") -> T:
    """Declare an option of a part: a dataclass field with a default and one line of help.

    With ``unit="bytes"`` the text form may carry a unit (``2GB``).
    """
    declared: T = field(default=default, metadata={"help": help, "unit": unit})
    return declared


@dataclass(frozen=True, slots=True)
class LayerShape:
    """A layer's sizes: f^{l-1} in, f^l out, the width of what aggregation yields, and whether that
    width is all the backward pass needs (HongTu §4.2: aggregates of GCN, SAGE and GIN can be
    cached; attention has O(|E|) intermediates and is recomputed).

    ``edge_features`` is how many values of the workload's dtype the backward pass needs for every
    edge of a block besides: what autograd saves of AGGREGATE's ``(E,)`` and ``(E, f)`` tensors,
    which lie on the device from the forward pass of a chunk to the end of its backward pass.
    Integer indices and what is freed within a pass are not in it. 0 where ``cacheable``.
    """

    in_features: int
    out_features: int
    aggregate_features: int
    parameters: int
    macs_per_row: int
    cacheable: bool
    edge_features: int = 0


class LayerClass(Protocol):
    """What a model is made of: a class of layers, called once for each (``gnnbench.models``).

    ``name`` stands in ``--model``, ``title`` in the results. ``activation`` is False for the last
    layer of a model; parameters are drawn from ``generator``.
    """

    name: str
    title: str

    def __call__(
        self, in_features: int, out_features: int, *, activation: bool, generator: torch.Generator
    ) -> nn.Module: ...


@dataclass(frozen=True, slots=True, eq=False)
class Setting:
    """The fixed facts of one run, handed to every part's ``begin``.

    ``model`` is the class of the model's layers; None is the bundled one that
    ``workload.model`` names.
    """

    dataset: Dataset
    platform: Platform
    workload: Workload
    layers: tuple[LayerShape, ...]
    model: LayerClass | None = None

    @property
    def parameter_bytes(self) -> int:
        """Size of all weight matrices and biases together."""
        return sum(layer.parameters for layer in self.layers) * self.workload.itemsize


@dataclass
class Part(ABC):
    """What every part has: a name, one line about it, and the modes it supports."""

    kind: ClassVar[PartKind]
    name: ClassVar[str]
    summary: ClassVar[str]
    modes: ClassVar[frozenset[Mode]] = BOTH_MODES

    def refuses(self, bundle: Bundle, setting: Setting) -> str | None:
        """Why this part cannot work with the others here, as a sentence; None when it can."""
        return None

    def begin(self, setting: Setting) -> None:  # noqa: B027 - an optional hook
        """Called once before a run; keep what later calls need."""

    def notes(self) -> tuple[str, ...]:
        """Sentences for the reader of the result: what was planned or chosen."""
        return ()


# --------------------------------------------------------------------------- sampler


@dataclass
class Sampler(Part):
    """Which units make one epoch, in which order. Subclass one of the two kinds below."""

    kind: ClassVar[PartKind] = "sampler"
    mode: ClassVar[Mode]


@dataclass
class MiniBatchSampler(Sampler):
    """Rounds of seeds, and the sampled blocks below them."""

    modes: ClassVar[frozenset[Mode]] = MINI_BATCH
    mode: ClassVar[Mode] = "mini-batch"

    @abstractmethod
    def rounds(self, epoch: int) -> Sequence[IntArray]:
        """The seeds of every round of an epoch (int64, each training vertex once)."""

    @abstractmethod
    def sample(self, seeds: IntArray, epoch: int, threads: int) -> tuple[Block, ...]:
        """L blocks, input layer first, whose last destinations are ``seeds`` in their order.

        The neighbours drawn for a vertex must depend on (seed, epoch, layer, vertex) alone, so
        that splitting a round over trainers does not change them, or else ``split_invariant``
        must be False, and the strategy is held equal to a single device with this same sampler.
        """

    split_invariant: ClassVar[bool] = True


class DeviceCapacity(Protocol):
    """What the trainers' memories can take, told by the engine, which does the accounting."""

    @property
    def device_bytes(self) -> int:
        """The capacity of the smallest."""

    def holds(self, rounds: Sequence[Round], owner: IntArray) -> bool:
        """Whether every trainer can work through its units of ``rounds``; ``owner`` as below."""


@dataclass
class FullGraphSampler(Sampler):
    """Rounds of chunks that together cover every vertex once."""

    modes: ClassVar[frozenset[Mode]] = FULL_GRAPH
    mode: ClassVar[Mode] = "full-graph"

    def limit(self, capacity: DeviceCapacity) -> None:
        """Called before ``chunks`` in a run: what they have to fit in."""

    @abstractmethod
    def chunks(self, setting: Setting, num_slots: int) -> tuple[Round, ...]:
        """The rounds of one epoch; each unit has one block and its destinations are unique."""

    @abstractmethod
    def owner(self) -> IntArray:
        """The slot that each vertex belongs to, int64 ``(V,)``; valid after ``chunks``."""


# --------------------------------------------------------------------------- placement


@dataclass
class Placement(Part):
    """Which device computes which share of a round; may rebalance between rounds."""

    kind: ClassVar[PartKind] = "placement"

    @abstractmethod
    def trainers(self, platform: Platform) -> tuple[Device, ...]:
        """The devices that train; a ``slot`` is a position in this tuple."""

    def prepare(self, setting: Setting, profiles: Sequence[BatchProfile]) -> None:
        """Mini-batch only: plan the first split from sampled mini-batches of several sizes.

        ``profiles`` ascend in seeds; the last one is a full round.
        """

    @abstractmethod
    def split(self, num_seeds: int) -> tuple[Share, ...]:
        """Mini-batch only: shares that add up to ``num_seeds``, in slot order; may be zero."""

    def share_out(self, seeds: IntArray) -> tuple[tuple[Share, IntArray], ...]:
        """Mini-batch only: each share of a round with its seeds, every one of ``seeds`` in one.

        Runs of the seeds as they come, unless a placement has a reason to choose.
        """
        shares = self.split(len(seeds))
        ends = np.cumsum([share.seeds for share in shares])
        return tuple(zip(shares, np.split(seeds, ends[:-1]), strict=True))

    def host_threads(self) -> HostThreads:
        """How the host's threads are divided between sampling, loading and training."""
        return HostThreads()

    def sockets(self, platform: Platform, owner: IntArray) -> IntArray:
        """The host's socket in whose memory each vertex's rows lie, int64 ``(V,)``.

        Full graph only; ``owner`` is the sampler's. Spread evenly, as by interleaved pages, unless
        a placement knows better.
        """
        return np.arange(len(owner), dtype=np.int64) % platform.host.sockets

    def observe(self, times: StageTimes) -> None:
        """Mini-batch only: the stage times of the round just run; rebalance the next one."""


# --------------------------------------------------------------------------- communication

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

    def choose_crossing(self, epoch: int, layer: int, what: PeerData, ids: IntArray) -> BoolArray:
        """Which of a peer's rows, or their gradients on the way back, cross in an epoch.

        The others stand as they were when they last crossed. Bool like ``ids``, the vertices that
        would cross otherwise; where shards are broadcast all of them or none. ``layer`` counts from
        0, whose rows are the features. Asked of what may be ``stale``, for every peer and layer, in
        each epoch but the first, in which everything crosses.
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


# --------------------------------------------------------------------------- memory

Intermediates = Literal["keep", "cache", "offload", "recompute"]


@dataclass
class Memory(Part):
    """Where tensors live, what is kept, recomputed or offloaded.

    ``device_bytes`` caps every accelerator's (or lone device's) memory below the platform's own.
    A memory that keeps the vertex data of a whole graph on the host is an ``OffloadingMemory``.
    """

    kind: ClassVar[PartKind] = "memory"
    #: Where features, representations and gradients live between units.
    vertex_data: ClassVar[Literal["host", "device"]]
    device_bytes: int = option(0, "cap on each device's memory; 0 = the platform's", unit="bytes")

    @abstractmethod
    def intermediates(self, layer: LayerShape) -> Intermediates:
        """What happens to a layer's intermediate results between forward and backward: kept on
        the device, the aggregate cached on the host, all of them moved there (``offload``), or
        everything recomputed. Only a layer that is ``cacheable`` may be cached, and only one that
        is not may be offloaded."""

    def capacity_bytes(self, device: Device) -> int:
        if self.device_bytes:
            return min(self.device_bytes, device.memory_bytes)
        return device.memory_bytes

    def host_capacity_bytes(self, host: Device) -> int:
        """How much of the host's memory a run may hold."""
        return host.memory_bytes

    def spill_directory(self) -> Path | None:
        """Where vertex data goes that the host cannot hold; None where there is no such place."""
        return None


@dataclass
class OffloadingMemory(Memory):
    """Vertex data of the whole graph on the host within a budget, and on its disk beyond that.

    What goes to disk is chosen once for a run, :func:`gnnbench.footprint.choose_spilled`.
    """

    modes: ClassVar[frozenset[Mode]] = FULL_GRAPH
    vertex_data: ClassVar[Literal["host", "device"]] = "host"
    host_bytes: int = option(0, "cap on the host's memory; 0 = the platform's", unit="bytes")
    spill_dir: str = option("", "directory for what outgrows the host; empty = the system's")

    def refuses(self, bundle: Bundle, setting: Setting) -> str | None:
        if not self.spill_directory().is_dir():
            return f"memory.spill_dir {self.spill_dir!r} is not a directory; name one that exists."
        return None

    def host_capacity_bytes(self, host: Device) -> int:
        if self.host_bytes:
            return min(self.host_bytes, host.memory_bytes)
        return host.memory_bytes

    def spill_directory(self) -> Path:
        return Path(self.spill_dir or tempfile.gettempdir())


# --------------------------------------------------------------------------- kernel


class Adjacency(ABC):
    """A block bound to one kernel, one dtype and one device: what a model may ask of a graph.

    Shapes: S = ``block.num_src``, D = ``block.num_dst``, E = ``block.num_edges``. All methods but
    ``sum_transposed`` and ``sum_scaled_transposed`` are differentiable in their tensor arguments.
    """

    block: Block

    @abstractmethod
    def sum(self, h: Tensor, weight: Tensor | None = None) -> Tensor:
        """``(S, f) -> (D, f)``: out[v] = sum over in-edges (u, v) of weight[e] * h[u]."""

    @abstractmethod
    def mean(self, h: Tensor) -> Tensor:
        """``(S, f) -> (D, f)``: the mean over in-edges, zero where there are none."""

    def own_and_mean(self, h: Tensor) -> Tensor:
        """``(S, f) -> (D, 2 f)``: each destination's own row, and beside it the mean."""
        return torch.cat((self.own_rows(h), self.mean(h)), dim=1)

    @abstractmethod
    def sum_transposed(self, g: Tensor, weight: Tensor | None = None) -> Tensor:
        """``(D, f) -> (S, f)``: out[u] = sum over out-edges (u, v) of weight[e] * g[v].

        The backward pass of ``sum`` without its forward; not differentiable itself.
        """

    def sum_scaled(self, h: Tensor, scaling: Scaling) -> Tensor:
        """``(S, f) -> (D, f)``: out[v] = dst[v] * sum of src[u] * h[u] + own[v] * h[v]."""
        own = scaling.own.unsqueeze(1) * self.own_rows(h)
        return self.sum(h, scaling.of_edges(self)) + own

    @torch.no_grad()
    def sum_scaled_transposed(self, g: Tensor, scaling: Scaling) -> Tensor:
        """``(D, f) -> (S, f)``: the backward pass of ``sum_scaled`` without its forward."""
        out = self.sum_transposed(g, scaling.of_edges(self))
        self.add_to_own_rows(out, scaling.own.unsqueeze(1) * g)
        return out

    def own_rows(self, h: Tensor) -> Tensor:
        """``(S, f) -> (D, f)``: the destinations' own rows; a view where they are the first."""
        return h[: self.block.num_dst] if self._own is None else h.index_select(0, self._own)

    def add_to_own_rows(self, out: Tensor, rows: Tensor) -> None:
        """Add ``(D, f)`` to the destinations' own rows of ``out`` ``(S, f)``, in place."""
        if self._own is None:
            out[: self.block.num_dst] += rows
        else:
            out.index_add_(0, self._own, rows)

    @cached_property
    def _own(self) -> Tensor | None:
        """``block.own`` on the device of the features."""
        own = self.block.own
        return None if own is None else torch.from_numpy(own).to(self.in_degrees.device)

    @abstractmethod
    def edge_softmax(self, scores: Tensor) -> Tensor:
        """``(E,) -> (E,)``: softmax of the scores of each destination's in-edges."""

    def sum_edges(self, messages: Tensor) -> Tensor:
        """``(E, f) -> (D, f)``: out[v] = sum of the messages of v's in-edges, in CSR order."""
        out = messages.new_zeros(self.block.num_dst, messages.shape[1])
        return out.index_add(0, self.edge_dst, messages)

    @property
    @abstractmethod
    def edge_src(self) -> Tensor:
        """int64 ``(E,)``: source position of each edge, in CSR order."""

    @property
    @abstractmethod
    def edge_dst(self) -> Tensor:
        """int64 ``(E,)``: destination position of each edge, in CSR order."""

    @property
    @abstractmethod
    def in_degrees(self) -> Tensor:
        """``(D,)`` in the dtype of the features: number of in-edges in this block."""


@dataclass(slots=True, eq=False)
class Scaling:
    """The factors of a normalised adjacency, diag(dst) A diag(src) + diag(own).

    ``src`` ``(S,)``, ``dst`` and ``own`` ``(D,)``, in the dtype and on the device of the features.
    """

    src: Tensor
    dst: Tensor
    own: Tensor
    _edges: Tensor | None = None

    def of_edges(self, adjacency: Adjacency) -> Tensor:
        """``(E,)``: dst[v] * src[u] of each edge, for kernels that take one weight an edge."""
        if self._edges is None:
            self._edges = self.src.index_select(0, adjacency.edge_src)
            self._edges *= self.dst.index_select(0, adjacency.edge_dst)
        return self._edges


@dataclass
class Kernel(Part):
    """Aggregation and update on one device: how they are computed and what they cost."""

    kind: ClassVar[PartKind] = "kernel"
    #: Whether UPDATE of the first layer may be handed features as a sparse CSR tensor.
    takes_sparse_features: ClassVar[bool] = False

    def projects_first(self, layer: int, setting: Setting, mode: Mode) -> bool:
        """Whether layer ``layer`` (from 0) multiplies by W before it aggregates.

        Asked for models whose maths allows both, A (H W) = (A H) W: GCN, GraphSAGE and CommNet.
        """
        return False

    def linear(self, a: Tensor, weight: Tensor | None, bias: Tensor, *, relu: bool) -> Tensor:
        """UPDATE: ``a W + b``, or ``a + b`` without a weight, and ReLU of it where ``relu``.

        ``a`` is ``(n, f_in)``, ``weight`` ``(f_in, f_out)``, ``bias`` ``(f_out,)``; differentiable.
        """
        out = a + bias if weight is None else torch.addmm(bias, a, weight)
        return torch.relu(out) if relu else out

    def multiply_sparse(self, rows: Tensor, weight: Tensor) -> Tensor:
        """A sparse CSR tensor ``(n, f_in)`` times ``weight`` ``(f_in, f_out)``; for its gradient
        only the latter counts."""
        product: Tensor = torch.sparse.mm(rows, weight)
        return product

    @abstractmethod
    def adjacency(self, block: Block, dtype: torch.dtype, device: torch.device) -> Adjacency:
        """Bind a block to this kernel; the engine keeps it as long as the unit lives."""

    def seconds(self, work: Work, device: Device) -> float:
        """Modelled duration of ``work`` on a described device.

        HyScale-GNN Equation 11, t_aggregate = |E| f S_feat / BW, and Equation 12, t_update =
        MACs / (N freq), with N freq = half the FLOP/s; plus the device's launch time.
        """
        if work.op not in ("aggregate", "update"):
            raise ValueError(f"a kernel has no cost for {work.op!r}")
        traffic = work.edges * work.features * work.itemsize
        rate = device.flops_per_s * device.share_of_cores(work.threads)
        return (
            device.launch_s
            + traffic / device.bandwidth_bytes_per_s(work.threads)
            + 2.0 * work.macs / rate
        )


# --------------------------------------------------------------------------- bundle


@dataclass(frozen=True, slots=True, eq=False)
class Bundle:
    """Five parts put together, ready to be checked and run."""

    sampler: MiniBatchSampler | FullGraphSampler
    placement: Placement
    communication: Communication
    memory: Memory
    kernel: Kernel

    def all(self) -> tuple[Part, ...]:
        return (self.sampler, self.placement, self.communication, self.memory, self.kernel)

    def is_stale(self, platform: Platform) -> bool:
        """Whether devices read rows of earlier epochs from each other: other maths, by design."""
        return bool(self.communication.stale) and len(self.placement.trainers(platform)) > 1

    def refusal(self, setting: Setting) -> str | None:
        """The first reason why these parts cannot run together; None when they can."""
        mode = self.sampler.mode
        for part in self.all():
            if mode not in part.modes:
                only = " and ".join(sorted(part.modes))
                return (
                    f"{part.kind} {part.name!r} works for {only} training only, "
                    f"and sampler {self.sampler.name!r} makes {mode} units."
                )
        if self.memory.vertex_data == "host" and not self.communication.moves_rows:
            return (
                f"communication {self.communication.name!r} moves nothing, but memory "
                f"{self.memory.name!r} keeps vertex data on the host; choose a communication "
                f"that transfers, or memory 'resident'."
            )
        if self.memory.vertex_data not in self.communication.serves:
            where = "on the device" if self.memory.vertex_data == "device" else "on the host"
            return (
                f"memory {self.memory.name!r} keeps vertex data {where}, where communication "
                f"{self.communication.name!r} has nothing to transfer; use one that serves it, "
                f"'none' or 'halo' on devices, 'vanilla' from the host."
            )
        if mode == "full-graph":
            reason = self._refuse_full_graph(setting)
            if reason is not None:
                return reason
        for part in self.all():
            reason = part.refuses(self, setting)
            if reason is not None:
                return reason
        return None

    def _refuse_full_graph(self, setting: Setting) -> str | None:
        count = len(self.placement.trainers(setting.platform))
        if self.memory.vertex_data == "device" and count > 1 and not self.communication.moves_rows:
            return (
                f"placement {self.placement.name!r} uses {count} devices, each with its own "
                f"vertex data, and communication {self.communication.name!r} moves nothing between "
                f"them; choose communication 'halo', or placement 'single'."
            )
        return _refuse_intermediates(self.memory, setting.layers)


def _refuse_intermediates(memory: Memory, layers: tuple[LayerShape, ...]) -> str | None:
    """What becomes of a layer's intermediates must suit where vertex data lives, and the layer."""
    on_device = memory.vertex_data == "device"
    for number, layer in enumerate(layers, start=1):
        policy = memory.intermediates(layer)
        if on_device != (policy == "keep"):
            where = "the devices" if on_device else "the host"
            return (
                f"memory {memory.name!r} keeps vertex data on {where} and would {policy!r} the "
                f"intermediates of layer {number}; a full graph is trained with both in one place."
            )
        if (policy == "cache" and not layer.cacheable) or (policy == "offload" and layer.cacheable):
            return (
                f"memory {memory.name!r} would {policy!r} the intermediates of layer {number}; "
                f"only cacheable layers are cached, and only others are offloaded."
            )
    return None


def option_fields(part: type[Part]) -> dict[str, dataclasses.Field[object]]:
    """The options of a part class by name."""
    return {f.name: f for f in dataclasses.fields(part) if f.init}
