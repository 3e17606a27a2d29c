"""The job records: each option of ``compare``, ``plan`` and ``advise`` is a field of one record.

The command line, the functions of Python, sweeps and the reference of options are derived from
them (``options.py``). Positional parameters come from the bases of a record, last base first.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, TypeAlias

from gnnbench.errors import UsageError
from gnnbench.jobs.capacity import check_dims
from gnnbench.jobs.groups import MAY, ONCE, Choice, Named, Training, Trials
from gnnbench.jobs.limits import (
    COUNT,
    FLAG,
    MODEL_NAMES,
    MOST_COPIES,
    MOST_LEARNING_RATE,
    SCALINGS,
    TARGETS,
    Listed,
    OneOf,
    Parsed,
    Real,
    Whole,
    Wholes,
)
from gnnbench.jobs.options import Option, OptionConflictError, defaults
from gnnbench.jobs.words import read_size, read_swaps

if TYPE_CHECKING:
    from gnnbench.datasets import ScalingChoice
    from gnnbench.jobs.words import StrategyLike
    from gnnbench.records import PartKind

#: The quantity that advice minimises.
Target: TypeAlias = Literal["time", "memory", "traffic"]


@dataclass(frozen=True, kw_only=True)
class Job(Trials, Training, Choice):
    """A comparison, as it was asked for."""

    programs: Annotated[
        Sequence[object],
        Option(
            "Also run a whole training program, which is timed and checked and never taken apart; "
            "see 'gnnbench programs'.",
            Listed("a list of names, TOML files or programs"),
            flag="--program",
            metavar="NAME or FILE.toml",
            repeated=True,
            commands=("compare",),
            sweep=ONCE,
        ),
    ] = ()
    learning_rate: Annotated[
        float | None,
        Option(
            "Adam's learning rate.",
            Real(0.0, MOST_LEARNING_RATE),
            usual="the model's, 0.001 for gin and ggcn, else 0.01",
            sweep=MAY,
        ),
    ] = None
    scaling: Annotated[
        "ScalingChoice",
        Option(
            "Scale features: rows to length 2, or columns to mean 0 and deviation 1. auto scales "
            "rows of sparse features, and columns of others if they need it.",
            OneOf(SCALINGS),
            by_command={("datasets",): "How to scale features that are written to a folder."},
            usual={("datasets",): "auto"},
            flag="--scale-features",
            sweep=MAY,
        ),
    ] = "auto"

    list_strategies = Choice.list_strategies

    def refuse(self) -> None:
        """Refuse values that contradict each other, or that this machine cannot hold."""
        Training.refuse(self)
        if not self.strategies and not self.programs:
            raise UsageError(
                "no strategies are named; name some, such as ['hyscale', 'hongtu'], or programs."
            )
        if not self.strategies and (self.swap or self.options):
            raise UsageError(
                "parts are swapped or set, and no strategy is named that has parts; name one, or "
                "leave them out."
            )
        if self.checked_updates is not None and not self.check:
            raise UsageError(
                f"checked_updates is {self.checked_updates:,}, and nothing is checked; leave it "
                f"out, or check runs."
            )


@dataclass(frozen=True, kw_only=True)
class PlanJob(Training, Named):
    """A plan, as it was asked for, over a data set or a graph to draw."""

    vertices: Annotated[
        int | str | None,
        Option(
            "Plan for an R-MAT graph of N vertices, which is drawn and not stored; 64M is 64 "
            "million.",
            Parsed(str),
            metavar="N",
        ),
    ] = None
    edges: Annotated[
        int | str | None,
        Option(
            "Undirected edges of that graph, each counted in both directions; 1G is a billion.",
            Parsed(str),
            metavar="M",
        ),
    ] = None
    dims: Annotated[
        Sequence[int] | None,
        Option(
            "Widths of the features, of each hidden layer, and of the output.",
            Wholes(COUNT, "256,128,64", least=2),
            usual="the dataset's features, the width of hidden layers, its classes",
            metavar="F,F[,F...]",
        ),
    ] = None
    batch_vertices: Annotated[
        Sequence[int] | None,
        Option(
            "Plan for mini-batches of these sizes, without a graph: the vertices of one device's "
            "mini-batch, from the input layer to the seeds.",
            Wholes(COUNT, "66907,11401,1000", least=2),
            metavar="N,N[,N...]",
        ),
    ] = None
    batch_edges: Annotated[
        Sequence[int] | None,
        Option(
            "Edges of these mini-batches, starting with the input layer.",
            Wholes(Whole(0), "60250,10402"),
            metavar="M[,M...]",
        ),
    ] = None
    train_vertices: Annotated[
        int | None,
        Option("Training vertices in an epoch of such mini-batches.", COUNT, metavar="N"),
    ] = None
    replication: Annotated[
        float | None,
        Option(
            "For a full graph that is given by its size: copies of a vertex over all partitions, "
            "including the vertex itself.",
            Real(0.0, MOST_COPIES),
            metavar="A",
        ),
    ] = None
    share: Annotated[
        float | None,
        Option(
            "For a full graph that is given by its size: plan only the share S of the graph, on "
            "the share S of the machine.",
            Real(0.0, 1.0),
            usual="the whole graph",
            metavar="S",
        ),
    ] = None

    @property
    def sizes(self) -> tuple[int | str, int | str] | None:
        """The vertices and edges of a graph to draw; None if a data set is named instead."""
        if self.vertices is None or self.edges is None:
            return None
        return self.vertices, self.edges

    @property
    def name(self) -> str:
        """The name of the strategy."""
        return self.chosen[0][0]

    @property
    def swaps(self) -> "tuple[tuple[PartKind, str], ...]":
        """The parts that replace the strategy's own."""
        return (*self.chosen[0][1], *read_swaps(self.swap))

    def list_strategies(self) -> "tuple[StrategyLike, ...]":
        """Return the strategy as it was given."""
        return (self.strategy,)

    def refuse(self) -> None:
        """Refuse values that contradict each other, or that this machine cannot hold."""
        drawn, batches = self.vertices is not None, self.batch_vertices is not None
        if len(self.chosen) != 1:
            raise UsageError(f"strategy is {self.strategy!r}; give one name.")
        if (self.dataset is not None) == (drawn or batches) or drawn != (self.edges is not None):
            raise OptionConflictError("give either {dataset}, or both {vertices} and {edges}.")
        if (drawn or batches) and self.dims is None:
            raise OptionConflictError("say how wide the layers are, such as {dims} 256,128,64.")
        self._refuse_batches(batches)
        if self.replication is not None and self.replication < 1:
            raise UsageError(
                f"replication is {self.replication:g}; a vertex has 1 copy or more, itself."
            )
        Training.refuse(self)

    def _refuse_batches(self, batches: bool) -> None:
        """Refuse sizes of mini-batches that are incomplete, or do not fit each other."""
        parts = (self.batch_edges, self.train_vertices)
        if any((each is not None) != batches for each in parts):
            raise OptionConflictError(
                "sizes of mini-batches are {batch_vertices}, {batch_edges} and {train_vertices}; "
                "give all of them."
            )
        if self.batch_vertices is None or self.batch_edges is None:
            return
        depth = self.count_layers()
        if (len(self.batch_vertices), len(self.batch_edges)) != (depth + 1, depth):
            raise UsageError(
                f"batch_vertices has {len(self.batch_vertices)} numbers and batch_edges "
                f"{len(self.batch_edges)}; {depth} layers have {depth + 1} and {depth}."
            )
        if list(self.batch_vertices) != sorted(self.batch_vertices, reverse=True):
            raise UsageError(
                f"batch_vertices is {list(self.batch_vertices)}; each layer's vertices are among "
                f"the one's before, so let the numbers fall."
            )

    def refuse_ignored(self, given: Collection[str]) -> None:
        """Refuse options that were ``given`` and have no effect beside others."""
        sized = {"replication", "share"}
        if self.batch_vertices is not None:
            sized |= {"batch_size", "fanouts", "epochs"}
        if self.sizes is None or self.batch_vertices is not None:
            for name in sized.intersection(given):
                beside = "batch_vertices" if self.batch_vertices is not None else "dataset"
                raise OptionConflictError(
                    f"{{{name}}} has no effect beside {{{beside}}}; leave it out."
                )
        if self.dims is not None and not {"layers", "hidden"}.isdisjoint(given):
            raise OptionConflictError("give either {dims}, or {layers} and {hidden}.")

    def count_layers(self) -> int:
        """Return the number of the model's layers."""
        return len(self.dims) - 1 if self.dims else self.layers

    def list_widths(self, features: int, classes: int) -> tuple[int, ...]:
        """Return the widths f^0 .. f^L on a data set."""
        return tuple(self.dims) if self.dims else Training.list_widths(self, features, classes)

    def check_size(self, features: int, classes: int) -> None:
        """Refuse a model that this machine cannot hold. Raises ``UsageError``."""
        if self.dims:
            check_dims(self.dims, dense=self.model_name in MODEL_NAMES)
        else:
            Training.check_size(self, features, classes)


