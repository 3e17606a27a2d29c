"""Types of the compiled module that ``cython_ext/aggregation.pyx`` builds to."""

import numpy as np
import numpy.typing as npt

from gnnbench.kernels.reference.aggregation import Float
from gnnbench.records import IndexArray, IntArray

def newest_level() -> int: ...
def packed_row_bytes() -> int: ...
def multiply(
    indptr: IntArray,
    indices: IndexArray,
    h: Float,
    out: Float,
    weight: Float | None,
    src_scale: Float | None,
    dst_scale: Float | None,
    own: Float | None,
    mask: npt.NDArray[np.uint8] | None,
    sparse: bool,
    mean: bool,
    add: bool,
    stream: bool,
    packed: Float | None,
    heavy: IndexArray | None,
    cuts: IntArray | None,
    heavy_edges: int,
    threads: int,
    level: int,
) -> None: ...
def maximise(
    indptr: IntArray,
    indices: IndexArray,
    h: Float,
    out: Float,
    source: IndexArray,
    threads: int,
    level: int,
) -> None: ...
def spread_maxima(source: IndexArray, gradient: Float, out: Float) -> None: ...
def dot_edges(
    indptr: IntArray,
    indices: IndexArray,
    g: Float,
    h: Float,
    products: Float,
    threads: int,
    level: int,
) -> None: ...
def soften(
    indptr: IntArray, indices: IndexArray, scores: Float, out: Float, threads: int, level: int
) -> None: ...
def soften_back(
    indptr: IntArray,
    indices: IndexArray,
    q: Float,
    gradient: Float,
    out: Float,
    threads: int,
    level: int,
) -> None: ...
def check_matrix(indptr: IntArray, indices: IndexArray, num_src: int) -> int: ...
def cut_blocks(
    indptr: IntArray,
    indices: IndexArray,
    rows: IndexArray,
    block_sources: int,
    cuts: IntArray,
) -> bool: ...
