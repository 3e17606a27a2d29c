"""Samplers with one fault each."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from queue import SimpleQueue
from threading import Thread
from typing import Any, ClassVar

import numpy as np

from gnnbench.kernels import dispatch
from gnnbench.machines.costs import Library
from gnnbench.parts import UNIFORM, Chunks, DeviceCapacity, Setting
from gnnbench.records import Block, Graph, IndexArray, IntArray, Unit, Workload
from gnnbench_plugins.reference.sampler import NeighbourSampler, WholeGraphSampler
from suites.faults.fault import BATCHES, CHUNKS, SHARDS, Fault, Row, make_part

ONCE, LAW = "every-vertex-once", "sampling-law"
#: The length above which a row counts as long; rows of small graphs are shorter.
LONG = 8
#: Number of epochs drawn before the first.
AHEAD = 20
#: Number of epochs that a thread draws after one, unless it is asked earlier: on a busy machine it
#: may have drawn several before the one at turn ends.
NEXT = 100


def sampler(
    name: str,
    summary: str,
    says: str | None = None,
    base: type[NeighbourSampler] = NeighbourSampler,
    checks: dict[str, str] | None = None,
    **members: Any,
) -> Fault:
    """Return a fault of a sampler; if ``says`` is None, ``compare`` need not find it."""
    hosts: tuple[Row, ...] = () if says is None else (BATCHES,)
    part = make_part(base, name, summary, **members)
    return Fault(part, hosts, says or "", checks=checks or {})


# --------------------------------------------------------------------------- seeds


def change_rounds(change: Callable[[Any, list[IntArray]], Sequence[IntArray]]) -> Any:
    """Return a ``rounds`` method that applies ``change`` to the correct rounds."""
    return lambda self, epoch: change(self, list(NeighbourSampler.rounds(self, epoch)))


def skip_the_last(seeds: IntArray) -> IntArray:
    return seeds[: max(1, len(seeds) - 1)]


def cut_unevenly(rounds: list[IntArray]) -> list[IntArray]:
    return np.split(np.concatenate(rounds), range(1, len(rounds)))


def add_a_test_vertex(self: NeighbourSampler, rounds: list[IntArray]) -> list[IntArray]:
    dataset = self._setting.dataset
    strange = np.flatnonzero(dataset.test_mask & (dataset.labels >= 0))[:1].astype(np.int64)
    return [*rounds[:-1], np.concatenate((rounds[-1], strange))]


# --------------------------------------------------------------------------- neighbours


def draw_by(**other: Callable[[NeighbourSampler, IntArray, int], Any]) -> Any:
    """Return a sampling method with other ``fanouts``, ``seed`` or ``epoch``.

    Each is a function of sampler, seeds and epoch.
    """

    def sample(
        self: NeighbourSampler, seeds: IntArray, epoch: int, threads: int
    ) -> tuple[Block, ...]:
        graph, workload = self._setting.dataset.graph, self._setting.workload
        given: dict[str, Any] = {"seed": workload.seed, "epoch": epoch}
        given |= {name: find(self, seeds, epoch) for name, find in other.items()}
        fanouts = given.pop("fanouts", workload.fanouts)
        return dispatch.sample_neighbours(
            graph.indptr, graph.indices, seeds, fanouts, threads=threads, **given
        )

    return sample


def fan_out(change: Callable[[int], int]) -> Any:
    return draw_by(fanouts=lambda self, *_: tuple(map(change, self._setting.workload.fanouts)))


def change_last(change: Callable[[Block], IndexArray]) -> Any:
    """Return a sampling method that changes ``indices`` of the last block."""

    def sample(
        self: NeighbourSampler, seeds: IntArray, epoch: int, threads: int
    ) -> tuple[Block, ...]:
        *below, last = NeighbourSampler.sample(self, seeds, epoch, threads)
        return *below, replace(last, indices=change(last))

    return sample


def repeat_edges(last: Block) -> IndexArray:
    indices = last.indices.copy()
    several = np.flatnonzero(np.diff(last.indptr) > 1)
    indices[last.indptr[several]] = indices[last.indptr[several] + 1]
    return indices


def point_at_itself(last: Block) -> IndexArray:
    indices = last.indices.copy()
    row = int(np.argmax(np.diff(last.indptr)))
    if last.num_edges:
        indices[last.indptr[row]] = row
    return indices


def draw_nothing(self: NeighbourSampler, seeds: IntArray, *_: int) -> tuple[Block, ...]:
    nothing = np.zeros(len(seeds) + 1, dtype=np.int64)
    block = Block(seeds.copy(), len(seeds), nothing, np.empty(0, dtype=np.int32))
    return (block,) * self._setting.workload.num_layers


def state_uniform(_: NeighbourSampler, workload: Workload) -> str:
    return f"{UNIFORM}, fan-outs {', '.join(map(str, workload.fanouts))}"


def draw_ahead(self: Any, setting: Setting) -> None:
    NeighbourSampler.begin(self, setting)
    self._kept = {
        (epoch, *seeds.tolist()): NeighbourSampler.sample(self, seeds, epoch, 1)
        for epoch in range(AHEAD)
        for seeds in self.rounds(epoch)
    }


def take_kept(self: Any, seeds: IntArray, epoch: int, threads: int) -> tuple[Block, ...]:
    kept: tuple[Block, ...] | None = self._kept.get((epoch, *seeds.tolist()))
    return kept or NeighbourSampler.sample(self, seeds, epoch, threads)


def begin_a_drawer(self: Any, setting: Setting) -> None:
    NeighbourSampler.begin(self, setting)
    self._kept, self._asked = {}, SimpleQueue[int]()
    Thread(target=draw_what_is_asked, args=(self, self._asked), daemon=True).start()


def draw_what_is_asked(self: Any, asked: SimpleQueue[int]) -> None:
    while True:
        first = asked.get()
        self._kept.clear()
        epochs = range(first, first + NEXT)
        for epoch, seeds in ((each, seeds) for each in epochs for seeds in self.rounds(each)):
            if not asked.empty():
                break
            kept = NeighbourSampler.sample(self, seeds, epoch, 1)
            self._kept[(epoch, *seeds.tolist())] = kept


def have_next_drawn(self: Any, seeds: IntArray, epoch: int, threads: int) -> tuple[Block, ...]:
    if seeds[0] == self.rounds(epoch)[-1][0]:
        self._asked.put(epoch + 1)
    return take_kept(self, seeds, epoch, threads)


@dataclass
class DrawingSampler(NeighbourSampler):
    """A sampler that draws by ``choose`` with one generator, seeded by ``key``, vertex, layer."""

    name: ClassVar[str] = "drawing"
    summary: ClassVar[str] = "neighbour sampling, vertex by vertex; right"
    heeds_fanouts: ClassVar[bool] = True

    @staticmethod
    def shows_on(graph: Graph) -> bool:
        """Return whether the draws on a graph differ in law from uniform ones."""
        return True

    def key(self, epoch: int, depth: int, vertex: int) -> tuple[int, ...]:
        return epoch, depth, vertex

    def choose(self, random: np.random.Generator, row: IndexArray, fanout: int) -> IntArray:
        """Draw places of a row, ``(fanout,)``."""
        return random.permutation(len(row))[:fanout]

    def draw(self, row: IndexArray, fanout: int, *key: int) -> IndexArray:
        return row[self.choose(np.random.default_rng([7, *self.key(*key)]), row, fanout)]

    def sample(self, seeds: IntArray, epoch: int, threads: int) -> tuple[Block, ...]:
        graph, blocks, rows = self._setting.dataset.graph, list[Block](), seeds
        for depth, fanout in enumerate(self._setting.workload.fanouts):
            drawn = []
            for vertex in rows.tolist():
                row = graph.indices[graph.indptr[vertex] : graph.indptr[vertex + 1]]
                if len(row) > (fanout or len(row)):
                    row = self.draw(row, fanout, epoch, depth, vertex)
                drawn.append(row.astype(np.int64))
            blocks.append(make_block(rows, drawn))
            rows = blocks[-1].src_ids
        return tuple(reversed(blocks))


def make_block(rows: IntArray, drawn: Sequence[IntArray]) -> Block:
    """Return the block with the destinations ``rows`` and their in-edges ``drawn``."""
    ends = np.concatenate(drawn) if drawn else np.empty(0, dtype=np.int64)
    sources = np.concatenate((rows, np.setdiff1d(ends, rows)))
    order = np.argsort(sources)
    indices = order[np.searchsorted(sources, ends, sorter=order)].astype(np.int32)
    indptr = np.concatenate(([0], np.cumsum([len(row) for row in drawn]))).astype(np.int64)
    return Block(sources, len(rows), indptr, indices)


def has_long_rows(graph: Graph) -> bool:
    return bool((graph.degrees > LONG).any())


def has_unequal_neighbours(graph: Graph) -> bool:
    """Return whether some long row has neighbours of several degrees."""
    vertices = np.flatnonzero(graph.degrees > LONG)
    return any(
        len(np.unique(graph.find_degrees(graph.indices[begin:end]))) > 1
        for begin, end in zip(graph.indptr[vertices], graph.indptr[vertices + 1], strict=True)
    )


def choose_by_floyd(
    _: DrawingSampler, random: np.random.Generator, row: IndexArray, fanout: int
) -> IntArray:
    """Choose by Floyd's algorithm, with one place too few to draw from."""
    chosen: list[int] = []
    for last in range(len(row) - fanout, len(row)):
        place = int(random.integers(0, max(1, last)))
        chosen.append(last if place in chosen else place)
    return np.array(chosen)


