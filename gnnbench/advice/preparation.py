"""What advice is asked for, as words or objects, and the question that it makes.

The command line and ``gnnbench.advise`` both begin here, so that the same words ask the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from gnnbench.advice.questions import MODES, Question
from gnnbench.advice.variations import with_device_memory
from gnnbench.comparison.rows import check_names
from gnnbench.cores import count_cores
from gnnbench.errors import UsageError
from gnnbench.platforms.machine import Platform
from gnnbench.plugins import Registry
from gnnbench.preparation import (
    check_counts,
    load_dataset,
    load_machine,
    note_unused_weights,
    uses_weights,
    usual_fanouts,
)
from gnnbench.records import Dataset, Mode, PartKind, Workload
from gnnbench.units import parse_bytes

#: Where times are measured, so many are trained of a graph of at most so many stored edges, whose
#: epochs take seconds.
_TRAINED, _TRAINED_EDGES = 2, 2_000_000


@dataclass(frozen=True, slots=True)
class AdviceJob:
    """What ``advise`` and ``matrix`` are asked.

    ``strategies`` are those whose parts are combined, all where none is named. ``mode`` is the only
    one to answer for, None for both. ``device_memory`` replaces that of every accelerator: bytes,
    or text such as ``"24GB"``. ``swaps`` are parts that every combination has, ``options`` settings
    that are not searched. ``platform``, ``fanouts`` and ``threads`` may be left to the first
    strategy, the model and the machine.
    """

    dataset: str | Dataset
    strategies: tuple[str, ...] = ()
    model: str = "gcn"
    layers: int = 2
    hidden: int = 256
    mode: Mode | None = None
    epochs: int = 1
    batch_size: int = 1024
    fanouts: tuple[int, ...] | None = None
    platform: str | Platform | None = None
    device_memory: int | str | None = None
    swaps: tuple[tuple[PartKind, str], ...] = ()
    options: Mapping[PartKind, Mapping[str, str]] = field(default_factory=dict)
    seed: int = 0
    threads: int | None = None

    def __post_init__(self) -> None:
        check_counts(self, "layers", "hidden", "epochs", "batch_size")
        if self.threads is not None:
            check_counts(self, "threads")
        if self.mode is not None and self.mode not in MODES:
            raise UsageError(f"there is no mode {self.mode!r}; the modes are {', '.join(MODES)}.")


def make_question(job: AdviceJob, registry: Registry) -> Question:
    """The question of a job, with its data and its machine.

    Raises ``UsageError`` for what is not known or cannot mean anything.
    """
    model = registry.model(job.model)
    platform = choose_platform(job, registry)
    dataset = note_unused_weights(load_dataset(job.dataset, job.seed), model)
    workload = Workload(
        model=job.model,
        dims=(dataset.num_features, *[job.hidden] * (job.layers - 1), dataset.num_classes),
        epochs=job.epochs,
        batch_size=job.batch_size,
        fanouts=job.fanouts or usual_fanouts(job.layers),
        seed=job.seed,
        threads=job.threads or count_cores(),
        edge_weights=uses_weights(dataset.graph, model),
    )
    check_names(job.swaps, job.options, registry)
    modes = MODES if job.mode is None else (job.mode,)
    return Question(
        dataset, workload, platform, registry, modes, job.strategies, job.swaps, job.options
    )


def choose_platform(job: AdviceJob, registry: Registry) -> Platform:
    """The machine that was named, or that of the first strategy, with the memory asked for."""
    own = [registry.strategy(name).platform for name in job.strategies]
    platform = load_machine(job.platform, own=own[0] if own else "")
    size = read_size(job.device_memory)
    return platform if size is None else with_device_memory(platform, size)


def read_size(given: int | str | None) -> int | None:
    """Bytes of a number or of text such as ``"24GB"``. Raises ``UsageError`` where it is no size
    above 0."""
    if given is None:
        return None
    try:
        size = parse_bytes(given) if isinstance(given, str) else int(given)
    except (TypeError, ValueError):
        size = 0
    if size <= 0:
        raise UsageError(f"{given!r} is not a size above 0, such as 24GB.")
    return size


def count_trained(question: Question) -> int:
    """How many of the best of each mode are trained where nobody says."""
    small = question.dataset.graph.num_edges <= _TRAINED_EDGES
    return _TRAINED if small and not question.platform.virtual else 0
