"""HP-GNN's accelerator generator and software generator (sections 3 and 6): files from templates.

:func:`write_design` fills a design's numbers, and a model's functions translated to C++, into the
templates beside this module. The Python functions stay the only definition: ``torch.fx`` traces
them, and what is not arithmetic on single features is refused. :func:`write_features`,
:func:`write_weights` and :func:`write_batch` make the files that the generated host program reads,
and :func:`read_results` and :func:`read_gradients` read the one that it writes.
"""

from __future__ import annotations

import operator
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from itertools import pairwise
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, BinaryIO, TypeGuard

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, fx

from gnnbench.errors import UsageError
from gnnbench.kernels.reference.fpga import first_rows
from gnnbench.models.bound import with_self_loops
from gnnbench.records import Block, FloatArray, IndexArray, IntArray
from gnnbench_plugins.hpgnn.boards import Board
from gnnbench_plugins.hpgnn.cycles import array_shape, make_machine
from gnnbench_plugins.hpgnn.design import LANES
from gnnbench_plugins.hpgnn.layout import EDGE, EdgeStream, LaidOutBlock, lay_out
from gnnbench_plugins.hpgnn.operators import Operators
from gnnbench_plugins.hpgnn.resources import Design, budget_of, count_words, find_excess, usage_of

if TYPE_CHECKING:
    from gnnbench_plugins.hpgnn.program import Abstraction, Generated

#: What is filled in, and what is copied as it is.
_TEMPLATES = (
    "README.md", "types.h", "operators.h", "aggregate.cpp", "update.cpp", "update_backward.cpp",
    "host.cpp", "Makefile", "design.cfg",
)  # fmt: skip
_BACKWARD = "update_backward.cpp"
_STANDINS = (
    "ap_int.h", "hls_stream.h", "hls_vector.h", "csim.cpp", "xrt/xrt_bo.h", "xrt/xrt_device.h",
    "xrt/xrt_kernel.h",
)  # fmt: skip
#: An edge's kinds, as types.h has them.
_SCATTER, _SCATTER_GRADIENT, _OWN_GRADIENT = range(3)
_LAUNCH = np.dtype([(name, "<i4") for name in ("die", "first_edge", "edges", "first_row", "rows")])

# --------------------------------------------------------------------------- functions, as C++

_CPP: Mapping[object, str] = {
    operator.add: "({} + {})",
    operator.sub: "({} - {})",
    operator.mul: "({} * {})",
    operator.truediv: "({} / {})",
    operator.neg: "(-{})",
    torch.add: "({} + {})",
    torch.sub: "({} - {})",
    torch.mul: "({} * {})",
    torch.div: "({} / {})",
    torch.neg: "(-{})",
    torch.abs: "fabsf({})",
    torch.relu: "fmaxf({}, 0.0f)",
    torch.maximum: "fmaxf({}, {})",
    torch.minimum: "fminf({}, {})",
}


@dataclass(frozen=True, slots=True)
class Expressions:
    """A model's functions as C++ expressions of floats.

    ``scatter`` is of ``h`` and ``weight``, ``gather`` of ``a`` and ``b``. UPDATE multiplies
    ``pieces``, of ``a`` and ``own``, side by side by W; ``finish`` is of ``product`` and ``bias``,
    and ``sigma``, of ``z``, an outermost ReLU or ``z``.
    """

    scatter: str
    gather: str
    pieces: tuple[str, ...]
    finish: str
    sigma: str
    uses_own: bool


@dataclass(frozen=True, slots=True)
class Slopes:
    """Derivatives of functions that are linear in features, as C++ expressions.

    ``scatter`` is of ``weight``; ``gathered`` and ``own`` have one for each piece; ``product`` and
    ``bias`` are those of what stands around the product; ``sigma`` is of sigma's result.
    """

    scatter: str
    gathered: tuple[str, ...]
    own: tuple[str, ...]
    product: str
    bias: str
    sigma: str


