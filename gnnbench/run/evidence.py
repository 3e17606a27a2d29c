"""Evidence of what the updates of a run really computed, kept so that it can be checked.

An optimiser hides what it is fed: Adam's step is about the sign of a gradient, so gradients that
are twice too large change nearly nothing, and two right runs in float32 drift apart. So an update
is kept as it was before the optimiser: the parameters that it starts from, the vertices whose loss
it takes, their logits, and the gradients of the loss.

Some updates are kept whole, to be computed once more. Others are looked at: their parameters,
their gradients and the logits that have a loss are kept until the epoch is over. A second optimiser
follows the parameters of every update. Every mini-batch is held against its sampler's word.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from torch import Tensor

from gnnbench.parts import MiniBatchSampler, Setting
from gnnbench.records import IntArray, Unit
from gnnbench.run.audit import find_common_lean, find_repeats, find_unit_fault, is_uniform
from gnnbench.run.replicas import Follower, Replicas

#: By epoch and round.
Key = tuple[int, int]
#: At most this many updates and mini-batch rounds of an epoch are looked at. An epoch of more
#: rounds has the first, the last and others drawn from those in between.
MOST_LOOKED_AT = 32


@dataclass(slots=True, eq=False)
class Update:
    """One update, on the CPU.

    ``parameters`` and the optimiser's ``moments`` are those before the update, ``after`` the
    parameters after the optimiser's step. ``logits`` are ``(ids, rows)``: vertices and their rows
    ``(n, classes)``, which together are those that the update computed; of an update that is not
    ``whole`` they are those that have a loss. ``gradients`` are of the round's mean loss, in the
    order of the model's parameters. ``units`` are the mini-batch's, none of a full graph.
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
        """How a sentence calls it: ``"epoch 2, round 0"``."""
        return _name(self.epoch, self.round)


