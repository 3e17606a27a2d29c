"""Texts in columns: lists of edges, and what files have of each vertex.

A text is read only if every line fits one grammar. It has one delimiter and one number of columns.
Comments (``#`` and ``%``) stand on their own lines. Cells that contain the delimiter are quoted. At
most one line is a heading. pyarrow parses a text in pieces of whole lines, so that it may be larger
than memory. A Parquet table stands for a text with a heading.
"""

from __future__ import annotations

import contextlib
import csv
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import NoReturn

import numpy as np

from gnnbench.datasets.memory import check_memory
from gnnbench.datasets.parquet_files import ParquetTable
from gnnbench.datasets.sorting import work_ahead
from gnnbench.datasets.texts import EDGES, readable, text_pieces
from gnnbench.datasets.topology import AnyArray
from gnnbench.errors import DatasetError, reason_of
from gnnbench.host.progress import doing

#: Delimiters in the order in which they are tried; a blank stands for any number of them.
DELIMITERS = {"\t": "tab", ",": "comma", ";": "semicolon", "|": "pipe", " ": "blank"}
#: What columns of edge lists are called, without letters' case, blanks, ``_`` and ``-``.
SOURCES = frozenset(
    (
        *("source", "src", "from", "fromnode", "fromnodeid", "fromid", "sourceid", "sourcenode"),
        *("sourcenodeid", "head", "u", "node1", "nodeid1", "id1", "vertex1", "name1", "subject"),
        "citing",
    )
)
TARGETS = frozenset(
    (
        *("target", "dst", "dest", "destination", "to", "tonode", "tonodeid", "toid", "targetid"),
        *("targetnode", "targetnodeid", "tail", "v", "node2", "nodeid2", "id2", "vertex2", "name2"),
        *("object", "cited"),
    )
)
WEIGHTS = frozenset(("weight", "weights", "w", "value"))
#: What the first column of a file of vertices is called.
VERTICES = frozenset(("id", "node", "nodeid", "vertex", "vertexid", "name", "index"))
#: How much of a text tells its grammar.
_SAMPLE_LINES, _HEAD_BYTES = 200, 1 << 16
#: No line that holds an edge is as long.
_LONGEST_LINE = 1 << 20
_WHOLE = re.compile(r"[+-]?[0-9]+")
#: pyarrow reads these as whole numbers.
_COMMENT = re.compile(rb"(?m)^[ \t]*[#%][^\n]*")
_BLANKS = re.compile(rb"[ \t]+")
_EDGES_OF_BLANKS = re.compile(rb"(?m)^ +| +$")
_LINES_OF_BLANKS = re.compile(rb"(?m)^[ \t]+$")


#: By what other files begin with, what they are: none of them is a text in columns.
_BEGINNINGS = {
    b"\x93NUMPY": "a NumPy array (.npy)",
    b"PK\x03\x04": "a zip archive (.npz or .pt)",
    b"\x1f\x8b": "compressed by gzip (.gz)",
    b"BZh": "compressed by bzip2 (.bz2)",
    b"\xfd7zXZ": "compressed by xz (.xz)",
    b"\x28\xb5\x2f\xfd": "compressed by Zstandard (.zst)",
    b"PAR1": "a Parquet table (.parquet)",
    b"\x89HDF": "an HDF5 file, which is not read",
    b"MATLAB": "a MATLAB file (.mat)",
    b"%%MatrixMarket": "a Matrix Market file (.mtx)",
    b"<?xml": "an XML file (.graphml or .gexf)",
    b"<graphml": "a GraphML file (.graphml)",
    b"\x80": "a pickle, which is not read since it could run code",
    b"{": "JSON, which is not read",
    b"[": "JSON, which is not read",
}


