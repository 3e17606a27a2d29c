"""HyScale-GNN's Processor-Accelerator Training Protocol (§III-A to §III-C, §IV-B, Listing 1).

A round goes through four stages: sampling, feature loading, data transfer and propagation. Each has
a barrier at its end: it is over when it has processed all of the round's mini-batches. Then the
synchroniser averages the gradients, and the runtime observes the stage times. The depth of feature
prefetching decides how many stages work on different rounds at once.

If n rounds may be under way, the runtime lets round i in when round i - n has been synchronised. It
decides the round's split then, with the times of round i - n and of earlier rounds alone. The split
of a round under way is never changed. So decisions follow their causes after a fixed number of
rounds, independent of the threads.

The stages run in two ways. In :func:`run_on_threads` each of the logical components has a thread.
In :func:`run_in_turn` every stage takes a step, one after the other, as in Figure 7. It serves
devices that only exist on the model clock, since their order and memory must not depend on timing.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import Generic, TypeVar

from gnnbench.errors import (
    DeviceOutOfMemoryError,
    GnnbenchError,
    Interrupted,
    MissingDependencyError,
    StageFailedError,
)
from gnnbench.lowering.rounds import Pipeline, StageName, Turn, take_turns

R = TypeVar("R")

#: The longest time until a waiting thread notices a signal, in seconds.
SIGNALS_S = 0.5


@dataclass(frozen=True, slots=True)
class Trainer:
    """One of the round's trainers; those with an equal ``processor`` take turns on it."""

    device: str
    processor: Hashable


@dataclass(frozen=True, slots=True)
class Steps(Generic[R]):
    """The actions of an engine in a round ``R``, in this order.

    ``assign`` makes round number i and its split. ``stages`` prepare it. ``begin`` is called when
    the model is the one that it trains on, then ``propagate`` for every trainer by position.
    ``synchronise`` follows, and ``observe`` when its stage times are known. ``host`` and
    ``trainers`` name the device in an error.
    """

    assign: Callable[[int], R]
    stages: Mapping[StageName, Callable[[R], None]]
    begin: Callable[[R], None]
    propagate: Callable[[R, int], None]
    synchronise: Callable[[R], None]
    observe: Callable[[R], None]
    host: str
    trainers: tuple[Trainer, ...]


class _At:
    """A context that adds its ``place`` to errors of its body: stage, round and device.

    A body of several stages sets the place itself. The context is in ``running`` until it ends, and
    stays there when it is interrupted.
    """

    __slots__ = ("_running", "place")

    def __init__(self, stage: str, round: int, device: str, running: set[_At]) -> None:
        self.place = (stage, round, device)
        self._running = running

    def __enter__(self) -> None:
        self._running.add(self)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if not isinstance(error, KeyboardInterrupt):
            self._running.discard(self)
        if error is None or isinstance(error, MissingDependencyError | StageFailedError):
            return
        stage, round_, device = self.place
        if isinstance(error, DeviceOutOfMemoryError):
            error.stage, error.round = stage, round_
        elif isinstance(error, Exception):
            raise StageFailedError(stage, round_, device, error) from error


@contextmanager
def _naming(running: set[_At]) -> Iterator[None]:
    """Add to an interrupt of the body the stages that were ``running``, on any thread."""
    try:
        yield
    except KeyboardInterrupt as error:
        places = [at.place for at in tuple(running)]
        raise Interrupted(tuple(sorted(places, key=lambda place: place[1:]))) from error


def run_in_turn(steps: Steps[R], num_rounds: int, pipeline: Pipeline) -> None:
    """Run all rounds on this thread; in every step the stages work on different rounds.

    Raises ``StageFailedError``, ``DeviceOutOfMemoryError`` with its stage, or ``Interrupted``.
    """
    stages: dict[Turn, Callable[[R], None]] = dict(steps.stages.items())
    stages |= {"begin": steps.begin, "synchronize": steps.synchronise}
    rounds: dict[int, R] = {}
    running: set[_At] = set()
    at = _At("assign", 0, steps.host, running)
    with _naming(running), at:
        for turn, index, slot in take_turns(num_rounds, pipeline, len(steps.trainers)):
            on_trainer = turn == "propagate"
            at.place = (turn, index, steps.trainers[slot].device if on_trainer else steps.host)
            if turn == "assign":
                rounds[index] = steps.assign(index)
            elif turn == "propagate":
                steps.propagate(rounds[index], slot)
            elif turn == "observe":
                steps.observe(rounds.pop(index))
            else:
                stages[turn](rounds[index])


