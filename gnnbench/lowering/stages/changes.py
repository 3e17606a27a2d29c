"""The choice of the partitions that send rows, by how much these have changed since the last time.

Each device measures the change of its own rows and tells all others. Every reader of the program
then knows which rows cross before the transfers are listed. The change is a computed value, which a
reader of sizes alone cannot know.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from gnnbench.errors import IncompatiblePartsError
from gnnbench.lowering.frame import Frame
from gnnbench.lowering.shards import Progress
from gnnbench.program import Buffer, Collective, Counts, Item, Ledger, Place, Step
from gnnbench.records import CopyWork

#: The relative change of the rows of a layer and a slot, once the steps that measure it are taken.
ReadChange = Callable[[int, int], float]


class MeasureChange(NamedTuple):
    """The measurement of how much a device's rows of a layer have changed since they crossed."""

    layer: int
    slot: int


class KeepSentRows(NamedTuple):
    """The copy that a device keeps of the rows of a layer that cross now."""

    layer: int
    slot: int


class TellChange(NamedTuple):
    """The message of the change of a device's rows of a layer to a peer."""

    layer: int
    slot: int


class Changes:
    """The measured changes of the rows of a layer before the layer reads them.

    ``measured`` are the layers whose changes decide. ``due`` says by device index whether its rows
    of the current layer cross. ``read_change`` is None for a reader that goes by sizes alone.

    Raises ``IncompatiblePartsError`` if changes decide and nothing is computed.
    """

    def __init__(self, frame: Frame, now: Progress, read_change: ReadChange | None) -> None:
        self._frame, self._now, self._read_change = frame, now, read_change
        self.measured = [n for n in range(len(frame.layers)) if self._measures(n)]
        self.due: dict[int, bool] = {}
        self._told = self._skipped = 0
        if self.measured and read_change is None:
            raise IncompatiblePartsError(
                f"communication {frame.bundle.communication.name!r} sends rows when their values "
                f"have changed, but a plan computes no values. Plan with a bound in epochs."
            )

    def place(self, ledger: Ledger, slot: int) -> None:
        """Place a device's copies of the rows that it last sent, for every measured layer."""
        if self.measured:
            width = sum(self._frame.layers[number].in_features for number in self.measured)
            size = self._now.shards.num_owned[slot] * width * self._frame.itemsize
            ledger.allocate(self._frame.trainers[slot].name, "rows as last sent", size)

    def _measures(self, number: int) -> bool:
        """Return whether changes decide which input rows cross; features never change."""
        bounded = self._now.staleness.change_bound is not None and number > 0
        return bounded and self._now.shards.crosses(number) and len(self._frame.trainers) > 1

    def measure(self, number: int, rows: list[Buffer]) -> Iterator[Item]:
        """Yield the steps that decide which devices' rows of a layer cross, and keep these rows.

        Later rows are compared with the rows that crossed last. In the first epoch all cross.
        """
        if number not in self.measured:
            return
        slots = [slot for slot, count in enumerate(self._now.shards.num_owned) if count]
        self.due = dict.fromkeys(slots, True)
        if self._now.epoch:
            yield from self._tell_changes(number, slots, rows)
            self._decide(number, slots)
        kept = Buffer("rows that cross are kept")
        for slot in filter(self.due.__getitem__, slots):
            step = self._pass_over(KeepSentRows(number, slot), "keep sent rows", 1)
            yield step.over((self._now.meeting, rows[slot]), adds=(kept,))
        if any(self.due.values()):
            self._now.meeting = kept

    def _tell_changes(self, number: int, slots: list[int], rows: list[Buffer]) -> Iterator[Item]:
        """Send each device's change to every other; all continue once every device knows them."""
        told, known = list[Step](), Buffer("changes are known")
        for slot in slots:
            measured = Buffer("change of the rows")
            # The step reads both the current rows and the rows that were sent.
            step = self._pass_over(MeasureChange(number, slot), "measure change", 2)
            yield step.over((self._now.meeting, rows[slot]), (measured,))
            for peer in range(len(self._frame.trainers)):
                if peer != slot:
                    step = self._tell(TellChange(number, slot), peer)
                    told.append(step.over((measured,), adds=(known,)))
        yield Collective(tuple(told))
        self._now.meeting = known

    def _decide(self, number: int, slots: list[int]) -> None:
        if self._read_change is None:
            raise TypeError("changes decide what crosses, and a plan computes none")
        for slot in slots:
            self.due[slot] = self._now.staleness.is_changed(self._read_change(number, slot))
        self._told += len(slots)
        self._skipped += len(slots) - sum(self.due.values())

    def _pass_over(self, operation: MeasureChange | KeepSentRows, label: str, passes: int) -> Step:
        """Return a step that passes over a device's rows of a layer ``passes`` times."""
        number, slot = operation
        device, count = self._frame.trainers[slot].name, self._now.shards.num_owned[slot]
        size = count * self._frame.layers[number].in_features * self._frame.itemsize
        place, work = Place(device, (device,), slot), CopyWork(passes * size, count)
        return Step(operation, "transfer", label, place, work, number, self._now.round)

    def _tell(self, operation: TellChange, peer: int) -> Step:
        """Return the message of a device's change to a peer."""
        trainers, size, (number, slot) = self._frame.trainers, self._frame.itemsize, operation
        route = self._frame.find_route(trainers[slot], trainers[peer])
        return Step(
            operation,
            "transfer",
            "tell change",
            route._replace(device=peer, source=slot),
            CopyWork(size),
            number,
            self._now.round,
            Counts((("device_to_device", size),)),
        )

    def notes(self) -> tuple[str, ...]:
        """Return how often rows had changed by too little to cross."""
        bound = self._now.staleness.change_bound
        if bound is None or not self._told:
            return ()
        crossed = self._told - self._skipped
        return (
            f"rows of a partition and layer crossed {crossed:,} of {self._told:,} "
            f"times after the first epoch; else they had changed by {bound:g} of themselves or "
            f"less",
        )
