"""Sparse matrices as ``scipy.sparse.save_npz`` stores them."""

from __future__ import annotations

from pathlib import Path

import scipy

from gnnbench.datasets.archive import Archive
from gnnbench.datasets.memory import check_memory
from gnnbench.errors import DatasetError, reason_of

#: What SciPy always stores of a sparse matrix.
_SCIPY_NAMES = frozenset(("format", "shape", "data"))


def holds_scipy(names: tuple[str, ...]) -> bool:
    """Whether an archive with arrays of these names is a sparse matrix that SciPy has saved."""
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
        return scipy.sparse.coo_matrix(scipy.sparse.load_npz(file))
    except Exception as error:  # SciPy raises whatever a broken matrix makes it stumble on
        raise DatasetError(
            f"{file}: its sparse matrix is broken ({reason_of(error)}); save it once more."
        ) from error
