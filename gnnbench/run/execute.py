"""Takes a program step by step: executes the bodies, or goes by the sizes alone."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TypeAlias

from gnnbench.constants import Bound
from gnnbench.program import (
    Collective,
    Drop,
    Free,
    Hold,
    Item,
    Ledger,
    Section,
    Step,
    Take,
    Waits,
)
from gnnbench.run.recorder import Recorder, Track

#: A sleep takes some 0.1 ms more than it is asked for, which the next one makes up for.
LEAST_REST_S: Bound[float] = 5e-4
#: So many steps are taken before they are accounted for.
MOST_TAKEN: Bound[int] = 512
#: What a step's operation computes, by its name.
Bodies = Mapping[str, Callable[..., None]]
#: Where a section is recorded and what it runs on.
Enter = Callable[[Section], AbstractContextManager[Track]]
#: Is told, before a step is taken, its number and those of the steps that it waits for, ascending.
Arrive = Callable[[int, Sequence[int]], None]
#: Is told, when a step has been taken here, that step and its number.
Leave = Callable[[Step, int], None]
#: A step's number, and those of the steps that it waits for, ascending.
Met: TypeAlias = tuple[int, tuple[int, ...]]
#: A step that is done, when it began on the host's clock, how long it took here, and its number
#: where it had to have one before.
Taken: TypeAlias = tuple[Step, float, float, Met | None]


def take_items(
    items: Iterable[Item],
    recorder: Recorder,
    ledger: Ledger,
    bodies: Bodies | None,
    arrive: Arrive | None = None,
) -> None:
    """Record the steps of an epoch, in order, and account for what memories hold.

    With ``bodies`` each step computes what it is for; without any nothing is computed.
    """
    Reader(recorder, ledger, bodies, arrive=arrive).take(items)


class Reader:
    """Takes the items of one epoch, on one thread or the stages of rounds on several.

    Where some come from other processes, ``arrive`` waits for them, and ``leave`` is told of what
    steps here send over links that take their time. A process that is held to a share of its
    ``speed`` rests after a step for as long as that share makes longer what it computed; to wait
    for other processes takes nobody longer.
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
        #: Whether more is done at each step than its body.
        self._early = arrive is not None or leave is not None or self._rest > 0.0
        self._owed_s = 0.0
        #: When the step under way began, by the wall clock and by the processor's time.
        self._began_s = 0.0, 0.0
        self._recorder = recorder
        self._ledger = ledger
        self._bodies = bodies
        self._waits = Waits()
        self._enter = enter or (lambda section: recorder.stage(section.round, section.rank))

    def take(self, items: Iterable[Item]) -> None:
        """Take items one after the other on this thread."""
        remaining = iter(items)
        section = self._take_section(remaining, self._recorder.track)
        while section is not None:
            with self._enter(section) as track:
                section = self._take_section(remaining, track)

    def _take_section(self, items: Iterator[Item], track: Track) -> Section | None:
        """Take items up to the section that begins next; None where they end."""
        # Between kernels nothing of this is in a cache: all in one frame, and what can wait is done
        # of many steps one after the other.
        bodies, early, read, since = self._bodies, self._early, track.read, track.since
        taken: list[Taken] = []
        section = None
        for item in items:
            if isinstance(item, Step):
                met = self._meet(item) if early else None
                began = read()
                if item.index_work is not None:
                    item.index_work(item)
                if bodies is not None and item.op:
                    bodies[item.op](*item.operands)
                if met is not None:
                    self._see_off(item, met[0])
                taken.append((item, *since(began), met))
                if item.asked or item.index_work is not None or len(taken) == MOST_TAKEN:
                    self._account(taken, track)
            elif isinstance(item, Section):
                section = item
                break
            elif isinstance(item, Collective):
                self._account(taken, track)
                self._take_section(iter(item.steps), track)
            else:
                self._take_other(item)
        self._account(taken, track)
        return section

    def _meet(self, step: Step) -> Met:
        """The number of a step that is next, and those of the steps that it waits for, for which
        whoever has to be told does wait."""
        number = next(self._recorder.ids)
        after = self._waits.follow(step, number)
        if self._arrive is not None:
            self._arrive(number, after)
        if self._rest > 0.0:
            self._began_s = time.perf_counter(), time.process_time()
        return number, after

    def _see_off(self, step: Step, number: int) -> None:
        """A step's body is done: tell whoever is to know, and rest."""
        if self._leave is not None and self._bodies is not None and step.op:
            self._leave(step, number)
        if self._rest > 0.0:
            wall_s, computed_s = self._began_s
            # What several cores computed at once counts once.
            computed_s = time.process_time() - computed_s
            self._rest_after(min(computed_s, time.perf_counter() - wall_s))

    def _account(self, taken: list[Taken], track: Track) -> None:
        """Record steps that have been taken, in their order, and let go of them."""
        for step, began_s, wall_s, met in taken:
            number, after = met or self._meet(step)
            track.add(step, number, after, began_s, wall_s)
        taken.clear()

    def _rest_after(self, took_s: float) -> None:
        """Sleep for what a step of so long is to take besides, once that is worth a sleep."""
        self._owed_s += took_s * self._rest
        if self._owed_s > LEAST_REST_S:
            began_s = time.perf_counter()
            time.sleep(self._owed_s)
            self._owed_s -= time.perf_counter() - began_s

    def _take_other(self, item: Hold | Free | Take | Drop) -> None:
        if isinstance(item, Take):
            item.held = self._ledger.hold(item.memory, item.sizes_bytes)
        elif isinstance(item, Drop):
            if item.taken.held is not None:
                item.taken.held.release()
        elif isinstance(item, Hold):
            self._ledger.allocate(item.memory, item.tensor, item.size_bytes)
        else:
            self._ledger.free(item.memory, item.tensor)
