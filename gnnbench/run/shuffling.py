"""A check whether seeds are shuffled, by how often two of them share a mini-batch again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from gnnbench.records import IntArray

#: Seeds count as not shuffled if repeated pairs exceed the mean under shuffling by this number of
#: standard deviations, and by this share of the largest possible excess.
DEVIATIONS, SHARE = 8.0, 0.25


@dataclass(slots=True)
class PairsAgain:
    """Pairs of seeds that shared a mini-batch in another epoch and do so again.

    ``found`` counts them, ``expected`` is their mean under shuffling, and ``most`` is the largest
    possible number.
    """

    found: int = 0
    expected: float = 0.0
    most: float = 0.0

    def add(self, earlier: Sequence[IntArray], rounds: Sequence[IntArray]) -> None:
        """Count the pairs of two epochs' rounds, which have the same, distinct seeds."""
        counts = [count_pairs(np.array([len(each) for each in of])) for of in (earlier, rounds)]
        both = []
        for of in (earlier, rounds):
            number = np.repeat(np.arange(len(of)), [len(each) for each in of])
            both.append(number[np.argsort(np.concatenate(of))])
        shared = np.unique(both[0] * len(rounds) + both[1], return_counts=True)[1]
        self.found += count_pairs(shared)
        self.expected += counts[0] * counts[1] / max(1, count_pairs(np.array([shared.sum()])))
        self.most += min(counts)

    @property
    def tells(self) -> bool:
        """Whether they are more than shuffling makes.

        Pairs of seeds share a mini-batch about independently of each other, so the variance is at
        most the mean.
        """
        off = self.found - self.expected
        far = off > DEVIATIONS * self.expected**0.5
        return far and off >= SHARE * (self.most - self.expected)


@dataclass(slots=True)
class Shuffling:
    """A comparison of each epoch's mini-batches with the previous and the first epoch's."""

    _first: Sequence[IntArray] = ()
    _before: Sequence[IntArray] = ()
    _again: tuple[PairsAgain, PairsAgain] = field(
        default_factory=lambda: (PairsAgain(), PairsAgain())
    )

    def look(self, rounds: Sequence[IntArray]) -> None:
        """Count an epoch; its rounds together have each training vertex once."""
        if len(rounds) > 1 and self._first:
            for earlier, again in zip((self._first, self._before), self._again, strict=True):
                again.add(earlier, rounds)
        copied = [seeds.copy() for seeds in rounds]
        self._first, self._before = self._first or copied, copied

    @property
    def missing(self) -> bool:
        """Whether seeds are not shuffled. One mini-batch of all seeds needs no shuffling."""
        return any(again.tells for again in self._again)


def count_pairs(sizes: IntArray) -> int:
    """Return the number of pairs of seeds in mini-batches of some sizes ``(n,)``."""
    return int((sizes * (sizes - 1) // 2).sum())
