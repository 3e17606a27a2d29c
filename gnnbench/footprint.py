"""What a run holds where, from sizes alone: of full graphs, HongTu §4.2 and §4.3, and mini-batches.

The engine allocates by these functions, so that a plan made without training says what a run will
hold. Sizes are those of the tensors; ``itemsize`` is the size of one element, bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from gnnbench.constants import Bound
from gnnbench.parts import Intermediates, Kernel, LayerShape
from gnnbench.records import BatchProfile, Block, BlockSize, BufferRows

# --------------------------------------------------------------------------- a device


@dataclass(frozen=True, slots=True)
class ChunkSize:
    """One chunk: |N_ij| sources (its destinations are among them), |V_ij| destinations and |E_ij|
    edges.

    Its input rows stand in a buffer that its device keeps over the rounds, with ``relayed`` rows
    more than the chunk reads, and beside it ``transition`` rows for peers where the two are not
    merged; or they come for this chunk alone (not ``buffered``).
    """

    num_src: int
    num_dst: int
    num_edges: int
    relayed: int = 0
    transition: int = 0
    buffered: bool = True

    @property
    def rows(self) -> int:
        """The input rows that a kernel is handed."""
        return self.num_src + self.relayed

    @property
    def topology_bytes(self) -> int:
        """The local CSR with 32-bit indices, and where destinations stand in a buffer."""
        positions = self.num_dst if self.buffered else 0
        return 4 * (self.num_dst + 1 + self.num_edges + positions)


#: Rows that cross between memories do so at most this many bytes at a time, so that what has
#: crossed and is not in its place yet is small; a copy of a mebibyte has a link's full bandwidth.
STAGED_BYTES: Bound[int] = 1 << 20


def staged_rows(rows: int, row_bytes: int) -> int:
    """How many of a buffer's ``rows`` cross at a time: ``STAGED_BYTES``, or an eighth of them."""
    return max(1, min(-(-rows // 8), STAGED_BYTES // max(1, row_bytes)))


def size_of(block: Block | BlockSize, rows: BufferRows | None = None) -> ChunkSize:
    """A chunk's size, from its block and its device's buffers, if it has any."""
    if rows is None:
        return ChunkSize(block.num_src, block.num_dst, block.num_edges, buffered=False)
    return ChunkSize(
        block.num_src,
        block.num_dst,
        block.num_edges,
        rows.neighbour - block.num_src,
        rows.transition or 0,
    )


def staging_bytes(rows: int, row_bytes: int) -> int:
    """Of a buffer of so many rows, those that have crossed, or are about to, outside of it."""
    return min(rows, staged_rows(rows, row_bytes)) * row_bytes


def adjacency_bytes(
    layers: Sequence[LayerShape], chunk: ChunkSize, itemsize: int, kernel: Kernel
) -> int:
    """What a device keeps of a chunk's topology for the whole run: the kernel's adjacency, and the
    constants of sources, destinations and edges, which all layers of a model share."""

    def size_of(shape: LayerShape) -> BlockSize:
        loops = chunk.num_dst if shape.loop_features else 0
        return BlockSize(chunk.rows, chunk.num_dst, chunk.num_edges + loops, chunk.buffered)

    return max(
        kernel.adjacency_bytes(size_of(shape), shape, itemsize)
        + shape.source_factors * chunk.rows * itemsize
        + shape.destination_factors * chunk.num_dst * itemsize
        + shape.edge_factors * chunk.num_edges * itemsize
        for shape in layers
    )


def reads_topology(policy: Intermediates, shape: LayerShape, *, first: bool) -> bool:
    """Whether a layer's backward pass needs the topology: not where the aggregate is still there
    and the features' gradient is nobody's need."""
    return not (first and shape.cacheable and policy in ("cache", "keep"))


def crossing_topology_bytes(
    shape: LayerShape, chunk: ChunkSize, itemsize: int, *, backward: bool
) -> int:
    """What crosses of a chunk's topology that is not on its device: the CSR and the constants of
    its vertices and edges, and backward the transpose and which edge each of its edges is."""
    loops = chunk.num_dst if shape.loop_features else 0
    size = chunk.topology_bytes + 4 * loops
    factors = shape.source_factors * chunk.num_src + shape.destination_factors * chunk.num_dst
    factors += shape.edge_factors * chunk.num_edges
    if backward:
        size += 4 * (chunk.num_src + 1) + 8 * (chunk.num_edges + loops)
    return size + factors * itemsize


#: What the backward pass of a sum with trained weights makes of messages: the gradients of the
#: weighted ones, of the rows that they were, and of the weights, before a row's are added up.
MESSAGE_GRADIENTS: Bound[int] = 3


def message_bytes(shape: LayerShape, chunk: ChunkSize, itemsize: int) -> int:
    """A row for each edge and added self loop, of a kernel that writes them before it adds them
    up. They are kept as they were picked, and weighted once more while they are added."""
    loops = chunk.num_dst if shape.loop_features else 0
    return (chunk.num_edges + loops) * shape.message_features * itemsize


def intermediate_bytes(shape: LayerShape, chunk: ChunkSize, itemsize: int) -> int:
    """What AGGREGATE and UPDATE make, and the backward pass needs.

    The aggregate and the output of every destination; where AGGREGATE has parameters, the
    projected row of every source besides, the values on every edge and added self loop, and the
    kernel's messages.
    """
    elements = chunk.num_dst * (
        shape.aggregate_features + shape.out_features + shape.hidden_features
    )
    if not shape.cacheable:
        elements += chunk.rows * shape.aggregate_features
        elements += chunk.num_edges * shape.edge_features + chunk.num_dst * shape.loop_features
    return elements * itemsize + message_bytes(shape, chunk, itemsize)


def gradient_bytes(shape: LayerShape, chunk: ChunkSize, itemsize: int, *, first: bool) -> int:
    """What the backward pass of a chunk makes, but for the gradients of its input rows.

    The output's gradient, as it came and behind the activation, that of what is between UPDATE's
    products, and the aggregate's, unless nobody needs it.
    """
    elements = chunk.num_dst * (2 * shape.out_features + shape.hidden_features)
    if not (first and shape.cacheable):
        elements += chunk.num_dst * shape.aggregate_features
    if not shape.cacheable:
        values = chunk.num_edges * shape.edge_features + chunk.num_dst * shape.loop_features
        projected = (2 * chunk.rows - chunk.num_dst) * shape.aggregate_features
        # Autograd adds up the gradients of a projected row's uses; before that, an edge's message
        # has one beside those of its values.
        elements += values + max(values // 2, projected)
    return elements * itemsize + MESSAGE_GRADIENTS * message_bytes(shape, chunk, itemsize)


def saved_bytes(shape: LayerShape, chunk: ChunkSize, itemsize: int) -> int:
    """The most that autograd saves of a layer with parameters in AGGREGATE: the input rows, the
    destinations' own ones among them once more, and the intermediates."""
    rows = (chunk.rows + chunk.num_dst) * shape.in_features * itemsize
    return rows + intermediate_bytes(shape, chunk, itemsize)


def adds_apart(shape: LayerShape, chunk: ChunkSize, kernel: Kernel) -> bool:
    """Whether the gradients of a chunk's input rows are made beside the buffer that they are added
    to: by autograd, and by kernels that do not add in place."""
    return chunk.buffered and not (shape.cacheable and kernel.adds_in_place)


# --------------------------------------------------------------------------- shards on devices


def kept_bytes(
    shape: LayerShape, chunks: Iterable[ChunkSize], itemsize: int, *, copied: bool
) -> int:
    """What a device keeps of a layer from forward to backward where vertex data lives on devices:
    the intermediates of all its chunks, and the input rows that autograd needs.

    ``copied`` says that input rows were put together for each chunk, out of several shards.
    """
    held = 0
    for chunk in chunks:
        held += intermediate_bytes(shape, chunk, itemsize)
        if copied and not shape.cacheable:
            held += chunk.rows * shape.in_features * itemsize
    return held


def mask_bytes(num_rows: int, width: int) -> int:
    """A bit for each element, rows beginning at bytes: which outputs of AGGREGATE are wanted."""
    return num_rows * -(-width // 8)


def in_flight_bytes(
    shape: LayerShape,
    chunk: ChunkSize,
    num_rows: tuple[int, int],
    itemsize: int,
    *,
    backward: bool,
    first: bool,
    copied: bool,
) -> int:
    """What a device holds besides while it works on one chunk of a layer.

    Forward, the input rows, if they are ``copied`` and not kept anyway, and weighted messages.
    Backward, the gradients of the ``num_rows`` that it has of this layer and of the one below, of
    the chunk's intermediates and, if they are added to shards afterwards, of its input rows.
    """
    rows = chunk.rows * shape.in_features * itemsize
    messages = message_bytes(shape, chunk, itemsize)
    if not backward:
        return messages + (rows if copied and shape.cacheable else 0)
    above, below = num_rows
    held = above * shape.out_features * itemsize + intermediate_bytes(shape, chunk, itemsize)
    held += (MESSAGE_GRADIENTS - 1) * messages
    if not first:
        held += below * shape.in_features * itemsize + (rows if copied else 0)
    return held


# --------------------------------------------------------------------------- the host

HostKind = Literal["intermediates", "representations", "gradients", "features"]
#: What goes to disk first: intermediates are written once and read once in an epoch;
#: representations are read once for every chunk that knows them; gradients are cleared, read and
#: written as often, and read again; features are read by the widest layer, and never change.
SPILLING_ORDER: tuple[HostKind, ...] = ("intermediates", "representations", "gradients", "features")


@dataclass(frozen=True, slots=True)
class HostTensor:
    """One tensor on the host that lives as long as the run.

    ``layers`` are those it serves, h^0 being layer 0. Of saved intermediates, which are made
    tensor by tensor, ``size_bytes`` is the most that they can be.
    """

    kind: HostKind
    what: str
    layers: tuple[int, ...]
    size_bytes: int

    @property
    def name(self) -> str:
        """``"gradients of layers 1, 3"``."""
        numbers = ", ".join(str(number) for number in self.layers)
        return f"{self.what} of layer{'s' if len(self.layers) > 1 else ''} {numbers}"


def host_tensors(
    layers: Sequence[LayerShape],
    policies: Sequence[Intermediates],
    *,
    num_vertices: int,
    num_sources: int,
    num_edges: int,
    itemsize: int,
    own_features: bool,
) -> tuple[HostTensor, ...]:
    """Algorithm 1, line 3, and §4.2: h^0 .. h^L, two gradient buffers, and cached aggregates or
    saved intermediates.

    ``num_sources`` is the sum of |N_ij| over all chunks, (1 + alpha)|V|. Going back, layer l + 1's
    gradients are read while layer l's are accumulated, and nobody needs those before or after; so
    layers share two buffers by turns. ``own_features`` says whether h^0 is a copy of the data
    set's features, in another type or form, or that very array.
    """
    depth, row = len(layers), num_vertices * itemsize
    found: list[HostTensor] = []
    if own_features:
        width = layers[0].in_features
        found.append(HostTensor("features", "representations", (0,), row * width))
    everything = ChunkSize(num_sources, num_vertices, num_edges)
    for number, (shape, policy) in enumerate(zip(layers, policies, strict=True), start=1):
        found.append(
            HostTensor("representations", "representations", (number,), row * shape.out_features)
        )
        if policy == "cache":
            size = row * shape.aggregate_features
            found.append(HostTensor("intermediates", "cached aggregates", (number,), size))
        elif policy == "offload":
            size = saved_bytes(shape, everything, itemsize)
            found.append(HostTensor("intermediates", "saved intermediates", (number,), size))
    for last in (depth, depth - 1):
        served = tuple(number for number in range(1, depth + 1) if (last - number) % 2 == 0)
        if last and served:
            width = max(layers[number - 1].out_features for number in served)
            found.append(HostTensor("gradients", "gradients", served, row * width))
    return tuple(found)


def layer_buffers(
    layers: Sequence[LayerShape], num_vertices: int, itemsize: int
) -> tuple[HostTensor, ...]:
    """What a forward pass over the whole graph holds: two buffers, which layers share by turns."""
    found = []
    for first in (1, 2):
        served = tuple(range(first, len(layers) + 1, 2))
        if served:
            width = max(layers[number - 1].out_features for number in served)
            size = num_vertices * width * itemsize
            found.append(HostTensor("representations", "representations", served, size))
    return tuple(found)


def choose_spilled(tensors: Sequence[HostTensor], budget_bytes: int) -> tuple[HostTensor, ...]:
    """Which of ``tensors``, in their order, go to disk so that the rest fits ``budget_bytes``.

    By ``SPILLING_ORDER``, the larger first, until the rest fits; then whatever fits after all, the
    last chosen first, comes back.
    """
    order = sorted(tensors, key=lambda t: (SPILLING_ORDER.index(t.kind), -t.size_bytes, t.layers))
    kept_bytes = sum(tensor.size_bytes for tensor in tensors)
    spilled: list[HostTensor] = []
    for tensor in order:
        if kept_bytes <= budget_bytes:
            break
        spilled.append(tensor)
        kept_bytes -= tensor.size_bytes
    for tensor in tuple(reversed(spilled)):
        if kept_bytes + tensor.size_bytes <= budget_bytes:
            spilled.remove(tensor)
            kept_bytes += tensor.size_bytes
    return tuple(tensor for tensor in tensors if tensor in spilled)


# --------------------------------------------------------------------------- mini-batches

#: By the depth of feature prefetching (HyScale-GNN §IV-B), how many rounds may be under way at
#: once: as many as pipeline stages, or one.
ROUNDS_UNDER_WAY: Mapping[int, int] = {0: 1, 1: 3, 2: 4}
#: Buffers of input rows on a device: the one in use, and the one being filled.
DEVICE_BUFFERS: Mapping[int, int] = {0: 1, 1: 2, 2: 2}


def sparse_bytes(num_rows: float, num_values: float, itemsize: int) -> float:
    """Feature rows as a sparse CSR tensor, with 32-bit positions."""
    return num_values * (itemsize + 4) + 4 * (num_rows + 1)


def reserved_bytes(
    layers: Sequence[LayerShape], whole: BatchProfile, itemsize: int, prefetch: int
) -> int:
    """What a device keeps free of a cache for its mini-batches: those that are there at once, each
    as large as a ``whole`` round, and an eighth more, since rounds differ. What crosses of the rows
    of one of them waits beside those that it becomes part of."""
    size = mini_batch_bytes(
        layers, whole.vertices, whole.edges, itemsize, prepared=1 + ROUNDS_UNDER_WAY[prefetch]
    )
    return size + size // 8


def layer_bytes(
    shape: LayerShape, chunk: ChunkSize, itemsize: int, *, first: bool
) -> tuple[int, int]:
    """Of one layer of a mini-batch: what is made of it and stays for its backward pass, and the
    gradients that are in flight then."""
    below = 0 if first else chunk.rows * shape.in_features * itemsize
    if not shape.cacheable:
        made = intermediate_bytes(shape, chunk, itemsize)
        return made, below + gradient_bytes(shape, chunk, itemsize, first=first)
    row = chunk.num_dst * itemsize
    made = row * (shape.aggregate_features + shape.out_features)
    return made, below + row * shape.aggregate_features


def mini_batch_bytes(
    layers: Sequence[LayerShape],
    vertices: Sequence[int],
    edges: Sequence[int],
    itemsize: int,
    *,
    prepared: int,
) -> int:
    """The most that a device holds for mini-batches of |V^0| .. |V^L| ``vertices`` and |E^1| ..
    |E^L| ``edges``, with the topology and input rows of ``prepared`` of them there at once.

    Beside them one that is trained on: what is made of every layer, the logits and their gradient,
    and the largest layer's gradients in flight.
    """
    sources, destinations = vertices[:-1], vertices[1:]
    topology = sum(
        4 * (d + 1 + (1 + shape.edge_factors) * e)
        for shape, d, e in zip(layers, destinations, edges, strict=True)
    )
    rows = vertices[0] * layers[0].in_features * itemsize
    made = in_flight = 0
    for number, sizes in enumerate(zip(sources, destinations, edges, strict=True)):
        chunk = ChunkSize(*sizes, buffered=False)
        stays, gradients = layer_bytes(layers[number], chunk, itemsize, first=number == 0)
        made, in_flight = made + stays, max(in_flight, gradients)
    logits = 2 * vertices[-1] * layers[-1].out_features * itemsize
    return prepared * (topology + rows) + made + in_flight + logits
