"""The five parts of a strategy, as abstract base classes, and what they are handed.

A part is a dataclass whose fields are its options: ``--set memory.device_bytes=2GB`` sets the field
``device_bytes`` of the memory part. Declare options with :func:`option`; the harness reads text by
the field's annotation. Class variables ``name`` and ``summary`` describe the part, ``modes`` says
which engines it works under.

Order of calls, in every run: ``refuses`` on each part, ``settle`` on each part, ``begin`` on each
part, then the engine asks. Parts never take times and never look at the clock; the engine does.
"""

from __future__ import annotations

from gnnbench.parts.base import (
    BOTH_MODES,
    FULL_GRAPH,
    MINI_BATCH,
    LayerClass,
    LayerShape,
    Part,
    Setting,
)
from gnnbench.parts.bundle import (
    HOST_STAGES,
    Bundle,
)
from gnnbench.parts.communication import (
    Communication,
    PeerData,
    fetch_everything,
)
from gnnbench.parts.kernel import (
    Adjacency,
    Kernel,
    Scaling,
)
from gnnbench.parts.memory import (
    TOPOLOGY_PART,
    Intermediates,
    Memory,
    OffloadingMemory,
)
from gnnbench.parts.options import (
    closest,
    describe_option,
    list_choices,
    option,
    option_fields,
    parse_option,
)
from gnnbench.parts.placement import (
    Placement,
    divide_evenly,
)
from gnnbench.parts.sampler import (
    UNIFORM,
    DeviceCapacity,
    FullGraphSampler,
    MiniBatchSampler,
    Sampler,
)

__all__ = [
    "BOTH_MODES",
    "FULL_GRAPH",
    "HOST_STAGES",
    "MINI_BATCH",
    "TOPOLOGY_PART",
    "UNIFORM",
    "Adjacency",
    "Bundle",
    "Communication",
    "DeviceCapacity",
    "FullGraphSampler",
    "Intermediates",
    "Kernel",
    "LayerClass",
    "LayerShape",
    "Memory",
    "MiniBatchSampler",
    "OffloadingMemory",
    "Part",
    "PeerData",
    "Placement",
    "Sampler",
    "Scaling",
    "Setting",
    "closest",
    "describe_option",
    "divide_evenly",
    "fetch_everything",
    "list_choices",
    "option",
    "option_fields",
    "parse_option",
]
