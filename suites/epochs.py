"""The time of an epoch of each bundled strategy and program on this machine.

Full-graph and mini-batch epochs are different work, hence two classes of each kind. ``setup_cache``
makes the dataset once for all processes that asv starts.
"""

import os
from functools import lru_cache
from itertools import count
from typing import ClassVar

from gnnbench import datasets, plugins
from gnnbench.comparison import Request, make_setting
from gnnbench.kernels.pages import keep_pages
from gnnbench.machines.describe import LOCAL, load_platform
from gnnbench.price.wall_clock import WallClock
from gnnbench.program.recorder import Recorder
from gnnbench.programs.messages import ProgramRefusedError
from gnnbench.programs.run import make_task
from gnnbench.programs.sessions import CommandTraining
from gnnbench.programs.task_folder import TaskFolders
from gnnbench.records import CommandProgram, Dataset, Mode, Workload
from gnnbench.run import make_engine, open_timer
from suites.graphs import find_real

#: Benchmarks cover strategies of every installed plugin, and of the modules or files in this
#: variable, which is one line in ``asv.conf.json``.
REGISTRY = plugins.load(os.environ.get("GNNBENCH_PLUGINS", "").split())


def list_strategies(mode: Mode) -> list[str]:
    """Return the names of strategies that train in this mode."""
    return [each.name for each in REGISTRY.strategies if mode in each.bundles]


FULL_GRAPH, MINI_BATCH = list_strategies("full-graph"), list_strategies("mini-batch")

#: A real graph, or a block model of about its size if the shared graphs are missing.
DATASET = find_real("cora", otherwise="sbm:vertices=2700,edges=5300,features=1400,classes=7")[0]


def make_request(dataset: Dataset, platform: str, mode: Mode, *strategies: str) -> Request:
    """Return a request for GCN with 256 hidden units, without the check against the reference."""
    workload = Workload(
        model="gcn",
        dims=(dataset.num_features, 256, dataset.num_classes),
        epochs=1,
        batch_size=1024,
        fanouts=(25, 10),
        seed=0,
    )
    machine = load_platform(platform)
    return Request(strategies, dataset, workload, machine, check=False, modes=(mode,))


class _Epoch:
    """The wall time of an epoch on this machine, after a first epoch of warm-up."""

    params: ClassVar[list[list[str]]]
    param_names: ClassVar[list[str]] = ["strategy", "dataset"]
    mode: ClassVar[Mode]
    timeout = 600

    def setup_cache(self) -> Dataset:
        return datasets.load(DATASET)

    def setup(self, dataset: Dataset, strategy: str, _: str) -> None:
        keep_pages()
        setting = make_setting(make_request(dataset, LOCAL, self.mode, strategy))
        parts = REGISTRY.strategy(strategy).bundles[self.mode]
        bundle = plugins.assemble(REGISTRY, parts, {})
        reason = bundle.refusal(setting)
        if reason is not None:  # asv shows this combination as not available.
            raise NotImplementedError(reason)
        bundle = bundle.begin(setting)
        recorder = Recorder(WallClock(), open_timer(setting.platform.accelerators))
        self.engine = make_engine(bundle, setting, recorder)
        self.engine.prepare()
        self.engine.run_epoch(0)

    def time_epoch(self, dataset: Dataset, strategy: str, _: str) -> None:
        self.engine.run_epoch(1)


class FullGraphEpoch(_Epoch):
    mode = "full-graph"
    params: ClassVar = [FULL_GRAPH, [DATASET]]


class MiniBatchEpoch(_Epoch):
    mode = "mini-batch"
    params: ClassVar = [MINI_BATCH, [DATASET]]


def list_programs(mode: Mode) -> list[str]:
    """Return the names of programs by command that train a GCN in this mode."""
    return [
        name
        for name, each in sorted(REGISTRY.programs.items())
        if isinstance(each, CommandProgram) and mode in each.modes and "gcn" in each.models
    ]


@lru_cache(maxsize=1)
def open_program(name: str, mode: Mode) -> tuple[CommandTraining, TaskFolders]:
    """Start a program, which stands still between the calls of its benchmark.

    asv sets a benchmark up before each sample, in one process for each program. Raises
    ``NotImplementedError`` with the reason of a program that refuses.
    """
    request, program = make_request(datasets.load(DATASET), LOCAL, mode), REGISTRY.program(name)
    assert isinstance(program, CommandProgram)
    task, folders = make_task(make_setting(request), mode), TaskFolders()
    try:
        training = CommandTraining(program, task, folders.write(task))
    except ProgramRefusedError as refusal:
        raise NotImplementedError(str(refusal)) from refusal
    training.run_epoch(0)
    return training, folders


class _ProgramEpoch:
    """The wall time of a whole program's epoch, from its order to its end, after a first one."""

    params: ClassVar[list[list[str]]]
    param_names: ClassVar[list[str]] = ["program", "dataset"]
    mode: ClassVar[Mode]
    timeout = 600
    numbers: ClassVar = count(1)

    def setup(self, program: str, _: str) -> None:
        self.training, _folders = open_program(program, self.mode)

    def time_epoch(self, program: str, _: str) -> None:
        self.training.run_epoch(next(self.numbers))


class FullGraphPrograms(_ProgramEpoch):
    mode = "full-graph"
    params: ClassVar = [list_programs("full-graph"), [DATASET]]


class MiniBatchPrograms(_ProgramEpoch):
    mode = "mini-batch"
    params: ClassVar = [list_programs("mini-batch"), [DATASET]]
