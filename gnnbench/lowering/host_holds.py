"""What devices hold, and hosts between two links, while units are worked on whose vertex data lives
on the host."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from gnnbench.lowering.full_graph import FullGraphLowering
from gnnbench.lowering.host_plan import HostRows, UnitPlan
from gnnbench.lowering.working_sets import Sizes, WorkingSets
from gnnbench.program import Hold
from gnnbench.records import BufferRows


class HostHolds(FullGraphLowering):
    """``buffer_rows`` has by slot what the largest round needs of its buffers."""

    buffer_rows: Mapping[int, BufferRows]
    _sets: WorkingSets
    _shares_rows: bool
    #: By slot, what has been kept of units since the epoch began, bytes.
    _kept_bytes: list[int]

    def _hold_buffers(self, number: int, *, backward: bool) -> list[Hold]:
        """The buffers of one pass over a layer's rounds, as large as the largest of them needs."""
        return [
            hold
            for what in self._sets.buffered(number, backward=backward)
            for slot, rows in self.buffer_rows.items()
            for hold in self._hold(slot, self._sets.buffers(number, what, rows))
        ]

    def _hold_crossing(self, number: int, plan: UnitPlan) -> list[Hold]:
        """Room on a device for the rows between the host and its buffers, and on hosts for those
        between each other."""
        holds = self._hold(plan.slot, self._sets.crossing(number, plan.chunk))
        row_bytes = self.layers[number].in_features * self._itemsize
        return holds + self._hold_abroad(plan, (plan.loaded, plan.leaving), row_bytes)

    def _hold_abroad(
        self, plan: UnitPlan, crossing: Iterable[HostRows], row_bytes: int
    ) -> list[Hold]:
        """Room for a unit's rows of other hosts on its own, where they are between two links."""
        here, device = self.hosts[plan.slot], self.trainers[plan.slot].name
        rows = max(
            sum(count for _, count in self.frame.homes.list_abroad(each.by_host, here))
            for each in crossing
        )
        return [Hold(here.name, f"rows of other hosts, {device}", rows * row_bytes)] if rows else []

    def _hold_unit(self, number: int, plan: UnitPlan, *, backward: bool) -> list[Hold]:
        """What one unit of one layer takes on its device while it is worked on, and on hosts for
        what is between each other."""
        holds = self._hold(plan.slot, self._sets.chunk(number, plan.chunk, backward=backward))
        shape = self._shapes[number]
        row_bytes = max(shape.in_features, shape.out_features) * self._itemsize
        abroad = (plan.outputs,) if self._shares_rows else (plan.outputs, plan.leaving)
        return holds + self._hold_abroad(plan, abroad, row_bytes)

    def _keep(self, number: int, plan: UnitPlan, sign: int) -> Iterator[Hold]:
        """What a device holds from forward to backward, when a unit's intermediates have been added
        to it (``sign`` 1) or are done with (-1)."""
        if size := self._sets.kept(number, plan.chunk):
            self._kept_bytes[plan.slot] += sign * size
            sizes = [("kept intermediates", self._kept_bytes[plan.slot])]
            yield from self._hold(plan.slot, sizes)

    def _hold(self, slot: int, sizes: Sizes) -> list[Hold]:
        name = self.trainers[slot].name
        return [Hold(name, tensor, size) for tensor, size in sizes]
