"""Sparse matrices as others store them, checked before SciPy's kernels go over them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import scipy

from gnnbench.datasets.archive import Archive
from gnnbench.datasets.content import as_integers
from gnnbench.datasets.memory import check_memory
from gnnbench.datasets.topology import AnyArray
from gnnbench.errors import DatasetError, reason_of

#: What SciPy always stores of a sparse matrix.
_SCIPY_NAMES = frozenset(("format", "shape", "data"))


def holds_scipy(names: tuple[str, ...]) -> bool:
    """Return whether arrays of these names are a sparse matrix that SciPy has saved."""
    return _SCIPY_NAMES.issubset(names)


def read_scipy(file: Path) -> scipy.sparse.coo_matrix:
    """Read a matrix of ``scipy.sparse.save_npz``, in any of its formats."""
    with Archive(file) as archive:
        if not holds_scipy(archive.names):
            lacking = sorted(_SCIPY_NAMES.difference(archive.names))
            raise DatasetError(
                f"{file}: it has no {', '.join(lacking)}; save sparse features with "
                f"scipy.sparse.save_npz, and dense ones as .npy."
            )
        needed = sum(archive.header(name).size_bytes for name in archive.names)
        check_memory(str(file), "its matrix", 4 * needed)
    try:
        return as_coordinates(str(file), scipy.sparse.load_npz(file))
    except DatasetError:
        raise
    except Exception as error:  # SciPy raises whatever a broken matrix makes it stumble on
        raise _broken(str(file), "its sparse matrix", error) from error


def as_coordinates(where: str, matrix: scipy.sparse.spmatrix) -> scipy.sparse.coo_matrix:
    """Return a matrix as row, column and value; raises :class:`DatasetError` for a broken one.

    SciPy's kernels write beyond their arrays where offsets do not ascend.
    """
    try:
        if hasattr(matrix, "check_format"):
            matrix.check_format(full_check=True)
        return scipy.sparse.coo_matrix(matrix)
    except (ValueError, TypeError, IndexError) as error:
        raise _broken(where, "its sparse matrix", error) from error


def make_csr(where: str, arrays: Mapping[str, AnyArray], name: str) -> scipy.sparse.csr_matrix:
    """Return the matrix in ``NAME_data``, ``NAME_indices``, ``NAME_indptr`` and ``NAME_shape``.

    Raises :class:`DatasetError` where they are none.
    """
    names = [f"{name}_{part}" for part in ("data", "indices", "indptr", "shape")]
    missing = [each for each in names if each not in arrays]
    if missing:
        raise DatasetError(
            f"{where}: the sparse matrix {name} lacks {', '.join(missing)}; store all of "
            f"{', '.join(names)}."
        )
    data = arrays[names[0]]
    indices, indptr, shape = (as_integers(where, each, arrays[each]) for each in names[1:])
    try:
        if data.dtype.kind not in "fiub":
            raise ValueError(f"{names[0]} has dtype {data.dtype}, not numbers")
        matrix = scipy.sparse.csr_matrix((data, indices, indptr), shape=tuple(shape.tolist()))
        matrix.check_format(full_check=True)
    except (ValueError, TypeError, IndexError) as error:
        raise _broken(where, ", ".join(names), error) from error
    return matrix


def _broken(where: str, what: str, error: Exception) -> DatasetError:
    return DatasetError(
        f"{where}: {what}: this is no sparse matrix ({reason_of(error)}); save it once more."
    )