@dataclass(frozen=True, kw_only=True)
@defaults(epochs=1)
class AdviceJob(Choice, Training):
    """The request of ``advise`` and ``matrix``."""

    required: ClassVar[tuple[str, ...]] = ("dataset",)

    target: Annotated[
        Target, Option("The quantity to minimise.", OneOf(TARGETS), commands=("advise",))
    ] = "time"
    device_memory: Annotated[
        int | float | str | None,
        Option(
            "Assume that each accelerator has this memory, such as 24GB.",
            Parsed(read_size),
            metavar="SIZE",
        ),
    ] = None
    train: Annotated[
        int | None,
        Option(
            "Train the best K of each mode.",
            Whole(0),
            usual="2 if times are measured and the graph is small, else 0",
            metavar="K",
            commands=("advise",),
        ),
    ] = None
    changes: Annotated[
        bool,
        Option(
            "Look for what would change the answer.",
            FLAG,
            negated="Do not search for changes that would alter the answer.",
            commands=("advise",),
        ),
    ] = True

    @property
    def device_bytes(self) -> int | None:
        """The bytes of ``device_memory``."""
        return read_size(self.device_memory)

    def refuse(self) -> None:
        """Refuse values that contradict each other, or that this machine cannot hold."""
        for name, swaps in self.chosen:
            if swaps:
                raise UsageError(f"advice is of whole strategies; name {name!r} and use swap.")
        Training.refuse(self)
