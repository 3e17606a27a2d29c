"""What devices hold while units are trained whose vertex data lives on the host.

Hosts hold rows that wait between two links.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from gnnbench.lowering.frame import Frame
from gnnbench.lowering.host_plan import HostRows, UnitPlan
from gnnbench.lowering.working_sets import Sizes, WorkingSets
from gnnbench.program import Hold
from gnnbench.records import BufferRows


class HostHolds:
    """Holds of buffers and of units, by the working sets ``sets``.

    ``buffer_rows`` has by slot what the largest round needs of its buffers.
    """

    def __init__(
        self, frame: Frame, sets: WorkingSets, buffer_rows: Mapping[int, BufferRows]
    ) -> None:
        self._frame, self._sets, self._buffer_rows = frame, sets, buffer_rows
        self._shares_rows = frame.bundle.shares_rows
        self.start_epoch()

    def start_epoch(self) -> None:
        """Forget the units of the last epoch."""
        #: By slot, the bytes that have been kept of units since the epoch began.
        self._kept_bytes = [0] * len(self._frame.trainers)

    def hold_buffers(self, number: int, *, backward: bool) -> list[Hold]:
        """The buffers of one pass over a layer's rounds, as large as the largest of them needs."""
        return [
            hold
            for what in self._sets.buffered(number, backward=backward)
            for slot, rows in self._buffer_rows.items()
            for hold in self.hold(slot, self._sets.buffers(number, what, rows))
        ]

    def hold_crossing(self, number: int, plan: UnitPlan) -> list[Hold]:
        """Room on a device for the rows between the host and its buffers, and on hosts for those
        between each other."""
        holds = self.hold(plan.slot, self._sets.crossing(number, plan.chunk))
        row_bytes = self._frame.layers[number].in_features * self._frame.itemsize
        return holds + self._hold_abroad(plan, (plan.loaded, plan.leaving), row_bytes)

    def _hold_abroad(
        self, plan: UnitPlan, crossing: Iterable[HostRows], row_bytes: int
    ) -> list[Hold]:
        """Room for a unit's rows of other hosts on its own, where they are between two links."""
        here, device = self._frame.hosts[plan.slot], self._frame.trainers[plan.slot].name
        rows = max(
            sum(count for _, count in self._frame.homes.list_abroad(each.by_host, here))
            for each in crossing
        )
        return [Hold(here.name, f"rows of other hosts, {device}", rows * row_bytes)] if rows else []

    def hold_unit(self, number: int, plan: UnitPlan, *, backward: bool) -> list[Hold]:
        """What one unit of one layer takes on its device while it is worked on, and on hosts for
        what is between each other."""
        holds = self.hold(plan.slot, self._sets.chunk(number, plan.chunk, backward=backward))
        shape = self._frame.shapes[number]
        row_bytes = max(shape.in_features, shape.out_features) * self._frame.itemsize
        abroad = (plan.outputs,) if self._shares_rows else (plan.outputs, plan.leaving)
        return holds + self._hold_abroad(plan, abroad, row_bytes)

    def keep(self, number: int, plan: UnitPlan, sign: int) -> Iterator[Hold]:
        """What a device holds from forward to backward, when a unit's intermediates have been added
        to it (``sign`` 1) or are done with (-1)."""
        if size := self._sets.kept(number, plan.chunk):
            self._kept_bytes[plan.slot] += sign * size
            sizes = [("kept intermediates", self._kept_bytes[plan.slot])]
            yield from self.hold(plan.slot, sizes)

    def hold(self, slot: int, sizes: Sizes) -> list[Hold]:
        name = self._frame.trainers[slot].name
        return [Hold(name, tensor, size) for tensor, size in sizes]
