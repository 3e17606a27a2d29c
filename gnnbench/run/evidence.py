"""What some updates of a run really computed, kept so that it can be checked after the run.

An optimiser hides what it is fed: Adam's step is about the sign of a gradient, so gradients that
are twice too large change nearly nothing, and two right runs in float32 drift apart. So an update
is kept as it was before the optimiser: the parameters that it starts from, the vertices whose loss
it takes, their logits, and the gradients of the loss. Of mini-batches the sampled units are kept
too, and every round is held against what the sampler says that it draws.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from torch import Tensor

from gnnbench.parts import UNIFORM, MiniBatchSampler, Setting
from gnnbench.records import Block, BoolArray, Graph, IntArray, Unit
from gnnbench.run.replicas import Replicas

#: By epoch and round.
Key = tuple[int, int]
#: How many standard deviations the places of drawn edges in their rows may be off: two in a billion
#: draws by chance are further off.
LOPSIDED = 6.0


@dataclass(slots=True, eq=False)
class Update:
    """One update before the optimiser's step, on the CPU.

    ``logits`` are ``(ids, rows)``: vertices and their rows ``(n, classes)``, which together are
    those that the update computed. ``gradients`` are of the round's mean loss, in the order of the
    model's parameters. ``units`` are the mini-batch's, none of a full graph.
    """

    epoch: int
    round: int
    parameters: dict[str, Tensor]
    logits: list[tuple[IntArray, Tensor]] = field(default_factory=list)
    gradients: list[Tensor] = field(default_factory=list)
    units: list[Unit] = field(default_factory=list)

    @property
    def name(self) -> str:
        """How a sentence calls it: ``"epoch 2, round 0"``."""
        return f"epoch {self.epoch}, round {self.round}"


class Evidence:
    """Keeps ``updates`` updates of a run: the first, the last, and others that are drawn from those
    in between by the workload's seed, so that no place is always passed over.

    ``fault`` is the first thing found wrong in what was sampled, as a sentence's end; None where
    nothing was.
    """

    def __init__(self, setting: Setting, updates: int) -> None:
        self._setting = setting
        self._updates = updates
        self._kept: dict[Key, Update] = {}
        self._chosen: dict[int, frozenset[int]] = {}
        #: The epochs after the workload's of which an update is kept as well.
        self._later: set[int] = set()
        #: Units of updates that have not begun: they are sampled before.
        self._sampled: dict[Key, list[Unit]] = {}
        self.fault: str | None = None

    @property
    def updates(self) -> tuple[Update, ...]:
        """Those that were kept, in their order."""
        return tuple(self._kept[key] for key in sorted(self._kept))

    def wants(self, epoch: int, round: int, num_rounds: int) -> bool:
        """Whether an update is one of those to keep."""
        if epoch in self._later:
            return round == self._draw(epoch).integers(num_rounds)
        total = self._setting.workload.epochs * num_rounds
        if total not in self._chosen:
            self._chosen[total] = self._choose(total)
        return epoch * num_rounds + round in self._chosen[total]

    def keep_later(self, epoch: int) -> None:
        """Keep an update of an epoch after the workload's too, where any is kept, before it
        begins."""
        if self._updates:
            self._later.add(epoch)

    def _choose(self, total: int) -> frozenset[int]:
        """The numbers of the updates to keep of ``total``."""
        if self._updates >= total or self._updates < 2:
            return frozenset(range(min(self._updates, total)))
        between = self._draw(total).permutation(np.arange(1, total - 1))[: self._updates - 2]
        return frozenset((0, total - 1, *between.tolist()))

    def _draw(self, number: int) -> np.random.Generator:
        return np.random.default_rng((self._setting.workload.seed, number))

    def begin(self, epoch: int, round: int, replicas: Replicas) -> None:
        """Keep the parameters that a wanted update starts from."""
        parameters = {
            name: value.detach().cpu().clone() for name, value in replicas.master.named_parameters()
        }
        units = self._sampled.pop((epoch, round), [])
        self._kept[epoch, round] = Update(epoch, round, parameters, units=units)

    def keeps(self, epoch: int, round: int) -> bool:
        """Whether this update is one that is kept, once it has begun."""
        return (epoch, round) in self._kept

    def add_logits(self, epoch: int, round: int, ids: IntArray, rows: Tensor) -> None:
        """Keep the logits ``(len(ids), classes)`` of some vertices of an update that is kept."""
        self._kept[epoch, round].logits.append((ids, rows.detach().cpu().clone()))

    def add_gradients(self, epoch: int, round: int, gradients: Sequence[Tensor]) -> None:
        """Keep the gradients that the optimiser is about to be given."""
        self._kept[epoch, round].gradients = [part.detach().cpu().clone() for part in gradients]

    def add_unit(
        self,
        sampler: MiniBatchSampler,
        epoch: int,
        round: int,
        num_rounds: int,
        unit: Unit,
        seeds: IntArray,
    ) -> None:
        """Keep a mini-batch of a wanted update, and hold it against what its sampler says that it
        draws: the numbers of edges always, and of wanted updates every edge."""
        wanted = self.wants(epoch, round, num_rounds)
        if wanted:
            self._sampled.setdefault((epoch, round), []).append(unit)
        if self.fault is None:
            fault = find_unit_fault(unit, seeds, sampler, self._setting, edges=wanted)
            if fault is not None:
                self.fault = f"epoch {epoch}, round {round}: {fault}"

    def audit_seeds(self, epoch: int, rounds: Sequence[IntArray]) -> None:
        """Hold the seeds of an epoch against the training vertices, each of which is one once, and
        the rounds, where there are as many as the batch size makes, against that: all but one have
        so many seeds. More or fewer rounds are other work, which is ranked apart."""
        if self.fault is not None:
            return
        due = self._setting.dataset.train_ids
        given = np.sort(np.concatenate(rounds)) if len(rounds) else due[:0]
        if np.array_equal(given, due):
            size = self._setting.workload.batch_size
            sizes = sorted(map(len, rounds))
            even = sorted(min(size, len(due) - begin) for begin in range(0, len(due), size))
            if len(sizes) == len(even) and sizes != even:
                self.fault = (
                    f"epoch {epoch} has rounds of {sizes[0]:,} to {sizes[-1]:,} seeds where a "
                    f"batch size of {size:,} makes rounds of {even[0]:,} to {even[-1]:,}"
                )
            return
        strange = np.setdiff1d(given, due)
        missing = np.setdiff1d(due, given)
        if len(strange):
            what = f"trains on {len(strange):,} vertices that are not training vertices"
        elif len(missing):
            what = f"leaves out {len(missing):,} of {len(due):,} training vertices"
        else:
            what = f"has {len(given) - len(due):,} training vertices more than once"
        self.fault = f"epoch {epoch} {what}"


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
    # What a row is ranked by is what it is held to, wherever the sampler says it.
    uniform = UNIFORM in sampler.sampling(setting.workload)
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
        if places is not None and uniform and (off := measure_lean(graph, block, places)):
            return (
                f"sampler {sampler.name!r} says that it draws {UNIFORM}, and the places of its "
                f"edges in their rows are {off:.0f} standard deviations off"
            )
    return None


def measure_lean(graph: Graph, block: Block, places: IntArray) -> float:
    """By how many standard deviations the edges that were drawn lean to one end of their rows, if
    by more than ``LOPSIDED``; else 0. ``places`` are those of :func:`find_places`.

    k of d neighbours, each set as likely as any other, have a sum of places (from 0) with mean
    k (d - 1) / 2 and variance k (d - k) (d + 1) / 12, and rows are drawn independently.
    """
    drawn = np.diff(block.indptr).astype(np.float64)
    degrees = graph.degrees[block.dst_ids].astype(np.float64)
    variance = float((drawn * (degrees - drawn) * (degrees + 1)).sum()) / 12
    if not variance:
        return 0.0
    mean = float((drawn * (degrees - 1)).sum()) / 2
    off = abs(float(places.sum()) - mean) / variance**0.5
    return off if off > LOPSIDED else 0.0


def find_places(graph: Graph, block: Block) -> IntArray | None:
    """The place of each of a block's edges in the graph's row of its destination, int64 ``(E,)``:
    a binary search for each. None where one is not there, or there twice."""
    rows = np.repeat(np.arange(block.num_dst), np.diff(block.indptr))
    places = rows * np.int64(block.num_src) + block.indices
    if len(np.unique(places)) < len(places) or len(np.unique(block.src_ids)) < block.num_src:
        return None
    destinations = block.dst_ids[rows]
    sources = block.src_ids[block.indices]
    low, high = graph.indptr[destinations], graph.indptr[destinations + 1]
    ends = high.copy()
    last = max(graph.num_edges - 1, 0)
    while (open_ := low < high).any():
        middle = (low + high) // 2
        below: BoolArray = open_ & (graph.indices[np.minimum(middle, last)] < sources)
        low = np.where(below, middle + 1, low)
        high = np.where(open_ & ~below, middle, high)
    if not (low < ends).all() or not (graph.indices[low] == sources).all():
        return None
    return low - graph.indptr[destinations]
