"""HP-GNN's accelerator generator and software generator (sections 3 and 6): files from templates.

:func:`write_design` fills the templates beside this module with a design's numbers, and with a
model's functions translated to C++.
"""

from __future__ import annotations

import textwrap
from dataclasses import replace
from importlib import resources
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING

from gnnbench.errors import UsageError
from gnnbench_plugins.hpgnn.boards import Board
from gnnbench_plugins.hpgnn.expressions import Slopes, differentiate, translate
from gnnbench_plugins.hpgnn.resources import (
    LANES,
    array_shape,
    budget_of,
    count_words,
    find_excess,
    gather_words,
    usage_of,
)

if TYPE_CHECKING:
    from gnnbench_plugins.hpgnn.program import Abstraction, Generated

#: Templates to fill in; the stand-ins below are copied.
_TEMPLATES = (
    "README.md", "types.h", "operators.h", "aggregate.cpp", "update.cpp", "batch.h", "sampler.h",
    "host.cpp", "Makefile", "design.cfg",
)  # fmt: skip
_SAMPLER = "sampler.h"
_STANDINS = (
    "ap_int.h", "hls_stream.h", "hls_vector.h", "csim.cpp", "xrt/xrt_bo.h", "xrt/xrt_device.h",
    "xrt/xrt_kernel.h",
)  # fmt: skip


#: The end of the host program: its training, or its message if it has no sampler.
_TRAINING = """\
void train_all(Board &board, const std::string &path, int steps, std::ostream &results) {
    const Graph graph = read_graph(path);
    std::future<Batch> next = std::async(std::launch::async, draw_batch, std::cref(graph), 0);
    for (int step = 0; step < steps; step++) {
        const Batch batch = next.get();
        if (step + 1 < steps) {
            next = std::async(std::launch::async, draw_batch, std::cref(graph), step + 1);
        }
        const double loss = board.train(batch, step + 1);
        results.write(reinterpret_cast<const char *>(&loss), sizeof(loss));
    }
    board.write_parameters(results);
}
"""
_NO_TRAINING = """\
void train_all(Board &, const std::string &, int, std::ostream &) {
    throw std::runtime_error("no sampler was generated for this design; give it batches");
}
"""


