"""Edge lists: two ids of vertices on each line, integers or names, and perhaps a weight."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

import numpy as np

from gnnbench.datasets.content import WEIGHTS_IGNORED
from gnnbench.datasets.tables import (
    DELIMITERS,
    SOURCES,
    TARGETS,
    WEIGHTS,
    Grammar,
    data_lines,
    find_grammar,
    is_number,
    is_whole,
    plain_word,
    read_columns,
    split_line,
)
from gnnbench.datasets.topology import AnyArray
from gnnbench.errors import DatasetError

_AN_EDGE = "an edge of two integer ids (--string-ids takes names)"
_NAMED_EDGE = "an edge of two names"


@dataclass(frozen=True, slots=True)
class EdgeList:
    """How an edge list is to be read: its grammar, and which columns have what.

    ``weight`` is None where no weights are to be read; ``notes`` say what was found.
    """

    grammar: Grammar
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

    def describe(self) -> str:
        """Return how the text is understood, as a sentence without a full stop."""
        weight = "" if self.weight is None else f", weights in {self.weight + 1}"
        return (
            f"a text of edges: {self.grammar.width} columns divided by "
            f"{DELIMITERS[self.grammar.delimiter]}, sources in column {self.source + 1}, "
            f"destinations in {self.target + 1}{weight}"
        )


def find_edge_list(
    file: Path,
    *,
    names: bool = False,
    weighted: bool = False,
    delimiter: str | None = None,
    heading: bool | None = None,
) -> EdgeList:
    """Return how a text of edges is to be read.

    ``heading`` says whether the first line is one. By default it is a heading if its ids are no
    integers and those of the next line are. Of ``names`` it is one if it has usual names of
    columns. A heading with such names also says which columns are source and target.

    Raises :class:`DatasetError` for a text that is no edge list.
    """
    what = (_NAMED_EDGE if names else _AN_EDGE) + (" with a weight" if weighted else "")
    grammar = find_grammar(
        file, 3 if weighted else 2, what, numbers=0 if names else 2, delimiter=delimiter
    )
    first, second = [*islice(data_lines(file), 2), None][:2]
    assert first is not None
    number, line = first
    cells = split_line(line, grammar.delimiter)
    words = [plain_word(cell) for cell in cells]
    known = not SOURCES.isdisjoint(words) and not TARGETS.isdisjoint(words)
    if heading is None:
        headed = not any(map(is_number, cells[:2]))
        after = [] if second is None else split_line(second[1], grammar.delimiter)
        heading = known if names else headed and (known or all(map(is_whole, after[:2])))
    notes: list[str] = []
    source, target, weight = 0, 1, 2 if grammar.width > 2 else None
    if heading:
        grammar = replace(grammar, heading=tuple(cells), heading_line=number)
        notes.append(f"the first line was read as a heading: {', '.join(cells)[:60]}")
        if known:
            source = next(n for n, word in enumerate(words) if word in SOURCES)
            target = next(n for n, word in enumerate(words) if word in TARGETS)
        named = [n for n, word in enumerate(words) if word in WEIGHTS]
        others = [n for n in range(grammar.width) if n not in (source, target)]
        weight = named[0] if named else others[0] if others else None
    left_out = grammar.width - 2 - (weighted and weight is not None)
    if left_out and not weighted:
        notes.append(f"{WEIGHTS_IGNORED}: columns beside the two ids were not read")
    return EdgeList(grammar, source, target, weight if weighted else None, names, tuple(notes))


def read_edges(found: EdgeList) -> Iterator[tuple[AnyArray, AnyArray | None]]:
    """Yield the ends of edges, ``(n, 2)``, int64 or names, and weights, float64 ``(n,)``, in the
    order of the file.

    Raises :class:`DatasetError` for a line that is no edge.
    """
    kind = str if found.names else int
    kinds: dict[int, type] = {found.source: kind, found.target: kind}
    if found.weight is not None:
        kinds[found.weight] = float
    for piece in read_columns(found.grammar, kinds, found.a_line):
        ends = np.stack((piece[found.source], piece[found.target]), axis=1)
        yield ends, None if found.weight is None else piece[found.weight]


def note_doubts(found: EdgeList, pairs: AnyArray) -> tuple[str, ...]:
    """Return notes of what the first line may have been instead of an edge.

    Raises :class:`DatasetError` where the list is rather a graph as METIS writes it.
    """
    grammar = found.grammar
    if grammar.heading or len(pairs) < 2:
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
    if (one, other) == (rows, rows) and grammar.width == 2 and _is_mutual(pairs[1:]):
        raise DatasetError(
            f"{grammar.file}: this is a graph as METIS writes it, not an edge list: its first line "
            f"has the numbers of vertices and edges; import it under the ending .graph."
        )
    if other == rows and int(pairs[1:].max()) <= one:
        return (
            f"the first line, {one:,} and {other:,}, was read as an edge; if it has the numbers of "
            f"vertices and edges, say that it is a heading (--heading)",
        )
    return ()


def _is_mutual(neighbours: AnyArray) -> bool:
    """Whether lines of two neighbours each, of vertices 1, 2, ..., name each edge at both ends."""
    count = len(neighbours)
    listed = neighbours.astype(np.int64)
    if neighbours.min() < 1 or neighbours.max() > count:
        return False
    rows = np.repeat(np.arange(1, count + 1), 2)
    there = rows * (count + 1) + listed.reshape(-1)
    back = listed.reshape(-1) * (count + 1) + rows
    return bool((np.sort(there) == np.sort(back)).all())
