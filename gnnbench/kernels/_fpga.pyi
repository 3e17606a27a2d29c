"""Types of the compiled module that ``cython_ext/fpga.pyx`` builds to."""

from gnnbench.kernels.reference.fpga import Machine
from gnnbench.records import IndexArray, IntArray

def simulate_aggregation(
    src: IndexArray,
    dst: IndexArray,
    address: IntArray,
    ready: IntArray,
    first: IntArray,
    row_words: int,
    machine: Machine,
    begin: int,
) -> tuple[IntArray, IntArray]: ...
