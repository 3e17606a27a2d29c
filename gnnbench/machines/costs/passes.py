"""The building blocks of libraries' operations, with their temporary tensors.

They are sums over edges, products, and passes over tensors.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from gnnbench.constants import Bound
from gnnbench.machines.costs.operation import (
    DotProducts,
    Gather,
    Operation,
    Product,
    ScalarLoop,
    Scatter,
    SerialLoop,
    Stream,
    Sum,
)
from gnnbench.records import AggregateWork, UpdateWork

#: Reads and writes of a library's UPDATE besides its product, in tensors of its output: forward
#: (read, written) and backward.
Passes = tuple[tuple[float, float], tuple[float, float]]
#: ReLU reads and writes its output; backward it reads the output and the gradient.
RELU: Bound[Passes] = ((1, 1), (2, 1))


def stream(read_bytes: float, written_bytes: float, launches: int = 1) -> Operation:
    """Return elementwise kernels over tensors."""
    return Stream(read_bytes=read_bytes, written_bytes=written_bytes, launches=launches)


def sum_rows(
    work: AggregateWork,
    index_bytes: float,
    *,
    weighted: bool = False,
    calls: int = 0,
    scalar: bool = False,
) -> Operation:
    """Return the sum of source rows over edges, without writing them first: a sparse product.

    In the backward pass destination rows are summed into source rows. ``weighted`` reads a value
    for each edge; ``scalar`` has no vector instructions.
    """
    row_bytes = float(work.features * work.itemsize)
    sources, rows = count_sources(work), work.rows
    if work.backward:
        sources, rows = rows, sources
    values = work.itemsize if weighted else 0.0
    kind = ScalarLoop if scalar else Sum
    return kind(
        read_bytes=work.edges * (index_bytes + values) + 8.0 * rows,
        written_bytes=rows * row_bytes,
        picked_rows=work.edges,
        distinct_rows=sources,
        row_bytes=row_bytes,
        flops=float(work.edges * work.features) * (2 if weighted and not scalar else 1),
        calls=calls,
        kept=None if work.order is None else partial(work.order.kept, backward=work.backward),
    )


def count_sources(work: AggregateWork) -> int:
    """Return the number of rows that AGGREGATE reads from, or else writes."""
    return work.sources or work.rows


def pick_rows(rows: float, distinct: float, row_bytes: float, index_bytes: float) -> Operation:
    """Return a gather of rows by their positions, written one after the other."""
    return Gather(
        read_bytes=rows * index_bytes,
        written_bytes=rows * row_bytes,
        picked_rows=rows,
        distinct_rows=distinct,
        row_bytes=row_bytes,
    )


def add_rows(rows: float, distinct: float, row_bytes: float, index_bytes: float) -> Operation:
    """Return a scatter-add of rows by their positions; each target row is read and written."""
    return Scatter(
        read_bytes=rows * (row_bytes + index_bytes),
        written_bytes=distinct * row_bytes,
        picked_rows=2 * rows,
        distinct_rows=distinct,
        row_bytes=row_bytes,
        flops=rows * row_bytes / 4,
    )


def weigh_edges(
    work: AggregateWork, row_bytes: float, index_bytes: float, *, scalar: bool = False
) -> tuple[Operation, ...]:
    """Return the dot products of the rows at both ends of each edge.

    They are the gradients of the edge weights. If edges are ordered by destination, the
    destination's row is in cache from the edge before.
    """
    values = work.edges * row_bytes / work.itemsize
    kind = DotProducts if scalar else Sum
    both = kind(
        read_bytes=2 * work.edges * index_bytes,
        written_bytes=work.edges * work.itemsize,
        picked_rows=2 * work.edges,
        distinct_rows=count_sources(work) + work.rows,
        row_bytes=row_bytes,
        flops=values if scalar else 2.0 * values,
    )
    if work.order is None:
        return (both,)
    again = Gather(picked_rows=work.edges, distinct_rows=1, row_bytes=row_bytes, launches=0)
    of_sources = replace(
        both, picked_rows=work.edges, distinct_rows=count_sources(work), kept=work.order.kept
    )
    return (of_sources, again)


def weigh_messages(work: AggregateWork, row_bytes: float) -> tuple[Operation, ...]:
    """Return the gradients of the edge weights if every message is a row in memory.

    Each message is multiplied with its gradient, and the product is then summed.
    """
    size = work.edges * row_bytes
    return (stream(2 * size, size), stream(size, work.edges * work.itemsize))


def attend(work: AggregateWork) -> tuple[Operation, ...]:
    """Return the two terms of attention's scores.

    They are products of the source rows, and of the destination rows, with a vector each. In the
    backward pass each term's gradient becomes rows. These are added to the existing gradients, and
    multiplied with the rows again.
    """
    row_bytes = float(work.features * work.itemsize)
    sizes = [rows * row_bytes for rows in (count_sources(work), work.rows)]
    if not work.backward:
        return (stream(sum(sizes), 0.0, launches=2),)
    made = [stream(0.0, size) for size in sizes]
    return (*made, stream(4 * sum(sizes), 0.0, launches=4))


def multiply(macs: float, rows: float, inner: float, outer: float, itemsize: int) -> Operation:
    """Return a product of ``rows`` by weights of ``inner`` by ``outer``."""
    return Product(
        read_bytes=rows * inner * itemsize,
        written_bytes=rows * outer * itemsize,
        flops=2.0 * macs,
        width=max(1.0, min(inner, outer)),
    )


def multiply_back(
    macs: float, rows: float, inner: float, outer: float, itemsize: int, products: int
) -> tuple[Operation, ...]:
    """Return the backward pass of ``multiply``.

    It multiplies the rows by the output's gradients, for the weights. Unless ``products`` is one,
    the gradients times the weights follow, for the rows.
    """
    once = multiply(macs, rows, outer, inner, itemsize)
    of_weights = replace(
        once,
        read_bytes=rows * (inner + outer) * itemsize,
        written_bytes=inner * outer * itemsize,
    )
    return (of_weights, *(once,) * (products - 1))


def count_stored(work: AggregateWork) -> float:
    """Return the stored values of sparse rows that a layer multiplies before it aggregates.

    They are 0 for dense rows.
    """
    return work.macs / work.features if work.product.columns else 0.0


def multiply_stored(work: AggregateWork, rows: int) -> Operation:
    """Return the product of ``rows`` sparse rows.

    For each stored value a row of W is gathered and summed; in the backward pass it is a row of the
    gradient.
    """
    values, row_bytes = count_stored(work), float(work.features * work.itemsize)
    columns = work.product.columns
    picked, made = (rows, columns) if work.backward else (columns, rows)
    return Sum(
        read_bytes=values * (4 + work.itemsize) + 8.0 * made,
        written_bytes=made * row_bytes,
        picked_rows=values,
        distinct_rows=picked,
        row_bytes=row_bytes,
        flops=2.0 * work.macs,
    )


def project(work: AggregateWork) -> tuple[Operation, ...]:
    """Return the products of a layer that multiplies before it aggregates, forward or backward.

    The backward pass is for the weights and, if they have gradients, the rows.
    """
    macs, products, columns = work.product
    if not macs:
        return ()
    rows = count_sources(work)
    if columns:
        return (multiply_stored(work, rows),)
    inner = max(1.0, macs / max(1, rows * work.features))
    if work.backward:
        return multiply_back(macs, rows, inner, work.features, work.itemsize, products)
    return (multiply(macs, rows, inner, work.features, work.itemsize),)


def count_degrees(rows: float, *, serial: bool = False) -> Operation:
    """Return the count of in-degrees of ``rows``, written as values; ``serial`` on one core."""
    size = 8.0 * rows
    return SerialLoop(size, size, flops=rows) if serial else stream(size, size)


def _pass_over(work: UpdateWork, read: float, written: float) -> Operation:
    """Return ``read`` reads and ``written`` writes of UPDATE's output."""
    size = float(work.rows * work.features * work.itemsize)
    passed = stream(read * size, written * size, launches=round(read))
    return replace(passed, outputs=round(written))


