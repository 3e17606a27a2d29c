"""Whether mini-batches are what their sampler says that it draws.

Counts, places and repetitions of neighbours are held against the law ``UNIFORM``, by which rows are
ranked side by side; the distribution itself is tested where a plugin is checked.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from gnnbench.kernels.dispatch import find_edges
from gnnbench.parts import UNIFORM, MiniBatchSampler, Setting
from gnnbench.records import Block, Graph, IntArray, Unit, Workload

#: How many standard deviations a count may be off what chance makes of it: two in a billion are
#: further off.
LOPSIDED = 6.0
#: The chance of that.
CHANCE = 2e-9

Values = NDArray[np.float64]


def is_uniform(sampler: MiniBatchSampler, workload: Workload) -> bool:
    """Whether a sampler says that it draws by the law ``UNIFORM``, in the words that its rows are
    ranked by."""
    return UNIFORM in sampler.sampling(workload)


def find_unit_fault(
    unit: Unit, seeds: IntArray, sampler: MiniBatchSampler, setting: Setting, *, edges: bool
) -> str | None:
    """What is wrong with a mini-batch for ``seeds``, as a sentence; None where nothing is.

    Its last destinations are the seeds, each block's destinations are the sources of the next, and
    under the law ``UNIFORM`` every destination has min(fan-out, degree) in-edges. With ``edges``
    each must be one of the graph's, none is there twice, and under that law those that were drawn
    stand anywhere in their rows.
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
        due = graph.degrees[block.dst_ids]
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
        places = find_places(graph, block) if edges else None
        if edges and places is None:
            return "a block has an in-edge twice, or one that the graph does not have"
        off = 0.0
        if places is not None and uniform:
            off = find_lean(*measure_places(graph, block, places))
        if off:
            return (
                f"sampler {sampler.name!r} says that it draws {UNIFORM}, and the places of its "
                f"edges in their rows are {off:.0f} standard deviations off"
            )
    return None


def find_lean(deviations: Values, variances: Values) -> float:
    """By how many standard deviations draws lean to one end of their rows, if by more than
    ``LOPSIDED``; else 0. Both are of rows that were drawn independently."""
    variance = float(variances.sum())
    if not variance:
        return 0.0
    off = abs(float(deviations.sum())) / variance**0.5
    return off if off > LOPSIDED else 0.0


def measure_places(graph: Graph, block: Block, places: IntArray) -> tuple[Values, Values]:
    """How far the sum of each destination's places (:func:`find_places`) is from its mean, and its
    variance, both ``(D,)``.

    k of d neighbours, each set as likely as any other, have a sum of places (from 0) with mean
    k (d - 1) / 2 and variance k (d - k) (d + 1) / 12.
    """
    drawn = np.diff(block.indptr).astype(np.float64)
    degrees = graph.degrees[block.dst_ids].astype(np.float64)
    rows = np.repeat(np.arange(block.num_dst), np.diff(block.indptr))
    sums = np.bincount(rows, places, minlength=block.num_dst)
    return sums - drawn * (degrees - 1) / 2, drawn * (degrees - drawn) * (degrees + 1) / 12


def find_common_lean(epochs: Sequence[Sequence[Unit]], graph: Graph) -> str | None:
    """What is wrong with the units of several epochs together, as a sentence's beginning: that
    their draws lean to one end of their rows. So it is seen where a block alone has few of them.

    A vertex has one draw in a layer of an epoch, and counts once, in however many units it is.
    """
    found: list[tuple[Values, Values]] = []
    for units in epochs:
        for depth in range(len(units[0].blocks)):
            blocks = [unit.blocks[depth] for unit in units]
            measured = []
            for block in blocks:
                places = find_places(graph, block)
                if places is None:
                    return "a block has an in-edge twice, or one that the graph does not have"
                measured.append(measure_places(graph, block, places))
            _, first = find_destinations(blocks)
            deviations, variances = map(np.concatenate, zip(*measured, strict=True))
            found.append((deviations[first], variances[first]))
    off = find_lean(*map(np.concatenate, zip(*found, strict=True))) if found else 0.0
    if not off:
        return None
    return f"the places of the edges that were drawn are {off:.0f} standard deviations off"


