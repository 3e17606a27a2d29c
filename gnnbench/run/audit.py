"""A check of each mini-batch's vertices and number of edges against its sampler's statement.

Whether the neighbours are drawn by the law ``UNIFORM`` is checked in ``draws``.
"""

from __future__ import annotations

import numpy as np

from gnnbench.kernels.dispatch import find_edges
from gnnbench.parts import UNIFORM, MiniBatchSampler, Setting
from gnnbench.records import Block, Graph, IntArray, Unit, Workload


def is_uniform(sampler: MiniBatchSampler, workload: Workload) -> bool:
    """Return whether a sampler states that it draws by the law ``UNIFORM``.

    Its rows are ranked by this statement.
    """
    return UNIFORM in sampler.sampling(workload)


def find_unit_fault(
    unit: Unit, seeds: IntArray, sampler: MiniBatchSampler, setting: Setting, *, edges: bool
) -> str | None:
    """Return what is wrong with a mini-batch for ``seeds``, as a sentence, or None.

    Its last destinations are the seeds, and each block's destinations are the sources of the next.
    Under the law ``UNIFORM`` every destination has min(fan-out, degree) in-edges. With ``edges``
    each edge must be one of the graph's, and none occurs twice.
    """
    graph, layers = setting.dataset.graph, setting.workload.num_layers
    uniform = is_uniform(sampler, setting.workload)
    if uniform and sampler.scales_edges:
        return f"sampler {sampler.name!r} says that it draws {UNIFORM}, and scales edges"
    if len(unit.blocks) != layers:
        return f"a mini-batch has {len(unit.blocks)} blocks for {layers} layers"
    if not np.array_equal(unit.output_ids, seeds):
        return "a mini-batch computes other vertices than its seeds"
    for below, above in zip(unit.blocks, unit.blocks[1:], strict=False):
        if not np.array_equal(below.dst_ids, above.src_ids):
            return "the destinations of a block are not the sources of the next, in order"
    for depth, block in enumerate(reversed(unit.blocks)):
        drawn = np.diff(block.indptr)
        due = graph.find_degrees(block.dst_ids)
        if uniform:
            fanout = setting.workload.fanouts[depth]
            due = np.minimum(due, fanout) if fanout else due
            wrong = np.flatnonzero(drawn != due)
        else:
            wrong = np.flatnonzero(drawn > due)
        if len(wrong):
            row = int(wrong[0])
            return (
                f"vertex {block.dst_ids[row]} has {drawn[row]} in-edges where sampler "
                f"{sampler.name!r} says that it draws {due[row]}"
            )
        if edges and not has_edges(graph, block, setting.workload.threads):
            return "a block has an in-edge twice, or one that the graph does not have"
    return None


def has_edges(graph: Graph, block: Block, threads: int = 0) -> bool:
    """Return whether a block's edges are edges of the graph, and no edge or source occurs twice."""
    places = find_edges(graph.indptr, graph.indices, block, threads=threads)
    if (places < 0).any() or not _are_vertices(block.src_ids, graph.num_vertices):
        return False
    return _ascend_in_rows(places, block) or _are_distinct(places)


def _are_distinct(numbers: IntArray) -> bool:
    """Return whether no number occurs twice; sorting is faster than NumPy's ``unique``."""
    ordered = np.sort(numbers)
    return not (ordered[1:] == ordered[:-1]).any()


def _are_vertices(ids: IntArray, num_vertices: int) -> bool:
    """Return whether ``ids`` are vertices, each of them once.

    Only their own entries of the table are written, so a large graph costs no more.
    """
    if len(ids) and not 0 <= ids.min() <= ids.max() < num_vertices:
        return False
    numbers, table = np.arange(len(ids)), np.empty(num_vertices, dtype=np.int64)
    table[ids] = numbers
    return np.array_equal(table[ids], numbers)


def _ascend_in_rows(places: IntArray, block: Block) -> bool:
    """Return whether the positions ascend in each row, as they do for edges in row order."""
    ascends = places[1:] > places[:-1]
    begins = block.indptr[1:-1]
    ascends[begins[(begins > 0) & (begins < len(places))] - 1] = True
    return bool(ascends.all())
