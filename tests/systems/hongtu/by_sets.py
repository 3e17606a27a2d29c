"""HongTu's volumes and orders of chunks that are given by their sets of neighbours."""

from gnnbench_plugins.hongtu.search import MAX_SWEEPS, descend
from gnnbench_plugins.hongtu.volumes import (
    NeighbourSets,
    Order,
    Throughputs,
    Volumes,
    mark_chunks,
    regroup,
    volumes_of,
)


def count_volumes(sets: NeighbourSets, num_vertices: int) -> Volumes:
    """Return V_ori, V_+p2p and V_+ru of chunks that run in the order of ``sets``."""
    as_given = [list(range(len(row))) for row in sets]
    return volumes_of(mark_chunks(sets, num_vertices), as_given)


def arrange(sets: NeighbourSets, order: Order) -> NeighbourSets:
    """Return the sets in the order in which their chunks run."""
    return [[row[k] for k in ks] for row, ks in zip(sets, order, strict=True)]


def reorganise(sets: NeighbourSets, num_vertices: int) -> Order:
    """Apply Algorithm 4 to chunks given by their sets; see :func:`regroup`."""
    return regroup(mark_chunks(sets, num_vertices))


def improve(
    sets: NeighbourSets,
    order: Order,
    num_vertices: int,
    rates: Throughputs,
    max_sweeps: int = MAX_SWEEPS,
) -> Order:
    """Return an improved order of chunks given by their sets; see :func:`descend`."""
    return descend(mark_chunks(sets, num_vertices), order, rates, max_sweeps)
