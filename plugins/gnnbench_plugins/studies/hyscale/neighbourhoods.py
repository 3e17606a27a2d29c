"""|V^l| and |E^l| of mini-batches on graphs that are too large to store.

A stand-in has the real graph's number of vertices and its mean degree with a power-law tail (Chung
and Lu 2002). Only those rows of it exist that a sampler reads: the neighbours of the seeds, then of
those drawn, and so on. So a mini-batch shares as many neighbours as in a whole graph of that size
whose edges fall independently, and nothing needs to be scaled. What it lacks is what a real graph
has besides: clusters, in which neighbours are shared more often.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from gnnbench.constants import Bound
from gnnbench.kernels.dispatch import sample_neighbours
from gnnbench.records import BatchProfile, IntArray, Unit

FloatingArray = npt.NDArray[np.float64]
_PIECE: Bound[int] = 16_384


@dataclass(frozen=True, slots=True)
class PowerLaw:
    """In-degrees w(r) ~ (r + 1/2)^(-1 / (exponent - 1)) of the vertices by rank r.

    They are cut at sqrt(V x mean), beyond which an edge would have to be there twice, as in
    :func:`gnnbench.datasets.standins.power_law_weights`, but in closed form, without an array of
    |V| values. The vertices of the last ranks, a share ``without`` of all, have no in-edge.

    In a symmetric graph a neighbour is met in proportion to its degree. In a ``directed`` one it is
    met for its out-edges, of which its in-degree says nothing here: every vertex is as likely.
    """

    vertices: int
    mean_degree: float
    exponent: float
    directed: bool = False
    without: float = 0.0

    @property
    def _reached(self) -> int:
        """Vertices that have in-edges."""
        return round(self.vertices * (1.0 - self.without))

    @property
    def _slope(self) -> float:
        return 1.0 / (self.exponent - 1.0)

    @property
    def _cutoff(self) -> float:
        return float(np.sqrt(self.vertices * self.mean_degree))

    @property
    def _scale(self) -> float:
        """The factor of the tail that gives the mean where nothing is cut."""
        mean = self.mean_degree * self.vertices / self._reached
        return float(mean * (1.0 - self._slope) * self._reached**self._slope)

    @property
    def _cut_ranks(self) -> float:
        """How many ranks are cut."""
        return float((self._scale / self._cutoff) ** (1.0 / self._slope))

    def degrees(self, ranks: IntArray) -> FloatingArray:
        """Return the expected in-degrees of the vertices of these ranks."""
        tail = self._scale * (ranks + 0.5) ** -self._slope
        return np.where(ranks < self._reached, np.minimum(tail, self._cutoff), 0.0)

    def draw(self, count: int, random: np.random.Generator) -> IntArray:
        """Draw the ranks of ``count`` in-neighbours."""
        if self.directed:
            return random.integers(0, self.vertices, count)
        rest = 1.0 - self._slope
        head = self._cut_ranks * self._cutoff
        start = self._cut_ranks**rest
        tail = self._scale * (self._reached**rest - start) / rest
        places = random.random(count)
        drawn = np.empty(count, dtype=np.int64)
        # In pieces that stay in a cache: fresh memory for long arrays costs more than the powers.
        for begin in range(0, count, _PIECE):
            place = places[begin : begin + _PIECE] * (head + tail)
            beyond = np.maximum(place - head, 0.0) * rest / self._scale + start
            ranks = np.where(place < head, place / self._cutoff, beyond ** (1.0 / rest))
            drawn[begin : begin + _PIECE] = np.minimum(ranks.astype(np.int64), self._reached - 1)
        return drawn


class _Rows:
    """The rows of a stand-in that exist so far, as a CSR over vertices in order of appearance.

    A vertex keeps its number when more appear, so that the sampler, whose draws depend on it, draws
    the same again.
    """

    def __init__(self, law: PowerLaw, random: np.random.Generator, seeds: IntArray) -> None:
        self._law = law
        self._random = random
        self._ranks = seeds
        #: By rank, a vertex's number and one more; 0, which takes no memory yet, until it is seen.
        self._numbers = np.zeros(law.vertices, dtype=np.int32)
        self._numbers[seeds] = 1 + np.arange(len(seeds))
        #: By vertex, how many neighbours it has; -1 where that was not drawn yet.
        self._lengths = np.full(len(seeds), -1, dtype=np.int64)
        self._chunks: list[tuple[IntArray, IntArray]] = []

    def realise(self, numbers: IntArray) -> None:
        """Draw the neighbours of those vertices that were not drawn before."""
        fresh = np.sort(numbers[self._lengths[numbers] < 0])
        lengths = self._random.poisson(self._law.degrees(self._ranks[fresh])).astype(np.int64)
        neighbours = self._number(self._law.draw(int(lengths.sum()), self._random))
        self._lengths[fresh] = lengths
        self._chunks.append((np.repeat(fresh, lengths), neighbours))

    def _number(self, ranks: IntArray) -> IntArray:
        """Return the vertices' numbers; new vertices get the next ones, by rank."""
        fresh = ranks[self._numbers[ranks] == 0]
        # Of several places of one rank the last one's stays written, and stands for it.
        places = np.arange(len(fresh), dtype=np.int32)
        self._numbers[fresh] = places
        fresh = np.sort(fresh[self._numbers[fresh] == places])
        self._numbers[fresh] = len(self._ranks) + 1 + np.arange(len(fresh))
        self._ranks = np.concatenate((self._ranks, fresh))
        self._lengths = np.concatenate((self._lengths, np.full(len(fresh), -1, dtype=np.int64)))
        return self._numbers[ranks].astype(np.int64) - 1

    def csr(self) -> tuple[IntArray, npt.NDArray[np.int32]]:
        """Return int64 ``(N+1,)`` and int32 ``(E,)`` over the N vertices seen."""
        owners = np.concatenate([owner for owner, _ in self._chunks])
        neighbours = np.concatenate([ids for _, ids in self._chunks])
        order = np.argsort(owners, kind="stable")
        indptr = np.zeros(len(self._ranks) + 1, dtype=np.int64)
        np.cumsum(np.maximum(self._lengths, 0), out=indptr[1:])
        return indptr, neighbours[order].astype(np.int32)


