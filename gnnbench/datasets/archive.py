"""A zip of arrays, as ``numpy.savez`` writes it, read without trusting a byte of it.

Every member is held against its header before anything is allocated, and is never unpickled.
Whatever is wrong is one sentence that names the member.
"""

from __future__ import annotations

import contextlib
import io
import math
import warnings
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, cast

import numpy as np
import numpy.typing as npt

from gnnbench.datasets.memory import check_memory
from gnnbench.datasets.npy import PIECE_BYTES, Header, parse_header
from gnnbench.errors import DatasetError, reason_of
from gnnbench.host.files import FileRefusedError, open_input

_SUFFIX = ".npy"
#: Room for a header.
_START_BYTES = 1 << 16


class Archive:
    """The arrays of a ``.npz`` file by name; use it as a context, which closes the file.

    Raises :class:`DatasetError`: one sentence with the file, the member and what is wrong.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            self._stream = open_input(path)
        except FileRefusedError as error:
            raise DatasetError(
                f"{path}: {error.reason}; give the path of a .npz dataset."
            ) from error
        try:
            self._zip = self._open_zip()
            self._members: dict[str, zipfile.ZipInfo] = {}
            for member in self._zip.infolist():
                name = member.filename.removesuffix(_SUFFIX)
                if name == member.filename or name in self._members:
                    raise self._refuse(
                        f"{member.filename} is there twice, or is no array; store each array once"
                    )
                # This holds the name against the one before the data.
                with self._reading(member.filename), self._zip.open(member):
                    self._members[name] = member
        except BaseException:
            self._stream.close()
            raise

    def __enter__(self) -> Archive:
        return self

    def __exit__(self, *_: object) -> None:
        self._stream.close()

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the arrays, in the order of the file; none of them has been read."""
        return tuple(self._members)

    def header(self, name: str) -> Header:
        """Read the shape and dtype of an array, and check that its data are as long as they say."""
        member = self._members[name]
        with self._reading(member.filename), self._zip.open(member) as stream:
            start = io.BytesIO(stream.read(_START_BYTES))
            header = parse_header(start)
        fault = header.find_fault(member.file_size - start.tell())
        if fault is not None:
            raise self._refuse(f"{member.filename} {fault}")
        return header

    def read(self, name: str) -> npt.NDArray[np.generic]:
        """Read a whole array and verify its checksum."""
        member = self._members[name]
        header = self.header(name)
        check_memory(f"{self._path}: {member.filename}", "its array", header.size_bytes)
        with self._reading(member.filename), self._zip.open(member) as stream:
            array: npt.NDArray[np.generic] = np.lib.format.read_array(stream, allow_pickle=False)
        return array

    def pieces(self, name: str) -> Iterator[npt.NDArray[np.generic]]:
        """Yield an array's rows in order, some at a time, and keep none of them.

        The checksum is checked behind the last row.
        """
        member = self._members[name]
        header = self.header(name)
        if header.by_columns:
            raise self._refuse(
                f"{member.filename} is stored by columns, and is read by rows; save it in C order"
            )
        width = math.prod(header.shape[1:])
        step = max(1, PIECE_BYTES // max(1, width * header.dtype.itemsize))
        with self._reading(member.filename), self._zip.open(member) as stream:
            parse_header(cast(BinaryIO, stream))
            for begin in range(0, header.shape[0], step):
                count = min(step, header.shape[0] - begin)
                data = stream.read(count * width * header.dtype.itemsize)
                yield np.frombuffer(data, header.dtype).reshape(count, *header.shape[1:])
            stream.read(1)

    def _open_zip(self) -> zipfile.ZipFile:
        start = self._stream.read(6)
        self._stream.seek(0)
        try:
            return zipfile.ZipFile(self._stream)
        except Exception as error:  # zipfile raises whatever its parser stumbles on
            reason = "it is no zip archive of arrays, as numpy.savez writes it"
            if start.startswith(b"\x93NUMPY"):
                reason = "it holds a single array; store several by name with numpy.savez"
            elif start.startswith(b"PK"):
                reason = "its list of members is damaged or missing; it may have been cut off"
            elif not start:
                reason = "it is empty"
            raise self._refuse(reason) from error

    @contextlib.contextmanager
    def _reading(self, what: str) -> Iterator[None]:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # NumPy's and Python's, about the header's text
                yield
        except Exception as error:  # zipfile, zlib and NumPy raise whatever they stumble on
            raise self._refuse(f"{what} cannot be read ({reason_of(error)})") from error

    def _refuse(self, what: str) -> DatasetError:
        return DatasetError(f"{self._path}: this is not a readable .npz file: {what}.")
