"""A fair race: contestants run in turns in one process on the same data, and results agree.

Speedups are ratios of medians over the same rounds, each with a 95 % confidence interval
(:func:`find_speedup`).
"""

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
from scipy.special import stdtrit

from gnnbench.errors import DeviceOutOfMemoryError, MissingDependencyError, is_host_memory_error
from gnnbench.programs.messages import ProgramFailedError
from gnnbench.records import IntArray

OURS = "gnnbench"
#: A case stops once its time is spent, but not before each contestant has this many samples.
FEWEST_ROUNDS = 3
#: A peer that takes more than this multiple of the fastest peer's time runs once.
BEATEN = 2.0
#: A call that takes this long needs no warm-up call before it.
LONG_S = 1.0
RESAMPLES = 2000
#: Rounds from which bootstrap intervals have their nominal coverage. With three rounds they have 75
#: %, the probability that the median lies between the smallest and the largest sample.
FEWEST_RESAMPLED = 6
#: Elements of two results compared at a time.
CHECKED_ELEMENTS = 1 << 18

Check = Callable[[Any, Any], None]
DoubleArray = npt.NDArray[np.float64]


class WrongResultError(Exception):
    """A wrong result of a contestant; the message is one sentence."""


@dataclass(frozen=True, slots=True)
class Contestant:
    """A prepared call. Its argument numbers the call, for contestants that draw anew each time.

    ``read`` converts a result into the form in which results are compared; it is not timed. A
    contestant that tunes itself in its first calls states the number of ``warm_ups`` after the
    first.
    """

    call: Callable[[int], Any]
    read: Callable[[Any], Any] = lambda result: result
    warm_ups: int = 0


@dataclass(frozen=True, slots=True)
class Target:
    """A target: the fastest peer named ``peer...`` takes at least ``factor`` times our time.

    An empty ``peer`` means all. A ``factor`` of None only shows that peer.
    """

    peer: str
    factor: float | None = None


@dataclass(frozen=True, slots=True)
class Case:
    """One computation on one input, and makers of its contestants by name, ours included.

    A maker prepares its contestant for torch's number of threads. It raises
    ``MissingDependencyError`` if a library is not installed. ``check(result, ours)`` raises
    :class:`WrongResultError`; it checks every contestant, ours included. At least
    ``compulsory_bytes`` must cross the memory bus; ``gathered_bytes`` are read row by row at
    random. A case that is not ``threaded`` ignores threads. A ``lengthy`` case takes long, and
    races only with the largest number of threads.
    """

    kernel: str
    graph: str
    name: str
    makers: Mapping[str, Callable[[], Contestant]]
    check: Check
    targets: Sequence[Target] = ()
    threaded: bool = True
    lengthy: bool = False
    compulsory_bytes: int | None = None
    gathered_bytes: int | None = None

    def __str__(self) -> str:
        return f"{self.kernel} {self.graph} {self.name}"


@dataclass(frozen=True, slots=True)
class Limits:
    """The most rounds of a case, and the approximate seconds that its contestants share."""

    rounds: int = 9
    seconds: float = 20.0


@dataclass(frozen=True, slots=True)
class Speedup:
    """A peer's time over ours, for the rounds that both ran, and its 95 % confidence interval.

    One round gives no interval.
    """

    ratio: float
    interval: tuple[float, float] | None


@dataclass(frozen=True, slots=True)
class Claim:
    """A peer compared with a target, or only shown."""

    peer: str
    speedup: Speedup
    factor: float | None

    @property
    def met(self) -> bool | None:
        return None if self.factor is None else self.speedup.ratio >= self.factor


@dataclass(slots=True)
class Outcome:
    """Seconds of every timed call by contestant, the absent contestants, and the wrong ones.

    A slow contestant leaves early, so its samples come from the first rounds. ``prepare_s`` is the
    time to prepare the contestants. ``check_s`` is the time of their calls before the race and the
    checks of the first ones. ``race_s`` is the time of the turns.
    """

    case: Case
    threads: int
    seconds: dict[str, list[float]] = field(default_factory=dict)
    prepare_s: float = 0.0
    check_s: float = 0.0
    race_s: float = 0.0
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
        """Return the fastest peer with a name that starts with ``peer``."""
        peers = [peer for peer in self.peers if peer.startswith(prefix)]
        return min(peers, key=lambda peer: self.speedup(peer).ratio, default=None)

    def claims(self) -> list[Claim]:
        """Return one claim for every peer with a target, and for the fastest of all."""
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
    """Return the ratio of medians of samples that are paired by round.

    From six rounds on, the interval lies between the percentiles 2.5 and 97.5 of a bootstrap over
    pairs. With fewer rounds it is Student's for the logarithms of the pairs' ratios, widened to
    include the ratio. A pair shares the machine's load in its round, so ratios vary little.
    """
    pairs = np.array((ours, theirs))
    rounds = pairs.shape[1]
    middle = np.median(pairs, axis=1)
    ratio = float(middle[1] / middle[0])
    if rounds == 1:
        return Speedup(ratio, None)
    if rounds < FEWEST_RESAMPLED:
        logs = np.log(pairs[1] / pairs[0])
        margin = stdtrit(rounds - 1, 0.975) * logs.std(ddof=1) / np.sqrt(rounds)
        low, high = np.exp(logs.mean() + np.array((-margin, margin)))
    else:

        def find_ratios(picks: IntArray) -> DoubleArray:
            medians = np.median(pairs[:, picks], axis=2)
            ratios: DoubleArray = medians[1] / medians[0]
            return ratios

        low, high = resample(rounds, find_ratios, resamples=resamples, seed=seed)
    return Speedup(ratio, (min(float(low), ratio), max(float(high), ratio)))


