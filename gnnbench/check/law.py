"""The check of draws: a sampler draws by the law that it declares, counted over many epochs.

One graph is cliques: each vertex's neighbours all have its own degree, and degrees are below, at
and above the fan-outs. Each set of neighbours is counted there. The other graph has rows of more
than a hundred neighbours, where draws are counted as in a run. Seeds are fixed, so that an outcome
never changes by chance. A correct sampler fails with a probability of one in a million.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import scipy

from gnnbench import models
from gnnbench.check import faults, graphs
from gnnbench.check.outcome import NonConformingError, NotApplicableError, NotReachedError
from gnnbench.check.subject import Subject
from gnnbench.machines.machine import Platform
from gnnbench.parts import UNIFORM, MiniBatchSampler, Setting, find_coverage_fault
from gnnbench.records import Block, Dataset, IntArray, Mode, Unit, Workload
from gnnbench.run.draws import DrawAudit
from gnnbench.run.shuffling import Shuffling

#: Cliques of n vertices, whose degrees are n - 1, and the number of each.
CLIQUES, COPIES = (1, 2, 3, 4, 5, 7), 4
#: From the seeds outwards: of 4 neighbours 2 are one of 6 pairs, all equally likely.
FANOUTS = (2, 3)
EPOCHS = 120
#: The fan-outs and epochs of the graph with long rows.
LONG_FANOUTS, LONG_EPOCHS = (10, 5), 40
#: The least probability of the counts, or of anything less likely, with which a sampler passes.
LEAST_LIKELY = 1e-6
MINI_BATCH: Mode = "mini-batch"

#: The neighbours that were drawn for a vertex, ascending.
Drawn = tuple[int, ...]


def check_sampling_law(subject: Subject) -> str:
    """Check that draws follow the declared law, repeat, and agree for seeds together or apart.

    A law of the sampler's own is not tested, and the outcome says so.
    """
    if MINI_BATCH not in subject.modes or not subject.covers("sampler"):
        raise NotApplicableError("nothing is sampled for a full graph, or by other parts")
    _, _, platform = subject.small(MINI_BATCH)
    dataset = graphs.make_cliques(CLIQUES, COPIES)
    sampler = begin_sampler(subject, dataset, platform, FANOUTS)
    said = [_check_draws(sampler, dataset, subject)]
    said.append(_check_fanouts(sampler, begin_sampler(subject, dataset, platform, (1, 1)), dataset))
    _require_told(sampler, graphs.fit_workload(dataset))
    if sampler.split_invariant:
        said.append(_check_splits(sampler))
    if sampler.law == UNIFORM:
        said.append(_check_uniform(sampler, dataset))
        said.append(_check_long_rows(subject, platform))
    else:
        law = sampler.law or f"of {sampler.name!r}"
        said.append(f"only this sampler has its distribution ({law}), so it was not tested")
    return "; ".join(said)


def begin_sampler(
    subject: Subject, dataset: Dataset, platform: Platform, fanouts: tuple[int, ...]
) -> MiniBatchSampler:
    """Return the subject's sampler on a graph, begun with the other parts of its bundle."""
    workload = dataclasses.replace(
        graphs.fit_workload(dataset), fanouts=fanouts, batch_size=len(dataset.train_ids) // 3 + 1
    )
    setting = Setting(subject.hand_out(dataset), platform, workload, models.build(workload).shapes)
    bundle = subject.assemble(MINI_BATCH)
    refusal = bundle.refusal(setting)
    if refusal is not None:
        raise NotReachedError(f"it refuses the graph that draws are counted on: {refusal}")
    bundle = bundle.begin(setting)
    if not isinstance(bundle.sampler, MiniBatchSampler):
        raise NonConformingError(f"sampler {bundle.sampler.name!r} makes no mini-batches")
    return bundle.sampler


# --------------------------------------------------------------------------- any law


