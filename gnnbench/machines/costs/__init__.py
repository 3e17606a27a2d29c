"""The operations of a library's kernels on a device, and their prices."""

from gnnbench.machines.costs.library import Library, read_library
from gnnbench.machines.costs.measured import price_calls, price_measured
from gnnbench.machines.costs.operation import (
    DotProducts,
    Gather,
    Operation,
    Product,
    ScalarLoop,
    Scatter,
    SerialLoop,
    Stream,
    Sum,
)
from gnnbench.machines.costs.roofline import price_operation, price_operations

__all__ = [
    "DotProducts",
    "Gather",
    "Library",
    "Operation",
    "Product",
    "ScalarLoop",
    "Scatter",
    "SerialLoop",
    "Stream",
    "Sum",
    "price_calls",
    "price_measured",
    "price_operation",
    "price_operations",
    "read_library",
]
