"""Plans from sizes alone: no graph is loaded or drawn, and known sizes stand for what it gives.

``gnnbench plan`` and the ledger of others' measurements both make their settings here.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from gnnbench.errors import UsageError

if TYPE_CHECKING:
    from gnnbench.jobs.job import PlanJob
    from gnnbench.machines.machine import Platform
    from gnnbench.parts import Bundle, LayerClass, Setting
    from gnnbench.plugins import Registry
    from gnnbench.price.sized import SizedEpochs
    from gnnbench.records import Dataset, Mode, Sizes, Strategy, Workload

#: Options of a plan by name, as a job has them; each can be hashed.
PlanOptions = tuple[tuple[str, Any], ...]


class SizedTask(NamedTuple):
    """The task of a plan from sizes alone."""

    data: Dataset
    workload: Workload
    sizes: Sizes


def goes_by_sizes(job: PlanJob, registry: Registry) -> bool:
    """Return whether sizes alone stand for the graph of a plan.

    They are those of mini-batches, or of a full graph for which no planner draws one.
    """
    by_count = job.sizes is not None and job.name not in registry.planners
    return job.batch_vertices is not None or by_count


def choose_sized_mode(job: PlanJob, strategy: Strategy) -> Mode:
    """Return the mode that the sizes of a job are for.

    Raises ``UsageError`` where the strategy does not train in it.
    """
    mode: Mode = "full-graph" if job.batch_vertices is None else "mini-batch"
    if mode in strategy.bundles and job.mode in (None, mode):
        return mode
    if mode == "mini-batch":
        raise UsageError(
            f"sizes of mini-batches are given, and strategy {strategy.name!r} is to train full "
            f"graphs; give --vertices and --edges instead."
        )
    raise UsageError(
        f"strategy {strategy.name!r} trains on mini-batches, whose sizes do not follow from those "
        f"of a graph; give --batch-vertices, --batch-edges and --train-vertices, or a --dataset."
    )


def describe_sizes(job: PlanJob, bundle: Bundle, machine: Platform, model: LayerClass) -> SizedTask:
    """Return the task of a job that goes by sizes.

    Raises ``UsageError`` for parts that depend on more than sizes.
    """
    reason = _refuse_parts(bundle)
    if reason is not None:
        raise UsageError(
            f"strategy {job.name!r} cannot be planned for from sizes alone, since {reason}; give "
            f"a --dataset."
        )
    trainers = len(bundle.placement.trainers(machine))
    if job.batch_vertices is not None:
        return _describe_mini_batches(job, trainers, model)
    return _describe_full_graph(job, bundle, trainers, model)


def prepare_sizes(job: PlanJob, registry: Registry) -> tuple[Bundle, Setting]:
    """Return the parts and the setting of a job that goes by sizes."""
    from gnnbench.jobs.preparation import load_plan_machine
    from gnnbench.models import build
    from gnnbench.parts import Setting
    from gnnbench.plugins import assemble, with_swap

    strategy, model = registry.strategy(job.name), registry.model(job.model_name)
    mode = choose_sized_mode(job, strategy)
    parts = with_swap(registry, strategy.bundles[mode], job.swaps)
    bundle = assemble(registry, parts, job.settings)
    machine = load_plan_machine(job, strategy, bundle)
    task = describe_sizes(job, bundle, machine, model)
    layers = build(task.workload, model=model).shapes
    return bundle, Setting(task.data, machine, task.workload, layers, model, task.sizes)


@cache
def price_plan(options: PlanOptions) -> SizedEpochs:
    """Return the epochs of a plan from sizes, which are kept; the parts are those installed.

    Raises ``DeviceOutOfMemoryError`` where a memory cannot hold them.
    """
    from gnnbench.jobs.job import PlanJob
    from gnnbench.price.sized import price_sizes

    return price_sizes(*prepare_sizes(PlanJob(**dict(options)), _load_registry()))


@cache
def _load_registry() -> Registry:
    from gnnbench.plugins import load

    return load()


def _refuse_parts(bundle: Bundle) -> str | None:
    """Return why sizes do not suffice for these parts, or None."""
    from gnnbench.parts import CacheMemory, DeviceMemory, FullGraphSampler, Kernel

    sampler, memory, kernel = bundle.sampler, bundle.memory, bundle.kernel
    if type(kernel).expect is not Kernel.expect:
        return f"kernel {kernel.name!r} prices the order of edges"
    if isinstance(memory, CacheMemory):
        return f"memory {memory.name!r} chooses the rows of its cache by the graph"
    if not isinstance(sampler, FullGraphSampler):
        return None
    if not isinstance(memory, DeviceMemory):
        return f"memory {memory.name!r} keeps vertex data on the host, chunk by chunk"
    if sampler.staged or sampler.in_pieces or sampler.layered:
        return f"sampler {sampler.name!r} cuts the graph in a way of its own"
    return None


def _describe_mini_batches(job: PlanJob, trainers: int, model: LayerClass) -> SizedTask:
    from gnnbench.jobs.preparation import make_workload
    from gnnbench.parts.sizes import make_sized_dataset
    from gnnbench.records import BatchProfile, Sizes

    sizes = tuple(job.batch_vertices or ()), tuple(job.batch_edges or ())
    inputs, seeds = sizes[0][0], sizes[0][-1]
    vertices, edges = _read_counts(job)
    if vertices and vertices < inputs:
        raise UsageError(
            f"a mini-batch reads {inputs:,} vertices of a graph of {vertices:,}; correct "
            f"--batch-vertices or --vertices."
        )
    total = seeds * trainers
    dataset = make_sized_dataset(
        f"mini-batches of {inputs:,} vertices, by size",
        max(vertices, inputs, total),
        edges,
        job.dims or (),
        total,
    )
    workload = replace(make_workload(job, dataset, model), batch_size=total, epochs=1)
    each = BatchProfile(seeds, *sizes)
    return SizedTask(dataset, workload, Sizes(each, rounds=(job.train_vertices or 0) / total))


def _describe_full_graph(
    job: PlanJob, bundle: Bundle, trainers: int, model: LayerClass
) -> SizedTask:
    from gnnbench.jobs.preparation import make_workload
    from gnnbench.parts import HaloExchange
    from gnnbench.parts.sizes import make_sized_dataset
    from gnnbench.records import Sizes

    communication, share = bundle.communication, job.share or 1.0
    counted = trainers > 1 and isinstance(communication, HaloExchange)
    counted = counted and not communication.broadcasts  # type: ignore[union-attr]
    if counted and job.replication is None:
        raise UsageError(
            f"{trainers} partitions read rows of each other, but sizes do not say how many. Give "
            f"--replication, the average copies of a vertex, or a --dataset."
        )
    if job.replication is not None and not counted:
        raise UsageError(
            f"--replication has no effect: communication {communication.name!r} on {trainers} "
            f"device{'s' * (trainers > 1)} does not depend on it. Leave it out."
        )
    vertices, edges = _read_counts(job)
    dataset = make_sized_dataset(
        f"{vertices:,} vertices and {edges:,} edges in both directions, by size",
        round(vertices * share),
        round(edges * share),
        job.dims or (),
        round(vertices * share),
    )
    workload = make_workload(job, dataset, model)
    return SizedTask(dataset, workload, Sizes(replication=job.replication or 1.0, share=share))


def _read_counts(job: PlanJob) -> tuple[int, int]:
    """Return the vertices and the stored edges of the graph; 0 where they are not given."""
    from gnnbench.datasets.synthetic import parse_count

    if job.sizes is None:
        return 0, 0
    words = zip(("--vertices", "--edges"), job.sizes, strict=True)
    vertices, edges = (parse_count("gnnbench plan", flag, str(text)) for flag, text in words)
    return vertices, 2 * edges
