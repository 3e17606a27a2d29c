"""Types of the compiled module that ``cython_ext/streams.pyx`` builds to."""

from gnnbench.kernels.reference.streams import LabelArray, RmatStream, WordArray
from gnnbench.records import IndexArray, IntArray

def add_degrees(stream: RmatStream, first: int, count: int, degrees: IndexArray) -> None: ...
def mark_edges(
    stream: RmatStream,
    first: int,
    count: int,
    labels: LabelArray,
    lines: WordArray,
    threads: int,
) -> None: ...
def mark_rows(
    indptr: IntArray,
    indices: IndexArray,
    first: int,
    last: int,
    labels: LabelArray,
    lines: WordArray,
    threads: int,
) -> bool: ...
def count_replicas(lines: WordArray, labels: LabelArray, depth: int, threads: int) -> IntArray: ...
def count_chunks(
    lines: WordArray,
    labels: LabelArray,
    chunk: LabelArray,
    partition: LabelArray,
    batch: LabelArray,
    partitions: int,
    batches: int,
    threads: int,
) -> list[IntArray]: ...
