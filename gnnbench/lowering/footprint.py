"""The memory of a run, from sizes alone: full graphs (HongTu §4.2 and §4.3) and mini-batches.

The engine allocates by these functions, so a plan without training states what a run will hold.
Sizes are those of the tensors; ``itemsize`` is the size of one element, bytes.
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
    """The size of one chunk: |N_ij| sources, |V_ij| destinations and |E_ij| edges.

    Sources include the destinations.

    If ``buffered``, its input rows stand in a buffer that its device keeps over the rounds. The
    buffer has ``relayed`` rows more than the chunk reads. ``transition`` rows for peers stand
    beside it if the two are not merged. If not ``buffered``, the input rows come for this chunk
    alone.
    """

    num_src: int
    num_dst: int
    num_edges: int
    relayed: int = 0
    transition: int = 0
    buffered: bool = True

    @property
    def rows(self) -> int:
        """The number of input rows that a kernel receives."""
        return self.num_src + self.relayed

    @property
    def topology_bytes(self) -> int:
        """The bytes of the local CSR with 32-bit indices.

        They include the destinations' positions in a buffer.
        """
        positions = self.num_dst if self.buffered else 0
        return 4 * (self.num_dst + 1 + self.num_edges + positions)


#: The most bytes that cross between memories at a time. Few rows then wait outside their place, and
#: a copy of a mebibyte still reaches a link's full bandwidth.
STAGED_BYTES: Bound[int] = 1 << 20


def staged_rows(rows: int, row_bytes: int) -> int:
    """Return how many of a buffer's ``rows`` are transferred at a time.

    They are ``STAGED_BYTES``, or an eighth of the rows.
    """
    return max(1, min(-(-rows // 8), STAGED_BYTES // max(1, row_bytes)))


def size_of(block: Block | BlockSize, rows: BufferRows | None = None) -> ChunkSize:
    """Return a chunk's size, from its block and its device's buffers, if it has any."""
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
    """Return the bytes of a buffer's rows that are staged outside of it during a transfer."""
    return min(rows, staged_rows(rows, row_bytes)) * row_bytes


def adjacency_bytes(
    layers: Sequence[LayerShape], chunk: ChunkSize, itemsize: int, kernel: Kernel
) -> int:
    """Return the bytes of a chunk's topology that a device keeps for the whole run.

    They are the kernel's adjacency, and the constants of sources, destinations and edges, which all
    layers of a model share.
    """

    def size_of(shape: LayerShape) -> BlockSize:
        loops = chunk.num_dst if shape.on_edges.of_loops else 0
        return BlockSize(chunk.rows, chunk.num_dst, chunk.num_edges + loops, chunk.buffered)

    return max(
        kernel.adjacency_bytes(size_of(shape), shape, itemsize)
        + shape.factors.sources * chunk.rows * itemsize
        + shape.factors.destinations * chunk.num_dst * itemsize
        + shape.factors.edges * chunk.num_edges * itemsize
        for shape in layers
    )


def reads_topology(policy: Intermediates, shape: LayerShape, *, first: bool) -> bool:
    """Return whether a layer's backward pass needs the topology.

    It does not if the aggregate is still there and the features' gradient is unused.
    """
    return not (first and shape.cacheable and policy in ("cache", "keep"))


def crossing_topology_bytes(
    shape: LayerShape, chunk: ChunkSize, itemsize: int, *, backward: bool
) -> int:
    """Return the bytes that are transferred for a chunk's topology that is not on its device.

    They are the CSR and the constants of its vertices and edges. The backward pass adds the
    transpose and the edge of each of its entries.
    """
    loops = chunk.num_dst if shape.on_edges.of_loops else 0
    size = chunk.topology_bytes + 4 * loops
    factors = shape.factors.sources * chunk.num_src + shape.factors.destinations * chunk.num_dst
    factors += shape.factors.edges * chunk.num_edges
    if backward:
        size += 4 * (chunk.num_src + 1) + 8 * (chunk.num_edges + loops)
    return size + factors * itemsize


#: Tensors of messages in the backward pass of a sum with trained weights: the gradients of the
#: weighted messages, of the messages before weighting, and of the weights before a row's are
#: summed.
MESSAGE_GRADIENTS: Bound[int] = 3


