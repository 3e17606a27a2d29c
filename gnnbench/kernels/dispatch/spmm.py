"""Products Z = A H ⊙ M of sparse accelerators: their steps, the cost of each step, and the sums.

``gnnbench.kernels.reference.spmm`` lists the rules of the simulation.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from gnnbench.kernels.dispatch.aggregation import SparseMatrix
from gnnbench.kernels.dispatch.checks import MaskArray, check_mask
from gnnbench.kernels.dispatch.layout import transpose
from gnnbench.kernels.native import load
from gnnbench.kernels.reference import spmm as reference
from gnnbench.kernels.reference.spmm import WORD_FLOATS, Chunks, ReductionEngine, Steps
from gnnbench.records import IndexArray, IntArray

#: Number of ones in each byte value.
_ONES = np.array([bin(byte).count("1") for byte in range(256)], dtype=np.uint8)


def sort_sources(matrix: SparseMatrix) -> SparseMatrix:
    """Return the matrix with every row's sources ascending, as tiles need them.

    It returns ``matrix`` itself if its sources already ascend.
    """
    steps = np.diff(matrix.indices)
    inside = np.ones(len(matrix.indices), dtype=np.bool_)
    inside[matrix.indptr[:-1][matrix.indptr[:-1] < len(inside)]] = False
    if not len(steps) or (steps[inside[1:]] >= 0).all():
        return matrix
    indptr, indices, _ = transpose(matrix.indptr, matrix.indices, matrix.num_src)
    indptr, indices, _ = transpose(indptr, indices, matrix.num_dst)
    return SparseMatrix(indptr, indices, matrix.num_src)


def cut_chunks(
    matrix: SparseMatrix, tile_rows: int, chunk_rows: int, *, window_rows: int = 1
) -> Chunks:
    """Cut destinations into tiles, and the source rows that each tile reads into chunks.

    A chunk has at most ``chunk_rows`` rows. With ``window_rows`` above 1, the unread rows between
    the read rows of a window are loaded too, as by HyGCN. A window must fit in a chunk. Raises
    ``ValueError`` for sizes that are not positive.
    """
    for name, value in (
        ("tile_rows", tile_rows),
        ("chunk_rows", chunk_rows),
        ("window_rows", window_rows),
    ):
        if value < 1:
            raise ValueError(f"{name} is {value}; it must be at least 1.")
    if window_rows > chunk_rows:
        raise ValueError(
            f"a window of {window_rows} rows does not fit in a chunk of {chunk_rows}; use a "
            f"shorter window."
        )
    compiled = load("spmm")
    cut = reference.cut_chunks if compiled is None else compiled.cut_chunks
    first, begin, rows = cut(
        matrix.indptr, matrix.indices, matrix.num_src, tile_rows, chunk_rows, window_rows
    )
    return Chunks(tile_rows, first, begin, rows)


def count_edges(matrix: SparseMatrix, chunks: Chunks) -> tuple[IntArray, IntArray]:
    """Return the number of edges, and of their destinations, of each chunk; int64, one a chunk.

    Each row's sources must ascend.
    """
    compiled = load("spmm")
    if compiled is None:
        return reference.count_edges(matrix.indptr, matrix.indices, matrix.num_src, chunks)
    edges, segments = compiled.count_edges(
        matrix.indptr,
        matrix.indices,
        matrix.num_src,
        chunks.tile_rows,
        chunks.first,
        chunks.begin,
    )
    return edges, segments


def count_reads(matrix: SparseMatrix) -> IndexArray:
    """Return the number of edges that read each source, int32 ``(num_src,)``."""
    compiled = load("spmm")
    count = reference.count_reads if compiled is None else compiled.count_reads
    return count(matrix.indices, matrix.num_src)


def count_wanted(
    mask: MaskArray | None, num_dst: int, width: int, slice_features: int
) -> IndexArray:
    """Return each row's number of wanted features in each slice, int32 ``(D, slices)``.

    ``mask`` is as in :func:`~gnnbench.kernels.dispatch.aggregate`; None means that all are wanted.
    A slice has ``slice_features`` features, a multiple of 8 unless there is only one slice; the
    last may be narrower.
    """
    starts = np.arange(0, width, slice_features)
    widths = np.minimum(slice_features, width - starts)
    if mask is None:
        return np.tile(widths.astype(np.int32), (num_dst, 1))
    if len(starts) > 1 and slice_features % 8:
        raise ValueError(
            f"slices of {slice_features} features cut bytes of the mask; use a multiple of 8."
        )
    check_mask(mask, (num_dst, width))
    ones = _ONES[mask]
    if width % 8 and ones.size:
        ones[:, -1] = _ONES[mask[:, -1] & ((1 << width % 8) - 1)]
    slice_bytes = -(-slice_features // 8)
    wanted = np.zeros((num_dst, len(starts)), dtype=np.int32)
    for byte in range(min(slice_bytes, ones.shape[1])):
        column = ones[:, byte::slice_bytes]
        wanted[:, : column.shape[1]] += column
    return wanted


def count_steps(
    matrix: SparseMatrix,
    chunks: Chunks,
    wanted: IndexArray,
    slice_features: int,
    engine: ReductionEngine,
) -> Steps:
    """Return the engine's work for each chunk of a product.

    Each row's sources must ascend (:func:`sort_sources`). ``wanted`` int32 ``(D, slices)`` counts
    each row's wanted features in each slice, 0 to ``slice_features``. Raises ``ValueError`` for a
    ``wanted`` of another shape or range, and an engine with numbers that are not positive or a bank
    count that is no power of two.
    """
    _check_engine(engine)
    if wanted.dtype != np.int32 or wanted.ndim != 2 or len(wanted) != matrix.num_dst:
        raise ValueError(
            f"wanted is {wanted.dtype} with shape {wanted.shape}; pass int32 with a row for each "
            f"of {matrix.num_dst} destinations."
        )
    if wanted.size and not 0 <= wanted.min() <= wanted.max() <= slice_features:
        raise ValueError(
            f"wanted holds {wanted.min()} to {wanted.max()}; a slice has {slice_features} features."
        )
    wanted = np.ascontiguousarray(wanted)
    row_words = -(-slice_features // WORD_FLOATS)
    cycles_of = piece_cycles(engine, slice_features)
    selected = (wanted @ np.ones(wanted.shape[1], dtype=np.int32) > 0).astype(np.uint8)
    compiled = load("spmm")
    if compiled is None:
        return reference.walk_chunks(
            matrix.indptr,
            matrix.indices,
            matrix.num_src,
            chunks,
            wanted,
            selected,
            cycles_of,
            engine,
            row_words,
        )
    # If filling bounds every piece, wanted features do not matter, and all slices equal the first.
    alike = bool((cycles_of == cycles_of[:, :1]).all())
    numbers, lane_cycles = compiled.walk_chunks(
        matrix.indptr,
        matrix.indices,
        matrix.num_src,
        chunks.tile_rows,
        chunks.first,
        chunks.begin,
        np.ascontiguousarray(wanted[:, :1]) if alike else wanted,
        selected,
        cycles_of.astype(np.int32),
        engine,
        row_words,
        engine.bank_groups(row_words),
    )
    if alike:
        lane_cycles = np.repeat(lane_cycles, wanted.shape[1], axis=1)
    return Steps(numbers[:, 0], numbers[:, 1], numbers[:, 2], numbers[:, 3], lane_cycles)


def overlap_steps(
    loads: IntArray, computes: IntArray, writes: IntArray, byte_ticks: int, cycle_ticks: int
) -> int:
    """Return the tick at which the last step ends, with double buffering, from tick 0 on.

    ``loads`` [bytes], ``computes`` [cycles] and ``writes`` [bytes] are int64, one value a step; a
    byte takes ``byte_ticks`` and a cycle ``cycle_ticks``. A step loads once the memory is free and
    the step two before it, which used its half of the buffers, is computed. It computes once it is
    loaded and the previous step is computed. Its outputs are written before the second next step is
    loaded. Times are whole numbers of any size. Raises ``ValueError`` for negative numbers and for
    arrays of different lengths.
    """
    steps = [np.ascontiguousarray(each, dtype=np.int64) for each in (loads, computes, writes)]
    if len({len(each) for each in steps}) > 1:
        raise ValueError(
            f"loads, computes and writes are {', '.join(str(len(each)) for each in steps)} long; "
            f"pass one value of each a step."
        )
    if min(byte_ticks, cycle_ticks, *(int(each.min(initial=0)) for each in steps)) < 0:
        raise ValueError("loads, computes, writes and ticks are counts; none may be negative.")
    compiled = load("spmm")
    overlap = reference.overlap_steps if compiled is None else compiled.overlap_steps
    return overlap(steps[0], steps[1], steps[2], byte_ticks, cycle_ticks)


def piece_cycles(engine: ReductionEngine, slice_features: int) -> IntArray:
    """Return a piece's cycles by edges and wanted features, int64 ``(edges + 1, features + 1)``.

    They are the longer of filling the local buffer and of the adders.
    """
    row_words = -(-slice_features // WORD_FLOATS)
    edges = np.arange(engine.piece_edges(row_words) + 1, dtype=np.int64)[:, None]
    features = np.arange(slice_features + 1, dtype=np.int64)
    fill = -(-edges * row_words // engine.fill_words)
    reduce = -(-edges * features // engine.lane_adders)
    cycles: IntArray = np.maximum(fill, reduce)
    return cycles


def _check_engine(engine: ReductionEngine) -> None:
    for name, value in dataclasses.asdict(engine).items():
        if value < 1:
            raise ValueError(f"the engine's {name} is {value}; it must be at least 1.")
    if engine.banks & (engine.banks - 1):
        raise ValueError(f"the engine's banks are {engine.banks}; they must be a power of two.")
