"""Preparation of advice: words or objects become a question.

The command line and ``gnnbench.advise`` both begin here, so that the same words ask the same.
"""

from __future__ import annotations

from gnnbench.advice.questions import MODES, Question
from gnnbench.advice.variations import with_device_memory
from gnnbench.comparison.rows import check_names
from gnnbench.jobs.job import AdviceJob
from gnnbench.jobs.preparation import (
    load_dataset,
    load_machine,
    make_workload,
    note_unused_weights,
)
from gnnbench.machines.machine import Platform
from gnnbench.plugins import Registry

#: The number of choices trained where times are measured, for graphs of at most this many stored
#: edges, with epochs of seconds.
_TRAINED, _TRAINED_EDGES = 2, 2_000_000


def make_question(job: AdviceJob, registry: Registry) -> Question:
    """Return the question of a job, with its data and its machine.

    Raises ``UsageError`` for unknown names and contradictory values.
    """
    model = registry.model(job.model_name)
    platform = choose_platform(job, registry)
    dataset = note_unused_weights(load_dataset(job.dataset, job.seed), model)
    workload = make_workload(job, dataset, model)
    check_names(job.swaps, job.settings, registry)
    modes = MODES if job.mode is None else (job.mode,)
    names = tuple(name for name, _ in job.chosen)
    return Question(dataset, workload, platform, registry, modes, names, job.swaps, job.settings)


def choose_platform(job: AdviceJob, registry: Registry) -> Platform:
    """Return the named platform, or the first strategy's, with the device memory asked for."""
    own = [registry.strategy(name).platform for name, _ in job.chosen]
    platform = load_machine(job.platform, own=own[0] if own else "")
    size = job.device_bytes
    return platform if size is None else with_device_memory(platform, size)


def count_trained(question: Question) -> int:
    """Return the default number of best choices of each mode to train."""
    small = question.dataset.graph.num_edges <= _TRAINED_EDGES
    return _TRAINED if small and not question.platform.virtual else 0
