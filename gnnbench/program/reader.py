"""The reader of a program: it executes the bodies of steps, or goes by their sizes alone."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, TypeAlias

from gnnbench.constants import Bound
from gnnbench.program.ledger import Held, Ledger
from gnnbench.program.recorder import Recorder, Track
from gnnbench.program.step import (
    Account,
    Collective,
    Drop,
    Free,
    Hold,
    Item,
    Section,
    Sizes,
    Step,
    Take,
)
from gnnbench.program.waits import Waits

#: A sleep takes some 0.1 ms more than it is asked for, which the next one makes up for.
LEAST_REST_S: Bound[float] = 5e-4
#: The most steps that are taken before they are accounted for.
MOST_TAKEN: Bound[int] = 512
#: The functions that compute steps, by the type of the operation that each receives.
Bodies = Mapping[type, Callable[[Any], None]]
#: Returns a context in which a section runs, with the track that records it.
Enter = Callable[[Section], AbstractContextManager[Track]]
#: Receives a step's number before the step, and the steps that it waits for, ascending.
Arrive = Callable[[int, Sequence[int]], None]
#: Receives a step and its number after the step was taken here.
Leave = Callable[[Step, int], None]
#: A step's number, and the numbers of the steps that it waits for, ascending.
Met: TypeAlias = tuple[int, tuple[int, ...]]
#: A step that is done, its start on the host's clock, its seconds here, and its number if it
#: needed one before.
Taken: TypeAlias = tuple[Step, float, float, Met | None]


def take_items(
    items: Iterable[Item],
    recorder: Recorder,
    ledger: Ledger,
    bodies: Bodies | None,
    arrive: Arrive | None = None,
) -> None:
    """Record the steps of an epoch, in order, and account for what memories hold.

    With ``bodies`` each step is computed; without, nothing is computed.
    """
    Reader(recorder, ledger, bodies, arrive=arrive).take(items)


class Reader:
    """The reader of the items of one epoch, on one thread or, by stages, on several.

    ``arrive`` waits for data of other processes. ``leave`` learns which data steps here send over
    links of limited bandwidth. After each step a throttled process sleeps to emulate its reduced
    ``speed``. Waiting for other processes does not count as its work.
    """

    def __init__(
        self,
        recorder: Recorder,
        ledger: Ledger,
        bodies: Bodies | None,
        enter: Enter | None = None,
        arrive: Arrive | None = None,
        leave: Leave | None = None,
        speed: float = 1.0,
    ) -> None:
        self._arrive = arrive
        self._leave = leave
        self._rest = 1.0 / speed - 1.0
        #: Whether a step needs more than its body.
        self._early = arrive is not None or leave is not None or self._rest > 0.0
        self._owed_s = 0.0
        #: The start of the current step, by the wall clock and by the processor's time.
        self._began_s = 0.0, 0.0
        self._recorder = recorder
        self._ledger = ledger
        self._bodies = bodies
        self._waits = Waits()
        #: What memories hold for items that have been taken.
        self._held: dict[Take, Held] = {}
        self._enter = enter or (lambda section: recorder.stage(section.round, section.rank))

    def take(self, items: Iterable[Item]) -> None:
        """Take items one after the other on this thread."""
        remaining = iter(items)
        section = self._take_section(remaining, self._recorder.track)
        while section is not None:
            with self._enter(section) as track:
                section = self._take_section(remaining, track)

    def _take_section(self, items: Iterator[Item], track: Track) -> Section | None:
        """Take items up to the next section and return that section, or None at the end."""
        # Between kernels none of this code is in a cache. So all is in one frame, and the
        # accounting of many steps is done together.
        bodies, early, read, since = self._bodies, self._early, track.read, track.since
        taken: list[Taken] = []
        section = None
        for item in items:
            if isinstance(item, Step):
                met = self._meet(item) if early else None
                began = read()
                operation, index_work = item.operation, item.index_work
                sizes = None if index_work is None else index_work()
                if bodies is not None and operation is not None:
                    bodies[type(operation)](operation)
                if met is not None:
                    self._see_off(item, met[0])
                taken.append((item if sizes is None else _resize(item, sizes), *since(began), met))
                if index_work is not None or len(taken) == MOST_TAKEN:
                    self._account(taken, track)
            elif isinstance(item, Section):
                section = item
                break
            elif isinstance(item, Collective):
                self._account(taken, track)
                self._take_section(iter(item.steps), track)
            elif isinstance(item, Account):
                self._account(taken, track)
            else:
                self._take_other(item)
        self._account(taken, track)
        return section

    def _meet(self, step: Step) -> Met:
        """Return the number of the next step and the numbers of the steps that it waits for."""
        number = next(self._recorder.ids)
        after = self._waits.follow(step, number)
        if self._arrive is not None:
            self._arrive(number, after)
        if self._rest > 0.0:
            self._began_s = time.perf_counter(), time.process_time()
        return number, after

    def _see_off(self, step: Step, number: int) -> None:
        """Call ``leave`` once a step's body is done, and sleep if the process is throttled."""
        if self._leave is not None and self._bodies is not None and step.operation is not None:
            self._leave(step, number)
        if self._rest > 0.0:
            wall_s, computed_s = self._began_s
            # Parallel work of several cores counts once.
            computed_s = time.process_time() - computed_s
            self._rest_after(min(computed_s, time.perf_counter() - wall_s))

    def _account(self, taken: list[Taken], track: Track) -> None:
        """Record steps that have been taken, in their order, and release them."""
        for step, began_s, wall_s, met in taken:
            number, after = met or self._meet(step)
            track.add(step, number, after, began_s, wall_s)
        taken.clear()

    def _rest_after(self, took_s: float) -> None:
        """Sleep for the extra time of a step that took ``took_s``, once that is worth a sleep."""
        self._owed_s += took_s * self._rest
        if self._owed_s > LEAST_REST_S:
            began_s = time.perf_counter()
            time.sleep(self._owed_s)
            self._owed_s -= time.perf_counter() - began_s

    def _take_other(self, item: Hold | Free | Take | Drop) -> None:
        if isinstance(item, Take):
            self._held[item] = self._ledger.hold(item.memory, item.sizes_bytes)
        elif isinstance(item, Drop):
            self._held.pop(item.taken).release()
        elif isinstance(item, Hold):
            self._ledger.allocate(item.memory, item.tensor, item.size_bytes)
        else:
            self._ledger.free(item.memory, item.tensor)


def _resize(step: Step, sizes: Sizes) -> Step:
    """Return a step with the sizes that its index work has found."""
    return step._replace(work=sizes.work, counts=sizes.counts)