def differentiate(model: str, operators: Operators) -> Slopes:
    """The slopes of a model's functions, of which none may depend on features.

    Raises ``UsageError`` for a gather that is no sum, and for a scatter or an update that is not
    linear in features, but for an outermost ReLU. Then the kernels have forward propagation only.
    """
    expressions = translate(model, operators)
    if expressions.gather not in ("a + b", "b + a"):
        raise UsageError(
            f"gather of model {model} is no sum, and each source's share in its result is not "
            f"known backward; use a + b."
        )
    scatter = _Traced(model, "scatter", operators.scatter, ("h", "weight"))
    update = _Traced(model, "update", operators.update, ("a", "own", "weight", "bias"))
    product = update.product
    pieces = _pieces_of(product.args[0])
    end = update.result
    sigma = "sigma > 0.0f ? 1.0f : 0.0f" if _is_relu(end) else "1.0f"
    if _is_relu(end):
        end = end.args[0]
    return Slopes(
        scatter.slope(scatter.result, scatter.inputs["h"], scatter.name({"weight": "weight"})),
        tuple(update.slope(piece, update.inputs["a"], {}) for piece in pieces),
        tuple(update.slope(piece, update.inputs["own"], {}) for piece in pieces),
        update.slope(end, product, {}),
        update.slope(end, update.inputs["bias"], {}),
        sigma,
    )


def translate(model: str, operators: Operators) -> Expressions:
    """The functions in C++.

    Raises ``UsageError`` for one that is more than arithmetic on single features, and for an
    update that is not such arithmetic around one product with W.
    """
    scatter = _Traced(model, "scatter", operators.scatter, ("h", "weight"))
    gather = _Traced(model, "gather", operators.gather, ("a", "b"))
    update = _Traced(model, "update", operators.update, ("a", "own", "weight", "bias"))
    product = update.product
    rows = update.name({"a": "a", "own": "own"})
    pieces = tuple(update.spell(piece, rows) for piece in _pieces_of(product.args[0]))
    if len(pieces) != operators.update_widths:
        raise UsageError(
            f"update of model {model} multiplies {len(pieces)} rows side by side by W, and "
            f"update_widths says {operators.update_widths}; make both the same."
        )
    end, sigma = update.result, "z"
    if _is_relu(end):
        end, sigma = end.args[0], "fmaxf(z, 0.0f)"
    return Expressions(
        scatter=scatter.spell(scatter.result, scatter.name({"h": "h", "weight": "weight"})),
        gather=gather.spell(gather.result, gather.name({"a": "a", "b": "b"})),
        pieces=pieces,
        finish=update.spell(end, {product: "product", **update.name({"bias": "bias"})}),
        sigma=sigma,
        uses_own=any(update.inputs["own"] is node for node in _inputs_of(product.args[0])),
    )


def without_sigma(model: str, operators: Operators) -> Callable[..., Tensor]:
    """UPDATE without an outermost ReLU, as the last layer has it. ``UsageError`` where torch.fx
    cannot trace it."""
    update = _Traced(model, "update", operators.update, ("a", "own", "weight", "bias"))
    end = update.result
    if not _is_relu(end):
        return operators.update
    output = update.nodes[-1]
    output.args = (end.args[0],)
    return fx.GraphModule(torch.nn.Module(), output.graph)


#: Python functions around any callable, by how many arguments it takes: only those are traced.
_WRAPPERS: Mapping[int, Callable[[Callable[..., Tensor]], Callable[..., Tensor]]] = {
    2: lambda function: lambda a, b: function(a, b),
    4: lambda function: lambda a, b, c, d: function(a, b, c, d),
}


