"""Edge lists: two ids of vertices on each line, integers or names, and perhaps a weight."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from gnnbench.datasets.content import WEIGHTS_IGNORED
from gnnbench.datasets.parquet_files import ParquetTable, is_parquet
from gnnbench.datasets.tables import (
    DELIMITERS,
    SOURCES,
    TARGETS,
    WEIGHTS,
    Grammar,
    Table,
    cells_of,
    find_grammar,
    is_number,
    is_whole,
    plain_word,
    read_columns,
)
from gnnbench.datasets.topology import AnyArray
from gnnbench.errors import DatasetError

_AN_EDGE = "an edge of two integer ids (--string-ids takes names)"
_NAMED_EDGE = "an edge of two names"


@dataclass(frozen=True, slots=True)
class EdgeList:
    """How an edge list is to be read: its table, and which columns have what.

    ``weight`` is None where no weights are to be read; ``notes`` say what was found.
    """

    table: Table
    source: int
    target: int
    weight: int | None
    names: bool
    notes: tuple[str, ...]

    @property
    def a_line(self) -> str:
        """The name of a line in sentences."""
        edge = _NAMED_EDGE if self.names else _AN_EDGE
        return edge if self.weight is None else f"{edge} with a weight"

    @property
    def kinds(self) -> dict[int, type]:
        """The columns to read, in the order of source, target and weight."""
        kind = str if self.names else int
        weight: dict[int, type] = {} if self.weight is None else {self.weight: float}
        return {self.source: kind, self.target: kind} | weight

    def describe(self) -> str:
        """Return how the table is understood, as a sentence without a full stop."""
        weight = "" if self.weight is None else f", weights in {self.weight + 1}"
        what = f"a Parquet table of edges: {self.table.width} columns"
        if isinstance(self.table, Grammar):
            divider = DELIMITERS[self.table.delimiter]
            what = f"a text of edges: {self.table.width} columns divided by {divider}"
        ends = f"sources in column {self.source + 1}, destinations in {self.target + 1}"
        return f"{what}, {ends}{weight}"


def find_edge_list(
    file: Path,
    *,
    names: bool = False,
    weighted: bool = False,
    delimiter: str | None = None,
    heading: bool | None = None,
) -> EdgeList:
    """Find out how a text of edges is to be read.

    ``heading`` says whether the first line is a heading. By default, a line without integer ids
    above a line with them is one; with ``names``, a line with usual names of columns is. Such names
    also say which columns are source and target. Raises :class:`DatasetError` for a text that is no
    edge list.
    """
    what = (_NAMED_EDGE if names else _AN_EDGE) + (" with a weight" if weighted else "")
    least, numbers = 3 if weighted else 2, 0 if names else 2
    table: Table
    if is_parquet(file):
        table = ParquetTable.find(file)
        if delimiter is not None or heading is not None or table.width < least:
            raise DatasetError(
                f"{file}: this is a Parquet table, whose {table.width} columns have names; leave "
                f"out --delimiter and --heading, and give {what} in each row."
            )
        cells = table.heading
    else:
        table = find_grammar(file, least, what, numbers=numbers, delimiter=delimiter)
        cells = tuple(table.head[0])
    words = [plain_word(cell) for cell in cells]
    known = not SOURCES.isdisjoint(words) and not TARGETS.isdisjoint(words)
    notes: list[str] = []
    if isinstance(table, Grammar):
        if heading is None:
            headed = not any(map(is_number, cells[:2]))
            whole = all(map(is_whole, cells_of(table.head[1:], 2)))
            heading = known if names else headed and (known or whole)
        if heading:
            table = table.with_heading()
            notes.append(f"the first line was read as a heading: {', '.join(cells)[:60]}")
    source, target = 0, 1
    named = []
    if table.heading:
        if known:
            source = next(n for n, word in enumerate(words) if word in SOURCES)
            target = next(n for n, word in enumerate(words) if word in TARGETS)
        named = [n for n, word in enumerate(words) if word in WEIGHTS]
    others = [n for n in range(table.width) if n not in (source, target)]
    weight = next(iter([*named, *others]), None) if weighted else None
    if others and not weighted:
        notes.append(f"{WEIGHTS_IGNORED}: columns beside the two ids were not read")
    return EdgeList(table, source, target, weight, names, tuple(notes))


def read_edges(found: EdgeList) -> Iterator[AnyArray]:
    """Yield the ends of edges in the order of the file, ids or names ``(n, 2)``.

    Raises :class:`DatasetError` for a line that is no edge.
    """
    for piece in read_columns(found.table, found.kinds, found.a_line):
        yield np.stack((piece[found.source], piece[found.target]), axis=1)


def note_doubts(found: EdgeList, pairs: AnyArray) -> tuple[str, ...]:
    """Return notes of what the first line may have been instead of an edge.

    Raises :class:`DatasetError` where the list is rather a graph as METIS writes it.
    """
    table = found.table
    if table.heading or len(pairs) < 2:
        return ()
    one, other = pairs[0].tolist()
    if found.names:
        rest = pairs[1:]
        if not ((rest == one) | (rest == other)).any():
            return (
                f"the first line, {one} and {other}, was read as an edge; if it is a heading, say "
                f"so (--heading)",
            )
        return ()
    rows = len(pairs) - 1
    if (one, other) == (rows, rows) and table.width == 2 and _is_mutual(pairs[1:]):
        raise DatasetError(
            f"{table.file}: this is a METIS graph, not an edge list, because its first line has "
            f"the numbers of vertices and edges. Import it under the ending .graph."
        )
    if other == rows and int(pairs[1:].max()) <= one:
        return (
            f"the first line, {one:,} and {other:,}, was read as an edge; give --heading if it has "
            f"the numbers of vertices and edges",
        )
    return ()


def _is_mutual(neighbours: AnyArray) -> bool:
    """Return whether lines of neighbours, of vertices 1, 2, ..., name each edge at both ends."""
    count = len(neighbours)
    listed = neighbours.astype(np.int64)
    if neighbours.min() < 1 or neighbours.max() > count:
        return False
    rows = np.repeat(np.arange(1, count + 1), 2)
    there = rows * (count + 1) + listed.reshape(-1)
    back = listed.reshape(-1) * (count + 1) + rows
    return bool((np.sort(there) == np.sort(back)).all())