@dataclass(frozen=True, slots=True)
class Grammar:
    """How a text is to be read: its delimiter, how many columns there are, and its first two rows.

    ``heading_line`` is the number of a line that is left out, and ``heading`` has the cells of a
    heading, or none. ``remedy`` names the formats that can be given instead.
    """

    file: Path
    delimiter: str
    width: int
    head: tuple[Sequence[str], ...] = ()
    first_line: int = 0
    heading: tuple[str, ...] = ()
    heading_line: int = 0
    remedy: str = EDGES

    def with_heading(self) -> Grammar:
        """Return the same, with the first line as a heading."""
        return replace(self, heading=tuple(self.head[0]), heading_line=self.first_line)


Table = Grammar | ParquetTable


def plain_word(cell: str) -> str:
    """Return a column's name as the sets of names above have it."""
    return re.sub(r"[\s_\-]+", "", cell.strip().lower())


def is_whole(cell: str) -> bool:
    """Return whether a cell is a whole number that int64 holds."""
    text = cell.strip()
    return bool(_WHOLE.fullmatch(text)) and -(2**63) <= int(text) < 2**63


def find_grammar(
    file: Path,
    least: int,
    what: str,
    *,
    numbers: int,
    delimiter: str | None = None,
    remedy: str = EDGES,
    undivided: bool = False,
) -> Grammar:
    """Return how the lines of a text are divided; no heading has been looked for.

    ``least`` columns are needed for ``what`` a line is to be, and the first ``numbers`` hold whole
    numbers. ``undivided`` lines, with one column by every delimiter, may be accepted too. Raises
    :class:`DatasetError` for a text without data, and where no delimiter or several fit the first
    lines.
    """
    lines = _read_head(file, remedy)
    if not lines:
        raise DatasetError(f"{file}: it has no lines of data; give {what} on each line.")
    if undivided and all(len(split_line(line, d)) == 1 for _, line in lines for d in DELIMITERS):
        head = tuple(split_line(line, ",") for _, line in lines[:2])
        return Grammar(file, ",", 1, head, lines[0][0], remedy=remedy)
    fits = {}
    for choice in DELIMITERS if delimiter is None else (delimiter,):
        rows = [split_line(line, choice) for _, line in lines]
        widths = set(map(len, rows))
        if len(widths) == 1 and min(widths) >= least:
            fits[choice] = rows
    # The first line may be a heading.
    whole = [d for d, rows in fits.items() if all(map(is_whole, cells_of(rows[1:], numbers)))]
    fitting = whole if numbers and whole else list(fits)
    chosen = [d for d in fitting if d != " "] or fitting
    if len(chosen) > 1:
        names = ", ".join(DELIMITERS[each] for each in chosen)
        raise DatasetError(
            f"{file}: its columns may be divided by {names}; say which (--delimiter)."
        )
    if chosen:
        rows = fits[chosen[0]]
        return Grammar(file, chosen[0], len(rows[0]), (*rows[:2],), lines[0][0], remedy=remedy)
    choice = delimiter or next(
        (each for each in DELIMITERS if len(split_line(lines[0][1], each)) >= least), " "
    )
    width = len(split_line(lines[0][1], choice))
    for number, line in lines:
        found = len(split_line(line, choice))
        if width < least or found != width:
            refuse_line(file, number, line, found, max(width, least), what)
    raise AssertionError("the lines have one number of columns")


def cells_of(rows: Sequence[Sequence[str]], count: int) -> Iterator[str]:
    """Yield the first ``count`` cells of each row."""
    for row in rows:
        yield from row[:count]


def refuse_line(file: Path, number: int, line: str, found: int, width: int, what: str) -> NoReturn:
    """Raise :class:`DatasetError` for a line that does not have ``width`` columns."""
    raise DatasetError(
        f"{file}, line {number}: {line[:60]!r} is not {what}: it has {found} "
        f"column{'s' * (found != 1)} where {width} are expected. Give as many on each line, begin "
        f"comments with #, or import another format under its own ending."
    )


