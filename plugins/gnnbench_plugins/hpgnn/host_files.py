"""Files between a program and the host program that is generated for it.

:func:`write_features`, :func:`write_weights` and :func:`write_batch` write inputs of the generated
host program; :func:`write_graph` writes the graph that it samples in training.
:func:`read_results`, :func:`read_gradients` and :func:`read_training` read its output.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import numpy as np
import numpy.typing as npt

from gnnbench.errors import UsageError
from gnnbench.kernels.reference.fpga import first_rows
from gnnbench.models.bound import with_self_loops
from gnnbench.records import Block, FloatArray, Graph, IndexArray, IntArray
from gnnbench_plugins.hpgnn.expressions import differentiate, translate
from gnnbench_plugins.hpgnn.generator import rows_per_launch
from gnnbench_plugins.hpgnn.layout import EDGE, EdgeStream, LaidOutBlock, lay_out
from gnnbench_plugins.hpgnn.resources import LANES, count_words

if TYPE_CHECKING:
    from gnnbench_plugins.hpgnn.program import Generated

#: Kinds of edges, as in types.h.
_SCATTER, _SCATTER_GRADIENT, _OWN_GRADIENT = range(3)
_LAUNCH = np.dtype([(name, "<i4") for name in ("die", "first_edge", "edges", "first_row", "rows")])


@dataclass(frozen=True, slots=True, eq=False)
class LayerInput:
    """A layer of a mini-batch.

    ``edge_weight`` is float32 ``(E,)`` in the order of the stream. ``own``, int64 ``(D,)``, is the
    memory row of each destination.
    """

    stream: EdgeStream
    edge_weight: FloatArray
    own: IntArray


def prepare_layer(model: str, block: LaidOutBlock, degrees: IntArray) -> LayerInput:
    """Return a sampled block with the edge weights of a model off the shelf.

    GCN: a loop at each destination, and 1/sqrt((D(u)+1)(D(v)+1)) of the graph's ``degrees``; SAGE:
    1 over the in-edges drawn; GIN: 1. GCN's loops are laid out with the edges, by RMT and RRA and
    with the features in the board's memory, row v at v.
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
        laid = lay_out(looped, block.layer, block.destinations, rmt=True, rra=True, resident=True)
        stream = laid.forward
    positions: IndexArray | slice = slice(block.num_dst) if block.own is None else block.own
    src, dst = block.src_ids[stream.src], block.dst_ids[stream.dst]
    weight = np.ones(len(src))
    if model == "GCN":
        weight = 1 / np.sqrt((degrees[src] + 1.0) * (degrees[dst] + 1.0))
    elif model == "SAGE":
        weight = 1 / np.diff(block.indptr)[stream.dst]
    return LayerInput(stream, weight.astype(np.float32), stream.address[positions])


def write_features(path: str | Path, features: FloatArray) -> None:
    """Write X, float32 ``(V, f)``, row v at v."""
    with Path(path).open("wb") as file:
        _write_words(file, features)


def write_weights(path: str | Path, parameters: Sequence[tuple[FloatArray, FloatArray]]) -> None:
    """Write each layer's W ``(inner, f_out)`` and b ``(f_out,)``, float32."""
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
    """Write a mini-batch for the host program; return a die's launches for each layer.

    Each die has its range of destinations and the edges to them, in the order of the stream. A
    range is cut if the gather PEs cannot keep it whole. With ``labels``, one for each of the last
    layer's destinations, the host program propagates backward too. A layer's transposed edges are
    then sorted by forward destination, and the edges to its own rows follow. Raises ``UsageError``
    for labels of a model without slopes.
    """
    board = generated.board
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
            most = rows_per_launch(generated, width)
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


def write_graph(
    path: str | Path, graph: Graph, labels: IntArray, targets: IntArray, *, seed: int, epoch: int
) -> None:
    """Write the graph that the generated host samples.

    It has the in-neighbours, a label a vertex, and the epoch's targets in their order of use.
    """
    arrays = (
        graph.indptr.astype("<i8"),
        graph.indices.astype("<i4"),
        labels.astype("<i4"),
        targets.astype("<i8"),
        np.array([seed, epoch], dtype="<u8"),
    )
    with Path(path).open("wb") as file:
        for array in arrays:
            file.write(np.int64(len(array)).tobytes() + array.tobytes())


def read_training(
    path: str | Path, generated: Generated, steps: int
) -> tuple[tuple[float, ...], tuple[tuple[FloatArray, FloatArray], ...]]:
    """Read a results file of training: the loss of each step, and each layer's final W and b."""
    raw = Path(path).read_bytes()
    losses = np.frombuffer(raw, dtype="<f8", count=steps)
    values = np.frombuffer(raw, dtype="<f4", offset=losses.nbytes)
    at, parameters = 0, []
    for rows, stored, width in _shapes(generated):
        both = values[at : at + rows * stored].reshape(rows, stored)[:, :width]
        parameters.append((both[:-1].copy(), both[-1].copy()))
        at += rows * stored
    return tuple(losses.tolist()), tuple(parameters)


def _shapes(generated: Generated) -> tuple[tuple[int, int, int], ...]:
    """Return the sizes of each layer's W with its bias below.

    They are its rows, the stored values of a row, and how many of these count.
    """
    widths = generated.abstraction.batch.widths
    pieces = generated.abstraction.operators.update_widths
    return tuple(
        (pieces * f_in + 1, LANES * count_words(f_out, 4), f_out)
        for f_in, f_out in pairwise(widths)
    )


def _check_labels(labels: IntArray, targets: int, classes: int) -> None:
    if len(labels) != targets or not ((labels >= 0) & (labels < classes)).all():
        raise UsageError(
            f"the batch has {len(labels)} labels for {targets} targets of {classes} classes; give "
            f"each a number below {classes}."
        )


def read_results(
    path: str | Path, layers: Sequence[LayerInput], widths: Sequence[int]
) -> tuple[tuple[FloatArray, FloatArray], ...]:
    """Read the one batch of a results file: each layer's sums ``(D, f_in)`` and rows ``(D, f)``."""
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
    """Read the gradients of W and b of each layer, from a results file of one labelled batch."""
    values = np.fromfile(path, dtype="<f4")
    at = len(values)
    gradients = []
    for rows, stored, width in _shapes(generated):
        at -= rows * stored
        both = np.ascontiguousarray(
            values[at : at + rows * stored].reshape(rows, stored)[:, :width]
        )
        gradients.append((both[:-1], both[-1]))
    return tuple(gradients)


def _write_words(file: BinaryIO, rows: FloatArray) -> None:
    """Write the number of words, then rows padded with zeros to whole words."""
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
    """Return edges from the rows of update_backward's gradients: gathered, then own ones."""
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
    """Return launches, turn by turn and die by die, and the edges of all launches in sequence."""
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
