"""HP-GNN's accelerator generator and software generator (sections 3 and 6): files from templates.

:func:`write_design` fills a design's numbers, and a model's functions translated to C++, into the
templates beside this module. The Python functions stay the only definition: ``torch.fx`` traces
them, and what is not arithmetic on single features is refused. :func:`write_features`,
:func:`write_weights` and :func:`write_batch` make the files that the generated host program reads,
and :func:`read_results` reads the one that it writes.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from itertools import pairwise
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, BinaryIO

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, fx

from gnnbench.errors import UsageError
from gnnbench.kernels.reference.fpga import first_rows
from gnnbench.models.bound import with_self_loops
from gnnbench.records import Block, FloatArray, IndexArray, IntArray
from gnnbench_plugins.hpgnn.boards import Board
from gnnbench_plugins.hpgnn.cycles import array_shape, count_words, make_machine
from gnnbench_plugins.hpgnn.design import LANES
from gnnbench_plugins.hpgnn.layout import EdgeStream, LaidOutBlock, lay_out
from gnnbench_plugins.hpgnn.resources import Design, budget_of, find_excess, usage_of

if TYPE_CHECKING:
    from gnnbench_plugins.hpgnn.program import Generated, Operators

#: What is filled in, and what is copied as it is.
_TEMPLATES = (
    "README.md", "types.h", "operators.h", "aggregate.cpp", "update.cpp", "host.cpp", "Makefile",
    "design.cfg",
)  # fmt: skip
_STANDINS = (
    "ap_int.h", "hls_stream.h", "hls_vector.h", "csim.cpp", "xrt/xrt_bo.h", "xrt/xrt_device.h",
    "xrt/xrt_kernel.h",
)  # fmt: skip
_EDGE = np.dtype([("source", "<i4"), ("destination", "<i4"), ("weight", "<f4"), ("unused", "<i4")])
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


def translate(model: str, operators: Operators) -> Expressions:
    """The functions in C++.

    Raises ``UsageError`` for one that is more than arithmetic on single features, and for an
    update that is not such arithmetic around one product with W.
    """
    scatter = _Traced(model, "scatter", operators.scatter, ("h", "weight"))
    gather = _Traced(model, "gather", operators.gather, ("a", "b"))
    update = _Traced(model, "update", operators.update, ("a", "own", "weight", "bias"))
    products = [
        node for node in update.nodes if node.target in (operator.matmul, torch.matmul, torch.mm)
    ]
    if len(products) != 1 or products[0].args[1] is not update.inputs["weight"]:
        raise UsageError(
            f"update of model {model} does not multiply rows by W once; write it as arithmetic "
            f"around one 'rows @ weight'."
        )
    product = products[0]
    rows = update.name({"a": "a", "own": "own"})
    pieces = tuple(update.spell(piece, rows) for piece in _pieces_of(product.args[0]))
    if len(pieces) != operators.update_widths:
        raise UsageError(
            f"update of model {model} multiplies {len(pieces)} rows side by side by W, and "
            f"update_widths says {operators.update_widths}; make both the same."
        )
    end, sigma = update.result, "z"
    if isinstance(end, fx.Node) and end.target is torch.relu:
        end, sigma = end.args[0], "fmaxf(z, 0.0f)"
    return Expressions(
        scatter=scatter.spell(scatter.result, scatter.name({"h": "h", "weight": "weight"})),
        gather=gather.spell(gather.result, gather.name({"a": "a", "b": "b"})),
        pieces=pieces,
        finish=update.spell(end, {product: "product", **update.name({"bias": "bias"})}),
        sigma=sigma,
        uses_own=any(update.inputs["own"] is node for node in _inputs_of(product.args[0])),
    )


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
    numbers = _number(generated)
    source = resources.files(__package__) / "templates"
    target = Path(directory)
    written = []
    for name in _TEMPLATES:
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
        "regions": "\n".join(
            f"slr={kernel}_{die}:SLR{die - 1}" for die in dies for kernel in ("aggregate", "update")
        ),
        "network_bytes": f"{2 * stages * design.n * depth * update_bytes:,}",
        "update_bytes": f"{4 * (max_inner * max_out + rows * (max_inner + max_out)):,}",
        "rows": _tabulate(generated),
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
    path: str | Path, layers: Sequence[LayerInput], generated: Generated
) -> tuple[int, ...]:
    """A mini-batch as the host program reads it; how many launches a die makes, layer by layer.

    Each die has its range of destinations and the edges to them, in the order of the stream. A
    range is cut where the gather PEs cannot keep it whole.
    """
    design, board = generated.sweep.best.design, generated.board
    widths = generated.abstraction.batch.widths
    if len(layers) != len(widths) - 1:
        raise UsageError(
            f"the batch has {len(layers)} layers and the design {len(widths) - 1}; give each its "
            f"block."
        )
    turns = []
    with Path(path).open("wb") as file:
        for layer, width in zip(layers, widths[:-1], strict=True):
            launches, edges = _cut(layer, board.dies, rows_per_launch(board, design, width))
            for array in (launches, edges, layer.own.astype("<i4")):
                file.write(np.int64(len(array)).tobytes() + array.tobytes())
            turns.append(len(launches) // board.dies)
    return tuple(turns)


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


def _write_words(file: BinaryIO, rows: FloatArray) -> None:
    """Rows filled up with zeros to whole words, behind how many words they are."""
    words = count_words(rows.shape[1], 4)
    padded = np.zeros((len(rows), words * LANES), dtype="<f4")
    padded[:, : rows.shape[1]] = rows
    file.write(np.int64(len(rows) * words).tobytes() + padded.tobytes())


def _cut(
    layer: LayerInput, dies: int, most: int
) -> tuple[npt.NDArray[np.void], npt.NDArray[np.void]]:
    """Launches, turn after turn, a die after the other, and all edges, launch after launch."""
    stream = layer.stream
    first = first_rows(stream.num_dst, dies)
    turns = max(1, -(-int(np.diff(first).max(initial=0)) // most))
    launches, parts, num_edges = [], [], 0
    for turn in range(turns):
        for die in range(dies):
            begin = min(int(first[die]) + turn * most, int(first[die + 1]))
            end = min(begin + most, int(first[die + 1]))
            chosen = np.flatnonzero((stream.dst >= begin) & (stream.dst < end))
            edges = np.zeros(len(chosen), dtype=_EDGE)
            edges["source"] = stream.address[stream.src[chosen]]
            edges["destination"] = stream.dst[chosen] - begin
            edges["weight"] = layer.edge_weight[chosen]
            launches.append((die, num_edges, len(chosen), begin, end - begin))
            parts.append(edges)
            num_edges += len(chosen)
    return np.array(launches, dtype=_LAUNCH), np.concatenate(parts)
