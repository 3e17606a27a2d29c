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

from gnnbench.parts import MiniBatchSampler, Setting
from gnnbench.records import IntArray, Unit
from gnnbench.run.audit import find_unit_fault, is_uniform
from gnnbench.run.draws import DrawAudit
from gnnbench.run.replicas import Replicas
from gnnbench.run.shuffling import Shuffling

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
        #: What a sampler draws that says it draws uniformly, and its name.
        self._drawn: tuple[DrawAudit, str] | None = None
        #: Units of updates that have not begun: they are sampled before.
        self._sampled: dict[Key, list[Unit]] = {}
        self.shuffling = Shuffling()
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
        draws: the numbers of edges always, of wanted updates every edge, and of some rows of each
        the law."""
        wanted = self.wants(epoch, round, num_rounds)
        if wanted:
            self._sampled.setdefault((epoch, round), []).append(unit)
        if self.fault is None:
            fault = find_unit_fault(unit, seeds, sampler, self._setting, edges=wanted)
            fault = fault or self._count_draws(sampler, epoch, num_rounds, unit)
            if fault is not None:
                self.fault = f"epoch {epoch}, round {round}: {fault}"

    def _count_draws(
        self, sampler: MiniBatchSampler, epoch: int, num_rounds: int, unit: Unit
    ) -> str | None:
        workload = self._setting.workload
        if self._drawn is None:
            if not is_uniform(sampler, workload):
                return None
            audit = DrawAudit(self._setting.dataset.graph, workload.fanouts, workload.seed)
            self._drawn = audit, sampler.name
        return self._drawn[0].look(epoch, unit.blocks, num_rounds)

    def audit_draws(self) -> None:
        """Hold all that was drawn against the law ``UNIFORM``, where the sampler says that it draws
        by that."""
        if self.fault is None and self._drawn is not None:
            audit, name = self._drawn
            self.fault = audit.find_fault(name)

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
            self.shuffling.look(rounds)
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
