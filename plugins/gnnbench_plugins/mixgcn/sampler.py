"""The order in which vertices are processed, and the stages of the pipeline: MixGCN §3.2.2."""

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import ClassVar, Literal

import numpy as np

from gnnbench.constants import Bound
from gnnbench.kernels.dispatch import induce_block
from gnnbench.lowering.shardings import Piece
from gnnbench.parts import (
    Bundle,
    Chunks,
    DeviceCapacity,
    FullGraphSampler,
    Part,
    Setting,
    option,
)
from gnnbench.records import Block, BlockSize, Graph, Round, Unit
from gnnbench.units import format_si
from gnnbench_plugins.mixgcn.ordering import (
    Ordering,
    count_rounds,
    count_stages,
    cut_order,
    keep_order,
    reorder,
)
from gnnbench_plugins.mixgcn.outlook import foresee

Schedule = Literal["naive", "pipelined", "reordered"]

#: Most stages that are chosen by default: beyond, a stage is mostly launches.
MOST_STAGES: Bound[int] = 64


@dataclass(frozen=True)
class MixGCNSampler(FullGraphSampler):
    """A sampler with a round for each stage of the fine-grain pipeline, of equal vertex counts.

    ``naive`` has one stage, so that sparse and dense operations of a layer take turns (Figure 5a).
    ``pipelined`` takes vertices in id order (5b, 5c), ``reordered`` in reverse Cuthill-McKee order
    (5d), which keeps neighbours close. If ``stages`` is 0, s is the least that leaves nothing idle
    for the order's bandwidth (Proposition 3.5).

    ``auto`` is ``reordered``, or ``naive`` if its epoch is shorter by the model clock. s stages
    overlap the operations that one stage does in turn, but send s times the messages and start s
    times the kernels. A requested number of stages is always used.
    """

    name: ClassVar[str] = "mixgcn"
    summary: ClassVar[str] = "vertices in stages of a pipeline, in an order of small bandwidth"
    staged: ClassVar[bool] = True

    schedule: Literal["auto", "naive", "pipelined", "reordered"] = option(
        "auto",
        "one stage, stages as numbered, or stages in reverse Cuthill-McKee order; auto = one stage "
        "or reordered, whichever has the shorter modelled epoch",
    )
    stages: int = option(0, "s: stages of the pipeline; 0 = as Proposition 3.5 asks")

    def refuses(self, bundle: Bundle, setting: Setting) -> str | None:
        """Refuse impossible numbers of stages."""
        vertices = setting.dataset.graph.num_vertices
        if not 0 <= self.stages <= vertices:
            return (
                f"sampler.stages is {self.stages}; choose 1 to {vertices:,}, the number of "
                f"vertices, or 0 for the number that Proposition 3.5 asks for."
            )
        if self.stages > 1 and self.schedule == "naive":
            return (
                f"sampler.stages is {self.stages}, and sampler.schedule naive has one stage; "
                f"choose schedule pipelined or reordered, or leave stages out."
            )
        return None

    def settle(self, bundle: Bundle, setting: Setting) -> tuple[Part, tuple[str, ...]]:
        """Settle ``auto`` by the epochs of both schedules; one device is always naive.

        If accelerators are set apart, half of them are assumed to aggregate: the placement settles
        after this part.
        """
        if self.schedule != "auto" or self.stages:
            return self, ()
        if len(bundle.placement.trainers(setting.platform)) == 1:
            why = "schedule naive: one device has nothing to overlap with"
            return replace(self, schedule="naive"), (why,)
        graph = setting.dataset.graph
        staged = self.count_rounds(graph)
        naive_s = foresee(bundle, setting, count_whole(graph)).epoch_s
        staged_s = foresee(bundle, setting, staged).epoch_s
        schedule: Schedule = "naive" if naive_s <= staged_s else "reordered"
        why = (
            f"schedule {schedule} has the shorter modelled epoch: {format_si(naive_s, 's')} in one "
            f"stage, {format_si(staged_s, 's')} reordered in {len(staged)}"
        )
        return replace(self, schedule=schedule), (why,)

    @property
    def chosen_schedule(self) -> Schedule:
        """The schedule in use: ``reordered`` while ``auto`` is not settled."""
        return "reordered" if self.schedule == "auto" else self.schedule

    def chunks(
        self, setting: Setting, num_slots: int, capacity: DeviceCapacity | None = None
    ) -> Chunks:
        """Return one unit a stage, for any number of slots.

        The placement's shards divide it, and one slot stands for all devices.
        """
        graph = setting.dataset.graph
        owner = np.zeros(graph.num_vertices, dtype=np.int64)
        if self.chosen_schedule == "naive":
            note = "naive schedule: sparse and dense operations of a layer take turns"
            ids = np.arange(graph.num_vertices, dtype=np.int64)
            whole = Block(ids, len(ids), graph.indptr, graph.indices)
            return Chunks((Round(0, (Unit(0, (whole,)),)),), owner, (note,))
        ordering = self._order(graph)
        stages, wanted = self._count_stages(graph, ordering)
        asked = "no number of them is enough" if wanted is None else f"{wanted:,} are enough"
        note = (
            f"{graph.num_vertices:,} vertices in {stages} pipeline stages, in an order of "
            f"bandwidth {ordering.bandwidth:,}; by Proposition 3.5 {asked} to leave no sparse step "
            f"idle"
        )
        blocks = (
            setting.keep(induce_block(graph.indptr, graph.indices, ids))
            for ids in cut_order(ordering.order, stages)
        )
        rounds = tuple(Round(stage, (Unit(0, (block,)),)) for stage, block in enumerate(blocks))
        return Chunks(rounds, owner, (note,))

    def count_rounds(self, graph: Graph) -> tuple[Piece, ...]:
        """Return the sizes of the rounds that ``chunks`` cuts a graph into."""
        if self.chosen_schedule == "naive":
            return count_whole(graph)
        stages, _ = self._count_stages(graph, self._order(graph))
        return count_ordered(graph, stages, numbered=self.chosen_schedule == "pipelined")

    def _order(self, graph: Graph) -> Ordering:
        return find_order(graph, numbered=self.chosen_schedule == "pipelined")

    def _count_stages(self, graph: Graph, ordering: Ordering) -> tuple[int, int | None]:
        """Return how many stages to cut, and how many Proposition 3.5 asks for."""
        wanted = count_stages(graph.num_vertices, ordering.bandwidth)
        return choose_stages(self.stages, graph.num_vertices, wanted), wanted


@lru_cache(maxsize=1)
def find_order(graph: Graph, *, numbered: bool) -> Ordering:
    """Return a graph's processing order: ``numbered`` means id order.

    The last order is cached, since it is needed more than once before a run.
    """
    return keep_order(graph) if numbered else reorder(graph)


@lru_cache(maxsize=1)
def count_ordered(graph: Graph, stages: int, *, numbered: bool) -> tuple[Piece, ...]:
    """Return the rounds of an order; the last ones are cached, as the order is."""
    return count_rounds(graph, find_order(graph, numbered=numbered).order, stages)


def count_whole(graph: Graph) -> tuple[Piece, ...]:
    """Return one round of all vertices."""
    size = BlockSize(graph.num_vertices, graph.num_vertices, graph.num_edges)
    return (Piece(size, (0,), picks=False),)


def choose_stages(asked: int, vertices: int, wanted: int | None) -> int:
    """Return the requested stages; for 0, those ``wanted`` by Proposition 3.5, within limits."""
    return asked or min(wanted or vertices, MOST_STAGES, vertices)
