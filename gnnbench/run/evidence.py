"""Evidence of what the updates of a run really computed, kept so that it can be checked.

An optimiser hides its input. Adam's step depends mostly on the sign of a gradient, so gradients
that are twice too large change nearly nothing. Two correct runs in float32 also drift apart. So the
inputs of the optimiser's step are kept. They are the initial parameters, the vertices of the loss,
their logits, and the gradients of the loss.

Some updates are kept whole, to be computed once more. Other updates are examined: their parameters,
gradients and logits that have a loss are kept until the epoch is over. A second optimiser follows
the parameters of every update. Every mini-batch is checked against its sampler's statement.
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
from gnnbench.run.replicas import Follower, Replicas
from gnnbench.run.shuffling import Shuffling

#: By epoch and round.
Key = tuple[int, int]
#: At most this many updates and mini-batch rounds of an epoch are examined. An epoch of more
#: rounds has the first, the last and others drawn from those in between.
MOST_LOOKED_AT = 32


@dataclass(slots=True, eq=False)
class Update:
    """One update, on the CPU.

    ``parameters`` and the optimiser's ``moments`` are values before the update, and ``after`` has
    the parameters after the optimiser's step. ``logits`` are ``(ids, rows)``: vertices and their
    rows ``(n, classes)``. Together they are all logits of the update, or those with a loss if the
    update is not ``whole``. ``gradients`` are of the round's mean loss, in the order of the model's
    parameters. ``units`` are the mini-batch's; a full graph has none.
    """

    epoch: int
    round: int
    parameters: dict[str, Tensor]
    logits: list[tuple[IntArray, Tensor]] = field(default_factory=list)
    gradients: list[Tensor] = field(default_factory=list)
    units: list[Unit] = field(default_factory=list)
    whole: bool = True
    moments: tuple[Tensor, ...] = ()
    after: list[Tensor] = field(default_factory=list)

    @property
    def name(self) -> str:
        """Its name in a sentence: ``"epoch 2, round 0"``."""
        return _name(self.epoch, self.round)


class Evidence:
    """The evidence of a run: ``updates`` whole updates, namely the first, the last, and others.

    The others are drawn by the workload's seed, so that no position is always omitted. With 0
    updates none is examined either.

    ``fault`` is the first fault of a sample, or of the writes to parameters, as the end of a
    sentence. It is None if no fault was found. ``rounds`` counts all updates so far. ``looked_at``
    counts those that were examined, with every edge of their mini-batches.
    """

    def __init__(self, setting: Setting, updates: int) -> None:
        self._setting = setting
        self._updates = updates
        self._has_loss = setting.dataset.train_mask & (setting.dataset.labels >= 0)
        self._kept: dict[Key, Update] = {}
        self._looked: list[Update] = []
        self._under_way: Update | None = None
        self._follower: Follower | None = None
        self._chosen: dict[tuple[int, int], frozenset[int]] = {}
        #: The epochs after the workload's that also keep an update.
        self._later: set[int] = set()
        #: The draws of a sampler that claims to draw uniformly, and its name.
        self._drawn: tuple[DrawAudit, str] | None = None
        #: Units of updates that have not begun: they are sampled before.
        self._sampled: dict[Key, list[Unit]] = {}
        self.shuffling = Shuffling()
        self.rounds = self.looked_at = 0
        self.fault: str | None = None

    @property
    def updates(self) -> tuple[Update, ...]:
        """The updates that were kept whole, in their order."""
        return tuple(self._kept[key] for key in sorted(self._kept))

    def take_looked_at(self) -> list[Update]:
        """Return the examined updates that were not taken before, and release them."""
        taken, self._looked = self._looked, []
        return taken

    def wants(self, epoch: int, round: int, num_rounds: int) -> bool:
        """Return whether an update is to be kept whole."""
        if epoch in self._later:
            return round == int(self._draw(epoch).integers(num_rounds))
        total = self._setting.workload.epochs * num_rounds
        key = -1, total
        if key not in self._chosen:
            self._chosen[key] = self._choose(self._updates, total, total)
        return epoch * num_rounds + round in self._chosen[key]

    def looks_at(self, epoch: int, round: int, num_rounds: int) -> bool:
        """Return whether an update and the mini-batches of its round are examined."""
        if num_rounds <= MOST_LOOKED_AT:
            return True
        key = epoch, num_rounds
        if key not in self._chosen:
            self._chosen[key] = self._choose(MOST_LOOKED_AT, num_rounds, num_rounds, epoch)
        return round in self._chosen[key]

    def keep_later(self, epoch: int) -> None:
        """Keep an update of a later epoch whole, if any is kept, before the epoch begins.

        The epoch comes after the workload's epochs.
        """
        if self._updates:
            self._later.add(epoch)

    def _choose(self, count: int, total: int, *draw: int) -> frozenset[int]:
        """Return ``count`` numbers below ``total``, or all: first, last, and some in between."""
        if count >= total or count < 2:
            return frozenset(range(min(count, total)))
        between = self._draw(*draw).permutation(np.arange(1, total - 1))[: count - 2]
        return frozenset((0, total - 1, *between.tolist()))

    def _draw(self, *numbers: int) -> np.random.Generator:
        return np.random.default_rng((self._setting.workload.seed, *numbers))

    # ------------------------------------------------------------------ updates

    def follow(self, replicas: Replicas) -> None:
        """Compare the parameters of ``replicas`` with a second optimiser's from now on."""
        self._follower = Follower(replicas, self._setting.workload)

    def hold_parameters(self, name: str, when: str) -> None:
        """Record a fault if parameters differ from the second optimiser's."""
        if self._follower is None or self.fault is not None:
            return
        changed = self._follower.find_change()
        if changed is not None:
            self.fault = f"{changed} was changed by other than the optimiser {when} {name}"

    def begin(self, epoch: int, round: int, num_rounds: int, replicas: Replicas) -> None:
        """Keep the parameters that an update starts from, if it is kept or examined."""
        if self._follower is None:
            self.follow(replicas)
        self.hold_parameters(_name(epoch, round), "before")
        units = self._sampled.pop((epoch, round), [])
        whole = self.wants(epoch, round, num_rounds)
        looked_at = whole or self.looks_at(epoch, round, num_rounds)
        self.rounds += 1
        self.looked_at += looked_at
        self._under_way = None
        if not (looked_at and self._updates):
            return
        parameters = {
            name: value.detach().cpu().clone() for name, value in replicas.master.named_parameters()
        }
        update = self._under_way = Update(epoch, round, parameters, units=units, whole=whole)
        if whole:
            self._kept[epoch, round] = update
            if self._follower is not None:
                update.moments = tuple(value.clone() for value in self._follower.state)

    def keeps(self, epoch: int, round: int) -> bool:
        """Return whether this update, which has begun, is kept or examined."""
        update = self._under_way
        return update is not None and (update.epoch, update.round) == (epoch, round)

    def add_logits(self, epoch: int, round: int, ids: IntArray, rows: Tensor) -> None:
        """Keep the logits ``(len(ids), classes)`` of some vertices of an update.

        The update is one that is kept or examined.
        """
        update = self._under_way
        if update is None:
            return
        if not update.whole and not self._has_loss[ids].all():
            places = np.flatnonzero(self._has_loss[ids])
            ids, rows = ids[places], rows[places]
        update.logits.append((ids, rows.detach().cpu().clone()))

    def add_gradients(self, epoch: int, round: int, gradients: Sequence[Tensor]) -> None:
        """Keep the gradients that the optimiser is about to receive, if they are wanted."""
        self.hold_parameters(_name(epoch, round), "during")
        if self._under_way is not None:
            self._under_way.gradients = [part.detach().cpu().clone() for part in gradients]

    def end(self, epoch: int, round: int, gradients: Sequence[Tensor], replicas: Replicas) -> None:
        """Take the optimiser's step with the second optimiser, and end the update."""
        if self._follower is not None:
            self._follower.step(gradients)
        self.hold_parameters(_name(epoch, round), "in the step of")
        update, self._under_way = self._under_way, None
        if update is None:
            return
        if update.whole:
            update.after = [value.detach().cpu().clone() for value in replicas.parameters]
        else:
            self._looked.append(update)

    # ------------------------------------------------------------------ mini-batches

    def add_unit(self, epoch: int, round: int, num_rounds: int, unit: Unit) -> None:
        """Keep a mini-batch until its update begins, if the update is kept or examined."""
        if self._updates and self._examines(epoch, round, num_rounds):
            self._sampled.setdefault((epoch, round), []).append(unit)

    def _examines(self, epoch: int, round: int, num_rounds: int) -> bool:
        return self.wants(epoch, round, num_rounds) or self.looks_at(epoch, round, num_rounds)

    def examine_unit(
        self,
        sampler: MiniBatchSampler,
        epoch: int,
        round: int,
        num_rounds: int,
        unit: Unit,
        seeds: IntArray,
    ) -> None:
        """Check a mini-batch against its sampler's statement.

        The numbers of edges are always checked. Every edge is checked if the update is examined,
        and some rows of each mini-batch are tested for the law.
        """
        if self.fault is None:
            edges = self._examines(epoch, round, num_rounds)
            fault = find_unit_fault(unit, seeds, sampler, self._setting, edges=edges)
            fault = fault or self._count_draws(sampler, epoch, num_rounds, unit)
            if fault is not None:
                self.fault = f"{_name(epoch, round)}: {fault}"

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
        """Check all draws against the law ``UNIFORM``, if the sampler states that law."""
        if self.fault is None and self._drawn is not None:
            audit, name = self._drawn
            self.fault = audit.find_fault(name)

    def audit_seeds(self, epoch: int, rounds: Sequence[IntArray]) -> None:
        """Check that the seeds of an epoch are the training vertices, each of them once.

        If the number of rounds follows from the batch size, all rounds but one must have that size.
        More or fewer rounds are other work, which is ranked apart.
        """
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


def _name(epoch: int, round: int) -> str:
    return f"epoch {epoch}, round {round}"
