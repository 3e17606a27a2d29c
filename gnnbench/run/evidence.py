"""What some updates of a run really computed, kept so that it can be checked after the run.

An optimiser hides what it is fed: Adam's step is about the sign of a gradient, so gradients that
are twice too large change nearly nothing, and two right runs in float32 drift apart. So an update
is kept as it was before the optimiser: the parameters that it starts from, the vertices whose loss
it takes, their logits, and the gradients of the loss. Of mini-batches the sampled units are kept
too, and every round of an audited epoch is held against what the sampler says that it draws.
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
    """Keeps ``updates`` updates of a run, spread evenly from the first to the last of its epochs.

    ``fault`` is the first thing found wrong in what was sampled, as a sentence's end; None where
    nothing was.
    """

    def __init__(self, setting: Setting, updates: int) -> None:
        self._setting = setting
        self._updates = updates
        self._kept: dict[Key, Update] = {}
        #: Units of updates that have not begun: they are sampled before.
        self._sampled: dict[Key, list[Unit]] = {}
        self.fault: str | None = None

    @property
    def updates(self) -> tuple[Update, ...]:
        """Those that were kept, in their order."""
        return tuple(self._kept[key] for key in sorted(self._kept))

    def wants(self, epoch: int, round: int, num_rounds: int) -> bool:
        """Whether an update is one of those to keep."""
        total = self._setting.workload.epochs * num_rounds
        number = epoch * num_rounds + round
        if self._updates >= total or self._updates == 1:
            return number < min(self._updates, total)
        step = (total - 1) / (self._updates - 1)
        return number in {int(k * step) for k in range(self._updates)}

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
        draws. In all of the first and the last epoch the numbers of edges are, and of wanted
        updates every edge."""
        wanted = self.wants(epoch, round, num_rounds)
        if wanted:
            self._sampled.setdefault((epoch, round), []).append(unit)
        audited = wanted or epoch in (0, self._setting.workload.epochs - 1)
        if audited and self.fault is None:
            fault = find_unit_fault(unit, seeds, sampler, self._setting, edges=wanted)
            if fault is not None:
                self.fault = f"epoch {epoch}, round {round}: {fault}"

    def audit_seeds(self, epoch: int, rounds: Sequence[IntArray]) -> None:
        """Hold the seeds of an epoch against the training vertices, each of which is one once."""
        if self.fault is not None:
            return
        due = self._setting.dataset.train_ids
        given = np.sort(np.concatenate(rounds)) if len(rounds) else due[:0]
        if np.array_equal(given, due):
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
    each must be one of the graph's, and none is there twice.
    """
    graph, layers = setting.dataset.graph, setting.workload.num_layers
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
        if sampler.law == UNIFORM:
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
        if edges and not are_edges(graph, block):
            return "a block has an in-edge twice, or one that the graph does not have"
    return None


def are_edges(graph: Graph, block: Block) -> bool:
    """Whether a block's edges are different edges of the graph: a binary search for each."""
    rows = np.repeat(np.arange(block.num_dst), np.diff(block.indptr))
    places = rows * np.int64(block.num_src) + block.indices
    if len(np.unique(places)) < len(places) or len(np.unique(block.src_ids)) < block.num_src:
        return False
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
    found = low < ends
    return bool(found.all() and (graph.indices[low[found]] == sources[found]).all())
