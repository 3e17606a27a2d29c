"""Takes a program step by step: executes the bodies, or goes by the sizes alone."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager

from gnnbench.constants import Bound
from gnnbench.program import (
    Aside,
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
from gnnbench.run.recorder import Recorder, Track, new_kind

#: A sleep takes some 0.1 ms more than it is asked for, which the next one makes up for.
LEAST_REST_S: Bound[float] = 5e-4
#: What a step's operation computes, by its name.
Bodies = Mapping[str, Callable[..., None]]
#: Where a section is recorded and what it runs on.
Enter = Callable[[Section], AbstractContextManager[Track]]
#: Is told, before a step is taken, its number and those of the steps that it waits for, ascending.
Arrive = Callable[[int, Sequence[int]], None]
#: Is told, when a step has been taken here, that step and its number.
Leave = Callable[[Step, int], None]


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
    ``speed`` rests after a step for as long as that share makes it longer.
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
        self._owed_s = 0.0
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
        # This goes on between kernels, when nothing of it is in a cache: all in one frame.
        ids, bodies, follow = self._recorder.ids, self._bodies, self._waits.follow
        leave = self._leave
        arrive, rests = self._arrive, self._rest > 0.0
        for item in items:
            if isinstance(item, Step):
                number = next(ids)
                after = follow(item, number)
                if arrive is not None:
                    arrive(number, after)
                track.round = item.round
                began = track.read()
                if item.index_work is not None:
                    item.index_work(item)
                if bodies is not None and item.op:
                    bodies[item.op](*item.operands)
                    if leave is not None:
                        leave(item, number)
                if rests:
                    self._rest_after(track.read() - began)
                kind = new_kind((item.stage, item.label, item.place, item.resources, item.layer))
                item.seconds = track.add(kind, item.work, after, began, number).seconds
                for counted, size_bytes in item.moves:
                    track.bytes[counted] = track.bytes.get(counted, 0) + size_bytes
                if item.vertices:
                    track.edges += item.edges
                    track.vertices += item.vertices
                if item.arithmetic:
                    track.work[item.place] = track.work.get(item.place, 0.0) + item.arithmetic
            elif isinstance(item, Section):
                return item
            elif isinstance(item, Collective):
                self._take_section(iter(item.steps), track)
            else:
                self._take_other(item)
        return None

    def _rest_after(self, took_s: float) -> None:
        """Sleep for what a step of so long is to take besides, once that is worth a sleep."""
        self._owed_s += took_s * self._rest
        if self._owed_s > LEAST_REST_S:
            began_s = time.perf_counter()
            time.sleep(self._owed_s)
            self._owed_s -= time.perf_counter() - began_s

    def _take_other(self, item: Hold | Free | Take | Drop | Aside) -> None:
        if isinstance(item, Take):
            item.held = self._ledger.hold(item.memory, item.sizes_bytes)
        elif isinstance(item, Drop):
            if item.taken.held is not None:
                item.taken.held.release()
        elif isinstance(item, Hold):
            self._ledger.allocate(item.memory, item.tensor, item.size_bytes)
        elif isinstance(item, Free):
            self._ledger.free(item.memory, item.tensor)
        elif self._bodies is not None:
            with self._recorder.inside_part():
                self._bodies[item.op](*item.operands)