def _check_draws(sampler: MiniBatchSampler, dataset: Dataset, subject: Subject) -> str:
    """Check that each epoch has every seed once and true edges, and repeats when drawn again."""
    epochs = (0, 1, 2)
    first = {epoch: _draw_epoch(sampler, epoch) for epoch in epochs}
    for epoch, rounds in first.items():
        seeds = [blocks[-1].dst_ids for _, blocks in rounds]
        fault = find_coverage_fault(seeds, dataset.train_ids, "training vertices")
        if fault is not None:
            raise NonConformingError(f"sampler {sampler.name!r}, epoch {epoch}: {fault}")
        for given, blocks in rounds:
            if not np.array_equal(given, blocks[-1].dst_ids):
                raise NonConformingError(
                    f"sampler {sampler.name!r}: the last destinations are not the seeds in order"
                )
            asked = FANOUTS if sampler.heeds_fanouts else None
            fault = faults.find_unit_fault(
                Unit(0, blocks), dataset.graph, asked, drawn_once=sampler.law != UNIFORM
            )
            if fault is not None:
                raise NonConformingError(f"sampler {sampler.name!r}, epoch {epoch}: {fault}")
    counts = [len(rounds) for rounds in first.values()]
    if len(set(counts)) > 1:
        raise NonConformingError(
            f"sampler {sampler.name!r} has {', '.join(map(str, counts))} rounds in the first "
            f"epochs; make as many in each, or its rows are ranked beside no others"
        )
    for epoch in reversed(epochs):
        again = _draw_epoch(sampler, epoch)
        if not _same(first[epoch], again):
            raise NonConformingError(
                f"sampler {sampler.name!r} draws epoch {epoch} otherwise when it is drawn again"
            )
    shuffling = Shuffling()
    for rounds in first.values():
        shuffling.look([seeds for seeds, _ in rounds])
    said = f"{len(epochs)} epochs of {len(dataset.train_ids)} seeds are drawn alike again"
    if shuffling.missing:
        said += "; seeds are not shuffled, so compare puts its rows in a group of their own"
    return said


def _draw_epoch(sampler: MiniBatchSampler, epoch: int) -> list[tuple[IntArray, tuple[Block, ...]]]:
    return [(seeds, sampler.sample(seeds, epoch, 0)) for seeds in sampler.rounds(epoch)]


def _same(
    one: Sequence[tuple[IntArray, tuple[Block, ...]]],
    other: Sequence[tuple[IntArray, tuple[Block, ...]]],
) -> bool:
    pairs = [
        (mine, theirs)
        for (_, first), (_, second) in zip(one, other, strict=True)
        for mine, theirs in zip(first, second, strict=True)
    ]
    return all(
        np.array_equal(mine.src_ids, theirs.src_ids)
        and np.array_equal(mine.indptr, theirs.indptr)
        and np.array_equal(mine.indices, theirs.indices)
        for mine, theirs in pairs
    )


def _check_fanouts(sampler: MiniBatchSampler, narrow: MiniBatchSampler, dataset: Dataset) -> str:
    """Check ``heeds_fanouts`` by the edges drawn with fan-outs ``FANOUTS`` and 1."""
    edges = [
        sum(block.num_edges for _, blocks in _draw_epoch(each, 0) for block in blocks)
        for each in (sampler, narrow)
    ]
    if not edges[0]:
        raise NonConformingError(
            f"sampler {sampler.name!r} draws no neighbour at all in an epoch, of a graph with "
            f"{dataset.graph.num_edges} edges"
        )
    if sampler.heeds_fanouts and edges[0] <= edges[1]:
        raise NonConformingError(
            f"sampler {sampler.name!r} draws {edges[0]} edges with fan-outs {list(FANOUTS)} and "
            f"{edges[1]} with fan-outs [1, 1]; if it has no use for them, set heeds_fanouts = False"
        )
    if not sampler.heeds_fanouts and edges[0] != edges[1]:
        raise NonConformingError(
            f"sampler {sampler.name!r} says that it does not heed fan-outs, and draws {edges[0]} "
            f"edges with {list(FANOUTS)} and {edges[1]} with [1, 1]"
        )
    return "fan-outs are heeded" if sampler.heeds_fanouts else "fan-outs have no say, as it says"