def _read_head(file: Path, remedy: str) -> list[tuple[int, str]]:
    """Return the first lines that hold data, each with its number in the file."""
    lines: list[tuple[int, str]] = []
    with readable(file, remedy):
        for number, piece in text_pieces(file, _HEAD_BYTES):
            if number == 1:
                _refuse_others(file, piece, remedy)
            for at, line in enumerate(_clean(file, piece, remedy).splitlines(), number):
                if len(line) > _LONGEST_LINE:
                    raise DatasetError(
                        f"{file}: line {at:,} is longer than {_LONGEST_LINE:,} bytes; give two "
                        f"vertex ids a line."
                    )
                if line.strip():
                    lines.append((at, line.decode("utf-8").strip(" ")))
            if len(lines) >= _SAMPLE_LINES:
                break
    return lines[:_SAMPLE_LINES]


def _refuse_others(file: Path, piece: bytes, remedy: str) -> None:
    """Refuse what is no text in columns, and say what it is."""
    begins = piece[:32].removeprefix(b"\xef\xbb\xbf").lstrip()
    for beginning, what in _BEGINNINGS.items():
        if begins.startswith(beginning):
            raise DatasetError(
                f"{file}: this is {what}, not a text in columns; give it the ending of its format, "
                f"or give {remedy}."
            )


def split_line(line: str, delimiter: str) -> list[str]:
    """Return the cells of a line, without quotes and the blanks around them."""
    if delimiter == " ":
        return line.split()
    try:
        cells = next(csv.reader([line], delimiter=delimiter, skipinitialspace=True), [])
    except csv.Error:
        return []
    return [cell.strip() for cell in cells]


def _clean(file: Path, piece: bytes, remedy: str) -> bytes:
    """Return the lines of a piece, in UTF-8 and with comments emptied; their number stays."""
    if b"\0" in piece:
        raise DatasetError(
            f"{file}: this is not a readable text file (it has bytes of zero); give {remedy}."
        )
    if not piece.isascii():
        piece = piece.removeprefix(b"\xef\xbb\xbf")
        piece.decode("utf-8")
    if b"\r" in piece:
        piece = piece.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    if b"#" in piece or b"%" in piece:
        piece = _COMMENT.sub(b"", piece)
    return piece


def _tidy(lines: bytes, delimiter: str) -> bytes:
    """Strip the blanks of lines, and where blanks divide columns, leave one between two of them."""
    if delimiter != " ":
        return _LINES_OF_BLANKS.sub(b"", lines)
    if b"\t" in lines or b"  " in lines:
        lines = _BLANKS.sub(b" ", lines)
    if lines.startswith(b" ") or b"\n " in lines or b" \n" in lines or lines.endswith(b" "):
        lines = _EDGES_OF_BLANKS.sub(b"", lines)
    return lines


def read_columns(
    table: Table, kinds: Mapping[int, type], what: str
) -> Iterator[Mapping[int, AnyArray]]:
    """Yield some columns of a table, piece by piece, each as ``int``, ``float`` or ``str``.

    Raises :class:`DatasetError` for the first line that has another number of columns, or a cell
    that is empty or no number where one is expected.
    """
    if isinstance(table, ParquetTable):
        yield from table.read(kinds)
        return
    with readable(table.file, table.remedy):
        read = partial(_read_piece, table, kinds, what)
        yield from filter(None, work_ahead(read, text_pieces(table.file)))


def _read_piece(
    grammar: Grammar, kinds: Mapping[int, type], what: str, piece: tuple[int, bytes]
) -> Mapping[int, AnyArray]:
    """Return columns of a piece of a text, which begins with that line; none of an empty one."""
    import pyarrow

    number, lines = piece[0], _clean(grammar.file, piece[1], grammar.remedy)
    if number <= grammar.heading_line < number + lines.count(b"\n") + 1:
        kept = lines.split(b"\n")
        kept[grammar.heading_line - number] = b""
        lines = b"\n".join(kept)
    if not lines or lines.isspace():
        return {}
    if int in kinds.values() and (b"0x" in lines or b"0X" in lines):
        _find_fault(grammar, lines, number, kinds, what)
    # pyarrow skips the blanks beside a number. A line of blanks has none, and is no line to it.
    numbers = sum(kind is not str for kind in kinds.values())
    if numbers >= (grammar.width if grammar.delimiter == " " else 1):
        with contextlib.suppress(pyarrow.ArrowInvalid):
            return _parse(grammar, lines, kinds)
    lines = _tidy(lines, grammar.delimiter)
    try:
        return _parse(grammar, lines, kinds)
    except pyarrow.ArrowInvalid as error:
        _find_fault(grammar, lines, number, kinds, what)
        raise DatasetError(
            f"{grammar.file}: this is not a table that can be read ({reason_of(error)}); give "
            f"{what} on each line."
        ) from error


