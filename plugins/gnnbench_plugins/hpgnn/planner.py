"""Designs that fit a board, and their predicted throughput: ``gnnbench plan hpgnn``."""

from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar

from gnnbench.errors import UsageError
from gnnbench.models import build
from gnnbench.parts import Bundle, MiniBatchSampler, Setting
from gnnbench.records import BatchProfile, Dataset, PartKind, Table, Unit, Workload
from gnnbench.reproduce.studies import Planner, PlanRequest
from gnnbench.units import format_si
from gnnbench_plugins.hpgnn.design import tabulate
from gnnbench_plugins.hpgnn.placement import HpgnnPlacement
from gnnbench_plugins.hpgnn.program import Sampler
from gnnbench_plugins.hpgnn.sampler import LaidOut


class HpgnnPlanner(Planner):
    """A planner that samples a mini-batch, or bounds its size, and explores all designs for it."""

    name: ClassVar[str] = "hpgnn"
    summary: ClassVar[str] = "every design that fits the board, with its resources and throughput"
    # Designs are explored by Equations 3 to 11, which assume both optimisations.
    unplanned: ClassVar[Mapping[PartKind, tuple[str, ...]]] = {
        "sampler": ("rmt", "rra"),
        "communication": ("overlap",),
        "kernel": ("clock",),
    }

    def plan(self, bundle: Bundle, request: PlanRequest) -> tuple[Table, ...]:
        placement, sampler = bundle.placement, bundle.sampler
        if not (isinstance(sampler, MiniBatchSampler) and isinstance(sampler, LaidOut)) or not (
            isinstance(placement, HpgnnPlacement)
        ):
            raise UsageError(
                "hpgnn plans for its own placement and sampler; leave both as they are."
            )
        workload, graph = request.workload, request.graph
        layers = build(workload, model=request.model).shapes
        board = placement.find_board(placement.trainers(request.platform)[0])
        if isinstance(graph, Dataset):
            sampler.begin(Setting(graph, request.platform, workload, layers, request.model))
            seeds = sampler.rounds(0)[0]
            unit = Unit(0, sampler.sample(seeds, 0, workload.threads))
            profile = BatchProfile(len(seeds), unit.vertices, unit.edges)
            notes = [f"sizes are those of a mini-batch sampled from {graph.name}"]
        else:
            profile = bound_profile(sampler, workload)
            stored_bytes = graph.vertices * workload.dims[0] * workload.itemsize
            limit_bytes = min(
                board.memory.memory_bytes, bundle.memory.device_bytes or board.memory.memory_bytes
            )
            fits = "fit" if stored_bytes <= limit_bytes else "do not fit"
            notes = [
                "sizes are those of a mini-batch whose neighbours are all distinct",
                f"the features, {format_si(stored_bytes, 'B')}, {fits} {board.name}'s memory",
            ]
        sweep = placement.explore(workload, layers, profile, board)
        notes += [
            f"|B| {', '.join(f'{n:,}' for n in profile.vertices)}; "
            f"|E| {', '.join(f'{n:,}' for n in profile.edges)}",
            f"designs that reach the best throughput: {len(sweep.ties)} of {len(sweep.points)}",
        ]
        return (replace(tabulate(sweep), notes=tuple(notes)),)


def bound_profile(sampler: MiniBatchSampler, workload: Workload) -> BatchProfile:
    """Return the largest mini-batch by its fan-outs; ``UsageError`` for a sampler without any."""
    if not sampler.heeds_fanouts:
        raise UsageError(
            f"without a stored graph hpgnn bounds mini-batches by their fan-outs, and sampler "
            f"{sampler.name!r} has none; plan for a dataset, or with sampler 'hpgnn'."
        )
    bound = Sampler(
        "NeighborSampler",
        L=workload.num_layers,
        budgets=workload.fanouts[::-1],
        targets=workload.batch_size,
    )
    vertices, edges = tuple(map(int, bound.vertices)), tuple(map(int, bound.edges))
    return BatchProfile(workload.batch_size, vertices, edges)
