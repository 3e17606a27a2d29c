"""The five parts of a strategy as abstract base classes, and the records passed to them.

A part is a dataclass, and its fields are its options: ``--set memory.device_bytes=2GB`` sets the
field ``device_bytes`` of the memory part. Declare options with :func:`option`; the harness parses
text by the field's annotation. The class variables ``name`` and ``summary`` describe the part. The
kinds that a part derives from decide which parts it works with and which of its methods are called.

Options do not change during a run; mutable state lives in a *session* that the part opens for the
run. Every run calls ``refuses`` on each part, then ``settle``, then ``begin``. The lowering then
opens the sessions that it needs. Parts never take times and never look at the clock.
"""

from __future__ import annotations

from gnnbench.errors import closest
from gnnbench.parts.base import (
    BOTH_MODES,
    FULL_GRAPHS,
    MINI_BATCHES,
    LayerClass,
    Part,
    Session,
    Setting,
)
from gnnbench.parts.bundle import (
    HOST_STAGES,
    Bundle,
    refuse_priced,
)
from gnnbench.parts.communication import (
    Communication,
    EverythingCrosses,
    HaloExchange,
    HaloTraffic,
    HostLoading,
    NoTransfer,
    PeerData,
    ShardExchange,
    TrafficSession,
)
from gnnbench.parts.kernel import (
    Adjacency,
    Kernel,
    Scaling,
    csr_bytes,
)
from gnnbench.parts.layer_shape import (
    EarlyProducts,
    EdgeValues,
    FactorCounts,
    LayerShape,
    LayerTraits,
)
from gnnbench.parts.memory import (
    TOPOLOGY_PART,
    CacheMemory,
    CacheSession,
    DeviceMemory,
    Intermediates,
    LoadingMemory,
    Memory,
    OffloadingMemory,
    Turnover,
)
from gnnbench.parts.options import (
    describe_option,
    list_choices,
    list_tried,
    option,
    option_fields,
    parse_option,
)
from gnnbench.parts.placement import (
    EvenShares,
    Handed,
    Placement,
    SeedSession,
    divide_evenly,
    hand_out,
)
from gnnbench.parts.sampler import (
    UNIFORM,
    UNSHUFFLED,
    Chunks,
    DeviceCapacity,
    FullGraphSampler,
    Loader,
    MiniBatchSampler,
    Sampler,
    shuffle_seeds,
)

__all__ = [
    "BOTH_MODES",
    "FULL_GRAPHS",
    "HOST_STAGES",
    "MINI_BATCHES",
    "TOPOLOGY_PART",
    "UNIFORM",
    "UNSHUFFLED",
    "Adjacency",
    "Bundle",
    "CacheMemory",
    "CacheSession",
    "Chunks",
    "Communication",
    "DeviceCapacity",
    "DeviceMemory",
    "EarlyProducts",
    "EdgeValues",
    "EvenShares",
    "EverythingCrosses",
    "FactorCounts",
    "FullGraphSampler",
    "HaloExchange",
    "HaloTraffic",
    "Handed",
    "HostLoading",
    "Intermediates",
    "Kernel",
    "LayerClass",
    "LayerShape",
    "LayerTraits",
    "Loader",
    "LoadingMemory",
    "Memory",
    "MiniBatchSampler",
    "NoTransfer",
    "OffloadingMemory",
    "Part",
    "PeerData",
    "Placement",
    "Sampler",
    "Scaling",
    "SeedSession",
    "Session",
    "Setting",
    "ShardExchange",
    "TrafficSession",
    "Turnover",
    "closest",
    "csr_bytes",
    "describe_option",
    "divide_evenly",
    "hand_out",
    "list_choices",
    "list_tried",
    "option",
    "option_fields",
    "parse_option",
    "refuse_priced",
    "shuffle_seeds",
]
