"""Full-graph training with vertex data on the host and rounds that overlap.

Rounds follow one another as in ``host_resident``, with its buffers. Data with a separate place on
the device is transferred while other rounds are computed. Forward, a unit's outputs leave while
rows of the next round arrive, and the device continues once they have left. HongTu's Algorithm 1
does not synchronise after line 9. Algorithm 2 synchronises in line 4, when the next rows have
arrived.

Backward, a unit's backward inputs (Algorithm 1, lines 14 and 16) arrive while its device works on
the previous round. The paper does not do this. It takes memory for one more unit's gradients and
cached aggregates.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator

from gnnbench.lowering.host_plan import UnitPlan
from gnnbench.lowering.host_resident import HostResidentLowering, during, in_turn
from gnnbench.lowering.working_sets import OverlappedSets, Sizes
from gnnbench.program import Buffer, Free, Item, Step

Buffers = tuple[Buffer, ...]


class OverlappedLowering(HostResidentLowering):
    """The lowering that overlaps a round's transfers with other rounds; see the module."""

    _sets: OverlappedSets

    def _make_sets(self) -> OverlappedSets:
        return OverlappedSets(self.bundle, self.frame.shapes, self.frame.itemsize)

    # ------------------------------------------------------------------ forward

    def _forward_layer(self, number: int) -> Iterator[Item]:
        all_stored = Buffer("outputs of a layer")
        #: By device index, the outputs of the last unit, which may still be in flight.
        leaving: dict[int, Buffers] = {}
        sizes: dict[int, Sizes] = {}
        for index, plans in enumerate(self.plans):
            self._make.round = index
            arrived = yield from self._bring(number, plans)
            after = Buffer("round is computed")
            for plan in plans:
                slot = plan.slot
                yield from self._free(slot, sizes.pop(slot, []))
                ready = arrived + leaving.get(slot, ())
                leaving[slot] = (Buffer("outputs of a unit have left"),)
                stored = (all_stored, *leaving[slot])
                holds = self._holds.hold_unit(number, plan, backward=False)
                yield from during(holds, self._forward(number, plan, ready, (after,), stored))
                yield from self._holds.keep(number, plan, 1)
                sizes[slot] = self._sets.leaving_outputs(number, plan.chunk)
                yield from self._holds.hold(slot, sizes[slot])
            if plans:
                self._meeting = after
        for slot, held in sizes.items():
            yield from self._free(slot, held)
        self._meeting = all_stored

    def _free(self, slot: int, sizes: Sizes) -> Iterator[Free]:
        for hold in self._holds.hold(slot, sizes):
            yield Free(hold.memory, hold.tensor)

    # ------------------------------------------------------------------ backward

    def _backward_rounds(self, number: int) -> Iterator[Item]:
        #: By device index, the backward inputs of the current unit, and of the next one.
        self._came: dict[int, Buffers] = {}
        self._coming: dict[int, Buffers] = {}
        return super()._backward_rounds(number)

    def _look_ahead(self, number: int, index: int) -> Iterator[Item]:
        """Yield the next round's backward inputs, which arrive when the previous round is over.

        At most two rounds have their backward inputs on the devices.
        """
        if not index:
            yield from self._fetch_round(number, index)
        self._came, self._coming = self._coming, {}
        yield from self._fetch_round(number, index + 1)
        self._make.round = index
        for plan in self.plans[index]:
            if plan.slot not in self._coming:
                yield from self._free(plan.slot, self._sets.fetched(number, plan.chunk))

    def _fetch_round(self, number: int, index: int) -> Iterator[Item]:
        self._make.round = index
        for plan in self.plans[index] if index < len(self.plans) else ():
            yield from self._holds.hold(plan.slot, self._sets.fetched(number, plan.chunk))
            self._coming[plan.slot] = (Buffer("backward inputs of the next unit"),)
            steps = super()._fetch(number, plan)
            yield from in_turn(steps, (self._meeting,), self._coming[plan.slot])

    def _fetch(self, number: int, plan: UnitPlan) -> list[Step]:
        """Return no steps: the unit's backward inputs have arrived in an earlier round."""
        return []

    def _fetch_unit(
        self, number: int, plan: UnitPlan, ready: Buffers
    ) -> Generator[Item, None, Buffers]:
        return super()._fetch_unit(number, plan, ready + self._came[plan.slot])
