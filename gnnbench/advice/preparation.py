"""What advice is asked for, as words or objects, and the question that it makes.

The command line and ``gnnbench.advise`` both begin here, so that the same words ask the same.
"""

from __future__ import annotations

from gnnbench.advice.questions import MODES, Question
from gnnbench.advice.variations import with_device_memory
from gnnbench.comparison.rows import check_names
from gnnbench.platforms.machine import Platform
from gnnbench.plugins import Registry
from gnnbench.preparation import (
    AdviceJob,
    load_dataset,
    load_machine,
    make_workload,
    note_unused_weights,
)

#: Where times are measured, so many are trained of a graph of at most so many stored edges, whose
#: epochs take seconds.
_TRAINED, _TRAINED_EDGES = 2, 2_000_000


def make_question(job: AdviceJob, registry: Registry) -> Question:
    """The question of a job, with its data and its machine.

    Raises ``UsageError`` for what is not known or cannot mean anything.
    """
    model = registry.model(job.model)
    platform = choose_platform(job, registry)
    dataset = note_unused_weights(load_dataset(job.dataset, job.seed), model)
    workload = make_workload(job, dataset, model)
    check_names(job.swaps, job.options, registry)
    modes = MODES if job.mode is None else (job.mode,)
    return Question(
        dataset, workload, platform, registry, modes, job.strategies, job.swaps, job.options
    )


def choose_platform(job: AdviceJob, registry: Registry) -> Platform:
    """The machine that was named, or that of the first strategy, with the memory asked for."""
    own = [registry.strategy(name).platform for name in job.strategies]
    platform = load_machine(job.platform, own=own[0] if own else "")
    size = job.device_bytes
    return platform if size is None else with_device_memory(platform, size)


def count_trained(question: Question) -> int:
    """How many of the best of each mode are trained where nobody says."""
    small = question.dataset.graph.num_edges <= _TRAINED_EDGES
    return _TRAINED if small and not question.platform.virtual else 0
