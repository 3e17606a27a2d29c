"""Data sets, machines and workloads of the names and numbers in a job.

The command line, Python's functions and sweeps all begin here, so that the same words mean the same
run everywhere. Heavy imports wait until a name has to be looked up.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING

from gnnbench.errors import GnnbenchError, IncompatiblePartsError, UsageError
from gnnbench.host.cores import count_cores

if TYPE_CHECKING:
    from gnnbench.jobs.groups import Training
    from gnnbench.jobs.job import PlanJob
    from gnnbench.jobs.words import ChosenStrategy
    from gnnbench.machines.machine import Platform
    from gnnbench.parts import Bundle, LayerClass, Placement
    from gnnbench.plugins import Registry
    from gnnbench.records import Dataset, Graph, Strategy, Workload


def make_workload(
    job: Training, data: Dataset | None, model: LayerClass, threads: int = 0
) -> Workload:
    """Make the workload on ``data``, or on a graph to be drawn if that is None.

    The model's learning rate and all cores are the defaults. Raises ``UsageError`` for a model that
    this machine cannot hold.
    """
    from gnnbench.records import Workload

    features, classes = (1, 1) if data is None else (data.num_features, data.num_classes)
    job.check_size(features, classes)
    return Workload(
        model=job.model_name,
        dims=job.list_widths(features, classes),
        epochs=job.epochs,
        batch_size=job.batch_size,
        fanouts=tuple(job.fanouts or usual_fanouts(job.count_layers())),
        seed=job.seed,
        learning_rate=getattr(job, "learning_rate", None) or model.learning_rate,
        threads=threads or job.threads or count_cores(),
        edge_weights=data is not None and uses_weights(data.graph, model),
    )


def uses_weights(graph: Graph, model: LayerClass) -> bool:
    """Whether training a model on a graph multiplies by edge weights.

    The graph has weights, and the model's layers take them (``Layer.takes_weights``).
    """
    return graph.weights is not None and getattr(model, "takes_weights", False)


def note_unused_weights(dataset: Dataset, model: LayerClass) -> Dataset:
    """Return the data set, with a note if it has edge weights that the model does not take."""
    if dataset.graph.weights is None or uses_weights(dataset.graph, model):
        return dataset
    note = f"edge weights were not used: {model.title} takes none"
    return replace(dataset, notes=(*dataset.notes, note))


def usual_fanouts(layers: int) -> tuple[int, ...]:
    """Return the default fan-outs: 25, 10, 10, ... from the seeds outwards."""
    return (25, *[10] * (layers - 1))


def load_dataset(spec: str | os.PathLike[str] | Dataset | None, seed: int) -> Dataset:
    """Return the data set of a name or file, or the object itself; None is the usual one."""
    from gnnbench import datasets
    from gnnbench.records import Dataset

    if isinstance(spec, Dataset):
        return spec
    return datasets.default_dataset(seed) if spec is None else datasets.load(str(spec), seed=seed)


def find_placements(registry: Registry, chosen: Sequence[ChosenStrategy]) -> tuple[Placement, ...]:
    """Return the placements of the named strategies, with their swaps, in every mode."""
    from gnnbench.parts import Placement

    names = (
        dict(swaps).get("placement", parts.placement)
        for strategy, swaps in chosen
        for parts in registry.strategy(strategy).bundles.values()
    )
    made: list[Placement] = []
    for name in dict.fromkeys(names):
        try:
            part = registry.part("placement", name)()
        except (GnnbenchError, KeyboardInterrupt):
            raise
        except BaseException:
            continue  # its own row makes it again, and then says why it fails
        if isinstance(part, Placement):
            made.append(part)
    return tuple(made)


def load_plan_machine(job: PlanJob, strategy: Strategy, bundle: Bundle) -> Platform:
    """Return the machine that a plan is for.

    Raises ``IncompatiblePartsError`` if it lacks the devices that the parts need.
    """
    machine = load_machine(job.platform, placements=(bundle.placement,), own=strategy.platform)
    reason = bundle.placement.refuse_counts(machine) or bundle.refuse_devices(machine)
    if reason is not None:
        raise IncompatiblePartsError(f"{strategy.name}: {reason}")
    return machine


def load_machine(
    spec: str | os.PathLike[str] | Platform | None,
    ranks: int | None = None,
    placements: Sequence[Placement] = (),
    own: str = "",
) -> Platform:
    """Return the platform asked for, or the default.

    For a job of several ranks, of which ``ranks`` are on this machine, the default is the machine
    divided among them, and so is ``local``. In a single process the default is this machine if it
    has a CUDA device. Otherwise it is the first strategy's ``own`` machine, the usual one, or
    another bundled one. The first of them is taken on which all ``placements`` find a device to
    train on.
    """
    from gnnbench.machines import describe
    from gnnbench.machines.machine import Platform

    if ranks is not None and spec in (None, describe.LOCAL):
        from gnnbench.machines.workers import divide_machine

        return divide_machine(ranks)
    if isinstance(spec, Platform):
        return spec
    if spec is not None:
        return describe.load_platform(str(spec))
    usual = describe.default_platform()
    bundled = (entry.name for entry in describe.list_platforms() if entry.name != describe.LOCAL)
    named = [own] if own and usual.virtual else []
    candidates = chain(
        map(describe.load_platform, named), (usual,), map(describe.load_platform, bundled)
    )
    return next((p for p in candidates if all(can_train(each, p) for each in placements)), usual)


def can_train(placement: Placement, platform: Platform) -> bool:
    """Whether the platform has a device that the placement trains on."""
    try:
        return bool(placement.trainers(platform))
    except UsageError:
        return False
    except KeyboardInterrupt:
        raise
    except BaseException:
        # Its own run asks it again, and reports the exception as that run's failure.
        return True