def profile_stand_in(
    law: PowerLaw, fanouts: Sequence[int], sizes: Sequence[int], seed: int = 0
) -> tuple[BatchProfile, ...]:
    """Draw mini-batches of ascending ``sizes`` by the project's neighbour sampler.

    ``fanouts`` go from the seeds outwards; training vertices are spread evenly over the graph.
    """
    random = np.random.default_rng(seed)
    drawn = np.unique(random.integers(0, law.vertices, 2 * max(sizes)))
    seeds = random.permutation(drawn)[: max(sizes)]
    rows = _Rows(law, random, seeds)
    frontier = numbers = np.arange(len(seeds), dtype=np.int64)
    for depth in range(len(fanouts)):
        rows.realise(frontier)
        indptr, indices = rows.csr()
        if depth + 1 < len(fanouts):
            frontier = sample_neighbours(
                indptr, indices, numbers, fanouts[: depth + 1], seed=seed, epoch=0
            )[0].src_ids
    profiles = []
    for size in sizes:
        blocks = sample_neighbours(indptr, indices, numbers[:size], fanouts, seed=seed, epoch=0)
        unit = Unit(0, blocks)
        profiles.append(BatchProfile(size, unit.vertices, unit.edges))
    return tuple(profiles)


def cut_profiles(profiles: Sequence[BatchProfile], total: int) -> tuple[BatchProfile, ...]:
    """Return profiles up to a mini-batch of ``total`` seeds, between two sampled ones."""
    below = [profile for profile in profiles if profile.seeds < total]
    above = next(profile for profile in profiles if profile.seeds >= total)
    if above.seeds == total or not below:
        return (*below, above)
    share = (total - below[-1].seeds) / (above.seeds - below[-1].seeds)

    def between(near: Sequence[int], far: Sequence[int]) -> tuple[int, ...]:
        return tuple(round(a + share * (b - a)) for a, b in zip(near, far, strict=True))

    last = BatchProfile(
        total,
        between(below[-1].vertices, above.vertices),
        between(below[-1].edges, above.edges),
    )
    return (*below, last)