def _parse(grammar: Grammar, lines: bytes, kinds: Mapping[int, type]) -> Mapping[int, AnyArray]:
    """Return columns of lines; ``ArrowInvalid`` for lines that do not fit and for empty cells."""
    import pyarrow
    from pyarrow import compute
    from pyarrow import csv as arrow

    types = {int: pyarrow.int64(), float: pyarrow.float64(), str: pyarrow.string()}
    names = [str(column) for column in range(grammar.width)]
    table = arrow.read_csv(
        pyarrow.BufferReader(lines),
        # One block, so that nothing has to be put together again; other threads read other pieces.
        arrow.ReadOptions(column_names=names, use_threads=False, block_size=len(lines) + 1),
        arrow.ParseOptions(
            delimiter=grammar.delimiter,
            quote_char=False if grammar.delimiter == " " else '"',
        ),
        arrow.ConvertOptions(
            column_types={str(column): types[kind] for column, kind in kinds.items()},
            include_columns=[str(column) for column in kinds],
            null_values=[""],
            strings_can_be_null=True,
            quoted_strings_can_be_null=True,
        ),
    )
    found: dict[int, AnyArray] = {}
    for column, kind in kinds.items():
        held = table.column(str(column))
        if kind is str:
            held = compute.utf8_trim_whitespace(held)
        if held.null_count:
            raise pyarrow.ArrowInvalid("a cell is empty")
        found[column] = np.asarray(held.to_numpy(), dtype=np.str_ if kind is str else kind)
    return found


def _find_fault(
    grammar: Grammar, lines: bytes, number: int, kinds: Mapping[int, type], what: str
) -> None:
    """Raise :class:`DatasetError` for the first line that does not fit."""
    for at, text in enumerate(lines.decode("utf-8").split("\n"), number):
        if not text.strip():
            continue
        cells = split_line(text, grammar.delimiter)
        if len(cells) != grammar.width:
            refuse_line(grammar.file, at, text, len(cells), grammar.width, what)
        for column, kind in kinds.items():
            if not cells[column]:
                fault = "has an empty cell"
            elif kind is int and not is_whole(cells[column]):
                fault = f"has {cells[column][:40]!r}, which is no whole number of 64 bits,"
            elif kind is float and not is_number(cells[column]):
                fault = f"has {cells[column][:40]!r}, which is no number"
            else:
                continue
            raise DatasetError(
                f"{grammar.file}, line {at}: {text[:60]!r} is not {what}: it {fault} in column "
                f"{column + 1}."
            )


def is_number(cell: str) -> bool:
    """Return whether a cell is a number, as Python's float reads it, without underscores."""
    try:
        float(cell)
    except ValueError:
        return False
    return "_" not in cell


def read_whole(
    table: Table, kinds: Mapping[int, type], what: str, row_bytes: int
) -> dict[int, AnyArray]:
    """Return some columns of a table, whole, of which each row takes ``row_bytes`` at the peak.

    Raises :class:`DatasetError` as :func:`read_columns` does, and for a table without rows. A table
    that is too large for this machine is refused while it is read: a few kilobytes of a compressed
    file can hold gigabytes.
    """
    pieces, rows = [], 0
    with doing(f"reading {table.file.name}"):
        for piece in read_columns(table, kinds, what):
            pieces.append(piece)
            rows += len(piece[min(kinds)])
            check_memory(str(table.file), f"its first {rows:,} rows", row_bytes * rows)
    if not rows:
        raise DatasetError(f"{table.file}: it has no lines of data; give {what} on each line.")
    return {column: np.concatenate([each[column] for each in pieces]) for column in kinds}