def write_design(generated: Generated, directory: str | Path) -> tuple[Path, ...]:
    """Write kernels, host program, stand-in headers, Makefile and README; return the files' paths.

    ``directory`` is made if it is missing; files of these names are overwritten. Raises
    ``UsageError`` for functions that cannot be translated, a design over the board's resources and
    rows that the gather PEs cannot keep.
    """
    buffers = generated.abstraction.batch.buffers
    design = replace(generated.sweep.best.design, tile=0)  # the kernels keep W whole
    excess = find_excess(design, generated.board, "die", buffers)
    if excess is not None:
        raise UsageError(excess)
    slopes, backward = _try_to_differentiate(generated.abstraction)
    numbers = _number(generated) | _number_backward(slopes, backward) | _number_host(generated)
    draws = generated.abstraction.sampler.name == "NeighborSampler"
    templates = [name for name in _TEMPLATES if draws or name != _SAMPLER]
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
    """Return the values of the templates' names."""
    board, design = generated.board, generated.sweep.best.design
    abstraction = generated.abstraction
    expressions = translate(abstraction.model, abstraction.operators)
    widths = abstraction.batch.widths
    r, c = array_shape(design.m)
    stages = design.n.bit_length() - 1
    banks = max(LANES, c)
    buffers = abstraction.batch.buffers
    row_words = buffers.row_words
    rows_per_launch(generated, max(widths[:-1]))  # refuses rows that no PE can keep
    # Word, row, word number, position and end mark of an update; both branches of each link.
    update_bytes = 64 + 4 + 4 + 1 + 1
    depth = max(1, design.n // 2) * row_words + 1
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
        "gather_words": str(gather_words(design.n, board, buffers)),
        "pieces": str(len(expressions.pieces)),
        "max_inner": str(buffers.inner),
        "max_out": str(-(-max(widths[1:]) // LANES) * LANES),
        "max_columns": str(-(-buffers.columns // banks) * banks),
        "weights": str(buffers.weights),
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
        "rows": _tabulate(generated),
    }


def _place(board: Board, *kernels: str) -> str:
    """Place one of each kernel on every die, as lines of design.cfg."""
    dies = range(1, board.dies + 1)
    if board.dies == 1:  # a design of the whole board lies on all of its dies
        return ""
    return "\n".join(f"slr={kernel}_{die}:SLR{die - 1}" for die in dies for kernel in kernels)


def _try_to_differentiate(abstraction: Abstraction) -> tuple[Slopes | None, str]:
    """Return the slopes of the model's functions, and the README's sentence about them."""
    try:
        slopes = differentiate(abstraction.model, abstraction.operators)
    except UsageError as error:
        return None, f"Forward propagation only is generated: {error}"
    return slopes, (
        "A batch with labels is propagated backward too: `update.cpp` in its other turns, for the "
        "gradients of W and of a layer's input rows, then the aggregate kernel on the transposed "
        "edges. All turns share one array of MACs, which Equations 10 and 11 count once."
    )


def _number_backward(slopes: Slopes | None, backward: str) -> dict[str, str]:
    """Return the values of the templates' names for backward propagation."""
    there = slopes is not None
    slopes = slopes or Slopes("0.0f", ("0.0f",), ("0.0f",), "0.0f", "0.0f", "0.0f")
    return {
        "has_gradient": "true" if there else "false",
        "scatter_slope": slopes.scatter,
        "gathered_slopes": ", ".join(slopes.gathered),
        "own_slopes": ", ".join(slopes.own),
        "product_slope": slopes.product,
        "bias_slope": slopes.bias,
        "sigma_slope": slopes.sigma,
        "backward": textwrap.fill(backward, 110, subsequent_indent="  "),
    }


def _number_host(generated: Generated) -> dict[str, str]:
    """Return the values of the templates' names for the host's sampler, loss and weight update."""
    abstraction = generated.abstraction
    sampler, laws = abstraction.sampler, {"one": "ONE", "mean": "MEAN", "gcn": "GCN"}
    draws = sampler.name == "NeighborSampler"
    host = (
        "The host draws mini-batches, computes the loss and updates the weights by Adam: "
        "`--train GRAPH STEPS`."
        if draws
        else f"The host computes the loss; mini-batches of a {sampler.name} are read from files "
        f"or pipes, since only a NeighborSampler is generated, and weights stay as they are."
    )
    return {
        "fanouts": ", ".join(map(str, sampler.budgets[::-1])),
        "targets": str(sampler.targets),
        "edge_law": laws[abstraction.edge_weight],
        "loops": "true" if abstraction.loops else "false",
        "learning_rate": f"{abstraction.learning_rate!r}f",
        "weight_decay": f"{abstraction.weight_decay!r}f",
        "sampler_include": '#include "sampler.h"\n' if draws else "",
        "sampler_file": "`sampler.h`, " if draws else "",
        "sampler_header": "sampler.h" if draws else "",
        "train_function": _TRAINING if draws else _NO_TRAINING,
        "host": textwrap.fill(host, 110, subsequent_indent="  "),
    }


def _tabulate(generated: Generated) -> str:
    """Return the design's numbers and their sources as rows of Markdown."""
    board, sweep, batch = generated.board, generated.sweep, generated.abstraction.batch
    point = sweep.best
    budget = budget_of(board, "die")
    used = usage_of(point.design, board, batch.buffers)
    counted = "modelled: the arrays and streams that the kernels declare"
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
        ("block RAMs a die", f"{used.bram:,.0f} of {budget.bram:,.0f}", counted),
        ("UltraRAMs a die", f"{used.uram:,.0f} of {budget.uram:,.0f}", counted),
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
            f"{gather_words(point.design.n, board, batch.buffers):,}",
            f"the largest layer's sums, as far as board {board.name} has UltraRAM",
        ),
    )
    return "\n".join(f"| {what} | {value} | {source} |" for what, value, source in rows)


def rows_per_launch(generated: Generated, width: int) -> int:
    """Return how many destinations of ``width`` features a die's gather PEs keep.

    Raises ``UsageError`` if a PE cannot keep one.
    """
    board, design = generated.board, generated.sweep.best.design
    words = gather_words(design.n, board, generated.abstraction.batch.buffers)
    kept = words // count_words(width, 4)
    if not kept:
        raise UsageError(
            f"a row of {width} features takes {count_words(width, 4)} words, and a gather PE of "
            f"{board.name} keeps {words}; use fewer PEs or narrower rows."
        )
    return kept * design.n
