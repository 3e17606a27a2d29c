"""HP-GNN's data layout, section 4.1: the order of a block's edges, and the rows of their sources.

RMT (reduce memory traffic) sorts edges by source, so that one load serves all edges of a source.
RRA (reduce random access) renames hidden vertices by the position of their stored rows and sorts by
that name. Loads of hidden rows are then sequential. A block's local numbers are such names already:
hidden rows are stored in the order of the layer below. Without RRA edges know vertices by their
ids, which are not the storage order of hidden rows. X lies in the order of ids with either.

Without both passes edges come in the order of a sampler that picks one neighbour of each vertex,
then another of each: destinations alternate. The paper does not state its baseline's order. Edges
sorted by destination would send n updates at a time to one gather PE.
"""

from dataclasses import dataclass

import numpy as np

from gnnbench.kernels import dispatch
from gnnbench.records import Block, IndexArray, IntArray

#: An edge as it lies on the board (``templates/types.h``): the memory row of its source, its
#: destination, its weight, and the kind that scatter reads.
EDGE = np.dtype([("source", "<i4"), ("destination", "<i4"), ("weight", "<f4"), ("kind", "<i4")])


@dataclass(frozen=True, slots=True, eq=False)
class EdgeStream:
    """Edges in the order in which the kernels see them: int32 ``(E,)`` sources and destinations.

    ``address`` int64 ``(S,)`` is the memory row of each source.
    """

    src: IndexArray
    dst: IndexArray
    address: IntArray
    num_dst: int


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class LaidOutBlock(Block):
    """A block of layer ``layer`` (from 0) with its edges laid out, forward and backward.

    ``destinations`` are |B^1| .. |B^L| of its mini-batch. In ``backward`` the sources are the
    block's destinations, for which gradients arrive. It is None in the first layer, since features
    need no gradient.
    """

    layer: int
    destinations: tuple[int, ...]
    forward: EdgeStream
    backward: EdgeStream | None

    @property
    def topology_bytes(self) -> int:
        """Bytes sent to the board: all edges in coordinate format, once for each pass."""
        directions = 1 if self.backward is None else 2
        return directions * self.num_edges * EDGE.itemsize


def lay_out(
    block: Block,
    layer: int,
    destinations: tuple[int, ...],
    *,
    rmt: bool,
    rra: bool,
    resident: bool,
) -> LaidOutBlock:
    """Return the block with its edge streams.

    With ``resident`` X lies in the board's memory, row v at v. Otherwise a mini-batch's rows of X
    are sent, and lie in the order of their ids.
    """
    positions = np.arange(block.num_src, dtype=np.int64)
    first = layer == 0
    sort = rmt or (rra and not first)
    names = positions if rra and not first else block.src_ids
    address = positions
    if first:
        address = block.src_ids if resident else _rank(block.src_ids)
    src, dst = _by_source(block, names) if sort else _side_by_side(block)
    forward = EdgeStream(src, dst, address, block.num_dst)
    backward = None
    if not first:
        if not sort:
            dst, src = _side_by_side(block)
        elif rra:
            dst, src = _in_rows(block)
        else:
            dst, src = _in_rows(block, np.argsort(block.dst_ids, kind="stable"))
        backward = EdgeStream(src, dst, positions[: block.num_dst], block.num_src)
    return LaidOutBlock(
        block.src_ids,
        block.num_dst,
        block.indptr,
        block.indices,
        own=block.own,
        layer=layer,
        destinations=destinations,
        forward=forward,
        backward=backward,
    )


def _places(order: IntArray) -> IntArray:
    """Return the position of each number in a permutation."""
    places = np.empty(len(order), dtype=np.int64)
    places[order] = np.arange(len(order))
    return places


def _rank(values: IntArray) -> IntArray:
    """Return the ascending rank of each value."""
    return _places(np.argsort(values, kind="stable"))


def _by_source(block: Block, names: IntArray) -> tuple[IndexArray, IndexArray]:
    """Sort edges by the sources' names; a source's edges stay in the order of the block."""
    order = np.argsort(names, kind="stable")
    renamed = _places(order).astype(np.int32)[block.indices]
    src, dst, _ = dispatch.sort_edges_by_source(block.indptr, renamed)
    return order.astype(np.int32)[src], dst


def _side_by_side(block: Block) -> tuple[IndexArray, IndexArray]:
    """Return the first edge of every destination, then every second edge, and so on."""
    src, dst = _in_rows(block)
    turn = np.arange(block.num_edges, dtype=np.int64) - block.indptr[dst]
    order = np.argsort(turn, kind="stable")
    return src[order], dst[order]


def _in_rows(block: Block, rows: IntArray | None = None) -> tuple[IndexArray, IndexArray]:
    """Return edges destination by destination, in block order or in the order ``rows``."""
    degrees = np.diff(block.indptr)
    dst = np.repeat(np.arange(block.num_dst, dtype=np.int32), degrees)
    if rows is None:
        return block.indices, dst
    order = np.argsort(_places(rows)[dst], kind="stable")
    return block.indices[order], dst[order]
