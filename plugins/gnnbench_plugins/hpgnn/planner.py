"""The designs that fit a board and what they would reach: ``gnnbench plan hpgnn``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar

from gnnbench.errors import IncompatibleParts, UsageError
from gnnbench.models import build
from gnnbench.parts import Bundle, Setting
from gnnbench.records import BatchProfile, Dataset, PartKind, Table, Unit
from gnnbench.studies import Planner, PlanRequest
from gnnbench.units import format_si
from gnnbench_plugins.hpgnn.design import tabulate
from gnnbench_plugins.hpgnn.placement import HpgnnPlacement
from gnnbench_plugins.hpgnn.program import Sampler
from gnnbench_plugins.hpgnn.sampler import HpgnnSampler


class HpgnnPlanner(Planner):
    """Samples one mini-batch, or bounds its size, and explores all designs for it."""

    name: ClassVar[str] = "hpgnn"
    summary: ClassVar[str] = "every design that fits the board, with its resources and throughput"
    # Designs are explored by Equations 3 to 11, whose mini-batches have both optimisations.
    unplanned: ClassVar[Mapping[PartKind, tuple[str, ...]]] = {
        "sampler": ("rmt", "rra"),
        "communication": ("overlap",),
        "kernel": ("clock",),
    }

    def plan(self, bundle: Bundle, request: PlanRequest) -> tuple[Table, ...]:
        placement, sampler = bundle.placement, bundle.sampler
        if not isinstance(placement, HpgnnPlacement) or not isinstance(sampler, HpgnnSampler):
            raise UsageError(
                "hpgnn plans for its own placement and sampler; leave both as they are."
            )
        workload, graph = request.workload, request.graph
        layers = build(workload, model=request.model).shapes
        board = placement.find_board(placement.trainers(request.platform)[0])
        if isinstance(graph, Dataset):
            setting = Setting(graph, request.platform, workload, layers, request.model)
            refusal = bundle.refusal(setting)
            if refusal is not None:
                raise IncompatibleParts(refusal)
            sampler.begin(setting)
            seeds = sampler.rounds(0)[0]
            unit = Unit(0, sampler.sample(seeds, 0, workload.threads))
            profile = BatchProfile(len(seeds), unit.vertices, unit.edges)
            origin = f"of a mini-batch sampled from {graph.name}"
            vertices = graph.graph.num_vertices
        else:
            if not sampler.heeds_fanouts:
                raise UsageError(
                    f"without a stored graph hpgnn bounds mini-batches by their fan-outs, and "
                    f"sampler {sampler.name!r} has none; plan for a dataset, or with sampler "
                    f"'hpgnn'."
                )
            bound = Sampler(
                "NeighborSampler",
                L=workload.num_layers,
                budgets=workload.fanouts[::-1],
                targets=workload.batch_size,
            )
            profile = BatchProfile(
                workload.batch_size, tuple(map(int, bound.vertices)), tuple(map(int, bound.edges))
            )
            origin = "of a mini-batch whose neighbours are all distinct"
            vertices = graph.vertices
        sweep = placement.explore(workload, layers, profile, board)
        stored_bytes = vertices * workload.dims[0] * workload.itemsize
        limit_bytes = min(board.memory_bytes, bundle.memory.device_bytes or board.memory_bytes)
        fit = "fit" if stored_bytes <= limit_bytes else "do not fit"
        notes = (
            f"sizes are those {origin}: |B| {', '.join(f'{n:,}' for n in profile.vertices)}; "
            f"|E| {', '.join(f'{n:,}' for n in profile.edges)}",
            f"designs that reach the best throughput: {len(sweep.ties)} of {len(sweep.points)}",
            f"the features, {format_si(stored_bytes, 'B')}, {fit} {board.name}'s memory",
        )
        return (replace(tabulate(sweep), notes=notes),)