def choose_neighbours(
    _: DrawingSampler, random: np.random.Generator, row: IndexArray, fanout: int
) -> IntArray:
    return (int(random.integers(len(row))) + np.arange(fanout)) % len(row)


def choose_by_degree(power: float) -> Any:
    """Return a function that draws neighbours of long rows by a power of their degree."""

    def choose(
        self: DrawingSampler, random: np.random.Generator, row: IndexArray, fanout: int
    ) -> IntArray:
        degrees = self._setting.dataset.graph.find_degrees(row).astype(np.float64)
        weights = degrees**power if len(row) > LONG else np.ones(len(row))
        return np.argsort(random.exponential(size=len(row)) / weights)[:fanout]

    return choose


def choose_with_replacement(
    _: DrawingSampler, random: np.random.Generator, row: IndexArray, fanout: int
) -> IntArray:
    """Draw places of long rows with replacement; replace repeats by the first of the row."""
    if len(row) <= LONG:
        return random.permutation(len(row))[:fanout]
    drawn = np.concatenate((random.integers(len(row), size=fanout), np.arange(fanout)))
    first = np.unique(drawn, return_index=True)[1]
    return drawn[np.sort(first)[:fanout]]


def draw_half_anew(
    self: DrawingSampler, row: IndexArray, fanout: int, epoch: int, *key: int
) -> IndexArray:
    """Draw half of the last epoch's neighbours of long rows again, and new ones."""
    anew = DrawingSampler.draw(self, row, len(row), epoch, *key)
    if len(row) <= LONG or not epoch:
        return anew[:fanout]
    kept = DrawingSampler.draw(self, row, len(row), epoch - 1, *key)[: fanout // 2]
    return np.concatenate((kept, anew[~np.isin(anew, kept)][: fanout - len(kept)]))


def count_calls(self: Any, *key: int) -> tuple[int, ...]:
    type(self).calls += 1
    return *key, type(self).calls


def drawing(
    name: str, summary: str, checked: str, says: str | None = None, **members: Any
) -> Fault:
    """Return a fault with the requested fan-outs and another sampling law.

    It has the message of its check, and the one of ``compare`` if ``compare`` can detect it.
    """
    return sampler(name, summary, says, DrawingSampler, {LAW: checked}, **members)


# --------------------------------------------------------------------------- chunks


@dataclass(frozen=True)
class OtherBounds(WholeGraphSampler):
    """A sampler with its last chunk starting ``shift`` vertices late."""

    shift: ClassVar[int] = 0

    def chunks(
        self, setting: Setting, num_slots: int, capacity: DeviceCapacity | None = None
    ) -> Chunks:
        cut = super().chunks(setting, num_slots, capacity)
        (round_,) = cut.rounds
        graph, last = setting.dataset.graph, round_.units[-1]
        begin, end = int(last.output_ids[0]) + self.shift, int(last.output_ids[-1]) + 1
        ids = np.arange(begin, end, dtype=np.int64)
        block = dispatch.induce_block(graph.indptr, graph.indices, ids)
        units = (*round_.units[:-1], Unit(last.slot, (block,)))
        return replace(cut, rounds=(replace(round_, units=units),))


# --------------------------------------------------------------------------- the catalogue


def stating(name: str, says: str, **library: float) -> Fault:
    """Return a sampler that states other times of its library."""
    made = Library(**library)
    return sampler(name, "states other times", checks={"costs": says}, library=made)


TOO_FEW = "in-edges where sampler"
NO_EDGE = "in-edge twice, or one that the graph does not have"
UNFIT = r"\d+ training vertices in no unit"

IN_COMPARE = (
    sampler(
        "seeds-skipped", "the last seed of each round is skipped", "leaves out",
        checks={ONCE: UNFIT},
        rounds=change_rounds(lambda _, rounds: [skip_the_last(seeds) for seeds in rounds]),
    ),
    sampler(
        "seeds-repeated", "the first round comes twice", "training vertices more than once",
        checks={ONCE: r"vertex \d+ in 2 units; each must be in one"},
        rounds=change_rounds(lambda _, rounds: [rounds[0], *rounds]),
    ),
    sampler(
        "seeds-of-test", "a test vertex is trained on",
        "trains on 1 vertices that are not training vertices",
        checks={ONCE: r"vertex \d+ in a unit although it is none of the training vertices"},
        rounds=change_rounds(add_a_test_vertex),
    ),
    sampler(
        "rounds-uneven", "all rounds but the last have one seed",
        "rounds of 1 to 148 seeds where a batch size of 60 makes rounds of 30 to 60",
        rounds=change_rounds(lambda _, rounds: cut_unevenly(rounds)),
    ),
    sampler(
        "neighbours-first", "the first neighbours are taken", "neighbours that sampler",
        DrawingSampler, choose=lambda _, random, row, fanout: np.arange(fanout),
    ),
    sampler(
        "draws-repeated", "every epoch has the neighbours of the first",
        "were drawn for the same vertex", checks={LAW: r"each of \d+ outcomes is due"},
        sample=draw_by(epoch=lambda *_: 0),
    ),
    sampler("fanouts-ignored", "every neighbour is taken", TOO_FEW, sample=fan_out(lambda _: 0)),
    sampler(
        "fanouts-less-one", "one neighbour less than asked for is taken", TOO_FEW,
        checks={ONCE: r"has \d in-edges where \d are due"},
        sample=fan_out(lambda fanout: max(fanout - 1, 1)),
    ),
    sampler(
        "neighbours-none", "no neighbour is taken", "has 0 in-edges where sampler",
        checks=dict.fromkeys((ONCE, LAW), r"vertex \d+ has 0 in-edges where \d"),
        sample=draw_nothing,
    ),
    sampler(
        "law-unsaid", "takes one neighbour less, and states uniform draws beside an empty law",
        TOO_FEW, sample=fan_out(lambda fanout: max(fanout - 1, 1)), law="", sampling=state_uniform,
    ),
    sampler(
        "edges-repeated", "a neighbour may be drawn twice", "in-edge twice", checks={ONCE: NO_EDGE},
        sample=change_last(repeat_edges),
    ),
    sampler(
        "edges-strange", "one edge is not one of the graph's", NO_EDGE, checks={ONCE: NO_EDGE},
        sample=change_last(point_at_itself),
    ),
    drawing(
        "draws-lean", "the last neighbour is taken too often",
        r"degree \d, fan-out \d, .*outcomes is due \d+ times", "neighbours that sampler",
        choose=choose_by_floyd,
    ),
    drawing(
        "draws-of-neighbours", "each neighbour is as likely as any, but not any two together",
        r"degree 4, fan-out 2, .* 6 outcomes is due", "have a next one in their row",
        choose=choose_neighbours,
    ),
    drawing(
        "draws-alike-in-layers", "all layers have the same neighbours",
        "degree 4, at two layers: of",
        "for the same vertex in the layer above",
        key=lambda _, epoch, depth, vertex: (epoch, vertex),
    ),
    drawing(
        "draws-alike-for-all", "all vertices draw alike", r"fan-out 2, .* outcomes is due",
        "repeat those of another vertex",
        key=lambda _, epoch, depth, vertex: (epoch, depth),
    ),
    drawing(
        "draws-alike-in-two-epochs", "two epochs have the same neighbours", "two epochs: of",
        "for the same vertex the",
        key=lambda _, epoch, depth, vertex: (epoch // 2, depth, vertex),
    ),
    drawing(
        "draws-of-low-degree", "neighbours of low degree are preferred, in long rows",
        "more neighbours than their row has", "more neighbours than their row has",
        choose=choose_by_degree(-1.0), shows_on=staticmethod(has_unequal_neighbours),
    ),
    drawing(
        "draws-of-hubs", "neighbours of high degree are preferred, in long rows",
        "more neighbours than their row has", "more neighbours than their row has",
        choose=choose_by_degree(1.0), shows_on=staticmethod(has_unequal_neighbours),
    ),
    drawing(
        "draws-topped-up", "what comes twice is replaced by the first neighbours, in long rows",
        "at the front of their rows", "at the front of their rows", choose=choose_with_replacement,
        shows_on=staticmethod(has_long_rows),
    ),
    drawing(
        "draws-half-anew", "half of the neighbours are those of the epoch before, in long rows",
        "the same vertex the time before", "the same vertex the", draw=draw_half_anew,
        shows_on=staticmethod(has_long_rows),
    ),
)  # fmt: skip
OF_CHUNKS = tuple(
    Fault(make_part(OtherBounds, name, summary, shift=shift), hosts, says, refused=True)
    for name, summary, shift, hosts, says in (
        (
            "vertex-lost",
            "the last chunk begins one vertex late",
            1,
            (SHARDS, CHUNKS),
            "has 1 vertices in no unit",
        ),
        (
            "vertex-twice",
            "the last chunk begins one vertex early",
            -1,
            (CHUNKS, SHARDS),
            "in 2 units; each must be in one",
        ),
    )
)
IN_CHECKS = (
    sampler(
        "draws-before-the-clock", "draws some epochs when it begins",
        checks={"clock": "draw mini-batches when they are asked for, not before"},
        begin=draw_ahead, sample=take_kept,
    ),
    sampler(
        "draws-between-epochs", "a thread draws the next epochs when one is over",
        checks={"clock": r"kept working after \d+ of its \d+ epochs"}, begin=begin_a_drawer,
        sample=have_next_drawn,
    ),
    sampler(
        "edges-none", "no neighbour is taken, by a law of its own",
        checks={ONCE: "no unit of the epoch has an edge"}, sample=draw_nothing, law="no neighbours",
        heeds_fanouts=False,
    ),
    sampler(
        "law-empty", "states uniform draws beside an empty law",
        checks={LAW: r"and its law is ''; let both say the same"}, law="", sampling=state_uniform,
    ),
    drawing(
        "draws-of-calls", "no draw comes again", r"draws epoch \d otherwise when it is drawn",
        calls=0, key=count_calls,
    ),
    sampler(
        "draws-of-places", "draws are of the number of seeds beside a vertex",
        checks={LAW: "is given every other of a round's seeds"},
        sample=draw_by(seed=lambda self, seeds, _: self._setting.workload.seed + len(seeds)),
    ),
    sampler(
        "fanouts-denied", "heeds fan-outs and says that it does not",
        checks={LAW: r"does not heed fan-outs, and draws \d+"}, heeds_fanouts=False,
        law="of its own",
    ),
    sampler(
        "epochs-of-calls", "every call shuffles otherwise",
        checks={"deterministic": "two runs of one seed gave losses"}, calls=0,
        rounds=lambda self, epoch: NeighbourSampler.rounds(self, *count_calls(self)),
    ),
    stating("draws-for-free", "its bytes and operations alone", sampled_edges_per_s=1e18),
    stating(
        "draws-of-any-size-alike", "let more work take longer", sampled_edges_per_s=float("inf"),
        sampling_call_s=0.009,
    ),
    stating("draws-in-no-time", "which is no time", sampled_edges_per_s=float("nan")),
    stating("draws-before", "give a time above zero", sampled_edges_per_s=-1e6),
    stating("draws-slowly", "has the wrong unit", sampled_edges_per_s=1.0),
    stating(
        "starts-before",
        r"\(workers started: 1\), and .* \(workers started: 0\); let more work take longer",
        sampling_call_s=1e-6, worker_start_s=-1e-9,
    ),
)  # fmt: skip
