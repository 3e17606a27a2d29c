"""Texts of people, perhaps compressed: read line by line, and within bounds."""

from __future__ import annotations

import bz2
import contextlib
import gzip
import lzma
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO, cast

from gnnbench.datasets.memory import find_available_bytes
from gnnbench.errors import DatasetError
from gnnbench.files import FileRefused, open_input
from gnnbench.units import format_si

#: What an edge takes at the peak: its ids, sorted, numbered anew and made symmetric.
BYTES_PER_EDGE = 120
_PIECE_BYTES = 1 << 24
#: Without an end of line; lines that end in a carriage return alone are in one piece.
_LONGEST_REST = 1 << 26
_OPENERS: dict[str, Callable[[BinaryIO], object]] = {
    ".gz": gzip.open,
    ".bz2": bz2.open,
    ".xz": lzma.open,
}
#: What the readers of a text raise where it is damaged.
UNREADABLE = (OSError, EOFError, zlib.error, lzma.LZMAError, UnicodeDecodeError)
#: The formats of a graph.
EDGES = "an edge list, .mtx, .npz, .npy or .pt"
#: No line that holds an edge is as long.
_LONGEST_LINE = 1 << 20


def strip_compression(file: Path) -> Path:
    """The path without the ending of a compressed file."""
    return file.with_suffix("") if file.suffix in _OPENERS and file.stem else file


@contextlib.contextmanager
def readable(file: Path, remedy: str = EDGES) -> Iterator[None]:
    """Turn the errors that a damaged text causes in its readers into one sentence.

    ``remedy`` names the formats that can be given instead. Raises :class:`DatasetError`.
    """
    try:
        yield
    except UNREADABLE as error:
        reason = " ".join(str(error).split()).rstrip(".") or type(error).__name__
        if isinstance(error, UnicodeDecodeError):
            reason = "it is not text in UTF-8"
        raise DatasetError(
            f"{file}: this is not a readable text file ({reason}); it may be truncated "
            f"or of another format: give {remedy}."
        ) from error


def text_pieces(file: Path) -> Iterator[tuple[int, bytes]]:
    """A text, uncompressed, in pieces of whole lines, each with the number of its first."""
    number, rest = 1, b""
    with open_text(file) as stream:
        while chunk := stream.read(_PIECE_BYTES):
            end = chunk.rfind(b"\n") + 1
            if end:
                yield number, rest + chunk[:end]
                number += rest.count(b"\n") + chunk.count(b"\n", 0, end)
                rest = b""
            rest += chunk[end:]
            if len(rest) > _LONGEST_REST:
                raise DatasetError(
                    f"{file}: line {number:,} is longer than {_LONGEST_REST:,} bytes; give two "
                    f"vertex ids a line."
                )
    if rest:
        yield number, rest


@contextlib.contextmanager
def open_text(file: Path) -> Iterator[BinaryIO]:
    """The file's bytes, uncompressed. Raises :class:`DatasetError` for what is no file."""
    try:
        stored = open_input(file)
    except FileRefused as error:
        raise DatasetError(f"{file}: {error.reason}; give the path of a file.") from error
    with stored:
        opener = _OPENERS.get(file.suffix)
        if opener is None:
            yield stored
        else:
            with cast(BinaryIO, opener(stored)) as stream:
                yield stream


def check_text(file: Path) -> None:
    """Refuse a text that is too long for this machine, before any of it is kept: a few kilobytes
    of a compressed file can hold gigabytes."""
    available = find_available_bytes()
    lines = unbroken = 0
    with open_text(file) as stream:
        while chunk := stream.read(_LONGEST_LINE):
            lines += max(chunk.count(b"\n"), chunk.count(b"\r"))
            end = max(chunk.rfind(b"\n"), chunk.rfind(b"\r"))
            unbroken = unbroken + len(chunk) if end < 0 else len(chunk) - end
            if unbroken > _LONGEST_LINE:
                raise DatasetError(
                    f"{file}: line {lines + 1:,} is longer than {_LONGEST_LINE:,} bytes; give two "
                    f"vertex ids a line."
                )
            if BYTES_PER_EDGE * lines > available:
                raise DatasetError(
                    f"{file}: its first {lines:,} lines alone would take "
                    f"{format_si(float(BYTES_PER_EDGE * lines), 'B')} of memory and "
                    f"{format_si(float(available), 'B')} are free here; use a smaller graph, or a "
                    f"machine with more memory."
                )
