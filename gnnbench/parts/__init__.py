"""The five parts of a strategy, as abstract base classes, and what they are handed.

A part is a dataclass whose fields are its options: ``--set memory.device_bytes=2GB`` sets the field
``device_bytes`` of the memory part. Declare options with :func:`option`; the harness reads text by
the field's annotation. Class variables ``name`` and ``summary`` describe the part. What it works
with follows from the kinds that it derives from, and so does what it is asked.

Options stay as they are; what changes in a run is kept in a *session* that the part opens for it.
Order of calls, in every run: ``refuses`` on each part, ``settle`` on each part, ``begin`` on each
part, then the lowering opens what it needs. Parts never take times and never look at the clock.
"""

from __future__ import annotations

from gnnbench.errors import closest
from gnnbench.parts.base import (
    BOTH_MODES,
    LayerClass,
    LayerShape,
    OfFullGraphs,
    OfMiniBatches,
    Part,
    Session,
    Setting,
    modes_of,
)
from gnnbench.parts.bundle import (
    HOST_STAGES,
    Bundle,
)
from gnnbench.parts.communication import (
    AdaptiveExchange,
    Broadcast,
    Communication,
    EverythingCrosses,
    HaloExchange,
    HaloTraffic,
    HostLoading,
    NoTransfer,
    PeerData,
    Prefetching,
    RingReduction,
    RoundedLoading,
    RowSharing,
    RowTransfer,
    SampledExchange,
    ShardExchange,
    StaleExchange,
    StreamedLoading,
    TrafficSession,
)
from gnnbench.parts.kernel import (
    Adjacency,
    Kernel,
    Scaling,
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
    PreSampledCache,
    SwappingMemory,
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
    ColumnPlacement,
    EvenShares,
    Handed,
    PartitionPlacement,
    Placement,
    SeedPlacement,
    SeedSession,
    ShardPlacement,
    divide_evenly,
    hand_out,
)
from gnnbench.parts.sampler import (
    UNIFORM,
    Chunks,
    DeviceCapacity,
    FullGraphSampler,
    GridSampler,
    LayeredSampler,
    MiniBatchSampler,
    Sampler,
    StagedSampler,
)

__all__ = [
    "BOTH_MODES",
    "HOST_STAGES",
    "TOPOLOGY_PART",
    "UNIFORM",
    "AdaptiveExchange",
    "Adjacency",
    "Broadcast",
    "Bundle",
    "CacheMemory",
    "CacheSession",
    "Chunks",
    "ColumnPlacement",
    "Communication",
    "DeviceCapacity",
    "DeviceMemory",
    "EvenShares",
    "EverythingCrosses",
    "FullGraphSampler",
    "GridSampler",
    "HaloExchange",
    "HaloTraffic",
    "Handed",
    "HostLoading",
    "Intermediates",
    "Kernel",
    "LayerClass",
    "LayerShape",
    "LayeredSampler",
    "LoadingMemory",
    "Memory",
    "MiniBatchSampler",
    "NoTransfer",
    "OfFullGraphs",
    "OfMiniBatches",
    "OffloadingMemory",
    "Part",
    "PartitionPlacement",
    "PeerData",
    "Placement",
    "PreSampledCache",
    "Prefetching",
    "RingReduction",
    "RoundedLoading",
    "RowSharing",
    "RowTransfer",
    "SampledExchange",
    "Sampler",
    "Scaling",
    "SeedPlacement",
    "SeedSession",
    "Session",
    "Setting",
    "ShardExchange",
    "ShardPlacement",
    "StagedSampler",
    "StaleExchange",
    "StreamedLoading",
    "SwappingMemory",
    "TrafficSession",
    "Turnover",
    "closest",
    "describe_option",
    "divide_evenly",
    "hand_out",
    "list_choices",
    "list_tried",
    "modes_of",
    "option",
    "option_fields",
    "parse_option",
]
