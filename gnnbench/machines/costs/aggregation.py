"""AGGREGATE of a library as operations: its sums, and its further passes over tensors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated

from gnnbench.constants import Bound, Constant
from gnnbench.machines.costs.operation import Operation
from gnnbench.machines.costs.passes import (
    Passes,
    add_rows,
    attend,
    count_degrees,
    count_sources,
    pick_rows,
    project,
    soften,
    stream,
    sum_rows,
    weigh_edges,
    weigh_messages,
)
from gnnbench.records import AggregateWork, Form

_NOTHING: Bound[Passes] = ((0, 0), (0, 0))


@dataclass(frozen=True, slots=True)
class Aggregation:
    """The way in which a library aggregates.

    Sums of the forms in ``weighted`` read a value for each edge. With ``messages`` every edge's row
    is written to memory and then added to its destination. With ``trained_messages`` this holds
    only for trained weights. Messages take memory too (``Kernel.shape_of``). ``of_rows`` are, by
    form, the forward and backward reads and writes of tensors of destination rows, to scale, add or
    concatenate the own rows. ``of_sources`` are those of source rows. The softmax of attention
    makes ``softmax_passes`` passes over values of edges. For forms in ``counted`` each forward pass
    counts the in-degrees anew. ``calls`` is the number of calls of the library's Python front end
    in a forward pass, and ``attention_calls`` the number in one of attention.
    """

    index_bytes: float
    weighted: frozenset[Form] = frozenset({"scaled"})
    messages: bool = False
    trained_messages: bool = False
    of_rows: Mapping[Form, Passes] = field(default_factory=dict)
    of_sources: Mapping[Form, Passes] = field(default_factory=dict)
    softmax_passes: Annotated[
        int, Constant("", "assumed", "what edge softmax of torch reads and writes")
    ] = 10
    counted: frozenset[Form] = frozenset()
    calls: int = 0
    attention_calls: int = 0

    def list_operations(
        self, work: AggregateWork, *, scalar: bool = False
    ) -> tuple[Operation, ...]:
        """Return the operations of one AGGREGATE.

        With ``scalar`` the device's kernels have no vector instructions for weighted sums, for
        values of edges, and for dot products of their end rows. One core alone then counts degrees.
        """
        if work.form == "gated":
            return tuple(self._gate(work))
        return tuple(self._sum(work, scalar))

    def _sum(self, work: AggregateWork, scalar: bool) -> Iterator[Operation]:
        row_bytes = float(work.features * work.itemsize)
        yield from project(work)
        attends = work.form == "attention"
        if attends:
            yield from attend(work)
            yield from soften(work, self.index_bytes, self.softmax_passes, scalar=scalar)
        weighted = attends or work.weighted or work.form in self.weighted | {"weighted"}
        sends = self.messages or (attends and self.trained_messages)
        if sends:
            yield from self._send_messages(work, row_bytes, weighted)
        else:
            yield sum_rows(
                work,
                self.index_bytes,
                weighted=weighted,
                calls=self._count_calls(work),
                scalar=scalar and weighted,
            )
        if attends and work.backward:
            if sends:
                yield from weigh_messages(work, row_bytes)
            else:
                # New weights are permuted into the order of the transpose.
                yield pick_rows(work.edges, work.edges, work.itemsize, self.index_bytes)
                yield from weigh_edges(work, row_bytes, self.index_bytes, scalar=scalar)
        if work.form in self.counted and not work.backward:
            yield count_degrees(work.rows, serial=scalar)
        for rows, of_form in ((work.rows, self.of_rows), (count_sources(work), self.of_sources)):
            read, written = of_form.get(work.form, _NOTHING)[work.backward]
            if read:
                size = rows * row_bytes
                yield stream(read * size, written * size, launches=max(1, round(written)))

    def _count_calls(self, work: AggregateWork) -> int:
        if work.backward:
            return 0
        return (work.form == "attention" and self.attention_calls) or self.calls

    def _send_messages(
        self, work: AggregateWork, row_bytes: float, weighted: bool
    ) -> Iterator[Operation]:
        sources, rows = count_sources(work), work.rows
        if work.backward:
            sources, rows = rows, sources
        size = work.edges * row_bytes
        yield pick_rows(work.edges, sources, row_bytes, self.index_bytes)
        if weighted:
            yield stream(size, size)
        added = add_rows(work.edges, rows, row_bytes, self.index_bytes)
        yield replace(added, calls=self._count_calls(work))

    def _gate(self, work: AggregateWork) -> Iterator[Operation]:
        """Yield the gather of three rows of every edge, and the passes for gate and message."""
        yield from project(work._replace(form="plain"))
        row_bytes = work.features * work.itemsize / 3.0
        size = work.edges * row_bytes
        sources = count_sources(work)
        for _ in range(3):
            yield pick_rows(work.edges, sources, row_bytes, self.index_bytes)
        count = 8 if work.backward else 4
        yield stream((count + 1) * size, count * size + work.rows * row_bytes, launches=count)
