"""Whole epochs of training: our strategy, peers' strategies, and the libraries' own programs.

Strategies differ in their parts and share the engine, the model's mathematics, its initial weights
and the optimiser. Whole programs share only the weights: they are the libraries' own layers in a
plain loop, without anything of this project around them.
"""

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial

import numpy as np
import torch

from gnnbench import datasets, plugins
from gnnbench.comparison import Request, make_setting
from gnnbench.errors import MissingDependencyError
from gnnbench.machines.describe import LOCAL, load_platform
from gnnbench.parts import Setting
from gnnbench.price.wall_clock import WallClock
from gnnbench.program.recorder import Recorder
from gnnbench.programs.messages import ProgramRefusedError
from gnnbench.programs.rows import find_program
from gnnbench.programs.run import make_task
from gnnbench.programs.sessions import CommandTraining
from gnnbench.programs.task_folder import TaskFolders
from gnnbench.records import CommandProgram, Dataset, Mode, Workload
from gnnbench.run import make_engine
from suites.contestants import Scope
from suites.race import OURS, Case, Contestant, Target, WrongResultError

#: Datasets by the names that their graphs have in tables.
DATASETS = {
    "rmat-4k": "rmat:vertices=4096,edges=60000,features=100",
    "rmat-1m": "rmat:vertices=1M,edges=16M,features=100",
    "coauthor_physics": "coauthor_physics",
}
HIDDEN = 256
FANOUTS = (15, 10, 5)
BATCH = 1024
#: Training vertices of a mini-batch epoch: enough batches for a stable time.
MOST_SEEDS = 8 * BATCH
FACTOR = 1.5
#: Epochs after the first in which the native kernels try each of their three ways to sum rows of a
#: full graph twice (``SparseMatrix.trials``).
TRIALS = 5


@dataclass(frozen=True, eq=False)
class Task:
    """Three layers of a model, of 256 hidden units, for one epoch a call."""

    spec: str
    mode: Mode
    model: str

    @property
    def dataset(self) -> Dataset:
        return load_dataset(self.spec, self.mode)

    def setting(self, strategy: str) -> Setting:
        dataset = self.dataset
        workload = Workload(
            model=self.model,
            dims=(dataset.num_features, HIDDEN, HIDDEN, dataset.num_classes),
            epochs=1,
            batch_size=BATCH,
            fanouts=FANOUTS,
            seed=0,
            threads=torch.get_num_threads(),
        )
        platform = load_platform(LOCAL)
        request = Request((strategy,), dataset, workload, platform, check=False, modes=(self.mode,))
        return make_setting(request)

    def check(self, loss: float, ours: float) -> None:
        """Check that losses are equal on a full graph and about equal on mini-batches.

        Mini-batch draws differ, and the losses of an epoch's first batches still fluctuate.
        """
        tolerance = 1e-4 if self.mode == "full-graph" else 0.25
        if not abs(loss - ours) <= tolerance * abs(ours):
            raise WrongResultError(
                f"ends its first epoch with loss {loss:.6g}, ours with {ours:.6g}."
            )


@lru_cache(maxsize=2)
def load_dataset(spec: str, mode: Mode) -> Dataset:
    """Return the dataset; for mini-batches, with at most ``MOST_SEEDS`` training vertices."""
    dataset = datasets.load(spec)
    if mode == "full-graph" or len(dataset.train_ids) <= MOST_SEEDS:
        return dataset
    train = np.zeros_like(dataset.train_mask)
    train[dataset.train_ids[:MOST_SEEDS]] = True
    return dataclasses.replace(dataset, train_mask=train)


# --------------------------------------------------------------------------- strategies


def run_strategy(
    task: Task, name: str, options: Mapping[str, object], warm_ups: int = 0
) -> Contestant:
    """Prepare the bundled strategy in the engine."""
    registry, setting = plugins.load(), task.setting(name)
    bundle = plugins.assemble(registry, registry.strategy(name).bundles[task.mode], {})
    for option, value in options.items():
        if hasattr(bundle.sampler, option):
            setattr(bundle.sampler, option, value)
    bundle = bundle.begin(setting)
    engine = make_engine(bundle, setting, Recorder(WallClock()))
    engine.prepare()
    return Contestant(lambda turn: engine.run_epoch(turn).loss, warm_ups=warm_ups)


# --------------------------------------------------------------------------- libraries


def run_program(task: Task, name: str) -> Contestant:
    """Prepare a library's own program, which runs in a process of its own, stopped between calls.

    A call lasts from the order of an epoch to its end.
    """
    given = make_task(task.setting("reference"), task.mode)
    program = find_program(name, plugins.load())
    assert isinstance(program, CommandProgram)
    folders = TaskFolders()
    try:
        training = CommandTraining(program, given, folders.write(given))
    except ProgramRefusedError as refusal:
        raise MissingDependencyError(str(refusal)) from refusal

    def call(turn: int, kept: TaskFolders = folders) -> float:
        return training.run_epoch(turn).report.loss

    return Contestant(call)


#: Whole programs by mode, as ``--program`` names them.
PROGRAMS: Mapping[Mode, Sequence[str]] = {
    "full-graph": ("dgl-loop", "pyg-loop"),
    "mini-batch": ("dgl-loop", "dgl-loop:workers=1", "dgl-ddp", "pyg-loop", "pyg-ddp"),
}
CONTESTANTS: dict[Mode, dict[str, Callable[[Task], Contestant]]] = {
    "full-graph": {
        OURS: partial(run_strategy, name="native", options={}, warm_ups=TRIALS),
        "dgl": partial(run_strategy, name="dgl", options={}),
        "pyg": partial(run_strategy, name="pyg", options={}),
        **{name: partial(run_program, name=name) for name in PROGRAMS["full-graph"]},
    },
    "mini-batch": {
        OURS: partial(run_strategy, name="native", options={}),
        "dgl": partial(run_strategy, name="dgl", options={"repeatable": False}),
        "pyg": partial(run_strategy, name="pyg", options={}),
        **{name: partial(run_program, name=name) for name in PROGRAMS["mini-batch"]},
    },
}


TITLES: Mapping[Mode, str] = {"full-graph": "full graph", "mini-batch": "mini-batch"}
#: Models by mode. Mini-batches have one model, whose layers compute the same on a library's blocks.
MODELS: Mapping[Mode, Sequence[str]] = {
    "full-graph": ("gcn", "gin", "gat"),
    "mini-batch": ("sage",),
}


def race_cases(scope: Scope) -> Iterator[Case]:
    for name, _ in scope.graphs:
        if name not in DATASETS:
            continue
        for mode, makers in CONTESTANTS.items():
            for model in MODELS[mode]:
                task = Task(DATASETS[name], mode, model)
                yield Case(
                    kernel="epochs",
                    graph=name,
                    name=f"3-layer {model.upper()} {TITLES[mode]}",
                    makers={who: partial(make, task) for who, make in makers.items()},
                    check=task.check,
                    targets=(Target("", FACTOR),),
                    lengthy=True,
                )
