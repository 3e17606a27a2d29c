"""Texts of people, perhaps compressed: read in pieces of whole lines."""

from __future__ import annotations

import bz2
import contextlib
import gzip
import io
import lzma
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO, cast

from gnnbench.errors import DatasetError, reason_of
from gnnbench.host.files import FileRefusedError, open_input

#: What an edge takes at the peak: its ids, sorted, numbered anew and made symmetric.
BYTES_PER_EDGE = 120
_PIECE_BYTES = 1 << 24
#: Without an end of line; lines that end in a carriage return alone are in one piece.
_LONGEST_REST = 1 << 26
#: What the readers of a text raise where it is damaged.
UNREADABLE = (OSError, EOFError, zlib.error, lzma.LZMAError, UnicodeDecodeError)
#: The formats of a graph.
EDGES = "an edge list, .parquet, .mtx, .npz, .npy or .pt"


def _open_zstandard(stored: BinaryIO) -> BinaryIO:
    import pyarrow

    source = pyarrow.CompressedInputStream(pyarrow.PythonFile(stored, "r"), "zstd")
    return io.BufferedReader(source)


_OPENERS: dict[str, Callable[[BinaryIO], object]] = {
    ".gz": gzip.open,
    ".bz2": bz2.open,
    ".xz": lzma.open,
    ".zst": _open_zstandard,
}


def strip_compression(file: Path) -> Path:
    """Return the path without the ending of a compressed file."""
    return file.with_suffix("") if file.suffix in _OPENERS and file.stem else file


@contextlib.contextmanager
def readable(file: Path, remedy: str = EDGES) -> Iterator[None]:
    """Turn the errors that a damaged text causes in its readers into one sentence.

    ``remedy`` names the formats that can be given instead. Raises :class:`DatasetError`.
    """
    try:
        yield
    except UNREADABLE as error:
        is_text = not isinstance(error, UnicodeDecodeError)
        reason = reason_of(error) if is_text else "it is not text in UTF-8"
        raise DatasetError(
            f"{file}: this is not a readable text file ({reason}); it may be truncated "
            f"or of another format: give {remedy}."
        ) from error


def text_pieces(file: Path, piece_bytes: int = _PIECE_BYTES) -> Iterator[tuple[int, bytes]]:
    """Yield a text, uncompressed, in pieces of whole lines, each with its first line's number."""
    number, rest = 1, b""
    with open_text(file) as stream:
        while chunk := stream.read(piece_bytes):
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


def text_lines(file: Path) -> Iterator[tuple[int, bytes]]:
    """Yield the lines of a text, each with its number."""
    with readable(file):
        for number, piece in text_pieces(file, 1 << 20):
            yield from enumerate(piece.splitlines(), number)


@contextlib.contextmanager
def open_text(file: Path) -> Iterator[BinaryIO]:
    """Open the file's bytes, uncompressed. Raises :class:`DatasetError` if it is no file."""
    try:
        stored = open_input(file)
    except FileRefusedError as error:
        raise DatasetError(f"{file}: {error.reason}; give the path of a file.") from error
    with stored:
        opener = _OPENERS.get(file.suffix)
        if opener is None:
            yield stored
        else:
            with cast(BinaryIO, opener(stored)) as stream:
                yield stream
