"""The tensors that devices hold while they train units with vertex data on the host.

Hosts hold rows that wait between two links.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from gnnbench.lowering.frame import Frame
from gnnbench.lowering.host_plan import HostRows, UnitPlan
from gnnbench.lowering.working_sets import Sizes, WorkingSets
from gnnbench.program import Hold
from gnnbench.program.step import new_hold
from gnnbench.records import BufferRows


class HostHolds:
    """The holds of buffers and of units, by the working sets ``sets``.

    ``buffer_rows`` has, by device index, the buffer rows that the largest round needs.
    """

    def __init__(
        self, frame: Frame, sets: WorkingSets, buffer_rows: Mapping[int, BufferRows]
    ) -> None:
        self._frame, self._sets, self._buffer_rows = frame, sets, buffer_rows
        self._shares_rows = frame.bundle.shares_rows
        self.start_epoch()

    def start_epoch(self) -> None:
        """Forget the units of the last epoch."""
        #: By device index, the bytes of units that are kept since the epoch began.
        self._kept_bytes = [0] * len(self._frame.trainers)

    def hold_buffers(self, number: int, *, backward: bool) -> list[Hold]:
        """Return the buffers of one pass over a layer's rounds, enough for the largest round."""
        return [
            hold
            for what in self._sets.buffered(number, backward=backward)
            for slot, rows in self._buffer_rows.items()
            for hold in self.hold(slot, self._sets.buffers(number, what, rows))
        ]

    def hold_crossing(self, number: int, plan: UnitPlan) -> list[Hold]:
        """Return the staging memory of rows between the host and a device's buffers.

        Hosts also hold rows that are in flight between them.
        """
        holds = self.hold(plan.slot, self._sets.crossing(number, plan.chunk))
        row_bytes = self._frame.layers[number].in_features * self._frame.itemsize
        return holds + self._hold_abroad(plan, (plan.loaded, plan.leaving), row_bytes)

    def _hold_abroad(
        self, plan: UnitPlan, crossing: Iterable[HostRows], row_bytes: int
    ) -> list[Hold]:
        """Return the memory on a unit's host for other hosts' rows between two links."""
        here, device = self._frame.hosts[plan.slot], self._frame.trainers[plan.slot].name
        rows = max(
            sum(count for _, count in self._frame.homes.list_abroad(each.by_host, here))
            for each in crossing
        )
        return [Hold(here.name, f"rows of other hosts, {device}", rows * row_bytes)] if rows else []

    def hold_unit(self, number: int, plan: UnitPlan, *, backward: bool) -> list[Hold]:
        """Return what one unit of one layer holds on its device while it is worked on.

        Hosts also hold rows that are in flight between them.
        """
        holds = self.hold(plan.slot, self._sets.chunk(number, plan.chunk, backward=backward))
        shape = self._frame.shapes[number]
        row_bytes = max(shape.in_features, shape.out_features) * self._frame.itemsize
        abroad = (plan.outputs,) if self._shares_rows else (plan.outputs, plan.leaving)
        return holds + self._hold_abroad(plan, abroad, row_bytes)

    def keep(self, number: int, plan: UnitPlan, sign: int) -> Iterator[Hold]:
        """Yield a device's hold of kept intermediates after one unit's have changed it.

        They are added with ``sign`` 1 and released with ``sign`` -1.
        """
        if size := self._sets.kept(number, plan.chunk):
            self._kept_bytes[plan.slot] += sign * size
            sizes = [("kept intermediates", self._kept_bytes[plan.slot])]
            yield from self.hold(plan.slot, sizes)

    def hold(self, slot: int, sizes: Sizes) -> list[Hold]:
        """Return items that hold tensors of these sizes on a trainer."""
        name = self._frame.trainers[slot].name
        return [new_hold((name, tensor, size)) for tensor, size in sizes]
