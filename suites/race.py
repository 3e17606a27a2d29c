"""A fair race: contestants run by turns in one process on the same data, and the results agree.

Speedups are ratios of medians over the same rounds, each with a 95 % confidence interval.
"""

from __future__ import annotations

import gc
import importlib.util
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from gnnbench.errors import MissingDependency

OURS = "gnnbench"
#: A case stops early once its time is spent, but not with fewer samples of a contestant.
FEWEST_ROUNDS = 3
#: One sample is enough of a peer that takes more than so many times as long as the fastest one.
BEATEN = 2.0
RESAMPLES = 2000

Check = Callable[[Any, Any], None]


class WrongResult(Exception):
    """A contestant's result is not what it must be; the message is one sentence."""


@dataclass(frozen=True, slots=True)
class Contestant:
    """A prepared call. Its argument numbers the call, for those that draw anew each time.

    ``read`` turns a result into the form in which results are compared; nobody times it.
    """

    call: Callable[[int], Any]
    read: Callable[[Any], Any] = lambda result: result


@dataclass(frozen=True, slots=True)
class Target:
    """The fastest peer of those whose names start with ``peer`` ("" for all) is to take at least
    ``factor`` times as long as we do; None is no target, but shows that peer."""

    peer: str
    factor: float | None = None


@dataclass(frozen=True, slots=True)
class Case:
    """One computation on one input, and who can do it: makers by name, ours among them.

    A maker prepares its contestant for as many threads as torch has; it raises
    ``MissingDependency`` where a library is not installed. ``check(result, ours)`` raises
    :class:`WrongResult`; it is asked about every contestant, ours included. ``compulsory_bytes``
    must cross the memory bus at least, ``gathered_bytes`` are read row by row from anywhere.
    """

    kernel: str
    graph: str
    name: str
    makers: Mapping[str, Callable[[], Contestant]]
    check: Check
    targets: Sequence[Target] = ()
    threaded: bool = True
    compulsory_bytes: int | None = None
    gathered_bytes: int | None = None

    def __str__(self) -> str:
        return f"{self.kernel} {self.graph} {self.name}"


@dataclass(frozen=True, slots=True)
class Limits:
    """At most so many rounds, and about so many seconds for a case, shared by its contestants."""

    rounds: int = 9
    seconds: float = 20.0


@dataclass(frozen=True, slots=True)
class Speedup:
    """How many times as long a peer takes as we do, over the rounds that both ran."""

    ratio: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Claim:
    """A peer held against a target, or only shown."""

    peer: str
    speedup: Speedup
    factor: float | None

    @property
    def met(self) -> bool | None:
        return None if self.factor is None else self.speedup.ratio >= self.factor


@dataclass(slots=True)
class Outcome:
    """Seconds of every timed call by contestant; who did not take part, and whose result is wrong.

    A contestant that is slow leaves early, so that its samples are those of the first rounds.
    """

    case: Case
    threads: int
    seconds: dict[str, list[float]] = field(default_factory=dict)
    absent: dict[str, str] = field(default_factory=dict)
    wrong: dict[str, str] = field(default_factory=dict)

    @property
    def peers(self) -> list[str]:
        return [name for name in self.seconds if name != OURS]

    def median(self, name: str) -> float:
        return float(np.median(self.seconds[name]))

    def speedup(self, peer: str) -> Speedup:
        theirs = self.seconds[peer]
        return find_speedup(self.seconds[OURS][: len(theirs)], theirs)

    def fastest(self, prefix: str = "") -> str | None:
        """The peer against which we look worst, of those whose names start so."""
        peers = [peer for peer in self.peers if peer.startswith(prefix)]
        return min(peers, key=lambda peer: self.speedup(peer).ratio, default=None)

    def claims(self) -> list[Claim]:
        """One for every peer that a target is about, and for the fastest of all."""
        factors: dict[str, float | None] = {}
        for target in (*self.case.targets, Target("")):
            peer = self.fastest(target.peer)
            if peer is not None:
                asked = [factor for factor in (factors.get(peer), target.factor) if factor]
                factors[peer] = max(asked, default=None)
        return [Claim(peer, self.speedup(peer), factor) for peer, factor in factors.items()]


