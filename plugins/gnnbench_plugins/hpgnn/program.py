"""HP-GNN's interface and program parser: section 3, Table 1 and the listings.

::

    sampler = Sampler("NeighborSampler", L=2, budgets=[10, 25])
    model = GNN("GCN", hidden=[602, 128, 41])
    program = Program(sampler, model, board="u250")
    generated = generate_design(program)
    generated.write("design")
    training = plan_training(program, generated.sweep.best.design)

A model is off the shelf, or has three functions of the user, :class:`Operators`. The parser turns a
program into the GNN abstraction, from which designs are explored and code is generated.
:func:`plan_training` says how strategy 'hpgnn' trains it on that design. :func:`layer_of` makes a
class that a plugin can offer as a model, so that users' functions can be trained with:

::

    @hookimpl
    def gnnbench_model():
        return [layer_of(GNN("mine", [602, 128, 41], Operators(scatter, gather, update)))]
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Literal, get_args

import numpy as np

from gnnbench.constants import Bound, Constant
from gnnbench.errors import UsageError
from gnnbench.kernels import dispatch
from gnnbench.machines.refusals import suggest
from gnnbench.records import Graph, PartKind, Workload
from gnnbench_plugins.hpgnn.boards import Board, load_board
from gnnbench_plugins.hpgnn.design import (
    Batch,
    Sweep,
    choose_threads,
    explore,
    sampling_seconds,
)
from gnnbench_plugins.hpgnn.expressions import translate, without_sigma
from gnnbench_plugins.hpgnn.generator import write_design
from gnnbench_plugins.hpgnn.operators import (
    OFF_THE_SHELF,
    EdgeWeight,
    OperatorLayer,
    Operators,
    check_gather,
    make_layer,
)
from gnnbench_plugins.hpgnn.resources import BoardScope, Design

#: Edge weights of the models off the shelf; GCN also has loops.
_EDGE_WEIGHTS: Mapping[str, EdgeWeight] = {"GCN": "gcn", "SAGE": "mean", "GIN": "one"}

SamplerName = Literal["NeighborSampler", "LayerwiseSampler", "SubgraphSampler"]


@dataclass(frozen=True, slots=True)
class Density:
    """kappa(s) = ``scale`` s^``exponent``: the share of all pairs of s vertices that are edges."""

    scale: float
    exponent: float

    def __call__(self, size: float) -> float:
        return min(1.0, self.scale * math.pow(size, self.exponent))


def fit_density(graph: Graph, sizes: Sequence[int], *, seed: int = 0) -> Density:
    """Return kappa fitted to subgraphs of GraphSAINT's node sampler, by least squares of its log.

    ``sizes`` are two or more budgets. Raises ``UsageError`` for less than two distinct subgraphs,
    or if one has no edge.
    """
    sums = dispatch.saint_node_sums(graph.indptr, graph.indices)
    points = {}
    for round_, size in enumerate(sizes):
        ids = dispatch.sample_saint_nodes(
            graph.indptr, graph.indices, size, seed=seed, epoch=0, round=round_, sums=sums
        )
        block = dispatch.induce_subgraph(graph.indptr, graph.indices, ids)
        points[len(ids)] = block.num_edges / len(ids) ** 2
    if len(points) < 2 or not all(points.values()):
        raise UsageError(
            f"kappa cannot be fitted to subgraphs of {sorted(points)} vertices; give two sizes or "
            f"more, large enough to hold edges."
        )
    slope, level = np.polyfit(np.log(list(points)), np.log(list(points.values())), 1)
    return Density(math.exp(level), float(slope))


@dataclass(frozen=True, slots=True)
class Sampler:
    """A sampling method and its parameters, from which |B^l| and |E^l| follow (Table 2).

    For a ``NeighborSampler``, ``budgets`` are the neighbours drawn for a vertex of layers 1 .. L;
    the last one applies to the ``targets``. For a ``LayerwiseSampler`` they are the sizes S^0 ..
    S^L, for a ``SubgraphSampler`` the one size SB. Both need ``density``, kappa, of the graph.
    ``method`` names GraphSAINT's way to draw a subgraph.
    """

    name: SamplerName
    L: int
    budgets: Sequence[int]
    targets: Bound[int] = 1024
    density: Density | None = None
    method: Literal["node", "edge", "walk"] = "node"

    def __post_init__(self) -> None:
        names = get_args(SamplerName)
        if self.name not in names:
            raise UsageError(f"there is no sampler {self.name!r}; {suggest(self.name, names)}.")
        due = {"NeighborSampler": self.L, "LayerwiseSampler": self.L + 1, "SubgraphSampler": 1}
        if self.L < 1 or len(self.budgets) != due[self.name]:
            raise UsageError(
                f"{self.name} of {self.L} layers has {len(self.budgets)} budgets; give "
                f"{due[self.name]}."
            )
        if min(self.budgets) < 1 or self.targets < 1:
            raise UsageError(
                f"{self.name} has budgets {list(self.budgets)} and {self.targets} targets; all "
                f"must be 1 or more."
            )
        if self.name != "NeighborSampler" and self.density is None:
            raise UsageError(
                f"{self.name} needs a density; pass what fit_density returns for the graph."
            )

    @property
    def vertices(self) -> tuple[float, ...]:
        """|B^0| .. |B^L|; for neighbour sampling the bound if no neighbour is shared."""
        if self.name == "LayerwiseSampler":
            return tuple(map(float, self.budgets))
        if self.name == "SubgraphSampler":
            return (float(self.budgets[0]),) * (self.L + 1)
        sizes = [float(self.targets)]
        for budget in reversed(self.budgets):
            sizes.insert(0, sizes[0] * budget)
        return tuple(sizes)

    @property
    def edges(self) -> tuple[float, ...]:
        """|E^1| .. |E^L|: |B^l| NS^l, or |B^{l-1}| |B^l| kappa(|B^l|)."""
        sizes = self.vertices
        if self.density is None or self.name == "NeighborSampler":
            return tuple(
                size * budget for size, budget in zip(sizes[1:], self.budgets, strict=True)
            )
        return tuple(below * size * self.density(size) for below, size in pairwise(sizes))


@dataclass(frozen=True, slots=True)
class GNN:
    """A model: a name off the shelf, or a name and a user's functions.

    ``hidden`` are f^0 .. f^L. ``edge_weight`` is the weight that a user's functions are trained
    with.
    """

    name: str
    hidden: Sequence[int]
    operators: Operators | None = None
    edge_weight: EdgeWeight = "one"

    def __post_init__(self) -> None:
        if self.operators is None and self.name not in OFF_THE_SHELF:
            raise UsageError(
                f"there is no model {self.name!r} off the shelf; "
                f"{suggest(self.name, OFF_THE_SHELF)}, or pass operators of your own."
            )
        if len(self.hidden) < 2 or min(self.hidden) < 1:
            raise UsageError(
                f"model {self.name} has dimensions {list(self.hidden)}; give f^0 .. f^L, each 1 or "
                f"more."
            )


@dataclass(frozen=True, slots=True)
class Program:
    """A user's program: a model, a sampler and a board.

    ``board`` is a name or a file. n and m are one die's, which the others repeat, or with ``scope``
    "board" the whole board's, as published designs count them. ``learning_rate`` and
    ``weight_decay`` are Adam's. ``host_threads`` are the host's sampling threads, and
    ``sampled_edges_per_s`` is the rate of one.
    """

    sampler: Sampler
    model: GNN
    board: str = "u250"
    scope: BoardScope = "die"
    learning_rate: Bound[float] = 0.01
    weight_decay: Bound[float] = 7e-5
    host_threads: Annotated[int, Constant("", "quoted", "HP-GNN, section 1: 64-core CPU")] = 64
    sampled_edges_per_s: Annotated[
        float, Constant("edges/s", "assumed", "order of magnitude of a native sampler")
    ] = 2e7


@dataclass(frozen=True, slots=True)
class Abstraction:
    """The GNN abstraction (section 3.2): model and mini-batch configuration, and operators."""

    model: str
    operators: Operators
    batch: Batch
    sampler: Sampler
    edge_weight: EdgeWeight
    #: Whether a destination has an edge to itself.
    loops: bool
    learning_rate: float
    weight_decay: float


def parse(program: Program) -> Abstraction:
    """Return the abstraction of a program.

    Raises ``UsageError`` if sampler and model differ in the number of layers. It also does for a
    user's ``gather`` that is not associative and commutative, tried on random rows.
    """
    sampler, model = program.sampler, program.model
    if len(model.hidden) != sampler.L + 1:
        raise UsageError(
            f"model {model.name} has {len(model.hidden) - 1} layers and the sampler {sampler.L}; "
            f"give both the same number."
        )
    operators = model.operators
    if operators is None:
        operators = OFF_THE_SHELF[model.name]
    else:
        check_gather(model.name, operators.gather)
    widths = tuple(model.hidden)
    batch = Batch(
        vertices=sampler.vertices,
        edges=sampler.edges,
        widths=widths,
        update_widths=tuple(float(operators.update_widths * width) for width in widths[:-1]),
    )
    own = model.operators is not None
    return Abstraction(
        model.name,
        operators,
        batch,
        sampler,
        edge_weight=model.edge_weight if own else _EDGE_WEIGHTS[model.name],
        loops=not own and model.name == "GCN",
        learning_rate=program.learning_rate,
        weight_decay=program.weight_decay,
    )


@dataclass(frozen=True, slots=True)
class Generated:
    """The result of the design phase: every design, the best, and its sampling threads.

    ``sample_s`` is the time of these threads for a mini-batch.
    """

    abstraction: Abstraction
    board: Board
    sweep: Sweep
    sample_threads: int
    sample_s: float

    @property
    def board_waits(self) -> bool:
        """Whether sampling takes longer (Equation 4), although all threads of the host sample."""
        return self.sample_s >= self.sweep.best.propagate_s

    def write(self, directory: str | Path) -> tuple[Path, ...]:
        """Write the best design: kernels, host program and README; return the files' paths.

        Raises ``UsageError`` for a user's functions that cannot run in a kernel.
        """
        return write_design(self, directory)


def generate_design(program: Program) -> Generated:
    """Run the design phase: parse, explore (Algorithm 4), and choose the sampling threads."""
    abstraction = parse(program)
    board = load_board(program.board)
    if program.scope == "board":
        board = board.as_one_die()
    sweep = explore(abstraction.batch, board)
    edges, rate = sum(abstraction.batch.edges), program.sampled_edges_per_s
    threads = choose_threads(edges, rate, sweep.best.propagate_s, program.host_threads)
    sample_s = sampling_seconds(edges, rate, threads)
    return Generated(abstraction, board, sweep, threads, sample_s)


@dataclass(frozen=True, slots=True)
class Training:
    """How strategy 'hpgnn' trains a program, in terms of ``gnnbench.comparison.Request``.

    ``swaps`` name the sampler if it is not the strategy's own; ``options`` belong to parts.
    """

    swaps: tuple[tuple[PartKind, str], ...]
    options: Mapping[PartKind, Mapping[str, str]]
    workload: Workload


def plan_training(
    program: Program, design: Design | None = None, *, epochs: int = 3, seed: int = 0
) -> Training:
    """Return the program in the harness's terms, in float32.

    It trains on ``design``, or on a design that is explored for it. A subgraph's or layer's budget
    includes the targets, or the layer above: they are part of the draw. Raises ``UsageError`` for
    budgets that leave nothing to draw.
    """
    sampler, model = program.sampler, program.model
    fanouts, targets = tuple(sampler.budgets[::-1]), sampler.targets
    swaps: tuple[tuple[PartKind, str], ...] = ()
    placement = {"board": program.board, "scope": program.scope}
    options: dict[PartKind, dict[str, str]] = {"placement": placement}
    if design is not None:
        options["placement"] |= {"n": str(design.n), "m": str(design.m)}
    if sampler.name == "SubgraphSampler":
        swaps, fanouts = (("sampler", "hpgnn-saint"),), (0,) * sampler.L
        drawn = _differences((sampler.budgets[0], targets), sampler.name)
        options["sampler"] = {"method": sampler.method, "budget": str(drawn[0])}
    elif sampler.name == "LayerwiseSampler":
        swaps, fanouts = (("sampler", "hpgnn-layerwise"),), (0,) * sampler.L
        targets = sampler.budgets[-1]
        drawn = _differences(sampler.budgets, sampler.name)
        options["sampler"] = {"budgets": ",".join(map(str, drawn[::-1]))}
    workload = Workload(
        model=model.name if model.operators else model.name.lower(),
        dims=tuple(model.hidden),
        epochs=epochs,
        batch_size=targets,
        fanouts=fanouts,
        seed=seed,
        learning_rate=program.learning_rate,
        weight_decay=program.weight_decay,
    )
    return Training(swaps, options, workload)


def _differences(sizes: Sequence[int], name: str) -> tuple[int, ...]:
    drawn = tuple(below - above for below, above in pairwise(sizes))
    if min(drawn) < 1:
        raise UsageError(
            f"{name} has sizes {', '.join(map(str, sizes))} from the input to the targets, and a "
            f"layer holds the one above; let each be larger than the next."
        )
    return drawn


def layer_of(model: GNN) -> type[OperatorLayer]:
    """Return the class of a model's layers, for a plugin to offer by ``gnnbench_model``.

    Raises ``UsageError`` for a model off the shelf, which is available already. It also does for
    functions that cannot be translated to C++, and for results that depend on the order.
    """
    if model.operators is None:
        raise UsageError(
            f"model {model.name} is off the shelf, and trains as --model {model.name.lower()}; "
            f"offer models that have operators."
        )
    translate(model.name, model.operators)
    last = without_sigma(model.name, model.operators)
    return make_layer(model.name, model.operators, last, model.edge_weight)