class _Traced:
    """A function of a model as a graph of operations."""

    def __init__(
        self, model: str, role: str, function: Callable[..., Tensor], names: tuple[str, ...]
    ) -> None:
        self.where = f"{role} of model {model}"
        try:
            graph = fx.Tracer().trace(_WRAPPERS[len(names)](function))
        except Exception as error:  # whatever the user's function does to a symbol
            reason = str(error).splitlines()[0]
            raise UsageError(f"{self.where} cannot be translated to C++: {reason}.") from None
        self.nodes = tuple(graph.nodes)
        inputs = [node for node in self.nodes if node.op == "placeholder"]
        self.inputs = dict(zip(names, inputs, strict=True))
        self.result = self.nodes[-1].args[0]

    @property
    def product(self) -> fx.Node:
        """UPDATE's one product with W."""
        functions = (operator.matmul, torch.matmul, torch.mm)
        products: list[fx.Node] = [node for node in self.nodes if node.target in functions]
        if len(products) != 1 or products[0].args[1] is not self.inputs["weight"]:
            raise UsageError(
                f"{self.where} does not multiply rows by W once; write it as arithmetic around one "
                f"'rows @ weight'."
            )
        return products[0]

    def slope(self, value: object, variable: fx.Node, names: Mapping[fx.Node, str]) -> str:
        """The derivative of a value by a node in which it is linear, as a C++ expression."""
        if value is variable:
            return "1.0f"
        if not isinstance(value, fx.Node) or variable not in _inputs_of(value):
            return "0.0f"
        target, args = _target_of(value), value.args
        known = not value.kwargs
        if known and target in (operator.add, torch.add, operator.sub, torch.sub):
            sign = "+" if target in (operator.add, torch.add) else "-"
            one, other = (self.slope(each, variable, names) for each in args)
            return f"({one} {sign} {other})"
        if known and target in (operator.neg, torch.neg):
            return f"(-{self.slope(args[0], variable, names)})"
        if known and target in (operator.mul, torch.mul, operator.truediv, torch.div):
            rows, factor = args
            divides = target in (operator.truediv, torch.div)
            if not divides and variable not in _inputs_of(rows):
                rows, factor = factor, rows
            if variable not in _inputs_of(factor):
                slope, by = self.slope(rows, variable, names), self._spell(factor, names)
                return f"({slope} {'/' if divides else '*'} {by})"
        raise UsageError(f"{self.where} is not linear in {variable}; write it as a weighted sum.")

    def name(self, names: Mapping[str, str]) -> dict[fx.Node, str]:
        """C++ names of some of the inputs."""
        return {self.inputs[mine]: name for mine, name in names.items()}

    def spell(self, value: object, names: Mapping[fx.Node, str]) -> str:
        """A value as a C++ expression of what has a name, without the outermost brackets."""
        text = self._spell(value, names)
        return text[1:-1] if text.startswith("(") else text

    def _spell(self, value: object, names: Mapping[fx.Node, str]) -> str:
        if isinstance(value, bool | int | float):
            return f"{float(value)!r}f"
        if isinstance(value, fx.Node):
            if value in names:
                return names[value]
            pattern = _CPP.get(_target_of(value))
            if pattern and not value.kwargs and pattern.count("{}") == len(value.args):
                return pattern.format(*(self._spell(each, names) for each in value.args))
        raise UsageError(
            f"{self.where} uses {value!s}, which has no place in a kernel; use its own arguments, "
            f"numbers, + - * /, abs, relu, maximum and minimum."
        )


def _target_of(node: fx.Node) -> object:
    """The function that a node calls; a tensor's method is the function of that name."""
    if node.op == "call_method":
        return getattr(torch, str(node.target), None)
    return node.target


def _is_relu(value: object) -> TypeGuard[fx.Node]:
    return isinstance(value, fx.Node) and _target_of(value) is torch.relu


def _pieces_of(rows: object) -> tuple[object, ...]:
    """What is joined side by side into the rows that W multiplies."""
    if isinstance(rows, fx.Node) and rows.target is torch.cat:
        joined, dim = rows.args[0], rows.kwargs.get("dim", rows.args[1:])
        if isinstance(joined, list | tuple) and dim in (-1, 1, (-1,), (1,)):
            return tuple(joined)
    return (rows,)


def _inputs_of(value: object) -> set[fx.Node]:
    """Every node that a value is made of."""
    if not isinstance(value, fx.Node):
        return set()
    return {value}.union(*(_inputs_of(each) for each in value.all_input_nodes))


# --------------------------------------------------------------------------- the design's files


def write_design(generated: Generated, directory: str | Path) -> tuple[Path, ...]:
    """Write kernels, host program, stand-in headers, Makefile and README; the files' paths.

    ``directory`` is made where it is missing; files of these names are overwritten. Raises
    ``UsageError`` for functions that cannot be translated, a design over the board's resources and
    rows that the gather PEs cannot keep.
    """
    excess = find_excess(generated.sweep.best.design, generated.board, "die")
    if excess is not None:
        raise UsageError(excess)
    slopes, backward = _try_to_differentiate(generated.abstraction)
    numbers = _number(generated) | _number_backward(generated.board, slopes, backward)
    templates = [name for name in _TEMPLATES if slopes is not None or name != _BACKWARD]
    source = resources.files(__package__) / "templates"
    target = Path(directory)
    written = []
    for name in templates:
        text = (source / f"{name}.template").read_text(encoding="utf-8")
        written.append(_write(target / name, Template(text).substitute(numbers)))
    for name in _STANDINS:
        text = (source / "standin" / name).read_text(encoding="utf-8")
        written.append(_write(target / "standin" / name, text))
    return tuple(written)


