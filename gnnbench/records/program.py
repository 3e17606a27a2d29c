"""Whole training programs: the task that a program is given, and the forms in which it is offered.

gnnbench never takes a program apart. It hands over a task, times each epoch, and checks results.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from gnnbench.records.data import Dataset, Mode, Workload
from gnnbench.records.trace import Stage

#: The parameters of a model by name, such as ``layers.0.weight``.
Parameters = Mapping[str, npt.NDArray[np.floating]]


@dataclass(frozen=True, slots=True, eq=False)
class Task:
    """A training task for a whole program.

    ``parameters`` are the model's initial parameters, in the layouts that ``docs/programs.md``
    lists. ``cores`` are the cores that the program may use, one for each of its ``threads``.
    ``memory_bytes`` is the memory that it may allocate.
    """

    mode: Mode
    dataset: Dataset
    workload: Workload
    parameters: Parameters
    threads: int
    cores: tuple[int, ...]
    memory_bytes: int

    @property
    def updates(self) -> int:
        """The number of updates in an epoch."""
        if self.mode == "full-graph":
            return 1
        return -(-len(self.dataset.train_ids) // self.workload.batch_size)


@dataclass(frozen=True, slots=True)
class EpochReport:
    """A program's statement on one epoch.

    ``loss`` is the mean over all ``seeds``, before the update of each. ``edges`` counts the drawn
    edges of each layer, from the input; it is empty if the program does not count them. ``stages``
    are busy seconds.
    """

    loss: float
    updates: int
    seeds: int
    edges: tuple[int, ...] = ()
    stages: Mapping[Stage, float] = field(default_factory=dict)


class ProgramSession(ABC):
    """A program's training of one task, ready for its first epoch."""

    #: The sampling law of mini-batches, ``"uniform without replacement"`` or another text.
    sampling: str = ""
    #: The design that makes the mathematics differ from the task's, in a word or two.
    other_maths: str = ""
    #: The number of processes that each draw a part of a mini-batch.
    parts: int = 1
    #: The versions of the libraries that the program uses.
    versions: Mapping[str, str] = {}

    @abstractmethod
    def run_epoch(self, epoch: int) -> EpochReport:
        """Train one epoch; epochs follow each other from 0."""

    @abstractmethod
    def parameters(self) -> Parameters:
        """Return the current parameters, with the names and shapes of the task's."""

    def close(self) -> None:  # noqa: B027
        """Release everything that the program holds."""


class Program(ABC):
    """A training program as a class, which runs in gnnbench's process."""

    name: ClassVar[str]
    modes: ClassVar[tuple[Mode, ...]]
    models: ClassVar[tuple[str, ...]]
    #: The strategy that rebuilds this program from parts; empty if there is none.
    peer: ClassVar[str] = ""

    def refuses(self, task: Task) -> str | None:
        """Return why the program cannot train a task, in one sentence; None if it can."""
        return None

    @abstractmethod
    def open(self, task: Task) -> ProgramSession:
        """Prepare a task, up to its first epoch."""


@dataclass(frozen=True, slots=True)
class CommandProgram:
    """A training program that a command starts; the content of a program's TOML file.

    In ``command``, ``{task}`` stands for the task folder, ``{folder}`` for the program's own
    ``folder``, ``{python}`` for this Python, and ``{NAME}`` for the value of an option.
    ``environment`` has environment variables. ``patience_s`` is the longest wait for a message.
    ``peer`` is the strategy that rebuilds the program from parts, if there is one. ``options`` has
    whole numbers by name.
    """

    name: str
    command: tuple[str, ...]
    modes: tuple[Mode, ...]
    models: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict, hash=False)
    folder: str = ""
    patience_s: int = 600
    peer: str = ""
    options: Mapping[str, int] = field(default_factory=dict, hash=False)

    def fill(self, **places: str) -> tuple[str, ...]:
        """Return the command with the folder, the options and other places filled in."""
        texts = {"folder": self.folder, **self.options, **places}
        command = self.command
        for name, text in texts.items():
            command = tuple(word.replace(f"{{{name}}}", str(text)) for word in command)
        return command


@dataclass(frozen=True, slots=True)
class ProgramOrigin:
    """A program as results name it: a ``command``, or the ``module`` of its class.

    ``variables`` are its environment variables, and ``versions`` those that it states.
    """

    name: str
    command: tuple[str, ...] = ()
    module: str = ""
    variables: Mapping[str, str] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
