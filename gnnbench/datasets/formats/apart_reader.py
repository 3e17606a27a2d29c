"""The program that :mod:`.apart` runs: it reads one file and writes its arrays to a ``.npz``.

It imports little, so that it starts in a fraction of a second.
"""

from __future__ import annotations

import sys
from typing import Any

#: The exit status of a file that is refused; standard error ends with the reason, a clause.
REFUSED = 2
NAMES = {"matlab": "MATLAB file", "dgl": "file of dgl.save_graphs"}


def read_matlab(file: str) -> dict[str, Any]:
    """Find the only square sparse matrix, or ``A`` of SuiteSparse's ``Problem``.

    Facebook100's ``local_info`` is read too.
    """
    import scipy

    try:
        held = scipy.io.loadmat(file, spmatrix=True)
    except NotImplementedError as error:
        raise ValueError("it is of version 7.3; save it with -v7") from error
    if "Problem" in held and getattr(held["Problem"], "dtype", None) is not None:
        held = dict(zip(held["Problem"].dtype.names or (), held["Problem"].flat[0], strict=False))
    square = [
        name
        for name, matrix in held.items()
        if scipy.sparse.issparse(matrix) and matrix.shape[0] == matrix.shape[1]
    ]
    if len(square) != 1:
        others = ", ".join(square or (name for name in held if name[:1] != "_"))
        raise ValueError(f"it has {len(square)} square sparse matrices, not one: {others}")
    found = held[square[0]]
    if hasattr(found, "check_format"):  # SciPy for Python 3.10 has read coordinates already
        found.check_format(full_check=True)
    matrix = scipy.sparse.coo_matrix(found)
    arrays = {"data": matrix.data, "row": matrix.row, "column": matrix.col, "shape": matrix.shape}
    known = held.get("local_info")
    if getattr(known, "ndim", 0) == 2 and known.dtype.kind in "fiu":
        arrays["local_info"] = known
    return arrays


def read_dgl(file: str) -> dict[str, Any]:
    """Find the only homogeneous graph; names begin with ``n/`` for vertices, ``e/`` for edges."""
    from gnnbench.datasets.dgl_library import load_dgl

    graphs, _ = load_dgl().load_graphs(file)
    if len(graphs) != 1 or not graphs[0].is_homogeneous:
        raise ValueError(f"it holds {len(graphs):,} graphs, or kinds of them; save one alone")
    graph = graphs[0]
    source, target = graph.edges()
    arrays = {"source": source, "target": target}
    arrays |= {f"n/{name}": graph.ndata[name] for name in graph.ndata}
    arrays |= {f"e/{name}": graph.edata[name] for name in graph.edata}
    found = {
        name: (each.float() if "bfloat16" in str(each.dtype) else each).numpy()
        for name, each in arrays.items()
    }
    return {"count": graph.num_nodes()} | found


def main(kind: str, file: str, found: str) -> int:
    """Write the arrays of a file."""
    import numpy as np

    try:
        arrays = {"matlab": read_matlab, "dgl": read_dgl}[kind](file)
        np.savez(found, **arrays)
    except Exception as error:  # whatever a damaged file makes a library raise
        print(" ".join(str(error).split()).rstrip(".") or type(error).__name__, file=sys.stderr)
        return REFUSED
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
