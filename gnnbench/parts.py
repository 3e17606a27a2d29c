"""The five parts of a strategy, as abstract base classes, and what they are handed.

A part is a dataclass whose fields are its options: ``--set memory.device_bytes=2GB`` sets the field
``device_bytes`` of the memory part. Declare options with :func:`option`; the harness reads text by
the field's annotation. Class variables ``name`` and ``summary`` describe the part, ``modes`` says
which engines it works under.

Order of calls, in every run: ``refuses`` on each part, ``settle`` on each part, ``begin`` on each
part, then the engine asks. Parts never take times and never look at the clock; the engine does.
"""

from __future__ import annotations

import dataclasses
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate
from pathlib import Path
from typing import ClassVar, Literal, Protocol, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from gnnbench.platforms.machine import Device, Platform
from gnnbench.records import (
    BatchProfile,
    Block,
    BlockSize,
    BoolArray,
    Dataset,
    Fetch,
    HostThreads,
    IntArray,
    Mode,
    PartKind,
    Round,
    RoundTraffic,
    Shard,
    Share,
    StageTimes,
    Unit,
    Work,
    Workload,
)
from gnnbench.units import format_si

T = TypeVar("T")

#: Sampling, loading and training: what a host has going on at once.
HOST_STAGES = 3
MINI_BATCH: frozenset[Mode] = frozenset({"mini-batch"})
FULL_GRAPH: frozenset[Mode] = frozenset({"full-graph"})
BOTH_MODES: frozenset[Mode] = MINI_BATCH | FULL_GRAPH
#: min(fan-out, degree) different in-neighbours of every destination, each set of them as likely as
#: any other: the law of GraphSAGE's neighbour sampling, ``MiniBatchSampler.law``.
UNIFORM = "uniform without replacement"


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
    ``loop_features`` is the same for the edge that AGGREGATE adds from every destination to itself;
    0 where it adds none.

    ``featurewise`` says that AGGREGATE treats every feature by itself, so that a range of columns
    can be aggregated without the others; its output is then one or more matrices of the input's
    width, side by side. ``product_features`` is the width of the matrix product that UPDATE begins
    with, to which every column of the aggregate adds its part; 0 where it begins otherwise.

    ``source_macs`` and ``destination_macs`` are the multiply-accumulates for each source and each
    destination of a layer that multiplies by W before it aggregates; 0 in others.

    ``hidden_features`` is the width of what is between two products of UPDATE; 0 where there is
    one. ``source_factors`` and ``destination_factors`` are how many constants of a block's every
    source and destination AGGREGATE has, as GCN has 1/sqrt(D(v)+1).
    """

    in_features: int
    out_features: int
    aggregate_features: int
    parameters: int
    macs_per_row: int
    cacheable: bool
    edge_features: int = 0
    loop_features: int = 0
    featurewise: bool = False
    product_features: int = 0
    source_macs: int = 0
    destination_macs: int = 0
    hidden_features: int = 0
    source_factors: int = 0
    destination_factors: int = 0

    @property
    def summed_features(self) -> int:
        """Width of the rows that are summed over edges: of the products, where they come first."""
        return self.out_features if self.source_macs else self.in_features


class LayerClass(Protocol):
    """What a model is made of: a class of layers, called once for each (``gnnbench.models``).

    ``name`` stands in ``--model``, ``title`` in the results; ``learning_rate`` is Adam's unless the
    command line says another. ``activation`` is False for the last layer of a model; parameters are
    drawn from ``generator``.
    """

    name: str
    title: str
    learning_rate: float

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

    def settle(self, bundle: Bundle, setting: Setting) -> None:  # noqa: B027 - an optional hook
        """Choose what the options leave open and the other parts have a say in.

        Called once before ``begin``, where nothing is refused; parts before this one in
        ``Bundle.all`` have settled. What an option says stays.
        """

    def begin(self, setting: Setting) -> None:  # noqa: B027 - an optional hook
        """Called once before a run; keep what later calls need."""

    def notes(self) -> tuple[str, ...]:
        """Sentences for the reader of the result: what was planned or chosen."""
        return ()

    def idle(self) -> tuple[str, ...]:
        """After a run, the ideas of this part that did nothing in it, each by name with the figure
        that shows it, such as ``"the cache (no row was found in it)"``."""
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
        must be False; then the sampler works with one trainer only.
        """

    split_invariant: ClassVar[bool] = True
    #: False for a sampler that has no use for the workload's fan-outs; what it draws is then the
    #: same with any.
    heeds_fanouts: ClassVar[bool] = True
    #: The distribution that it draws from, ``UNIFORM`` or a name of its own: rows are ranked only
    #: beside rows of the same law. Empty is a law that no other sampler has. ``UNIFORM`` is held
    #: against what is drawn (``gnnbench plugins check``); a name of its own is taken at its word.
    law: ClassVar[str] = ""

    def sampling(self, workload: Workload) -> str:
        """What is drawn, as a row states it and as rows are told apart by: the law, and the
        fan-outs where it heeds them."""
        law = self.law or f"sampler {self.name}{self._chosen_options()}"
        if not self.heeds_fanouts:
            return law
        return f"{law}, fan-outs {', '.join(map(str, workload.fanouts))}"

    def _chosen_options(self) -> str:
        """The options that are not at their defaults, since a law of its own may rest on them."""
        chosen = [
            f"{name}={getattr(self, name)}"
            for name, declared in option_fields(type(self)).items()
            if getattr(self, name) != declared.default
        ]
        return f" ({', '.join(chosen)})" if chosen else ""


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
    #: What AGGREGATE is sharded by: ranges of vertices, which the same devices update, or ranges of
    #: features, while UPDATE is sharded by vertices (MixGCN §3.1.2, mixture of parallelism). Of
    #: mini-batches only the first layer is, and with it the product that its UPDATE begins with.
    aggregates_by: ClassVar[Literal["vertices", "features"]] = "vertices"

    @abstractmethod
    def trainers(self, platform: Platform) -> tuple[Device, ...]:
        """The devices that train; a ``slot`` is a position in this tuple."""

    def available(self, platform: Platform) -> dict[str, int]:
        """The options that say how many devices to use, 0 for all, each with how many there are.

        An option ``accelerators`` counts the platform's accelerators, unless a placement says
        otherwise here. What is below 0 or above is refused for it.
        """
        counted = "accelerators" in option_fields(type(self))
        return {"accelerators": len(platform.accelerators)} if counted else {}

    def refuse_counts(self, platform: Platform) -> str | None:
        """Why the platform does not have as many devices as asked for; None where it has."""
        for name, most in self.available(platform).items():
            count = getattr(self, name)
            if not 0 <= count <= most:
                there, ask = (f"{most} such devices", f"1 to {most}, or 0 for all of them")
                if not most:
                    there, ask = "no such device", "0, or another platform"
                return (
                    f"placement.{name} is {count}, and platform {platform.name} has {there}; "
                    f"give {ask}."
                )
        return None

    @property
    def wants_design_phase(self) -> bool:
        """Mini-batch only: whether rates should be measured in a few rounds before a run whose
        times are measured, see ``gnnbench.design_phase``."""
        return False

    def predicted_epochs(self) -> Mapping[str, float]:
        """After a run, by what they rest on, the seconds of an epoch that were predicted before it;
        the report has them beside the achieved ones."""
        return {}

    def overlap(self, prefetch: Literal[0, 1, 2]) -> None:
        """Mini-batch only, before ``prepare``: in how many stages features are prefetched, see
        ``Bundle.prefetch_stages``."""

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
        if len(shares) == 1:
            return ((shares[0], seeds),)
        ends = accumulate(share.seeds for share in shares)
        return tuple(
            (share, seeds[end - share.seeds : end]) for share, end in zip(shares, ends, strict=True)
        )

    def host_threads(self) -> HostThreads:
        """How the host's threads are divided between sampling, loading and training."""
        return HostThreads()

    def samplers(self, platform: Platform) -> tuple[Device, ...]:
        """Mini-batch only: the trainers that can draw their own mini-batches, where a share says
        so. They are accelerators, and hold the graph's topology."""
        return ()

    def sockets(self, platform: Platform, owner: IntArray) -> IntArray:
        """The host's socket in whose memory each vertex's rows lie, int64 ``(V,)``.

        Full graph only; ``owner`` is the sampler's. Spread evenly, as by interleaved pages, unless
        a placement knows better.
        """
        return np.arange(len(owner), dtype=np.int64) % platform.host.sockets

    def shard_aggregate(
        self, num_vertices: int, width: int, platform: Platform
    ) -> tuple[Shard, ...]:
        """How AGGREGATE of ``num_vertices`` rows of ``width`` features is shared out.

        Only asked where ``aggregates_by`` is ``"features"``. The shards cover every entry once; a
        slot has at most one, and its columns do not depend on the number of vertices.
        """
        raise TypeError(f"placement {self.name!r} does not shard by features")

    def shard_update(self, num_vertices: int, platform: Platform) -> tuple[tuple[int, int], ...]:
        """The range of vertices that each trainer updates, all features of them, in slot order.

        Only asked where ``aggregates_by`` is ``"features"``. The ranges follow each other; a
        trainer that does not update has an empty one at the end. Slot 0 has the weights anyway.
        """
        raise TypeError(f"placement {self.name!r} does not shard by features")

    def observe(self, times: StageTimes) -> None:
        """Mini-batch only: the stage times of a round; rebalance those to come.

        Rounds are observed in their order, and before the split of round i is asked for, all up to
        i - d and no others, where d is how many rounds may be under way at once: one without
        prefetching, three with one-stage and four with two-stage prefetching.
        """


