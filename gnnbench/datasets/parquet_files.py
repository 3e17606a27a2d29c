"""Parquet tables, read as texts with a heading are read."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from gnnbench.datasets.topology import AnyArray
from gnnbench.errors import DatasetError, reason_of
from gnnbench.host.files import FileRefusedError, open_input

_ENDINGS = (".parquet", ".pq")
_ROWS = 1 << 20
#: What pandas calls the column that it keeps a table's index in.
_INDEX = "__index_level_"
_KINDS = {int: "whole numbers of 64 bits", float: "numbers", str: "words"}


def is_parquet(file: Path) -> bool:
    """Return whether a file has the ending of a Parquet table."""
    return file.suffix.lower() in _ENDINGS


@dataclass(frozen=True, slots=True)
class ParquetTable:
    """A Parquet table; ``heading`` has the names of its columns."""

    file: Path
    heading: tuple[str, ...]

    @classmethod
    def find(cls, file: Path) -> ParquetTable:
        """Return the table in a file; raises :class:`DatasetError` for what is none."""
        with _open(file) as parquet:
            names = tuple(n for n in parquet.schema_arrow.names if not n.startswith(_INDEX))
        if len(set(names)) < len(names) or not names:
            raise DatasetError(f"{file}: its columns have no names of their own; name each once.")
        return cls(file, names)

    @property
    def width(self) -> int:
        """The number of columns."""
        return len(self.heading)

    def read(self, kinds: Mapping[int, type]) -> Iterator[Mapping[int, AnyArray]]:
        """Yield some columns, some rows at a time, each as ``int``, ``float`` or ``str``.

        A column of lists of one length is ``(n, length)`` as ``float``. Raises
        :class:`DatasetError` for a cell that is empty, or of another kind.
        """
        names = {column: self.heading[column] for column in kinds}
        begin = 0
        with _open(self.file) as parquet:
            for batch in parquet.iter_batches(_ROWS, columns=list(names.values())):
                yield {
                    column: self._convert(names[column], batch.column(names[column]), kind, begin)
                    for column, kind in kinds.items()
                }
                begin += batch.num_rows

    def _convert(self, name: str, held: Any, kind: type, begin: int) -> AnyArray:
        import pyarrow
        from pyarrow import compute, types

        into = {int: pyarrow.int64(), float: pyarrow.float64(), str: pyarrow.string()}[kind]
        if types.is_dictionary(held.type):
            held = held.dictionary_decode()
        width: tuple[int, ...] = ()
        count = len(held)
        fault = f"is of {held.type}; give {_KINDS[kind]}"
        try:
            if kind is float and hasattr(held.type, "value_type") and not held.null_count:
                lengths = compute.list_value_length(held).unique().to_pylist()
                if len(lengths) > 1:
                    raise ValueError
                width, held = (lengths[0] if lengths else 0,), held.flatten()
            if kind is int and not types.is_integer(held.type):
                raise ValueError
            if kind is float and not (types.is_primitive(held.type) or types.is_decimal(held.type)):
                raise ValueError
            held = held.cast(into)
            if kind is str:
                held = compute.utf8_trim_whitespace(held)
                held = compute.if_else(compute.equal(held, ""), None, held)
            if held.null_count:
                place = int(np.argmax(held.is_null().to_numpy(zero_copy_only=False)))
                row = begin + place // (width[0] if width else 1) + 1
                fault = f"has an empty cell in row {row:,}; fill it, or leave the row out"
                raise ValueError
        except (ValueError, NotImplementedError) as error:  # both are pyarrow's as well
            raise DatasetError(f"{self.file}: column {name!r} {fault}.") from error
        array = held.to_numpy(zero_copy_only=False).reshape(count, *width)
        return np.asarray(array, dtype=np.str_ if kind is str else kind)


@contextlib.contextmanager
def _open(file: Path) -> Iterator[Any]:
    """Open a Parquet file; whatever its library raises is one sentence."""
    from pyarrow import parquet

    try:
        with open_input(file) as stream:
            yield parquet.ParquetFile(stream, page_checksum_verification=True)
    except FileRefusedError as error:
        raise DatasetError(f"{file}: {error.reason}; give a Parquet table.") from error
    except DatasetError:
        raise
    except Exception as error:  # whatever a damaged file makes pyarrow raise
        raise DatasetError(
            f"{file}: this is not a readable Parquet table ({reason_of(error)}); write it again."
        ) from error
