"""Types of the compiled module that ``cython_ext/rows.pyx`` builds to."""

from gnnbench.kernels.reference.rows import ByteArray
from gnnbench.records import IndexArray, IntArray

ELEMENTS: dict[str, int]

def gather_rows(
    source: ByteArray,
    rows: int,
    width: int,
    ids: IntArray | IndexArray,
    out: ByteArray,
    widen: str,
    threads: int,
) -> bool: ...
def scatter_add_rows(
    target: ByteArray,
    rows: int,
    width: int,
    ids: IntArray | IndexArray,
    values: ByteArray,
    element: str,
    threads: int,
) -> bool: ...
def move_rows(
    source: ByteArray,
    source_rows: int,
    source_ids: IntArray | IndexArray,
    target: ByteArray,
    rows: int,
    width: int,
    ids: IntArray | IndexArray,
    element: str,
    add: bool,
    threads: int,
) -> bool: ...
