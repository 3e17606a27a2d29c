"""Files of one array, ``.npy``: read without trusting their headers, and written piece by piece.

Nothing is ever unpickled. A large array is mapped, or read in pieces that are let go of again.
"""

from __future__ import annotations

import io
import math
import os
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from gnnbench.datasets.memory import check_memory
from gnnbench.errors import DatasetError
from gnnbench.host.files import FileRefusedError, open_input
from gnnbench.host.mapped import AnyArray, map_array
from gnnbench.kernels.faults import watch

#: How much of an array is read at a time.
PIECE_BYTES = 1 << 22
#: Room for a header: NumPy parses none of more than 10,000 bytes.
_START_BYTES = 20_000
#: What a header that is written here takes: a multiple of a cache line, as the format asks for.
_WRITTEN_BYTES = 128


@dataclass(frozen=True, slots=True)
class Header:
    """What a file says of its array."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    by_columns: bool = False

    @property
    def size_bytes(self) -> int:
        """The bytes of the array."""
        return math.prod(self.shape) * self.dtype.itemsize

    def find_fault(self, stored_bytes: int) -> str | None:
        """Return why an array of ``stored_bytes`` cannot have this header, as a clause, or None."""
        if self.dtype.hasobject:
            return "holds pickled Python objects, which are never loaded"
        if min(self.shape, default=0) < 0:
            return f"has the impossible shape {self.shape}"
        if stored_bytes != self.size_bytes:
            return (
                f"holds {stored_bytes:,} bytes of data and its header, shape {self.shape} of "
                f"{self.dtype}, asks for {self.size_bytes:,}"
            )
        return None


def parse_header(stream: BinaryIO) -> Header:
    """Read the header of a ``.npy`` file and leave ``stream`` behind it. Raises ``ValueError``."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of NumPy and Python, about the header's text
            version = np.lib.format.read_magic(stream)
            if version not in ((1, 0), (2, 0), (3, 0)):
                raise ValueError(f"version {version[0]}.{version[1]} of the format is not known")
            # Versions 2 and 3 differ in the encoding of field names only.
            first = version == (1, 0)
            known = np.lib.format
            read = known.read_array_header_1_0 if first else known.read_array_header_2_0
            shape, by_columns, dtype = read(stream)
    except Exception as error:  # NumPy evaluates the text, and raises what that stumbles on
        lines = str(error).strip().splitlines() or [type(error).__name__]
        raise ValueError(lines[0].rstrip(".")) from error
    return Header(shape, dtype, by_columns and len(shape) > 1)


@dataclass(frozen=True, slots=True)
class ArrayFile:
    """A ``.npy`` file whose data are as long as its header says, from byte ``offset`` on."""

    path: Path
    header: Header
    offset: int

    @classmethod
    def find(cls, path: Path) -> ArrayFile:
        """Open a file. Raises :class:`DatasetError`: one sentence with the file and the fault."""
        try:
            with open_input(path) as stream:
                size_bytes = os.fstat(stream.fileno()).st_size
                start = io.BytesIO(stream.read(_START_BYTES))
            header = parse_header(start)
        except FileRefusedError as error:
            raise DatasetError(f"{path}: {error.reason}; give the path of an array.") from error
        except (ValueError, OSError) as error:
            raise DatasetError(
                f"{path}: this is no array of numbers ({error}); save one with numpy.save."
            ) from error
        fault = header.find_fault(size_bytes - start.tell())
        if fault is not None:
            raise DatasetError(f"{path}: this array {fault}.")
        return cls(path, header, start.tell())

    def read(self) -> AnyArray:
        """Read the whole array into memory. Raises :class:`DatasetError` where it is too large."""
        check_memory(str(self.path), "reading it", self.header.size_bytes)
        return np.array(self.map(), order="C")

    def map(self) -> AnyArray:
        """Map the array (``gnnbench.host.mapped``). Raises :class:`DatasetError`."""
        try:
            with open_input(self.path) as stream:
                shape, columns = self.header.shape, self.header.by_columns
                dims = shape[::-1] if columns else shape
                array = map_array(stream, self.offset, self.header.dtype, dims)
                watch(array, self.path)
                return array.T if columns else array
        except (FileRefusedError, OSError, ValueError) as error:
            raise DatasetError(f"{self.path}: it cannot be mapped into memory: {error}.") from error

    def pieces(self) -> Iterator[AnyArray]:
        """Yield the array from its first row to its last, about :data:`PIECE_BYTES` at a time.

        Each piece is read when it is asked for, and is not kept. Raises :class:`DatasetError` where
        the disk refuses, and for an array that is stored by columns.
        """
        if self.header.by_columns:
            raise DatasetError(
                f"{self.path}: this array is stored by columns, and is read by rows; save it in C "
                f"order."
            )
        shape, itemsize = self.header.shape, self.header.dtype.itemsize
        width = math.prod(shape[1:])
        step = max(1, PIECE_BYTES // max(1, width * itemsize))
        try:
            with open_input(self.path) as stream:
                stream.seek(self.offset)
                for begin in range(0, shape[0], step):
                    count = min(step, shape[0] - begin)
                    piece = np.fromfile(stream, self.header.dtype, count * width)
                    if piece.size != count * width:
                        raise DatasetError(f"{self.path}: it became shorter while it was read.")
                    yield piece.reshape(count, *shape[1:])
        except (FileRefusedError, OSError) as error:
            raise DatasetError(f"{self.path} could not be read: {error}.") from error


class ArrayWriter:
    """Writes an array row by row into a new file; its length is known when it is closed.

    ``width`` is the shape of a row. Raises ``OSError``.
    """

    def __init__(self, path: Path, dtype: npt.DTypeLike, width: tuple[int, ...] = ()) -> None:
        self._dtype, self._width = np.dtype(dtype), width
        self._rows = 0
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        self._stream = os.fdopen(os.open(path, flags, 0o666), "wb")
        self._stream.write(b"\0" * _WRITTEN_BYTES)

    def __enter__(self) -> ArrayWriter:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        with self._stream:
            if kind is None:
                self.close()

    def close(self) -> None:
        """Complete the array: write its header and close the file."""
        with self._stream:
            self._stream.seek(0)
            self._stream.write(self._make_header())

    def append(self, rows: AnyArray) -> None:
        """Append rows of the array's dtype."""
        if rows.dtype != self._dtype or rows.shape[1:] != self._width:
            raise TypeError(f"rows of {rows.dtype} {rows.shape[1:]} are not {self._dtype}")
        np.ascontiguousarray(rows).tofile(self._stream)
        self._rows += len(rows)

    def _make_header(self) -> bytes:
        described = {
            "descr": np.lib.format.dtype_to_descr(self._dtype),
            "fortran_order": False,
            "shape": (self._rows, *self._width),
        }
        begin = np.lib.format.magic(1, 0)
        text_bytes = _WRITTEN_BYTES - len(begin) - 2
        text = repr(described).ljust(text_bytes - 1) + "\n"
        return begin + text_bytes.to_bytes(2, "little") + text.encode("latin1")


def cut_rows(array: AnyArray) -> Iterator[AnyArray]:
    """Yield an array some rows at a time; at least one piece, which may be empty."""
    row_bytes = max(1, math.prod(array.shape[1:]) * array.dtype.itemsize)
    step = max(1, PIECE_BYTES // row_bytes)
    for begin in range(0, max(1, len(array)), step):
        yield array[begin : begin + step]
