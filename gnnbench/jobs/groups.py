"""Groups of options, which the job records inherit."""

import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, ClassVar, cast

from gnnbench.errors import UsageError
from gnnbench.jobs.capacity import check_records, check_threads, check_widths
from gnnbench.jobs.limits import (
    COUNT,
    FLAG,
    MODEL_NAMES,
    MODES,
    MOST_NEIGHBOURS,
    MOST_PROCESSES,
    MOST_THREADS,
    Listed,
    OneOf,
    Parsed,
    Real,
    Receiver,
    Source,
    Whole,
    Wholes,
)
from gnnbench.jobs.options import Option, Sweep, read_record
from gnnbench.jobs.words import choose_strategies, read_settings, read_swaps

if TYPE_CHECKING:
    from gnnbench.host.progress import Progress
    from gnnbench.jobs.words import ChosenStrategy, StrategyLike
    from gnnbench.machines.machine import Platform
    from gnnbench.parts import LayerClass
    from gnnbench.records import Dataset, Mode, PartKind, Strategy

_STRATEGY = Source("a name or a strategy", "gnnbench.records", "Strategy")
_SEED_TO_OUT = "25,10 (0 stands for every neighbour)"
#: The commands that give advice.
ADVICE = ("advise", "matrix")
#: The commands that train rows.
COMPARISONS = ("compare", "ablate")
#: An option that a sweep holds fixed, and one with a value or a list of values.
ONCE, MAY = Sweep(), Sweep("may")
#: The number of updates of a run that are computed again by default: the first, the last, and one
#: that is drawn from those in between. All others are only looked at.
CHECKED_UPDATES = 3


@dataclass(frozen=True, kw_only=True)
class Task:
    """A model to train, its data set, and the schedule."""

    dataset: Annotated[
        "str | os.PathLike[str] | Dataset | None",
        Option(
            "The graph to train on; see 'gnnbench datasets'.",
            Source("a name, a path or a data set", "gnnbench.records", "Dataset"),
            by_command={("check",): "Check it on this dataset too; see 'gnnbench datasets'."},
            usual={COMPARISONS: "a labelled block model made in memory"},
            metavar="NAME or FILE.npz",
            sweep=Sweep("must", key="datasets"),
        ),
    ] = field(default=None, kw_only=False)
    model: Annotated[
        "str | LayerClass",
        Option(
            f"The GNN: {', '.join(MODEL_NAMES)}, or one that a plugin offers.",
            Source("a name or a class of layers", "gnnbench.models", "Layer", derived=True),
            metavar="NAME",
            sweep=Sweep("must", key="models"),
        ),
    ] = "gcn"
    layers: Annotated[int, Option("Layers of the GNN.", COUNT, sweep=MAY)] = 2
    hidden: Annotated[int, Option("Width of hidden layers.", COUNT, sweep=MAY)] = 256
    epochs: Annotated[
        int,
        Option(
            "Epochs to go through.",
            COUNT,
            by_command={COMPARISONS: "Epochs to train each strategy."},
            sweep=MAY,
        ),
    ] = 10
    batch_size: Annotated[
        int,
        Option(
            "Seeds of one mini-batch iteration, over all trainers together.",
            COUNT,
            only_in="mini-batch",
            sweep=MAY,
        ),
    ] = 1024
    fanouts: Annotated[
        Sequence[int] | None,
        Option(
            "Neighbours to sample per vertex: one number for each layer, from the seeds outwards. "
            "0 means all neighbours.",
            Wholes(Whole(0, MOST_NEIGHBOURS), _SEED_TO_OUT),
            usual="25,10, then 10 for each further layer",
            metavar="N,N...",
            only_in="mini-batch",
            sweep=MAY,
        ),
    ] = None
    mode: Annotated[
        "Mode | None",
        Option(
            "Train in this mode alone.",
            OneOf(MODES),
            by_command={
                ("plan",): "Mode of a strategy that trains in both.",
                ADVICE: "Answer for this mode alone.",
            },
            usual={
                ("compare",): "the only mode of the strategies, or their usual one",
                ("plan",): "its usual mode",
                ADVICE: "both, one answer each",
            },
            commands=("compare", "plan", *ADVICE),
        ),
    ] = None
    seed: Annotated[
        int,
        Option(
            "Random seed.",
            Whole(0),
            by_command={("datasets",): "Random seed of graphs that are made."},
            sweep=Sweep("must", key="seeds"),
        ),
    ] = 0


