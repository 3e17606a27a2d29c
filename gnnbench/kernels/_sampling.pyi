"""Types of the compiled module that ``cython_ext/sampling.pyx`` builds to."""

from collections.abc import Sequence

from gnnbench.kernels.reference.sampling import DoubleArray, WeightArray
from gnnbench.records import IndexArray, IntArray

def sample_neighbours(
    indptr: IntArray,
    indices: IndexArray,
    seeds: IntArray,
    fanouts: Sequence[int],
    seed: int,
    epoch: int,
    replace: bool,
    weights: WeightArray | None,
    threads: int,
    scratch: IndexArray,
    name: str = "seeds",
) -> tuple[IntArray, list[tuple[int, IntArray, IndexArray]]]: ...
def induce_block(
    indptr: IntArray, indices: IndexArray, dst_ids: IntArray, threads: int, scratch: IndexArray
) -> tuple[IntArray, IntArray, IndexArray]: ...
def induce_subgraph(
    indptr: IntArray, indices: IndexArray, ids: IntArray, threads: int, scratch: IndexArray
) -> tuple[IntArray, IndexArray]: ...
def find_edges(
    indptr: IntArray,
    indices: IndexArray,
    dst_ids: IntArray,
    rows: IntArray,
    src_ids: IntArray,
    columns: IndexArray,
) -> IntArray: ...
def race(key: int, ids: IntArray, weights: DoubleArray) -> DoubleArray: ...
