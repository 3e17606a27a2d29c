"""Description of strategy 'native'."""

from __future__ import annotations

from gnnbench.records import Card

CARD = Card(
    implemented=(
        "aggregation, its transpose, softmax over edges and products with W by this project's "
        "compiled kernels (`gnnbench.kernels.autograd.aggregate`), sparse features as they are "
        "stored where fewer than a quarter of their values is",
    ),
    simplified=(
        "one device, the host: the kernels are written for CPUs, and other devices are refused",
        "on a described platform it costs as the equations say, which know no better kernels",
    ),
    left_out=("it is not a published system",),
    validated=(
        "tests/kernels/test_native.py: gradients, ties, strides, and the same bits on any threads",
        "tests/kernels/test_cpu_kernels.py: products equal dense ones, no values for every edge",
    ),
)