@dataclass(frozen=True, kw_only=True)
class Training(Task):
    """A task and its machine: everything that comparisons, plans and advice share.

    A record refuses an invalid value with ``UsageError``.
    """

    #: Options that have no default, although their type allows None.
    required: ClassVar[tuple[str, ...]] = ()

    platform: Annotated[
        "str | os.PathLike[str] | Platform | None",
        Option(
            "The machine to run on or to model; see 'gnnbench platforms'.",
            Source("a name, a path or a platform", "gnnbench.machines.machine", "Platform"),
            usual="this machine if it has a CUDA device; else the first strategy's machine, "
            "epyc7763x2-4xa5000, or another with the required devices",
            metavar="NAME, FILE.toml or cores:A,B",
            sweep=Sweep("must", key="platforms"),
        ),
    ] = None
    swap: Annotated[
        Mapping[str, str] | Sequence[str] | None,
        Option(
            "Put another part into the strategies.",
            Parsed(read_swaps),
            by_command={
                ("plan",): "Put another part into the strategy, such as memory=pagraph.",
                ADVICE: "Consider only combinations with this part, such as sampler=neighbour.",
            },
            metavar="PART=NAME",
            repeated=True,
        ),
    ] = None
    options: Annotated[
        Mapping[str, str | int | float | bool] | Sequence[str] | None,
        Option(
            "Set an option of a part; 'gnnbench plugins show' lists them.",
            Parsed(read_settings),
            by_command={ADVICE: "Set an option of a part, which is then not searched."},
            flag="--set",
            metavar="PART.option=value",
            repeated=True,
            sweep=Sweep("may", key="set", kept="set"),
        ),
    ] = None
    threads: Annotated[
        int | None,
        Option(
            "Threads to use.", Whole(1, MOST_THREADS), usual="all cores", sweep=Sweep(default=1)
        ),
    ] = None
    plugins: Annotated[
        Sequence[object],
        Option(
            "Load a plugin that is not installed.",
            Listed("a list of modules or objects"),
            flag="--plugin",
            metavar="MODULE or FILE.py",
            repeated=True,
            sweep=ONCE,
        ),
    ] = ()

    def __post_init__(self) -> None:
        read_record(self, self.required)
        self.refuse()

    def refuse(self) -> None:
        """Refuse values that contradict each other, or that this machine cannot hold."""
        depth = self.count_layers()
        if self.fanouts is not None and len(self.fanouts) != depth:
            raise UsageError(
                f"fanouts are {list(self.fanouts)} for {depth} layers; give one number for each, "
                f"from the seeds outwards (0 is every neighbour)."
            )
        check_threads(self.threads)
        check_records(self.epochs, getattr(self, "repeats", 1))
        self.check_size(1, 1)  # a feature and a class are the fewest

    def refuse_ignored(self, given: Collection[str]) -> None:
        """Refuse options that were ``given`` and have no effect beside others."""

    def list_strategies(self) -> "tuple[StrategyLike, ...]":
        """Return the strategies as they were given."""
        return ()

    @property
    def chosen(self) -> "tuple[ChosenStrategy, ...]":
        """The strategies by name, each with the parts that replace its own."""
        given = self.list_strategies()
        return choose_strategies(given) if given else ()

    @property
    def swaps(self) -> "tuple[tuple[PartKind, str], ...]":
        """The parts that replace others in every strategy."""
        return read_swaps(self.swap)

    @property
    def settings(self) -> "dict[PartKind, dict[str, str]]":
        """The options of parts as texts, by kind of part and option."""
        return read_settings(self.options)

    @property
    def model_name(self) -> str:
        """The name of the model."""
        return self.model if isinstance(self.model, str) else self.model.name

    def list_names(self) -> list[tuple[str, str]]:
        """Return the names that the job uses, each behind its kind."""
        names: list[tuple[str, str]] = []
        for strategy, own_swaps in self.chosen:
            names += [("strategy", strategy), *own_swaps]
        return [*names, ("model", self.model_name), *self.swaps]

    def count_layers(self) -> int:
        """Return the number of the model's layers."""
        return self.layers

    def list_widths(self, features: int, classes: int) -> tuple[int, ...]:
        """Return the widths f^0 .. f^L on a data set."""
        return (features, *[self.hidden] * (self.layers - 1), classes)

    def check_size(self, features: int, classes: int) -> None:
        """Refuse a model that this machine cannot hold. Raises ``UsageError``."""
        dense = self.model_name in MODEL_NAMES
        check_widths(features, self.hidden, self.layers, classes, dense=dense)