class Evidence:
    """Keeps ``updates`` whole updates of a run: the first, the last, and others in between.

    The others are drawn by the workload's seed, so that no place is always passed over. With 0
    updates none is looked at either.

    ``fault`` is the first thing found wrong in what was sampled, or in who wrote parameters, as a
    sentence's end; None where nothing was. ``rounds`` counts all updates so far, and ``looked_at``
    those that were looked at, with every edge of their mini-batches.
    """

    def __init__(self, setting: Setting, updates: int) -> None:
        self._setting = setting
        self._updates = updates
        self._has_loss = setting.dataset.train_mask & (setting.dataset.labels >= 0)
        self._kept: dict[Key, Update] = {}
        self._looked: list[Update] = []
        #: The first mini-batches that were looked at of the epoch before.
        self._first: Update | None = None
        self._under_way: Update | None = None
        self._follower: Follower | None = None
        self._chosen: dict[tuple[int, int], frozenset[int]] = {}
        #: The epochs after the workload's of which an update is kept as well.
        self._later: set[int] = set()
        self._uniform = False
        #: Units of updates that have not begun: they are sampled before.
        self._sampled: dict[Key, list[Unit]] = {}
        self.rounds = self.looked_at = 0
        self.fault: str | None = None

    @property
    def updates(self) -> tuple[Update, ...]:
        """The updates that were kept whole, in their order."""
        return tuple(self._kept[key] for key in sorted(self._kept))

    def take_looked_at(self) -> list[Update]:
        """The updates that are looked at and were not taken before; nothing holds them after."""
        taken, self._looked = self._looked, []
        first = next((update for update in taken if update.units), None)
        if first is not None:
            self._hold_draws(self._first, first)
            self._first = first
        return taken

    def wants(self, epoch: int, round: int, num_rounds: int) -> bool:
        """Whether an update is one of those to keep whole."""
        if epoch in self._later:
            return round == int(self._draw(epoch).integers(num_rounds))
        total = self._setting.workload.epochs * num_rounds
        key = -1, total
        if key not in self._chosen:
            self._chosen[key] = self._choose(self._updates, total, total)
        return epoch * num_rounds + round in self._chosen[key]

    def looks_at(self, epoch: int, round: int, num_rounds: int) -> bool:
        """Whether an update and the mini-batches of its round are looked at."""
        if num_rounds <= MOST_LOOKED_AT:
            return True
        key = epoch, num_rounds
        if key not in self._chosen:
            self._chosen[key] = self._choose(MOST_LOOKED_AT, num_rounds, num_rounds, epoch)
        return round in self._chosen[key]

    def keep_later(self, epoch: int) -> None:
        """Keep an update of an epoch after the workload's whole too, where any is, before it
        begins."""
        if self._updates:
            self._later.add(epoch)

    def _choose(self, count: int, total: int, *draw: int) -> frozenset[int]:
        """``count`` numbers below ``total``, or all: the first, the last, and some in between."""
        if count >= total or count < 2:
            return frozenset(range(min(count, total)))
        between = self._draw(*draw).permutation(np.arange(1, total - 1))[: count - 2]
        return frozenset((0, total - 1, *between.tolist()))

    def _draw(self, *numbers: int) -> np.random.Generator:
        return np.random.default_rng((self._setting.workload.seed, *numbers))

    # ------------------------------------------------------------------ updates

    def follow(self, replicas: Replicas) -> None:
        """Hold the parameters of ``replicas`` against a second optimiser's from now on."""
        self._follower = Follower(replicas, self._setting.workload)

    def hold_parameters(self, name: str, when: str) -> None:
        """Find fault with parameters that are other than the second optimiser's."""
        if self._follower is None or self.fault is not None:
            return
        changed = self._follower.find_change()
        if changed is not None:
            self.fault = f"{changed} was changed by other than the optimiser {when} {name}"

    def begin(self, epoch: int, round: int, num_rounds: int, replicas: Replicas) -> None:
        """Keep the parameters that an update starts from, where it is kept or looked at."""
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
        """Whether this update, which has begun, is kept or looked at."""
        update = self._under_way
        return update is not None and (update.epoch, update.round) == (epoch, round)

    def add_logits(self, epoch: int, round: int, ids: IntArray, rows: Tensor) -> None:
        """Keep the logits ``(len(ids), classes)`` of some vertices of an update that is kept or
        looked at."""
        update = self._under_way
        if update is None:
            return
        if not update.whole and not self._has_loss[ids].all():
            places = np.flatnonzero(self._has_loss[ids])
            ids, rows = ids[places], rows[places]
        update.logits.append((ids, rows.detach().cpu().clone()))

    def add_gradients(self, epoch: int, round: int, gradients: Sequence[Tensor]) -> None:
        """Keep the gradients that the optimiser is about to be given, where they are wanted."""
        self.hold_parameters(_name(epoch, round), "during")
        if self._under_way is not None:
            self._under_way.gradients = [part.detach().cpu().clone() for part in gradients]

    def end(self, epoch: int, round: int, gradients: Sequence[Tensor], replicas: Replicas) -> None:
        """Take the same step as the optimiser has taken, which ends an update."""
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

    def add_unit(
        self,
        sampler: MiniBatchSampler,
        epoch: int,
        round: int,
        num_rounds: int,
        unit: Unit,
        seeds: IntArray,
    ) -> None:
        """Keep a mini-batch of an update that is kept or looked at, and hold it against what its
        sampler says that it draws: the numbers of edges always, and every edge where it is looked
        at."""
        whole = self.wants(epoch, round, num_rounds)
        edges = whole or self.looks_at(epoch, round, num_rounds)
        if edges and self._updates:
            self._sampled.setdefault((epoch, round), []).append(unit)
        if self.fault is None:
            self._uniform = is_uniform(sampler, self._setting.workload)
            fault = find_unit_fault(unit, seeds, sampler, self._setting, edges=edges)
            if fault is not None:
                self.fault = f"{_name(epoch, round)}: {fault}"

    def audit_draws(self) -> None:
        """Hold the draws of all updates that were kept against each other: under the law
        ``UNIFORM`` a vertex has the same neighbours in another epoch by chance alone, and those of
        all together stand anywhere in their rows."""
        kept = [update for update in self.updates if update.units]
        if self.fault is not None or not self._uniform or not kept:
            return
        for one, other in itertools.pairwise(kept):
            self._hold_draws(one, other)
        by_epoch = itertools.groupby(kept, key=lambda update: update.epoch)
        epochs = [[unit for update in group for unit in update.units] for _, group in by_epoch]
        fault = find_common_lean(epochs, self._setting.dataset.graph)
        if fault is not None and self.fault is None:
            self.fault = f"{fault} in {', '.join(update.name for update in kept)}"

    def _hold_draws(self, one: Update | None, other: Update) -> None:
        """Find fault with draws of two epochs that are alike by more than chance."""
        if self.fault is not None or not self._uniform or one is None or one.epoch == other.epoch:
            return
        fault = find_repeats(one.units, other.units, self._setting.dataset.graph)
        if fault is not None:
            self.fault = f"{fault} in {one.name}, and in {other.name}"

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


def _name(epoch: int, round: int) -> str:
    return f"epoch {epoch}, round {round}"
