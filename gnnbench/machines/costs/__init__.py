"""The operations of a library's kernels on a device, and their prices."""

from gnnbench.machines.costs.library import Library as Library
from gnnbench.machines.costs.library import read_library as read_library
from gnnbench.machines.costs.measured import price_calls as price_calls
from gnnbench.machines.costs.measured import price_measured as price_measured
from gnnbench.machines.costs.operation import DotProducts as DotProducts
from gnnbench.machines.costs.operation import Gather as Gather
from gnnbench.machines.costs.operation import Operation as Operation
from gnnbench.machines.costs.operation import Product as Product
from gnnbench.machines.costs.operation import ScalarLoop as ScalarLoop
from gnnbench.machines.costs.operation import Scatter as Scatter
from gnnbench.machines.costs.operation import SerialLoop as SerialLoop
from gnnbench.machines.costs.operation import Stream as Stream
from gnnbench.machines.costs.operation import Sum as Sum
from gnnbench.machines.costs.roofline import price_operation as price_operation
from gnnbench.machines.costs.roofline import price_operations as price_operations