@dataclass(frozen=True, kw_only=True)
class Trials:
    """How often each row of a comparison runs, and how it is checked."""

    repeats: Annotated[
        int, Option("Times to run each strategy, each with another seed.", COUNT, sweep=ONCE)
    ] = 1
    same_seed: Annotated[bool, Option("Give all repeats the same seed.", FLAG)] = False
    target_accuracy: Annotated[
        float | None,
        Option(
            "Also time how long it takes to reach this validation accuracy.",
            Real(0.0, 1.0),
            metavar="A",
            sweep=ONCE,
        ),
    ] = None
    check: Annotated[
        bool,
        Option(
            "Check runs against the reference.",
            FLAG,
            negated="Skip the numerical check against the reference.",
            sweep=ONCE,
        ),
    ] = True
    checked_updates: Annotated[
        int | None,
        Option(
            "Updates of each run to compute once more in float64, drawn over all epochs; all "
            "others are looked at.",
            COUNT,
            usual=str(CHECKED_UPDATES),
            metavar="N",
            sweep=ONCE,
        ),
    ] = None
    plain: Annotated[
        bool,
        Option(
            "Also run the baseline of each strategy, which its paper wants to beat.",
            FLAG,
            usual="plain",
            flag="--plain/--no-plain",
            commands=("compare",),
            sweep=Sweep(default=False),
        ),
    ] = True


@dataclass(frozen=True, kw_only=True)
class Spread:
    """The nodes, the processes and the GPUs of one run."""

    nodes: Annotated[
        int, Option("Nodes of each run.", Whole(1, MOST_PROCESSES), flag=None, sweep=MAY)
    ] = 1
    processes: Annotated[
        int | None,
        Option(
            "Train strategies of N devices in N processes, one for each device. Other strategies "
            "run in one of these processes. Without --platform the devices are cores of this "
            "machine.",
            Whole(1, MOST_PROCESSES),
            typed=Whole(2, MOST_PROCESSES),
            metavar="N",
            commands=("compare",),
            sweep=Sweep("may", default=1),
        ),
    ] = None
    gpus: Annotated[
        int, Option("GPUs of each run.", Whole(0, MOST_PROCESSES), flag=None, sweep=MAY)
    ] = 0

    def __post_init__(self) -> None:
        read_record(self)
        for name, count in (("processes", self.ranks), ("gpus", self.gpus)):
            if count % self.nodes:
                raise UsageError(
                    f"{name} is {count:,} on {self.nodes:,} nodes; give a multiple of the nodes, "
                    f"because each node has as many as the others."
                )

    @property
    def ranks(self) -> int:
        """The number of processes of a run, on all nodes together."""
        return self.processes or 1


@dataclass(frozen=True, kw_only=True)
class Choice:
    """Strategies to work with, and a receiver of the progress."""

    strategies: Annotated[
        "str | Strategy | Sequence[str | Strategy] | None",
        Option(
            "The strategies to compare, by name; see 'gnnbench plugins'. A:PART=NAME replaces a "
            "part of A, as in hongtu:kernel=dgl.",
            Listed("names, such as ['hyscale', 'hongtu']", _STRATEGY, choose_strategies),
            by_command={ADVICE: "Combine only the parts of these strategies."},
            usual={ADVICE: "all that are installed"},
            flag="--plugins",
            metavar="A,B[,C...]",
            commands=("compare", *ADVICE),
            sweep=Sweep("must", key="strategies", kept="strategy"),
        ),
    ] = field(default=None, kw_only=False)
    progress: Annotated[
        "Progress | None",
        Option(
            "A receiver of the progress of runs.", Receiver(("begin", "advance", "end")), flag=None
        ),
    ] = None

    def list_strategies(self) -> "tuple[StrategyLike, ...]":
        """Return the strategies as they were given."""
        return cast("tuple[StrategyLike, ...]", self.strategies or ())


@dataclass(frozen=True)
class Named:
    """One strategy to work with."""

    strategy: Annotated["str | Strategy", Option("The strategy.", _STRATEGY, flag="STRATEGY")]
