"""Types of the compiled module that ``cython_ext/sets.pyx`` builds to."""

from gnnbench.kernels.reference.sets import Bitmaps
from gnnbench.kernels.slabs import Slab
from gnnbench.records import IndexArray, IntArray

def unique_ids(ids: IndexArray, universe: int) -> IndexArray | None: ...
def mark_sets(
    sets: tuple[IntArray, ...], universe: int, words: int, threads: int
) -> Bitmaps | None: ...
def list_marks(bitmaps: Bitmaps, slab: Slab | None, threads: int) -> list[IntArray]: ...
def list_fetches(
    needed: Bitmaps,
    transition: Bitmaps,
    held: Bitmaps,
    read: Bitmaps,
    slab: Slab | None,
    threads: int,
) -> list[list[IntArray]]: ...
def count_marks_of(bitmaps: Bitmaps) -> IntArray: ...
def count_shared_marks(a: Bitmaps, b: Bitmaps, threads: int) -> IntArray: ...