def divide_evenly(count: int, parts: int) -> tuple[tuple[int, int], ...]:
    """The range [i n / m, (i + 1) n / m) of ``count`` things for each part i of m, rounded down.

    MixGCN's Algorithm 2, lines 7 and 11.
    """
    return tuple((count * i // parts, count * (i + 1) // parts) for i in range(parts))


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

    def cached_vertices(self, setting: Setting, free_bytes: int, mini_batch_bytes: int) -> IntArray:
        """Mini-batch only, with vertex data on the host: of which vertices an accelerator keeps the
        feature rows for the whole run, distinct ids, int64.

        ``free_bytes`` of its memory are left, and mini-batches take at most ``mini_batch_bytes``.
        """
        return np.empty(0, dtype=np.int64)

    def capacity_bytes(self, device: Device) -> int:
        if self.device_bytes:
            return min(self.device_bytes, device.memory_bytes)
        return device.memory_bytes

    def streams_topology(self) -> bool:
        """Full graphs only: whether a chunk's topology waits on the host and crosses with its
        vertex data, in place of staying on the device for the whole run."""
        return False

    def host_capacity_bytes(self, host: Device) -> int:
        """How much of the host's memory a run may hold."""
        return host.memory_bytes

    def spill_directory(self) -> Path | None:
        """Where vertex data goes that the host cannot hold; None where there is no such place."""
        return None


#: One in so many of a device's bytes may go to topologies that wait there between their turns.
TOPOLOGY_PART = 8


@dataclass
class OffloadingMemory(Memory):
    """Vertex data of the whole graph on the host within a budget, and on its disk beyond that.

    What goes to disk is chosen once for a run, :func:`gnnbench.footprint.choose_spilled`.
    """

    modes: ClassVar[frozenset[Mode]] = FULL_GRAPH
    vertex_data: ClassVar[Literal["host", "device"]] = "host"
    host_bytes: int = option(0, "cap on the host's memory; 0 = the platform's", unit="bytes")
    spill_dir: str = option("", "directory for what outgrows the host; empty = the system's")
    topology: str = option(
        "auto", "where chunks' topologies wait: device, host, or auto: device if it has room enough"
    )
    _streams: bool = field(default=False, init=False, repr=False, compare=False)
    _chosen: str = field(default="", init=False, repr=False, compare=False)

    def streams_topology(self) -> bool:
        return self._streams if self.topology == "auto" else self.topology == "host"

    def settle(self, bundle: Bundle, setting: Setting) -> None:
        """Choose where topologies wait, if that is left open: on a device that has room for those
        of all its chunks in a small part of its memory; else on the host."""
        graph, trainers = setting.dataset.graph, bundle.placement.trainers(setting.platform)
        capacity_bytes, itemsize = (
            min(map(self.capacity_bytes, trainers)),
            setting.workload.itemsize,
        )
        chunks = BlockSize(graph.num_vertices, 0, graph.num_edges // len(trainers))
        size = max(
            bundle.kernel.adjacency_bytes(chunks, layer, itemsize) for layer in setting.layers
        )
        self._streams = size * TOPOLOGY_PART > capacity_bytes
        if self._streams and self.topology == "auto":
            self._chosen = (
                f"chunks' topologies wait on the host and cross with their rows: on a device of "
                f"{format_si(capacity_bytes, 'B')} all would take {format_si(size, 'B')} or more"
            )

    def notes(self) -> tuple[str, ...]:
        return (self._chosen,) if self._chosen else ()

    def refuses(self, bundle: Bundle, setting: Setting) -> str | None:
        if self.topology not in ("auto", "device", "host"):
            return f"memory.topology is {self.topology!r}; it must be auto, device or host."
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
    those called ``..._transposed`` are differentiable in their tensor arguments. Those add to
    ``into``, a tensor of their result's shape, and return it, where it is given.
    """

    block: Block

    def offload(self) -> None:  # noqa: B027 - an optional hook
        """Let go of what is on a device that is not the host's; it is made there again when it is
        needed, of what stays on the host."""

    def masked(self, wanted: npt.NDArray[np.uint8]) -> Adjacency:
        """The same adjacency, whose transposed products are zero but where they are ``wanted``:
        MixGCN's S-SpMM (its Equation 4), of kernels that ``masks_gradients`` says can.

        ``wanted`` is a mask of ``(S, f)`` as ``kernels.dispatch.pack_mask`` makes it.
        """
        raise TypeError(f"{type(self).__name__} takes no masks")

    @abstractmethod
    def sum(self, h: Tensor, weight: Tensor | None = None) -> Tensor:
        """``(S, f) -> (D, f)``: out[v] = sum over in-edges (u, v) of weight[e] * h[u]."""

    @abstractmethod
    def mean(self, h: Tensor) -> Tensor:
        """``(S, f) -> (D, f)``: the mean over in-edges, zero where there are none."""

    def own_and_mean(self, h: Tensor) -> Tensor:
        """``(S, f) -> (D, 2 f)``: each destination's own row, and beside it the mean."""
        return torch.cat((self.own_rows(h), self.mean(h)), dim=1)

    @torch.no_grad()
    def own_and_mean_transposed(self, g: Tensor, into: Tensor | None = None) -> Tensor:
        """``(D, 2 f) -> (S, f)``: the backward pass of ``own_and_mean`` without its forward."""
        own, mean = g.chunk(2, dim=1)
        out = self.sum_transposed(mean / self.in_degrees.clamp(min=1).unsqueeze(1), into=into)
        self.add_to_own_rows(out, own)
        return out

    def own_plus_sum(self, h: Tensor) -> Tensor:
        """``(S, f) -> (D, f)``: each destination's own row, and the sum over in-edges added."""
        return self.sum(h) + self.own_rows(h)

    @torch.no_grad()
    def own_plus_sum_transposed(self, g: Tensor, into: Tensor | None = None) -> Tensor:
        """``(D, f) -> (S, f)``: the backward pass of ``own_plus_sum`` without its forward."""
        out = self.sum_transposed(g, into=into)
        self.add_to_own_rows(out, g)
        return out

    @abstractmethod
    def sum_transposed(
        self, g: Tensor, weight: Tensor | None = None, into: Tensor | None = None
    ) -> Tensor:
        """``(D, f) -> (S, f)``: out[u] = sum over out-edges (u, v) of weight[e] * g[v].

        The backward pass of ``sum`` without its forward; not differentiable itself.
        """

    def sum_scaled(self, h: Tensor, scaling: Scaling) -> Tensor:
        """``(S, f) -> (D, f)``: out[v] = dst[v] * sum of src[u] * h[u] + own[v] * h[v]."""
        own = scaling.own.unsqueeze(1) * self.own_rows(h)
        return self.sum(h, scaling.of_edges(self)) + own

    @torch.no_grad()
    def sum_scaled_transposed(
        self, g: Tensor, scaling: Scaling, into: Tensor | None = None
    ) -> Tensor:
        """``(D, f) -> (S, f)``: the backward pass of ``sum_scaled`` without its forward."""
        out = self.sum_transposed(g, scaling.of_edges(self), into)
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
            # Not by the adjacency's own positions of edges, which it would keep, int64.
            block, device = adjacency.block, self.src.device
            sources = torch.from_numpy(np.require(block.indices, requirements="W"))
            in_edges = torch.from_numpy(np.diff(block.indptr))
            self._edges = self.src.index_select(0, sources.to(device))
            self._edges *= self.dst.repeat_interleave(in_edges.to(device))
        return self._edges


@dataclass
class Kernel(Part):
    """Aggregation and update on one device: how they are computed and what they cost."""

    kind: ClassVar[PartKind] = "kernel"
    #: Whether UPDATE of the first layer may be handed features as a sparse CSR tensor.
    takes_sparse_features: ClassVar[bool] = False
    #: Whether transposed products add to rows that they are given without making rows to add.
    adds_in_place: ClassVar[bool] = False

    def projects_first(self, layer: int, setting: Setting, mode: Mode) -> bool:
        """Whether layer ``layer`` (from 0) multiplies by W before it aggregates.

        Asked for models whose maths allows both, A (H W) = (A H) W: GCN, GraphSAGE and CommNet.
        """
        return False

    def masks_gradients(self) -> bool:
        """Whether AGGREGATE's backward pass computes only those gradients that the ReLU before it
        lets through, by ``Adjacency.masked``; asked for full graphs on the devices.

        So the mask costs no pass of its own.
        """
        return False

    def linear(
        self, a: Tensor, weight: Tensor | None, bias: Tensor, *, relu: bool, masked: bool = False
    ) -> Tensor:
        """UPDATE: ``a W + b``, or ``a + b`` without a weight, and ReLU of it where ``relu``.

        ``a`` is ``(n, f_in)``, ``weight`` ``(f_in, f_out)``, ``bias`` ``(f_out,)``; differentiable.
        ``masked`` says that the gradient will be zero wherever ReLU was: it need not be applied
        once more.
        """
        out = a + bias if weight is None else torch.addmm(bias, a, weight)
        return torch.relu_(out) if relu else out

    def multiply(self, rows: Tensor, weight: Tensor) -> Tensor:
        """``(n, f_in)`` times ``weight`` ``(f_in, f_out)``, differentiable."""
        return rows @ weight

    def multiply_sparse(self, rows: Tensor, weight: Tensor) -> Tensor:
        """A sparse CSR tensor ``(n, f_in)`` times ``weight`` ``(f_in, f_out)``; for its gradient
        only the latter counts."""
        product: Tensor = torch.sparse.mm(rows, weight)
        return product

    def adjacency_bytes(self, block: BlockSize, layer: LayerShape, itemsize: int) -> int:
        """What the adjacency of a block of this size keeps on its device once a layer has used it
        forward and backward, bytes; the tensors that can be reached from it must not be more. By
        default the CSR and its transpose, with 32-bit positions."""
        rows = block.num_dst + 1 + block.num_src + 1
        return 4 * (rows + 2 * block.num_edges + (block.num_dst if block.own else 0))

    @abstractmethod
    def adjacency(self, block: Block, dtype: torch.dtype, device: torch.device) -> Adjacency:
        """Bind a block to this kernel; the engine keeps it as long as the unit lives."""

    def expect(self, block: Block, *, backward: bool) -> None:
        """The next AGGREGATE that ``seconds`` is asked about is over ``block``, or ``backward``.

        For kernels that price more than sizes, in training and in dry runs. Where a graph is
        counted and not stored there is no block, and nobody says so.
        """

    def seconds(self, work: Work, device: Device) -> float:
        """Modelled duration of ``work`` on a described device.

        HyScale-GNN Equation 11, t_aggregate = |E| f S_feat / BW, and Equation 12, t_update =
        MACs / (N freq), with N freq = half the FLOP/s; plus the device's launch time. More work
        never takes less, and none takes less than its bytes and operations at the device's rates.
        """
        if work.op not in ("aggregate", "update"):
            raise ValueError(f"a kernel has no cost for {work.op!r}")
        traffic = work.edges * work.features * work.itemsize
        return (
            device.launch_s
            + traffic / device.aggregate_bytes_per_s(work.features, work.threads)
            + 2.0 * work.macs / device.update_flop_per_s(work.features, work.threads)
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

    def prefetch_stages(self, platform: Platform) -> Literal[0, 1, 2]:
        """Mini-batch only: in how many stages features are prefetched on this platform.

        As in ``Communication.prefetch``, which overlaps what different hardware does. A host that
        trains alone samples and loads on the cores that it trains on: where it has no core for each
        of the three, they would only wait for each other, and nothing is prefetched.
        """
        alone = self.placement.trainers(platform) == (platform.host,)
        if alone and platform.host.cores < HOST_STAGES:
            return 0
        return self.communication.prefetch

    def wants_design_phase(self, platform: Platform) -> bool:
        """Whether a few rounds before the run are to measure rates: of a host that trains alone
        and exists here, where the placement asks for it."""
        alone = self.placement.trainers(platform) == (platform.host,)
        return alone and not platform.virtual and self.placement.wants_design_phase

    def other_maths(self, platform: Platform) -> str:
        """By which design the maths differ from the reference's, in a word or two; empty where they
        are the same: devices read ``stale`` rows of each other, or get features rounded."""
        trainers = self.placement.trainers(platform)
        if self.communication.stale and len(trainers) > 1:
            return "stale"
        if self.communication.rounds_features and trainers != (platform.host,):
            return f"{self.communication.rounds_features} features"
        return ""

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
        reason = self.placement.refuse_counts(setting.platform)
        if reason is not None:
            return reason
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
        if mode == "full-graph" and self.communication.rounds_features:
            return (
                f"communication {self.communication.name!r} rounds features that cross to a "
                f"mini-batch, and sampler {self.sampler.name!r} makes full-graph units; let it "
                f"send them as they are."
            )
        if mode == "full-graph":
            reason = self._refuse_full_graph(setting)
            if reason is not None:
                return reason
        for part in self.all():
            reason = part.refuses(self, setting)
            if reason is not None:
                return reason
        return self._refuse_split(setting)

    def settle(self, setting: Setting) -> None:
        """Have every part choose what its options leave open; after ``refusal``."""
        for part in self.all():
            part.settle(self, setting)

    def begin(self, setting: Setting) -> None:
        """Let every part settle and then begin, as before a run; after ``refusal``."""
        self.settle(setting)
        for part in self.all():
            part.begin(setting)

    def _refuse_split(self, setting: Setting) -> str | None:
        """A round's draws must not depend on how it is split, or it must not be split."""
        if not isinstance(self.sampler, MiniBatchSampler) or self.sampler.split_invariant:
            return None
        count = len(self.placement.trainers(setting.platform))
        if count == 1:
            return None
        return (
            f"sampler {self.sampler.name!r} draws other neighbours for a share than for the whole "
            f"round, and placement {self.placement.name!r} splits rounds over {count} devices, "
            f"which would not be one large batch; choose placement 'single', or sampler "
            f"'neighbour'."
        )

    def _refuse_full_graph(self, setting: Setting) -> str | None:
        count = len(self.placement.trainers(setting.platform))
        if self.memory.vertex_data == "device" and count > 1 and not self.communication.moves_rows:
            return (
                f"placement {self.placement.name!r} uses {count} devices, each with its own "
                f"vertex data, and communication {self.communication.name!r} moves nothing between "
                f"them; choose communication 'halo', or placement 'single'."
            )
        reason = self._refuse_feature_shards(setting)
        return reason or _refuse_intermediates(self.memory, setting.layers)

    def _refuse_feature_shards(self, setting: Setting) -> str | None:
        """Shards by features and the all-to-all need each other, and layers that allow them."""
        placement, communication = self.placement, self.communication
        if placement.aggregates_by == "vertices":
            if not communication.exchanges:
                return None
            return (
                f"communication {communication.name!r} exchanges ranges of features for ranges of "
                f"vertices, and placement {placement.name!r} has no ranges of features; choose "
                f"placement 'mixgcn', or communication 'halo'."
            )
        if not communication.exchanges:
            return (
                f"placement {placement.name!r} shards AGGREGATE by features and UPDATE by "
                f"vertices, and communication {communication.name!r} moves whole rows; choose "
                f"communication 'mixgcn', the all-to-all between the two."
            )
        if self.memory.vertex_data == "host":
            return (
                f"placement {placement.name!r} keeps a range of features on each device, and "
                f"memory {self.memory.name!r} keeps vertex data on the host; choose memory "
                f"'resident'."
            )
        for number, layer in enumerate(setting.layers, start=1):
            if not (layer.featurewise and layer.cacheable):
                return (
                    f"placement {placement.name!r} shards AGGREGATE by features, and in layer "
                    f"{number} of model {setting.workload.model!r} it needs all features of both "
                    f"ends of an edge at once, as attention and gates do; choose a model that "
                    f"sums feature by feature (gcn, sage, gin or commnet), or a placement that "
                    f"shards by vertices."
                )
        return None


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