def _require_told(sampler: MiniBatchSampler, workload: Workload) -> None:
    """Check that the stated sampling names the tested law, and the fan-outs if it heeds them."""
    told = [
        sampler.sampling(dataclasses.replace(workload, fanouts=fanouts))
        for fanouts in (FANOUTS, (1, 1))
    ]
    case = f"sampler {sampler.name!r} states as its sampling {told[0]!r}"
    if not all(isinstance(text, str) and text.strip() and "\n" not in text for text in told):
        raise NonConformingError(f"{case}; give one line of text")
    if (UNIFORM in told[0]) != (sampler.law == UNIFORM):
        raise NonConformingError(f"{case}, and its law is {sampler.law!r}; let both say the same")
    if sampler.heeds_fanouts and told[0] == told[1]:
        raise NonConformingError(f"{case} with any fan-outs, although it heeds them")


def _check_splits(sampler: MiniBatchSampler) -> str:
    """Check that a share of a round's seeds draws the same neighbours as all seeds together."""
    parts: tuple[tuple[str, Callable[[IntArray], IntArray]], ...] = (
        ("every other", lambda seeds: seeds[::2]),
        ("the last half", lambda seeds: seeds[len(seeds) // 2 :]),
        ("one", lambda seeds: seeds[1:2]),
    )
    compared = 0
    for seeds, whole in _draw_epoch(sampler, 1):
        drawn = [dict(_list_drawn(block)) for block in whole]
        for name, choose in parts:
            some = np.ascontiguousarray(choose(seeds))
            for layer, block in enumerate(sampler.sample(some, 1, 0)):
                for vertex, neighbours in _list_drawn(block):
                    if drawn[layer].get(vertex) != neighbours:
                        raise NonConformingError(
                            f"sampler {sampler.name!r} draws {list(neighbours)} for vertex "
                            f"{vertex} in layer {layer} when it is given {name} of a round's "
                            f"seeds, and {list(drawn[layer].get(vertex, ()))} given all; draw by "
                            f"(seed, epoch, layer, vertex) alone, or set split_invariant = False"
                        )
                    compared += 1
    return f"{compared} draws are the same for seeds apart"


def _list_drawn(block: Block) -> Iterator[tuple[int, Drawn]]:
    """Yield each destination with the neighbours that were drawn for it, ascending."""
    sources = block.src_ids[block.indices]
    for row, vertex in enumerate(block.dst_ids.tolist()):
        mine = sources[block.indptr[row] : block.indptr[row + 1]]
        yield vertex, tuple(sorted(mine.tolist()))


# --------------------------------------------------------------------------- uniform draws


@dataclass(slots=True)
class _Counts:
    """The counts of equally likely outcomes, case by case.

    A case is a kind of draw (a degree, a fan-out, and other distinctions) and has ``outcomes`` of
    them.
    """

    outcomes: dict[str, int] = field(default_factory=dict)
    seen: dict[str, dict[object, int]] = field(default_factory=lambda: defaultdict(dict))

    def add(self, case: str, outcomes: int, outcome: object) -> None:
        self.outcomes[case] = outcomes
        counted = self.seen[case]
        counted[outcome] = counted.get(outcome, 0) + 1

    def find_fault(self) -> str | None:
        """Return the first case with counts less likely than the bound, by chi-square.

        Single draws come before pairs, because a fault of theirs shows in pairs too.
        """
        for case, number in sorted(self.outcomes.items(), key=lambda counted: counted[1]):
            counts = list(self.seen[case].values())
            expected = sum(counts) / number
            missing = number - len(counts)
            distance = sum((count - expected) ** 2 for count in counts) / expected
            distance += missing * expected
            likely = float(scipy.stats.chi2.sf(distance, number - 1))
            if likely < LEAST_LIKELY:
                rarest = 0 if missing else min(counts)
                return (
                    f"{case}: of {sum(counts)} draws, each of {number} outcomes is due "
                    f"{expected:.0f} times, and they came {rarest} to {max(counts)} times "
                    f"(probability {likely:.0e}, {LEAST_LIKELY:.0e} is allowed)"
                )
        return None


def _check_uniform(sampler: MiniBatchSampler, dataset: Dataset) -> str:
    """Check that sets of neighbours are equally likely, over all vertices and for each alone.

    A vertex's draw must not depend on its draws in other epochs and layers, nor on a neighbour's
    draw.
    """
    counts = _Counts()
    before: dict[tuple[int, int], Drawn] = {}
    degrees, ids = dataset.graph.degrees, _number_sets(dataset)
    for epoch in range(EPOCHS):
        now: dict[tuple[int, int], Drawn] = {}
        for _, blocks in _draw_epoch(sampler, epoch):
            in_round = [dict(_list_drawn(block)) for block in reversed(blocks)]
            for depth, drawn in enumerate(in_round):
                now.update(((depth, vertex), mine) for vertex, mine in drawn.items())
            for vertex, mine in in_round[0].items():
                _count_joint(counts, "at two layers", degrees, vertex, ids, mine, in_round[1])
        for (depth, vertex), mine in now.items():
            degree, fanout = int(degrees[vertex]), FANOUTS[depth]
            if degree <= fanout:
                continue
            number = math.comb(degree, fanout)
            case = f"degree {degree}, fan-out {fanout}, layer {depth} from the seeds"
            rank = ids[vertex][mine]
            counts.add(case, number, rank)
            counts.add(f"{case}, vertex {vertex}", number, rank)
            earlier = before.get((depth, vertex))
            if earlier is not None and number < 10:
                pair = (ids[vertex][earlier], rank)
                counts.add(f"{case}, two epochs", number * number, pair)
            other = now.get((depth, vertex + 1))
            # The next vertex of the same clique.
            if other is not None and number < 10 and vertex + 1 in _neighbours(dataset, vertex):
                pair = (rank, ids[vertex + 1][other])
                counts.add(f"{case}, two neighbours", number * number, pair)
        before = now
    fault = counts.find_fault()
    if fault is not None:
        raise NonConformingError(f"sampler {sampler.name!r} declares the law {UNIFORM!r}; {fault}")
    return f"{len(counts.outcomes)} counts over {EPOCHS} epochs are as likely as {UNIFORM!r} says"


def _check_long_rows(subject: Subject, platform: Platform) -> str:
    """Check draws of rows much longer than the fan-outs, by the audit of a run."""
    dataset = graphs.make_long_rows()
    sampler = begin_sampler(subject, dataset, platform, LONG_FANOUTS)
    audit = DrawAudit(dataset.graph, LONG_FANOUTS, seed=0)
    for epoch in range(LONG_EPOCHS):
        rounds = _draw_epoch(sampler, epoch)
        for _, blocks in rounds:
            fault = faults.find_unit_fault(Unit(0, blocks), dataset.graph, LONG_FANOUTS)
            fault = fault or audit.look(epoch, blocks, len(rounds))
            if fault is not None:
                raise NonConformingError(f"sampler {sampler.name!r}, epoch {epoch}: {fault}")
    fault = audit.find_fault(sampler.name)
    if fault is not None:
        raise NonConformingError(fault)
    longest = int(dataset.graph.degrees.max())
    return f"so are draws of rows of up to {longest} neighbours over {LONG_EPOCHS} epochs"


def _count_joint(
    counts: _Counts,
    what: str,
    degrees: IntArray,
    vertex: int,
    ids: dict[int, dict[Drawn, int]],
    mine: Drawn,
    below: dict[int, Drawn],
) -> None:
    """Count a seed's draw as a seed together with its draw as a source of its layer."""
    degree = int(degrees[vertex])
    numbers = [math.comb(degree, fanout) for fanout in FANOUTS if degree > fanout]
    if len(numbers) == len(FANOUTS) and max(numbers) < 10:
        pair = (ids[vertex][mine], ids[vertex][below[vertex]])
        counts.add(f"degree {degree}, {what}", numbers[0] * numbers[1], pair)


def _number_sets(dataset: Dataset) -> dict[int, dict[Drawn, int]]:
    """Return the sets that can be drawn for each vertex, numbered by positions in its row."""
    numbered: dict[int, dict[Drawn, int]] = {}
    for vertex in range(dataset.graph.num_vertices):
        neighbours = _neighbours(dataset, vertex)
        numbered[vertex] = {
            chosen: number
            for fanout in FANOUTS
            for number, chosen in enumerate(itertools.combinations(neighbours, fanout))
        }
    return numbered


def _neighbours(dataset: Dataset, vertex: int) -> list[int]:
    graph = dataset.graph
    row: list[int] = graph.indices[graph.indptr[vertex] : graph.indptr[vertex + 1]].tolist()
    return row
