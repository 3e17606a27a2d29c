"""Types of the compiled module that ``cython_ext/spmm.pyx`` builds to."""

import numpy as np
import numpy.typing as npt

from gnnbench.kernels.reference.spmm import ReductionEngine
from gnnbench.records import IndexArray, IntArray

def cut_chunks(
    indptr: IntArray,
    indices: IndexArray,
    num_src: int,
    tile_rows: int,
    chunk_rows: int,
    window_rows: int,
) -> tuple[IntArray, IntArray, IntArray]: ...
def count_edges(
    indptr: IntArray,
    indices: IndexArray,
    num_src: int,
    tile_rows: int,
    first: IntArray,
    begin: IntArray,
) -> tuple[IntArray, IntArray]: ...
def count_reads(indices: IndexArray, num_src: int) -> IndexArray: ...
def walk_chunks(
    indptr: IntArray,
    indices: IndexArray,
    num_src: int,
    tile_rows: int,
    first: IntArray,
    begin: IntArray,
    wanted: IndexArray,
    selected: npt.NDArray[np.uint8],
    cycles_of: IndexArray,
    engine: ReductionEngine,
    row_words: int,
    groups: int,
) -> tuple[IntArray, IntArray]: ...
def overlap_steps(
    loads: IntArray, computes: IntArray, writes: IntArray, byte_ticks: int, cycle_ticks: int
) -> int: ...
