"""Types of the compiled module that ``cython_ext/layout.pyx`` builds to."""

import numpy as np
import numpy.typing as npt

from gnnbench.records import IndexArray, IntArray

def transpose(
    indptr: IntArray, indices: IndexArray, num_columns: int, threads: int
) -> tuple[IntArray, IndexArray, IndexArray]: ...
def sort_edges_by_source(
    indptr: IntArray, indices: IndexArray, num_columns: int, threads: int
) -> tuple[IndexArray, IndexArray, IndexArray]: ...
def bandwidth(
    indptr: IntArray, indices: IndexArray, order: IndexArray | None, threads: int
) -> int: ...
def edge_cut(indptr: IntArray, indices: IndexArray, part: IndexArray, threads: int) -> int: ...
def count_reuse_times(indices: IndexArray, num_columns: int, bins: int) -> IntArray: ...
def sort_keys(keys: npt.NDArray[np.uint64], low: int, high: int) -> npt.NDArray[np.uint64]: ...
def reverse_cuthill_mckee(
    indptr: IntArray, indices: IndexArray, starts: IndexArray, threads: int
) -> IndexArray: ...
def partition_stream(
    indptr: IntArray,
    indices: IndexArray,
    order: IndexArray,
    parts: int,
    capacity: int,
    fennel: bool,
    by_work: bool,
    weight: float,
    passes: int,
) -> IndexArray: ...