def update(work: UpdateWork, passes: Passes, hidden: Passes) -> tuple[Operation, ...]:
    """Return UPDATE: its products and ``passes`` over its output.

    A layer that ends with ReLU adds the ``hidden`` passes, which are in place. Without a product
    the bias takes a separate pass, and its gradient is the sum over one.
    """
    read, written = passes[work.backward]
    if not work.macs:
        read, written = max(read, 1.0), max(written, 0.0 if work.backward else 1.0)
    passed = [_pass_over(work, read, written)]
    if work.relu:
        relu = _pass_over(work, *hidden[work.backward])
        passed.append(relu if work.backward else replace(relu, outputs=0))
    passed = [each for each in passed if each.read_bytes]
    if not work.macs:
        return tuple(passed)
    products = work.products if work.backward else 1
    macs = work.macs / products
    inner, outer = max(1.0, macs / max(1, work.rows * work.features)), work.features
    if work.backward:
        made = multiply_back(macs, work.rows, inner, outer, work.itemsize, products)
        return (*made, *passed)
    return (multiply(macs, work.rows, inner, outer, work.itemsize), *passed)


def soften(
    work: AggregateWork, index_bytes: float, passes: int, *, scalar: bool = False
) -> tuple[Operation, ...]:
    """Return the scores of edges from terms of both ends, LeakyReLU, and the softmax.

    They take ``passes`` over the edges' values, and half as many more in the backward pass.
    ``scalar`` kernels have no vector instructions.
    """
    edges, item = float(work.edges), float(work.itemsize)
    terms = pick_rows(edges, count_sources(work) + work.rows, item, index_bytes)
    count = passes * 3 // 2 if work.backward else passes
    size = count * edges * item
    if scalar:
        return (terms, terms, ScalarLoop(size, size, flops=count * edges, launches=count))
    return (terms, terms, stream(size, size, launches=count))