def message_bytes(shape: LayerShape, chunk: ChunkSize, itemsize: int) -> int:
    """Return the bytes of a row for each edge, in a kernel that writes messages.

    Self-loops that a layer adds count as edges. Messages are kept as gathered, and weighted once
    more while they are summed.
    """
    loops = chunk.num_dst if shape.on_edges.of_loops else 0
    return (chunk.num_edges + loops) * shape.on_edges.messages * itemsize


def intermediate_bytes(shape: LayerShape, chunk: ChunkSize, itemsize: int) -> int:
    """Return the bytes of AGGREGATE's and UPDATE's results that the backward pass needs.

    They are the aggregate and the output of every destination. If AGGREGATE has parameters, they
    include the projected row of every source, the values on every edge and added self loop, and the
    kernel's messages.
    """
    elements = chunk.num_dst * (
        shape.aggregate_features + shape.out_features + shape.hidden_features
    )
    if not shape.cacheable:
        elements += chunk.rows * shape.aggregate_features
        elements += chunk.num_edges * shape.on_edges.kept + chunk.num_dst * shape.on_edges.of_loops
    return elements * itemsize + message_bytes(shape, chunk, itemsize)


def gradient_bytes(shape: LayerShape, chunk: ChunkSize, itemsize: int, *, first: bool) -> int:
    """Return the bytes of gradients in the backward pass of a chunk.

    The gradients of its input rows are not included.

    They are the output's gradient, before and after the activation's backward pass, the gradient
    between UPDATE's products, and the aggregate's, if it is used.
    """
    elements = chunk.num_dst * (2 * shape.out_features + shape.hidden_features)
    if not (first and shape.cacheable):
        elements += chunk.num_dst * shape.aggregate_features
    if not shape.cacheable:
        values = chunk.num_edges * shape.on_edges.kept + chunk.num_dst * shape.on_edges.of_loops
        projected = (2 * chunk.rows - chunk.num_dst) * shape.aggregate_features
        # Autograd sums the gradients of a projected row's uses. Before that, an edge's message has
        # a gradient beside those of its values.
        elements += values + max(values // 2, projected)
    return elements * itemsize + MESSAGE_GRADIENTS * message_bytes(shape, chunk, itemsize)


def saved_bytes(shape: LayerShape, chunk: ChunkSize, itemsize: int) -> int:
    """Return the most bytes that autograd saves of a layer with parameters in AGGREGATE.

    They are the input rows, a second copy of the destinations' own rows, and the intermediates.
    """
    rows = (chunk.rows + chunk.num_dst) * shape.in_features * itemsize
    return rows + intermediate_bytes(shape, chunk, itemsize)


def adds_apart(shape: LayerShape, chunk: ChunkSize, kernel: Kernel) -> bool:
    """Return whether the gradients of a chunk's input rows are made outside their buffer.

    They are then added to the buffer. Autograd does so, and kernels that do not add in place.
    """
    return chunk.buffered and not (shape.cacheable and kernel.adds_in_place)


# --------------------------------------------------------------------------- shards on devices


def kept_bytes(
    shape: LayerShape, chunks: Iterable[ChunkSize], itemsize: int, *, copied: bool
) -> int:
    """Return the bytes of a layer that a device keeps from forward to backward.

    Vertex data is on the devices. The bytes are the intermediates of all its chunks, and the input
    rows that autograd needs.

    ``copied`` says that input rows were assembled for each chunk from several shards.
    """
    held = 0
    for chunk in chunks:
        held += intermediate_bytes(shape, chunk, itemsize)
        if copied and not shape.cacheable:
            held += chunk.rows * shape.in_features * itemsize
    return held


def mask_bytes(num_rows: int, width: int) -> int:
    """Return the bytes of a mask with a bit for each element; rows begin at bytes.

    A set bit requests an output of AGGREGATE.
    """
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
    """Return the further bytes that a device holds while it works on one chunk of a layer.

    Forward they are the input rows, if ``copied`` and not kept anyway, and weighted messages.
    Backward they are the gradients of the ``num_rows`` of this layer and of the one below, and of
    the chunk's intermediates. If gradients of input rows are added to shards afterwards, they count
    too.
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
#: The order in which tensors go to disk. Intermediates are written once and read once in an epoch.
#: Representations are read once for every chunk that has them among its sources. Gradients are
#: cleared, read and written as often, and read again. Features are read by the widest layer, and
#: never change.
SPILLING_ORDER: tuple[HostKind, ...] = ("intermediates", "representations", "gradients", "features")


@dataclass(frozen=True, slots=True)
class HostTensor:
    """One tensor on the host that exists for the whole run.

    ``layers`` are the layers that it serves, with h^0 as layer 0. For saved intermediates, which
    are made tensor by tensor, ``size_bytes`` is an upper bound.
    """

    kind: HostKind
    what: str
    layers: tuple[int, ...]
    size_bytes: int

    @property
    def name(self) -> str:
        """The tensor's name, such as ``"gradients of layers 1, 3"``."""
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
    """Return the tensors of Algorithm 1, line 3, and §4.2.

    They are h^0 .. h^L, two gradient buffers, and cached aggregates or saved intermediates.

    ``num_sources`` is the sum of |N_ij| over all chunks, (1 + alpha)|V|. The backward pass reads
    layer l + 1's gradients while it accumulates layer l's. These are unused before and after, so
    layers alternate between two buffers. ``own_features`` says whether h^0 is a copy of the data
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
    """Return the two buffers of a forward pass over the whole graph.

    Layers alternate between them.
    """
    found = []
    for first in (1, 2):
        served = tuple(range(first, len(layers) + 1, 2))
        if served:
            width = max(layers[number - 1].out_features for number in served)
            size = num_vertices * width * itemsize
            found.append(HostTensor("representations", "representations", served, size))
    return tuple(found)


def choose_spilled(tensors: Sequence[HostTensor], budget_bytes: int) -> tuple[HostTensor, ...]:
    """Return which of ``tensors`` go to disk so that the rest fits ``budget_bytes``.

    The result is in their order.

    Tensors are chosen by ``SPILLING_ORDER``, the larger first, until the rest fits. Then tensors
    that fit after all come back, the last chosen first.
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

#: The most rounds in flight, by the depth of feature prefetching (HyScale-GNN §IV-B): the number of
#: pipeline stages, or one.
ROUNDS_UNDER_WAY: Mapping[int, int] = {0: 1, 1: 3, 2: 4}
#: Buffers of input rows on a device: the one in use, and the one being filled.
DEVICE_BUFFERS: Mapping[int, int] = {0: 1, 1: 2, 2: 2}


def sparse_bytes(num_rows: float, num_values: float, itemsize: int) -> float:
    """Return the bytes of feature rows as a sparse CSR tensor, with 32-bit positions."""
    return num_values * (itemsize + 4) + 4 * (num_rows + 1)


def reserved_bytes(
    layers: Sequence[LayerShape], whole: BatchProfile, itemsize: int, prefetch: int
) -> int:
    """Return the bytes that a device keeps free of a cache for mini-batches.

    These are the mini-batches that it holds at once. Each is as large as a ``whole`` round, with an
    eighth more, since rounds differ. Rows of one mini-batch in flight wait beside the rows already
    in place.
    """
    size = mini_batch_bytes(
        layers, whole.vertices, whole.edges, itemsize, prepared=1 + ROUNDS_UNDER_WAY[prefetch]
    )
    return size + size // 8


def layer_bytes(
    shape: LayerShape, chunk: ChunkSize, itemsize: int, *, first: bool
) -> tuple[int, int]:
    """Return the bytes of one layer of a mini-batch.

    They are its results that stay for its backward pass, and the gradients in flight during that
    pass.
    """
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
    """Return the most bytes that a device holds for mini-batches.

    Their sizes are |V^0| .. |V^L| ``vertices`` and |E^1| .. |E^L| ``edges``. The topology and input
    rows of ``prepared`` mini-batches are held at once.

    The mini-batch in training comes on top. It holds the results of every layer, the logits and
    their gradient, and the largest layer's gradients in flight.
    """
    sources, destinations = vertices[:-1], vertices[1:]
    topology = sum(
        4 * (d + 1 + (1 + shape.factors.edges) * e)
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