def resample(
    samples: int,
    find: Callable[[IntArray], DoubleArray],
    *,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> tuple[float, float]:
    """Return the bootstrap's 95 % confidence interval, between its percentiles 2.5 and 97.5.

    ``find`` gets int64 ``(resamples, samples)``, indices of samples drawn with replacement. It
    returns the estimate of each row, float64 ``(resamples,)``.
    """
    picks = np.random.default_rng(seed).integers(samples, size=(resamples, samples))
    low, high = np.quantile(find(picks), (0.025, 0.975))
    return float(low), float(high)


def race(case: Case, threads: int, limits: Limits) -> Outcome:
    """Check every contestant of a case, then time the ones with right results."""
    outcome = Outcome(case, threads)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    gc.collect()
    gc.disable()
    try:
        contestants, first = _admit(outcome)
        start = time.perf_counter()
        _take_turns(outcome, contestants, first, limits)
        outcome.race_s = time.perf_counter() - start
    finally:
        gc.enable()
        torch.set_num_threads(before)
    return outcome


def _admit(outcome: Outcome) -> tuple[dict[str, Contestant], dict[str, float]]:
    """Return the installed and correct contestants, and the seconds of each one's first call."""
    admitted: dict[str, Contestant] = {}
    first: dict[str, float] = {}
    ours: Any = None
    for name in sorted(outcome.case.makers, key=lambda name: name != OURS):
        start = time.perf_counter()
        try:
            contestant = outcome.case.makers[name]()
            prepared = time.perf_counter()
            outcome.prepare_s += prepared - start
            result = contestant.call(0)
            first[name] = time.perf_counter() - prepared
            result = contestant.read(result)
            ours = result if name == OURS else ours
            outcome.case.check(result, ours)
            del result
            for turn in range(contestant.warm_ups):
                contestant.call(turn + 1)
            outcome.check_s += time.perf_counter() - prepared
        except (MissingDependencyError, DeviceOutOfMemoryError, ProgramFailedError) as error:
            outcome.absent[name] = str(error)
        except (MemoryError, RuntimeError) as error:
            if not is_host_memory_error(error):
                raise
            outcome.absent[name] = "needs more memory than this machine has"
        except WrongResultError as error:
            outcome.wrong[name] = str(error)
        else:
            admitted[name] = contestant
    return admitted, first


def _take_turns(
    outcome: Outcome,
    contestants: dict[str, Contestant],
    last: dict[str, float],
    limits: Limits,
) -> None:
    """Time the contestants in turns; ``last`` has the seconds of every contestant's last call."""
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
            last[name] = _time(contestants[name], turn, warm=last[name] >= LONG_S)
            outcome.seconds[name].append(last[name])
            left[name] -= time.perf_counter() - start


def _fewest_rounds(outcome: Outcome, name: str) -> int:
    """Return 1 for a peer beaten in the first round without a target, else ``FEWEST_ROUNDS``."""
    first = {peer: outcome.seconds[peer][0] for peer in outcome.peers if outcome.seconds[peer]}
    named = any(target.peer and name.startswith(target.peer) for target in outcome.case.targets)
    beaten = name in first and first[name] > BEATEN * min(first.values())
    return 1 if beaten and not named else FEWEST_ROUNDS


def _time(contestant: Contestant, turn: int, *, warm: bool) -> float:
    """Return the seconds of one call, right after an untimed call unless it is ``warm``.

    Contestants that allocate their results return memory to the system after every call. A virtual
    machine may have to get it from its host again; the untimed call keeps it available. For a long
    call this cost is small.
    """
    if not warm:
        contestant.call(2 * turn)
    start = time.perf_counter()
    result = contestant.call(2 * turn + 1)
    seconds = time.perf_counter() - start
    del result
    return seconds


def measure_stream(threads: int, size: int = 256 << 20, repeats: int = 7) -> float:
    """Return the bytes read and written a second by a copy between two arrays of ``size`` bytes."""
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
    """Check sums of numbers of one sign, in any order; exactly with a ``tolerance`` of 0."""
    if result.shape != ours.shape:
        raise WrongResultError(f"has shape {result.shape}, not {ours.shape}.")
    # The arrays may be gigabytes, so they are compared in parts that stay in the cache.
    step = max(CHECKED_ELEMENTS * len(ours) // max(ours.size, 1), 1)
    for start in range(0, len(ours), step):
        rows = slice(start, start + step)
        if np.array_equal(result[rows], ours[rows]):  # faster; for 16 bits, ten times as fast
            continue
        if not np.allclose(result[rows], ours[rows], rtol=tolerance, atol=tolerance / 100):
            error = np.abs(result[rows] - ours[rows]).max()
            raise WrongResultError(f"differs by up to {error:.3g} from row {start:,} on.")


def find_package(name: str, *, install: str | None = None) -> Path:
    """Return a package's folder without importing it. Raises ``MissingDependencyError``."""
    found = importlib.util.find_spec(name)
    if found is None or found.origin is None:
        raise MissingDependencyError(f"{name} is not installed (pip install {install or name})")
    return Path(found.origin).parent