def _write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def _number(generated: Generated) -> dict[str, str]:
    """What the templates' names stand for."""
    board, design = generated.board, generated.sweep.best.design
    abstraction = generated.abstraction
    expressions = translate(abstraction.model, abstraction.operators)
    widths = abstraction.batch.widths
    r, c = array_shape(design.m)
    stages = design.n.bit_length() - 1
    banks = max(LANES, c)
    row_words = max(count_words(width, 4) for width in widths[:-1])
    rows_per_launch(board, design, max(widths[:-1]))  # refuses rows that no PE can keep
    max_inner = len(expressions.pieces) * max(widths[:-1])
    max_out = -(-max(widths[1:]) // banks) * banks
    # Word, row, word number, place and end of an update; both branches of each link.
    update_bytes = 64 + 4 + 4 + 1 + 1
    depth = max(1, design.n // 2) * row_words + 1
    rows = board.adder_cycles * r
    cases = [
        *(f"        case {i}: return {piece};" for i, piece in enumerate(expressions.pieces[:-1])),
        f"        default: return {expressions.pieces[-1]};",
    ]
    dies = range(1, board.dies + 1)
    return {
        "model": abstraction.model,
        "board": board.name,
        "layers": str(len(widths) - 1),
        "widths": ", ".join(map(str, widths)),
        "dies": str(board.dies),
        "n": str(design.n),
        "m": str(design.m),
        "stages": str(stages),
        "r": str(r),
        "c": str(c),
        "adder_cycles": str(board.adder_cycles),
        "max_row_words": str(row_words),
        "kept_depth": str(2 * row_words),
        "gather_words": str(_gather_words(board, design)),
        "pieces": str(len(expressions.pieces)),
        "max_inner": str(max_inner),
        "max_out": str(max_out),
        "weight_banks": str(banks),
        "scatter": expressions.scatter,
        "gather": expressions.gather,
        "uses_own": "true" if expressions.uses_own else "false",
        "piece_cases": "\n".join(cases),
        "finish": expressions.finish,
        "sigma": expressions.sigma,
        "clock_mhz": f"{board.clock_hz / 1e6:.0f}",
        "aggregates": ".".join(f"aggregate_{die}" for die in dies),
        "updates": ".".join(f"update_{die}" for die in dies),
        "regions": _place(board, "aggregate", "update"),
        "network_bytes": f"{2 * stages * design.n * depth * update_bytes:,}",
        "update_bytes": f"{4 * (max_inner * max_out + rows * (max_inner + max_out)):,}",
        "rows": _tabulate(generated),
    }


def _place(board: Board, *kernels: str) -> str:
    """One of each kernel on every die, as lines of design.cfg."""
    dies = range(1, board.dies + 1)
    return "\n".join(f"slr={kernel}_{die}:SLR{die - 1}" for die in dies for kernel in kernels)


def _try_to_differentiate(abstraction: Abstraction) -> tuple[Slopes | None, str]:
    """The slopes of the model's functions and what the README says of them."""
    try:
        slopes = differentiate(abstraction.model, abstraction.operators)
    except UsageError as error:
        return None, f"Forward propagation only is generated: {error}"
    return slopes, (
        "A batch with labels is propagated backward too: `update_backward.cpp` for the gradients "
        "of W and of a layer's input rows, then the aggregate kernel on the transposed edges. "
        "Equations 10 and 11 do not count that second array of MACs and its buffers; forward and "
        "backward take turns, and could share one."
    )


def _number_backward(board: Board, slopes: Slopes | None, backward: str) -> dict[str, str]:
    """What the templates' names stand for, of backward propagation."""
    there = slopes is not None
    slopes = slopes or Slopes("0.0f", ("0.0f",), ("0.0f",), "0.0f", "0.0f", "0.0f")
    dies = range(1, board.dies + 1)
    units = ".".join(f"update_backward_{die}" for die in dies)
    lines = f"nk=update_backward:{board.dies}:{units}\n{_place(board, 'update_backward')}\n"
    return {
        "has_gradient": "true" if there else "false",
        "scatter_slope": slopes.scatter,
        "gathered_slopes": ", ".join(slopes.gathered),
        "own_slopes": ", ".join(slopes.own),
        "product_slope": slopes.product,
        "bias_slope": slopes.bias,
        "sigma_slope": slopes.sigma,
        "backward": textwrap.fill(backward, 110, subsequent_indent="  "),
        "backward_kernels": lines if there else "",
        "back_file": f"`{_BACKWARD}`, " if there else "",
        "kernels": f"aggregate.cpp update.cpp {_BACKWARD}" if there else "aggregate.cpp update.cpp",
    }


def _tabulate(generated: Generated) -> str:
    """The design's numbers, and where each is from, as rows of Markdown."""
    board, sweep, batch = generated.board, generated.sweep, generated.abstraction.batch
    point = sweep.best
    budget = budget_of(board, "die")
    used = usage_of(point.design, board)
    sizes = ", ".join(f"{size:,.0f}" for size in batch.vertices)
    edges = ", ".join(f"{size:,.0f}" for size in batch.edges)
    equations = "modelled: Equations 3 to 9"
    rows = (
        ("scatter and gather PEs a die, n", f"{point.design.n}", "explored: Algorithm 4"),
        (
            "MACs a die, m",
            f"{point.design.m}",
            f"explored: Algorithm 4, {len(sweep.points)} designs that fit",
        ),
        ("vertices of layers 0 .. L", sizes, "the program's sampler: Table 2"),
        ("edges of layers 1 .. L", edges, "the program's sampler: Table 2"),
        ("DSPs a die", f"{used.dsp:,.0f} of {budget.dsp:,.0f}", "modelled: Equation 10"),
        ("LUTs a die", f"{used.lut:,.0f} of {budget.lut:,.0f}", "modelled: Equation 11"),
        ("propagation, forward and backward", f"{point.propagate_s * 1e3:.3g} ms", equations),
        ("vertices traversed", f"{point.vertices_per_s:,.0f} /s", equations),
        ("host threads that sample", f"{generated.sample_threads}", "modelled: section 5.1"),
        (
            "sampling, during propagation",
            f"{generated.sample_s * 1e3:.3g} ms" + (", the board waits" * generated.board_waits),
            "modelled: Equation 4",
        ),
        ("dies", f"{board.dies}", f"board {board.name}"),
        ("clock", f"{board.clock_hz / 1e6:.0f} MHz", f"board {board.name}"),
        ("cycles of an addition", f"{board.adder_cycles}", f"board {board.name}"),
        (
            "words that a gather PE keeps",
            f"{_gather_words(board, point.design):,}",
            f"board {board.name}: its UltraRAM, over dies and PEs",
        ),
    )
    return "\n".join(f"| {what} | {value} | {source} |" for what, value, source in rows)


def _gather_words(board: Board, design: Design) -> int:
    return make_machine(board, design).buffer_words // design.n


def rows_per_launch(board: Board, design: Design, width: int) -> int:
    """How many destinations of ``width`` features a die's gather PEs keep.

    Raises ``UsageError`` where a PE cannot keep one.
    """
    words = _gather_words(board, design)
    kept = words // count_words(width, 4)
    if not kept:
        raise UsageError(
            f"a row of {width} features takes {count_words(width, 4)} words, and a gather PE of "
            f"{board.name} keeps {words}; use fewer PEs or narrower rows."
        )
    return kept * design.n


# --------------------------------------------------------------------------- the host's files


@dataclass(frozen=True, slots=True, eq=False)
class LayerInput:
    """A layer of a mini-batch: edges, float32 ``(E,)`` their weights in the order of the stream,
    and int64 ``(D,)`` the row of memory that each destination has itself."""

    stream: EdgeStream
    edge_weight: FloatArray
    own: IntArray


def prepare_layer(model: str, block: LaidOutBlock, degrees: IntArray) -> LayerInput:
    """A sampled block with the edge weights of a model off the shelf.

    GCN: a loop at each destination, and 1/sqrt((D(u)+1)(D(v)+1)) of the graph's ``degrees``; SAGE:
    1 over the in-edges drawn; GIN: 1. The loops of GCN are laid out with the edges, by RMT and RRA
    and with the features in the board's memory, row v at v.
    """
    if model not in ("GCN", "SAGE", "GIN"):
        raise UsageError(
            f"model {model!r} has edge weights of its own; make a LayerInput of them, since only "
            f"those of GCN, SAGE and GIN are known."
        )
    stream = block.forward
    if model == "GCN":
        plain = Block(block.src_ids, block.num_dst, block.indptr, block.indices, own=block.own)
        looped = with_self_loops(plain)
        stream = lay_out(looped, block.layer, rmt=True, rra=True, resident=True).forward
    positions: IndexArray | slice = slice(block.num_dst) if block.own is None else block.own
    src, dst = block.src_ids[stream.src], block.dst_ids[stream.dst]
    weight = np.ones(len(src))
    if model == "GCN":
        weight = 1 / np.sqrt((degrees[src] + 1.0) * (degrees[dst] + 1.0))
    elif model == "SAGE":
        weight = 1 / np.diff(block.indptr)[stream.dst]
    return LayerInput(stream, weight.astype(np.float32), stream.address[positions])


def write_features(path: str | Path, features: FloatArray) -> None:
    """X, float32 ``(V, f)``, row v at v."""
    with Path(path).open("wb") as file:
        _write_words(file, features)


def write_weights(path: str | Path, parameters: Sequence[tuple[FloatArray, FloatArray]]) -> None:
    """Each layer's W ``(inner, f_out)`` and b ``(f_out,)``, float32."""
    with Path(path).open("wb") as file:
        for weight, bias in parameters:
            _write_words(file, weight)
            _write_words(file, bias[None])


def write_batch(
    path: str | Path,
    layers: Sequence[LayerInput],
    generated: Generated,
    labels: IntArray | None = None,
) -> tuple[int, ...]:
    """A mini-batch as the host program reads it; how many launches a die makes, layer by layer.

    Each die has its range of destinations and the edges to them, in the order of the stream. A
    range is cut where the gather PEs cannot keep it whole. With ``labels``, one for each of the
    last layer's destinations, the host program propagates backward too; a layer's transposed edges
    stand by destination then, behind them those to its own rows. ``UsageError`` for labels of a
    model whose functions have no slopes.
    """
    design, board = generated.sweep.best.design, generated.board
    abstraction = generated.abstraction
    widths = abstraction.batch.widths
    if len(layers) != len(widths) - 1:
        raise UsageError(
            f"the batch has {len(layers)} layers and the design {len(widths) - 1}; give each its "
            f"block."
        )
    if labels is not None:
        differentiate(abstraction.model, abstraction.operators)
        _check_labels(labels, len(layers[-1].own), widths[-1])
    uses_own = translate(abstraction.model, abstraction.operators).uses_own
    turns = []
    with Path(path).open("wb") as file:
        for number, (layer, width) in enumerate(zip(layers, widths[:-1], strict=True)):
            most = rows_per_launch(board, design, width)
            launches, edges = _cut(_forward_edges(layer), len(layer.own), board.dies, most)
            back, back_edges = launches[:0], edges[:0]
            if labels is not None and number:
                below = len(layers[number - 1].own)
                back, back_edges = _cut(_backward_edges(layer, uses_own), below, board.dies, most)
            for array in (launches, edges, layer.own.astype("<i4"), back, back_edges):
                file.write(np.int64(len(array)).tobytes() + array.tobytes())
            turns.append(len(launches) // board.dies)
        written = np.empty(0, "<i4") if labels is None else labels.astype("<i4")
        file.write(np.int64(len(written)).tobytes() + written.tobytes())
    return tuple(turns)


def _check_labels(labels: IntArray, targets: int, classes: int) -> None:
    if len(labels) != targets or not ((labels >= 0) & (labels < classes)).all():
        raise UsageError(
            f"the batch has {len(labels)} labels for {targets} targets of {classes} classes; give "
            f"each a number below {classes}."
        )


def read_results(
    path: str | Path, layers: Sequence[LayerInput], widths: Sequence[int]
) -> tuple[tuple[FloatArray, FloatArray], ...]:
    """The one batch of a results file: each layer's sums ``(D, f_in)`` and rows ``(D, f_out)``."""
    values = np.fromfile(path, dtype="<f4")
    results, at = [], 0
    for layer, (f_in, f_out) in zip(layers, pairwise(widths), strict=True):
        arrays = []
        for width in (f_in, f_out):
            stored = LANES * count_words(width, 4)
            count = len(layer.own) * stored
            rows = values[at : at + count].reshape(-1, stored)
            arrays.append(np.ascontiguousarray(rows[:, :width]))
            at += count
        results.append((arrays[0], arrays[1]))
    return tuple(results)


def read_gradients(
    path: str | Path, layers: Sequence[LayerInput], generated: Generated
) -> tuple[tuple[FloatArray, FloatArray], ...]:
    """Of the one batch, with labels, of a results file: each layer's gradients of W and b."""
    widths = generated.abstraction.batch.widths
    pieces = generated.abstraction.operators.update_widths
    shapes = [
        (pieces * f_in + 1, LANES * count_words(f_out, 4)) for f_in, f_out in pairwise(widths)
    ]
    values = np.fromfile(path, dtype="<f4")
    at = len(values)
    gradients = []
    for (rows, stored), width in zip(shapes, widths[1:], strict=True):
        at -= rows * stored
        both = np.ascontiguousarray(
            values[at : at + rows * stored].reshape(rows, stored)[:, :width]
        )
        gradients.append((both[:-1], both[-1]))
    return tuple(gradients)


def _write_words(file: BinaryIO, rows: FloatArray) -> None:
    """Rows filled up with zeros to whole words, behind how many words they are."""
    words = count_words(rows.shape[1], 4)
    padded = np.zeros((len(rows), words * LANES), dtype="<f4")
    padded[:, : rows.shape[1]] = rows
    file.write(np.int64(len(rows) * words).tobytes() + padded.tobytes())


def _forward_edges(layer: LayerInput) -> npt.NDArray[np.void]:
    stream = layer.stream
    edges = np.zeros(len(stream.src), dtype=EDGE)
    edges["source"] = stream.address[stream.src]
    edges["destination"] = stream.dst
    edges["weight"] = layer.edge_weight
    edges["kind"] = _SCATTER
    return edges


def _backward_edges(layer: LayerInput, uses_own: bool) -> npt.NDArray[np.void]:
    """From the rows of gradients that update_backward writes: gathered, and then own ones."""
    stream, num_dst = layer.stream, len(layer.own)
    order = np.argsort(stream.dst, kind="stable")
    edges = np.zeros(len(order) + (num_dst if uses_own else 0), dtype=EDGE)
    transposed, own = edges[: len(order)], edges[len(order) :]
    transposed["source"] = stream.dst[order]
    transposed["destination"] = stream.address[stream.src[order]]
    transposed["weight"] = layer.edge_weight[order]
    transposed["kind"] = _SCATTER_GRADIENT
    if uses_own:
        own["source"] = num_dst + np.arange(num_dst)
        own["destination"] = layer.own
        own["kind"] = _OWN_GRADIENT
    return edges


def _cut(
    edges: npt.NDArray[np.void], num_rows: int, dies: int, most: int
) -> tuple[npt.NDArray[np.void], npt.NDArray[np.void]]:
    """Launches, turn after turn, a die after the other, and all edges, launch after launch."""
    first = first_rows(num_rows, dies)
    turns = max(1, -(-int(np.diff(first).max(initial=0)) // most))
    launches, parts, num_edges = [], [], 0
    for turn in range(turns):
        for die in range(dies):
            begin = min(int(first[die]) + turn * most, int(first[die + 1]))
            end = min(begin + most, int(first[die + 1]))
            to = edges["destination"]
            mine = edges[(to >= begin) & (to < end)]
            mine["destination"] -= begin
            launches.append((die, num_edges, len(mine), begin, end - begin))
            parts.append(mine)
            num_edges += len(mine)
    return np.array(launches, dtype=_LAUNCH), np.concatenate(parts)
