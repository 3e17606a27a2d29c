"""The operations of a library's kernels on a device, and their prices."""

from gnnbench.machines.costs.library import Library, read_library
from gnnbench.machines.costs.measured import price_calls, price_measured
from gnnbench.machines.costs.operation import Operation, OperationKind
from gnnbench.machines.costs.roofline import price_operation, price_operations

__all__ = [
    "Library",
    "Operation",
    "OperationKind",
    "price_calls",
    "price_measured",
    "price_operation",
    "price_operations",
    "read_library",
]
