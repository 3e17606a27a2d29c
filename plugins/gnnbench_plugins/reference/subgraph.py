"""Samplers that draw a whole round at once: GraphSAINT's subgraphs, and layer-wise sampling.

A round's seeds are the next training vertices, as with neighbour sampling. The vertices drawn
around them depend on (seed, epoch, round) alone. A trainer with some of the seeds computes the part
of the round's batch that they reach. A round split over trainers is thus one large batch.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal

import numpy as np

from gnnbench.constants import Bound
from gnnbench.kernels import dispatch
from gnnbench.kernels.reference.sampling import DoubleArray
from gnnbench.parts import Bundle, MiniBatchSampler, Setting, option, shuffle_seeds
from gnnbench.records import Block, FloatArray, IntArray, Workload

#: First epoch number of epochs that are drawn before a run, beyond all epochs of the run.
FIRST_PRESAMPLED: Bound[int] = 1 << 30
MOST_PRESAMPLED: Bound[int] = 10_000


@dataclass
class RoundDraws(ABC):
    """The options and mini-batches of samplers that draw once for all seeds of a round.

    Fan-outs have no effect: all edges between the drawn vertices are kept. An edge has its weight
    in the graph. With ``presampled``, the weight is divided by the edge's frequency, given its
    destination: GraphSAINT's normalisation of aggregators (its §3.2), from counts that suit any
    sampler.
    """

    name: ClassVar[str]
    heeds_fanouts: ClassVar[bool] = False

    presampled: int = option(
        0, "epochs drawn before the run, by which edges are normalised; 0 = edges as they are"
    )

    _setting: Setting = field(init=False, repr=False, compare=False)
    #: An epoch, and each vertex's position among its shuffled seeds, int64 ``(V,)``, -1 for no
    #: seed.
    _places: tuple[int, IntArray] | None = field(
        default=None, init=False, repr=False, compare=False
    )
    _scales: tuple[FloatArray, ...] = field(default=(), init=False, repr=False, compare=False)

    @abstractmethod
    def draw(self, seeds: IntArray, epoch: int, round: int, threads: int) -> tuple[Block, ...]:
        """Return a whole round's blocks, without ``own``; ``seeds`` are the last destinations."""

    def begin(self, setting: Setting) -> None:
        self._setting = setting
        self._places = None
        self._scales = ()

    def refuses(self, bundle: Bundle, setting: Setting) -> str | None:
        if not 0 <= self.presampled <= MOST_PRESAMPLED:
            return (
                f"sampler.presampled is {self.presampled}; give a number of epochs from 0 to "
                f"{MOST_PRESAMPLED:,}."
            )
        return None

    @property
    def scales_edges(self) -> bool:
        return self.presampled > 0

    def edge_scales(self, layer: int) -> FloatArray | None:
        """Return C_v / C_uv (GraphSAINT §3.2) for each edge (u, v), from the pre-drawn epochs.

        C_v counts draws of v as a destination of the layer; C_uv counts draws of u with it. An edge
        that was never drawn counts as drawn once.
        """
        if not self.scales_edges:
            return None
        if not self._scales:
            self._scales = self._count_draws()
        return self._scales[layer]

    def _count_draws(self) -> tuple[FloatArray, ...]:
        """Count C_v / C_uv of each layer; blocks that serve several layers are counted once."""
        graph, workload = self._setting.dataset.graph, self._setting.workload
        found: dict[int, tuple[IntArray, IntArray]] = {}
        places: list[int] = []
        for epoch in range(FIRST_PRESAMPLED, FIRST_PRESAMPLED + self.presampled):
            for number, seeds in enumerate(shuffle_seeds(self._setting, epoch)):
                blocks = self.draw(seeds, epoch, number, workload.threads)
                places = [blocks.index(block) for block in blocks]
                for place in set(places):
                    if place not in found:
                        found[place] = (
                            np.zeros(graph.num_vertices, dtype=np.int64),
                            np.zeros(graph.num_edges, dtype=np.int64),
                        )
                    vertices, edges = found[place]
                    vertices[blocks[place].dst_ids] += 1
                    edges[dispatch.find_edges(graph.indptr, graph.indices, blocks[place])] += 1
        scales = {
            place: np.maximum(np.repeat(vertices, graph.degrees), 1) / np.maximum(edges, 1)
            for place, (vertices, edges) in found.items()
        }
        return tuple(scales[place].astype(np.float32) for place in places)

    def sample(self, seeds: IntArray, epoch: int, threads: int) -> tuple[Block, ...]:
        """Return the part of the round's batch that ``seeds`` reach; all of it for all seeds.

        Raises ``ValueError`` for seeds that are not of one round.
        """
        size = self._setting.workload.batch_size
        places = self._place_seeds(epoch)[seeds]
        numbers = np.unique(places // size)
        if len(numbers) != 1 or numbers[0] < 0:
            raise ValueError(f"seeds are of {len(numbers)} rounds; pass some of one round's.")
        number = int(numbers[0])
        whole = shuffle_seeds(self._setting, epoch)[number]
        blocks = self.draw(whole, epoch, number, threads)
        return blocks if np.array_equal(seeds, whole) else keep_reached(blocks, places % size)

    def _normalisation(self) -> str:
        """Return the end of the text ``sampling``."""
        return f", edges normalised over {self.presampled:,} epochs" * self.scales_edges

    def notes(self) -> tuple[str, ...]:
        if self.scales_edges:
            return (
                f"sampler {self.name!r}: sums weigh each edge by the inverse of its frequency in "
                f"{self.presampled:,} epochs drawn before the run; these do not count in an "
                f"epoch's time.",
            )
        return (
            f"sampler {self.name!r}: edges keep their weights in the graph, so GCN's sums are "
            f"smaller than in evaluation, which has every neighbour.",
        )

    def _place_seeds(self, epoch: int) -> IntArray:
        if self._places is None or self._places[0] != epoch:
            seeds = np.concatenate(shuffle_seeds(self._setting, epoch))
            places = np.full(self._setting.dataset.graph.num_vertices, -1, dtype=np.int64)
            places[seeds] = np.arange(len(seeds))
            self._places = epoch, places
        return self._places[1]


@dataclass
class SaintDraws(RoundDraws):
    """GraphSAINT (Zeng et al. 2020, Algorithm 2): a round's seeds, and a subgraph around them.

    All layers but the last compute the whole subgraph. The paper's loss covers all training
    vertices of the subgraph, divided by their probabilities. Here the loss covers the seeds. Every
    training vertex is a seed once an epoch, so all count alike.
    """

    method: Literal["node", "edge", "walk"] = option(
        "node", "draw vertices by degree, edges, or random walks"
    )
    budget: int = option(0, "vertices, edges or walks drawn beside the seeds; 0 = the batch size")
    steps: int = option(2, "steps of a walk")

    _sums: DoubleArray | None = field(default=None, init=False, repr=False, compare=False)

    def sampling(self, workload: Workload) -> str:
        budget = self.budget or workload.batch_size
        length = f" of {self.steps} steps" if self.method == "walk" else ""
        return f"GraphSAINT, {budget:,} {self.method}s{length}{self._normalisation()}"

    def refuses(self, bundle: Bundle, setting: Setting) -> str | None:
        graph = setting.dataset.graph
        most = max(graph.num_edges, graph.num_vertices)
        for name, value in (("budget", self.budget), ("steps", self.steps)):
            if not 0 <= value <= most:
                return (
                    f"sampler.{name} is {value}; give a count from 0 to {most:,}, the edges of "
                    f"graph {setting.dataset.name}."
                )
        if self.method != "walk" and not setting.dataset.graph.num_edges:
            return (
                f"sampler {self.name!r} draws by method {self.method!r}, and graph "
                f"{setting.dataset.name} has no edge to draw by; set sampler.method=walk."
            )
        return super().refuses(bundle, setting)

    def begin(self, setting: Setting) -> None:
        super().begin(setting)
        graph = setting.dataset.graph
        self._sums = None
        if self.method == "node":
            self._sums = dispatch.saint_node_sums(graph.indptr, graph.indices)
        elif self.method == "edge":
            self._sums = dispatch.saint_edge_sums(graph.indptr, graph.indices)

    def draw(self, seeds: IntArray, epoch: int, round: int, threads: int) -> tuple[Block, ...]:
        graph, workload = self._setting.dataset.graph, self._setting.workload
        drawn = self._draw_vertices(epoch, round)
        ids = np.concatenate((seeds, np.setdiff1d(drawn, seeds, assume_unique=True)))
        whole = dispatch.induce_subgraph(graph.indptr, graph.indices, ids, threads=threads)
        rows = whole.indptr[: len(seeds) + 1]
        last = replace(
            whole, num_dst=len(seeds), indptr=rows, indices=whole.indices[: rows[-1]].copy()
        )
        return (*[whole] * (workload.num_layers - 1), last)

    def _draw_vertices(self, epoch: int, round: int) -> IntArray:
        graph, seed = self._setting.dataset.graph, self._setting.workload.seed
        budget = self.budget or self._setting.workload.batch_size
        indptr, indices = graph.indptr, graph.indices
        if self.method == "walk":
            return dispatch.sample_saint_walks(
                indptr, indices, budget, self.steps, seed=seed, epoch=epoch, round=round
            )
        draw = dispatch.sample_saint_nodes
        if self.method == "edge":
            draw = dispatch.sample_saint_edges
        return draw(indptr, indices, budget, seed=seed, epoch=epoch, round=round, sums=self._sums)


@dataclass
class SaintSampler(SaintDraws, MiniBatchSampler):
    """A sampler of GraphSAINT's subgraphs."""

    name: ClassVar[str] = "saint"
    summary: ClassVar[str] = "GraphSAINT's subgraphs, drawn by vertices, edges or random walks"


@dataclass
class LayerwiseDraws(RoundDraws):
    """LADIES (Zou et al. 2019, Algorithm 1) or FastGCN (Chen, Ma and Xiao 2018, Algorithm 2).

    A layer's sources are drawn for all of its destinations together. The papers divide a source's
    weight by its probability. Here ``presampled`` divides an edge's weight by its frequency.
    """

    method: Literal["ladies", "fastgcn"] = option(
        "ladies", "draw among the layer's neighbours, or by one importance for all layers"
    )
    budgets: str = option(
        "", "new sources of each layer from the output inwards, as 512,256; empty = the batch size"
    )

    _importance: DoubleArray | None = field(default=None, init=False, repr=False, compare=False)

    def sampling(self, workload: Workload) -> str:
        name = {"ladies": "LADIES", "fastgcn": "FastGCN"}[self.method]
        budgets = self.budgets or f"{workload.batch_size:,} a layer"
        return f"{name}, budgets {budgets}{self._normalisation()}"

    def refuses(self, bundle: Bundle, setting: Setting) -> str | None:
        layers = setting.workload.num_layers
        counts = self.budgets.split(",") if self.budgets else []
        most = setting.dataset.graph.num_vertices
        right = all(count.strip().isdecimal() and 0 < int(count) <= most for count in counts)
        if not right or (counts and len(counts) != layers):
            return (
                f"sampler.budgets is {self.budgets!r}; give {layers} counts from 1 to {most:,}, "
                f"the graph's vertices, one for each layer, as {','.join(['512'] * layers)}."
            )
        return super().refuses(bundle, setting)

    def begin(self, setting: Setting) -> None:
        super().begin(setting)
        graph = setting.dataset.graph
        self._importance = None
        if self.method == "fastgcn":
            self._importance = dispatch.fastgcn_importance(graph.indptr, graph.indices)

    def draw(self, seeds: IntArray, epoch: int, round: int, threads: int) -> tuple[Block, ...]:
        graph, workload = self._setting.dataset.graph, self._setting.workload
        budgets = [workload.batch_size] * workload.num_layers
        if self.budgets:
            budgets = [int(count) for count in self.budgets.split(",")]
        return dispatch.sample_layers(
            graph.indptr,
            graph.indices,
            seeds,
            budgets,
            seed=workload.seed,
            epoch=epoch,
            importance=self._importance,
            threads=threads,
        ).blocks


@dataclass
class LayerwiseSampler(LayerwiseDraws, MiniBatchSampler):
    """A sampler of each layer's sources for all of its destinations together."""

    name: ClassVar[str] = "layerwise"
    summary: ClassVar[str] = "layer-wise sampling: LADIES, or FastGCN's importance of all vertices"


def keep_reached(blocks: tuple[Block, ...], rows: IntArray) -> tuple[Block, ...]:
    """Return the part of a mini-batch that ``rows``, destinations of its last block, reach.

    ``rows`` are positions. Edges keep their order within a row, so that a row's sum has the same
    bits as in the whole.
    """
    kept = []
    for block in reversed(blocks):
        degrees = np.diff(block.indptr)[rows]
        indptr = np.concatenate(([0], np.cumsum(degrees)))
        edges = np.arange(indptr[-1]) + np.repeat(block.indptr[rows] - indptr[:-1], degrees)
        sources = block.indices[edges]
        names = np.full(block.num_src, -1, dtype=np.int32)
        names[rows] = np.arange(len(rows), dtype=np.int32)
        others = np.unique(sources[names[sources] < 0]).astype(np.int64)
        names[others] = np.arange(len(rows), len(rows) + len(others), dtype=np.int32)
        reached = np.concatenate((rows, others))
        kept.append(Block(block.src_ids[reached], len(rows), indptr, names[sources]))
        rows = reached
    return tuple(reversed(kept))