def find_places(graph: Graph, block: Block) -> IntArray | None:
    """The place of each of a block's edges in the graph's row of its destination, int64 ``(E,)``.
    None where one is not there, or there twice."""
    places = find_edges(graph.indptr, graph.indices, block)
    if (places < 0).any() or not _are_distinct(block.src_ids):
        return None
    if not _ascend_in_rows(places, block) and not _are_distinct(places):
        return None
    return places - np.repeat(graph.indptr[block.dst_ids], np.diff(block.indptr))


def _are_distinct(numbers: IntArray) -> bool:
    """Whether no number is there twice; sorting is faster than NumPy's ``unique``."""
    ordered = np.sort(numbers)
    return not (ordered[1:] == ordered[:-1]).any()


def _ascend_in_rows(places: IntArray, block: Block) -> bool:
    """Whether the places of each row's edges ascend, as those of rows in their order do."""
    ascends = places[1:] > places[:-1]
    begins = block.indptr[1:-1]
    ascends[begins[(begins > 0) & (begins < len(places))] - 1] = True
    return bool(ascends.all())


def find_repeats(some: Sequence[Unit], others: Sequence[Unit], graph: Graph) -> str | None:
    """What is wrong with draws of two epochs, as a sentence's beginning: that vertices have the
    same neighbours in both, more often than chance makes of it; None where they have not.

    k of d neighbours are the same k again with probability 1 / C(d, k). A vertex has one draw in a
    layer of an epoch, and counts once, in however many units of the round it is.
    """
    from scipy.special import gammainc

    same, count, expected = 0, 0, 0.0
    for depth in range(len(some[0].blocks)):
        ids, counts, sums = list_draws([unit.blocks[depth] for unit in some])
        other_ids, _, other_sums = list_draws([unit.blocks[depth] for unit in others])
        common, here, there = np.intersect1d(
            ids, other_ids, assume_unique=True, return_indices=True
        )
        drawn, degrees = counts[here], graph.degrees[common]
        chosen = (drawn > 0) & (drawn < degrees)
        same += int((sums[here] == other_sums[there])[chosen].sum())
        count += int(chosen.sum())
        expected += float((1 / count_choices(degrees[chosen], drawn[chosen])).sum())
    # At least so many of independent rare events: no likelier than of a Poisson variable.
    if same <= expected or gammainc(same, expected) > CHANCE:
        return None
    return (
        f"{same:,} of {count:,} vertices, where chance makes {expected:.3g}, have the very same "
        f"neighbours"
    )


def list_draws(blocks: Sequence[Block]) -> tuple[IntArray, IntArray, NDArray[np.uint64]]:
    """The destinations of blocks, each once and ascending, how many in-edges each has, and the
    number for their set (:func:`sum_up_neighbours`)."""
    ids, first = find_destinations(blocks)
    counts = np.concatenate([np.diff(block.indptr) for block in blocks])
    sums = np.concatenate([sum_up_neighbours(block) for block in blocks])
    return ids, counts[first], sums[first]


def find_destinations(blocks: Sequence[Block]) -> tuple[IntArray, IntArray]:
    """The destinations of blocks, each once and ascending, and where each comes first."""
    ids, first = np.unique(np.concatenate([block.dst_ids for block in blocks]), return_index=True)
    return ids, first


def count_choices(degrees: IntArray, drawn: IntArray) -> NDArray[np.float64]:
    """C(d, k) of each vertex."""
    choices = np.ones(len(degrees))
    for number in range(int(drawn.max(initial=0))):
        left = np.where(number < drawn, drawn - number, 1)
        choices *= np.where(number < drawn, (degrees - number) / left, 1.0)
    return choices


def sum_up_neighbours(block: Block) -> NDArray[np.uint64]:
    """A number for the set of neighbours of each destination, ``(D,)``: the sum of their ids, which
    are scattered over 64 bits before (Steele et al. 2014, splitmix64)."""
    mixed = (block.src_ids[block.indices].astype(np.uint64) + 1) * np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed ^= mixed >> np.uint64(27)
    ends = np.concatenate((np.zeros(1, dtype=np.uint64), np.cumsum(mixed)))
    sums: NDArray[np.uint64] = ends[block.indptr[1:]] - ends[block.indptr[:-1]]
    return sums