def find_speedup(
    ours: Sequence[float], theirs: Sequence[float], *, resamples: int = RESAMPLES, seed: int = 0
) -> Speedup:
    """Median over median of paired samples; percentiles of the bootstrap, which resamples pairs."""
    pairs = np.array((ours, theirs))
    picks = np.random.default_rng(seed).integers(pairs.shape[1], size=(resamples, pairs.shape[1]))
    medians = np.median(pairs[:, picks], axis=2)
    low, high = np.quantile(medians[1] / medians[0], (0.025, 0.975))
    middle = np.median(pairs, axis=1)
    return Speedup(float(middle[1] / middle[0]), float(low), float(high))


def race(case: Case, threads: int, limits: Limits) -> Outcome:
    """Check every contestant of a case, then time those whose results are right."""
    outcome = Outcome(case, threads)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    gc.collect()
    gc.disable()
    try:
        _take_turns(outcome, _admit(outcome), limits)
    finally:
        gc.enable()
        torch.set_num_threads(before)
    return outcome


def _admit(outcome: Outcome) -> dict[str, Contestant]:
    """The contestants that are installed and right."""
    admitted: dict[str, Contestant] = {}
    ours: Any = None
    for name in sorted(outcome.case.makers, key=lambda name: name != OURS):
        try:
            contestant = outcome.case.makers[name]()
            result = contestant.read(contestant.call(0))
            ours = result if name == OURS else ours
            outcome.case.check(result, ours)
        except MissingDependency as error:
            outcome.absent[name] = str(error)
        except WrongResult as error:
            outcome.wrong[name] = str(error)
        else:
            admitted[name] = contestant
    return admitted


def _take_turns(outcome: Outcome, contestants: dict[str, Contestant], limits: Limits) -> None:
    if OURS not in contestants:
        return
    outcome.seconds = {name: [] for name in contestants}
    left = dict.fromkeys(contestants, limits.seconds / len(contestants))
    names = list(contestants)
    for turn in range(limits.rounds):
        first = turn % len(names)
        racing = [
            name
            for name in (*names[first:], *names[:first])
            if left[name] > 0 or turn < _fewest_rounds(outcome, name)
        ]
        if OURS not in racing:
            racing.append(OURS)  # every sample of a peer has one of ours beside it
        if turn >= FEWEST_ROUNDS and racing == [OURS]:
            return
        for name in racing:
            start = time.perf_counter()
            outcome.seconds[name].append(_time(contestants[name], turn))
            left[name] -= time.perf_counter() - start


def _fewest_rounds(outcome: Outcome, name: str) -> int:
    """1 for a peer that was beaten in the first round, unless a target names it."""
    first = {peer: outcome.seconds[peer][0] for peer in outcome.peers if outcome.seconds[peer]}
    named = any(target.peer and name.startswith(target.peer) for target in outcome.case.targets)
    beaten = name in first and first[name] > BEATEN * min(first.values())
    return 1 if beaten and not named else FEWEST_ROUNDS


def _time(contestant: Contestant, turn: int) -> float:
    """Seconds of one call, right after one that nobody times.

    Contestants that allocate their results give memory back to the system after every call, which
    a virtual machine may have to get from its host again; the call before keeps it at hand.
    """
    contestant.call(2 * turn)
    start = time.perf_counter()
    result = contestant.call(2 * turn + 1)
    seconds = time.perf_counter() - start
    del result
    return seconds


def measure_stream(threads: int, size: int = 256 << 20, repeats: int = 7) -> float:
    """Bytes a second read and written by copying one array of ``size`` bytes to another."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    source, target = torch.ones((2, size // 4))
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        target.copy_(source)
        times.append(time.perf_counter() - start)
    torch.set_num_threads(before)
    return 2 * size / float(np.median(times))


def check_close(result: npt.NDArray[Any], ours: npt.NDArray[Any], tolerance: float = 1e-4) -> None:
    """Sums of numbers of one sign, in any order; exact with a ``tolerance`` of 0."""
    if result.shape != ours.shape:
        raise WrongResult(f"has shape {result.shape}, not {ours.shape}.")
    for start in range(0, len(ours), 1 << 16):  # in parts: these arrays may be gigabytes
        rows = slice(start, start + (1 << 16))
        if not np.allclose(result[rows], ours[rows], rtol=tolerance, atol=tolerance / 100):
            error = np.abs(result[rows] - ours[rows]).max()
            raise WrongResult(f"differs by up to {error:.3g} from row {start:,} on.")


def find_package(name: str, *, install: str | None = None) -> Path:
    """A package's folder, without importing it; ``MissingDependency`` where it is not installed."""
    found = importlib.util.find_spec(name)
    if found is None or found.origin is None:
        raise MissingDependency(f"{name} is not installed (pip install {install or name})")
    return Path(found.origin).parent