def run_on_threads(steps: Steps[R], num_rounds: int, pipeline: Pipeline) -> None:
    """Run all rounds: this thread is the runtime, and every other component gets a thread.

    All threads have ended when this returns or raises. It raises the first failure in the order of
    rounds and stages, with the others in ``also``, or ``Interrupted``.
    """
    crew = _Crew(steps, num_rounds, pipeline)
    try:
        with _naming(crew.running):
            crew.start()
            crew.lead()
    except _EndedError:
        pass
    finally:
        crew.end()
        crew.join()
    crew.raise_failure()


class _EndedError(Exception):
    """The run was ended elsewhere; every thread that waits ends."""


class _Signals:
    """One lock, and conditions under it; all their waits end when the run does."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._conditions: list[threading.Condition] = []
        self.ended = False

    def condition(self) -> threading.Condition:
        made = threading.Condition(self._lock)
        self._conditions.append(made)
        return made

    def wait(self, condition: threading.Condition, ready: Callable[[], bool]) -> None:
        """Wait, with the lock held, until ``ready``; raise ``_Ended`` when the run is over.

        A signal that arrives in the moment before this thread falls asleep does not wake it.
        """
        while not condition.wait_for(lambda: self.ended or ready(), SIGNALS_S):
            pass
        if self.ended:
            raise _EndedError

    def end(self) -> None:
        with self._lock:
            self.ended = True
            for condition in self._conditions:
                condition.notify_all()


class _Queue(Generic[R]):
    """A bounded queue between two components."""

    def __init__(self, signals: _Signals, capacity: int) -> None:
        self._signals = signals
        self._changed = signals.condition()
        self._capacity = capacity
        self._items: deque[R] = deque()

    def put(self, item: R) -> None:
        with self._changed:
            self._signals.wait(self._changed, lambda: len(self._items) < self._capacity)
            self._items.append(item)
            self._changed.notify_all()

    def get(self) -> R:
        with self._changed:
            self._signals.wait(self._changed, lambda: bool(self._items))
            item = self._items.popleft()
            self._changed.notify_all()
            return item


class _Crew(Generic[R]):
    """The threads of one epoch, and the queues and conditions between them."""

    def __init__(self, steps: Steps[R], num_rounds: int, pipeline: Pipeline) -> None:
        self._steps = steps
        self._num_rounds = num_rounds
        self._under_way = pipeline.under_way
        self._device_buffers = pipeline.device_buffers
        self._signals = _Signals()
        self._failures: list[tuple[int, int, BaseException]] = []
        self.running: set[_At] = set()
        groups = pipeline.groups
        #: The queues before each group of stages, and before the synchroniser.
        self._prepared = [self._queue() for _ in range(len(groups) + 1)]
        self._to_trainers = [self._queue() for _ in steps.trainers]
        self._acknowledged = self._queue()
        self._trained = self._signals.condition()
        self._done = 0
        self._stepped = self._signals.condition()
        self._num_synchronised = 0
        self._turn = self._signals.condition()
        self._at_work: set[Hashable] = set()
        components: list[tuple[str, Callable[[], None]]] = [
            *(
                (" ".join(group), partial(self._prepare, place, group))
                for place, group in enumerate(groups)
            ),
            *(
                (f"train {trainer.device}", partial(self._train, slot))
                for slot, trainer in enumerate(steps.trainers)
            ),
            ("synchronize", self._synchronise),
        ]
        self._threads = [
            threading.Thread(
                target=self._guard, args=(rank, work), name=f"gnnbench {name}", daemon=True
            )
            for rank, (name, work) in enumerate(components)
        ]

    def _queue(self) -> _Queue[R]:
        return _Queue(self._signals, self._under_way)

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def end(self) -> None:
        """Wake every wait; a thread in the middle of a stage ends after it."""
        self._signals.end()

    def join(self) -> None:
        for thread in self._threads:
            if thread.ident is not None:
                thread.join()

    def raise_failure(self) -> None:
        """Raise the first failure in the order of rounds and of components, if there is one."""
        if not self._failures:
            return
        first, *others = (
            error for *_, error in sorted(self._failures, key=lambda failure: failure[:2])
        )
        if isinstance(first, StageFailedError | DeviceOutOfMemoryError):
            first.also = tuple(error for error in others if isinstance(error, GnnbenchError))
        raise first

    def _guard(self, rank: int, work: Callable[[], None]) -> None:
        """Run a component; if it fails, all components end."""
        try:
            work()
        except _EndedError:
            pass
        except BaseException as error:
            number = (
                error.round if isinstance(error, StageFailedError | DeviceOutOfMemoryError) else 0
            )
            self._failures.append((number, rank, error))
            self._signals.end()

    # ------------------------------------------------------------------ the components

    def lead(self) -> None:
        """Run the runtime: let rounds in, and observe the times of those that are over."""
        for index in range(self._num_rounds):
            if index >= self._under_way:
                self._acknowledge(index - self._under_way)
            with self._at("assign", index, self._steps.host):
                round_ = self._steps.assign(index)
            self._prepared[0].put(round_)
        for index in range(max(0, self._num_rounds - self._under_way), self._num_rounds):
            self._acknowledge(index)

    def _acknowledge(self, index: int) -> None:
        round_ = self._acknowledged.get()
        with self._at("observe", index, self._steps.host):
            self._steps.observe(round_)

    def _prepare(self, place: int, group: tuple[StageName, ...]) -> None:
        """Run the sampler, the feature loader or the transfer thread, or several of them in one."""
        for index in range(self._num_rounds):
            round_ = self._prepared[place].get()
            for stage in group:
                if stage == "transfer":
                    self._wait_for_buffer(index)
                self._go_on()
                with self._at(stage, index, self._steps.host):
                    self._steps.stages[stage](round_)
            self._prepared[place + 1].put(round_)

    def _wait_for_buffer(self, index: int) -> None:
        with self._stepped:
            first_free = index - self._device_buffers
            self._signals.wait(self._stepped, lambda: self._num_synchronised > first_free)

    def _train(self, slot: int) -> None:
        """Run a trainer: compute, increment DONE and prompt the synchroniser (Listing 1)."""
        trainer = self._steps.trainers[slot]
        for index in range(self._num_rounds):
            round_ = self._to_trainers[slot].get()
            with (
                self._take_turn(trainer.processor),
                self._at("propagate", index, trainer.device),
            ):
                self._steps.propagate(round_, slot)
            with self._trained:
                self._done += 1
                self._trained.notify_all()

    @contextmanager
    def _take_turn(self, processor: Hashable) -> Iterator[None]:
        with self._turn:
            self._signals.wait(self._turn, lambda: processor not in self._at_work)
            self._at_work.add(processor)
        try:
            yield
        finally:
            with self._turn:
                self._at_work.remove(processor)
                self._turn.notify_all()

    def _synchronise(self) -> None:
        """Run the synchroniser: wait until DONE is the number of trainers, average, broadcast."""
        for index in range(self._num_rounds):
            round_ = self._prepared[-1].get()
            with self._at("begin", index, self._steps.host):
                self._steps.begin(round_)
            for queue in self._to_trainers:
                queue.put(round_)
            with self._trained:
                self._signals.wait(self._trained, lambda: self._done == len(self._to_trainers))
                self._done = 0
            with self._at("synchronize", index, self._steps.host):
                self._steps.synchronise(round_)
            with self._stepped:
                self._num_synchronised += 1
                self._stepped.notify_all()
            self._acknowledged.put(round_)

    def _go_on(self) -> None:
        if self._signals.ended:
            raise _EndedError

    def _at(self, stage: str, index: int, device: str) -> _At:
        return _At(stage, index, device, self.running)
