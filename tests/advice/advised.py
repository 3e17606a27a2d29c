"""Whether advised combinations can run on their platform.

Questions are drawn at random: a graph, a model, a platform and a few strategies. Each first choice
is assembled on its platform, and its kernel binds a block on every device that trains. GPUs are
torch's ``meta`` device here, so that a kernel that needs the CPU's memory fails.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch

from gnnbench import datasets
from gnnbench.advice import Question, advise
from gnnbench.advice.pricing import Pricer
from gnnbench.advice.search import Effort
from gnnbench.comparison.request import PlannedRow
from gnnbench.errors import GnnbenchError, IncompatiblePartsError
from gnnbench.machines import list_platforms, load_platform
from gnnbench.machines.machine import Device, Platform
from gnnbench.plugins import Registry
from gnnbench.probing.kernels import draw_block
from gnnbench.records import Dataset, Workload

GRAPHS = (
    "sbm:vertices=60,edges=200,features=12,classes=4",
    "sbm:vertices=200,edges=1500,features=40,classes=3",
    "rmat:vertices=128,edges=900",
)
MODELS = ("gcn", "sage", "gin", "gat")
#: Number of strategies that supply the parts of a question.
STRATEGIES = 3
EFFORT = Effort(plans=5, tuned=1, finals=1)


@dataclass(frozen=True, slots=True)
class Checked:
    """A first choice and why it cannot be assembled on its platform; empty if it can be."""

    label: str
    kernel: str
    platform: str
    fault: str


def check_choices(registry: Registry, seed: int) -> Iterator[Checked]:
    """Draw questions without end, and check the first choice of each mode."""
    draw = random.Random(seed)
    platforms = [p for each in list_platforms() if (p := load_platform(each.name)).virtual]
    graphs = [datasets.load(name) for name in GRAPHS]
    names = [strategy.name for strategy in registry.strategies]
    while True:
        question = make_question(
            registry,
            draw.choice(graphs),
            draw.choice(MODELS),
            draw.choice(platforms),
            tuple(draw.sample(names, STRATEGIES)),
        )
        try:
            answers = advise(question, vary=False, effort=EFFORT).answers
        except IncompatiblePartsError:
            continue
        for best in (answer.best for answer in answers):
            if best is not None:
                row, platform = best.row, question.platform
                fault = find_fault(question, row)
                yield Checked(row.label, row.parts.kernel, platform.name, fault)


def make_question(
    registry: Registry,
    dataset: Dataset,
    model: str,
    platform: Platform,
    strategies: tuple[str, ...] = (),
) -> Question:
    """Return a question about a small workload."""
    dims = (dataset.num_features, 16, dataset.num_classes)
    workload = Workload(model, dims, epochs=1, batch_size=32, fanouts=(5, 4), seed=0, threads=1)
    return Question(dataset, workload, platform, registry, strategies=strategies)


def find_fault(question: Question, row: PlannedRow) -> str:
    """Return why a row cannot be assembled on the question's platform, or an empty string."""
    options = {kind: dict(values) for kind, values in question.options.items()}
    for kind, name, value in row.options:
        options.setdefault(kind, {})[name] = value
    asked = replace(question, options=options)
    pricer = Pricer(asked)
    reason = pricer.refuse(row.parts)
    if reason:
        return reason
    bundle, block = pricer.assemble(row.parts), draw_block(32, 4, 32)
    for device in bundle.placement.trainers(question.platform):
        try:
            bundle.kernel.adjacency(block, torch.float32, find_device(device))
        except KeyError:
            continue  # DGL has no meta device
        except (GnnbenchError, RuntimeError, TypeError) as error:
            return f"{device.name}, a {device.kind}: {error}"
    return ""


def find_device(device: Device) -> torch.device:
    """Return the torch device that stands for a described one; FPGAs compute on the CPU here."""
    return torch.device("meta" if device.kind == "gpu" else "cpu")
