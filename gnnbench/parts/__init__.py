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

from gnnbench.errors import closest as closest
from gnnbench.parts.base import BOTH_MODES as BOTH_MODES
from gnnbench.parts.base import FULL_GRAPHS as FULL_GRAPHS
from gnnbench.parts.base import MINI_BATCHES as MINI_BATCHES
from gnnbench.parts.base import LayerClass as LayerClass
from gnnbench.parts.base import Part as Part
from gnnbench.parts.base import Session as Session
from gnnbench.parts.base import Setting as Setting
from gnnbench.parts.bundle import HOST_STAGES as HOST_STAGES
from gnnbench.parts.bundle import Bundle as Bundle
from gnnbench.parts.bundle import refuse_priced as refuse_priced
from gnnbench.parts.communication import Communication as Communication
from gnnbench.parts.communication import EverythingCrosses as EverythingCrosses
from gnnbench.parts.communication import HaloExchange as HaloExchange
from gnnbench.parts.communication import HaloTraffic as HaloTraffic
from gnnbench.parts.communication import HostLoading as HostLoading
from gnnbench.parts.communication import NoTransfer as NoTransfer
from gnnbench.parts.communication import PeerData as PeerData
from gnnbench.parts.communication import ShardExchange as ShardExchange
from gnnbench.parts.communication import TrafficSession as TrafficSession
from gnnbench.parts.kernel import Adjacency as Adjacency
from gnnbench.parts.kernel import Kernel as Kernel
from gnnbench.parts.kernel import Scaling as Scaling
from gnnbench.parts.kernel import csr_bytes as csr_bytes
from gnnbench.parts.layer_shape import EarlyProducts as EarlyProducts
from gnnbench.parts.layer_shape import EdgeValues as EdgeValues
from gnnbench.parts.layer_shape import FactorCounts as FactorCounts
from gnnbench.parts.layer_shape import LayerShape as LayerShape
from gnnbench.parts.layer_shape import LayerTraits as LayerTraits
from gnnbench.parts.memory import TOPOLOGY_PART as TOPOLOGY_PART
from gnnbench.parts.memory import CacheMemory as CacheMemory
from gnnbench.parts.memory import CacheSession as CacheSession
from gnnbench.parts.memory import DeviceMemory as DeviceMemory
from gnnbench.parts.memory import Intermediates as Intermediates
from gnnbench.parts.memory import LoadingMemory as LoadingMemory
from gnnbench.parts.memory import Memory as Memory
from gnnbench.parts.memory import OffloadingMemory as OffloadingMemory
from gnnbench.parts.memory import Turnover as Turnover
from gnnbench.parts.options import describe_option as describe_option
from gnnbench.parts.options import list_choices as list_choices
from gnnbench.parts.options import list_tried as list_tried
from gnnbench.parts.options import option as option
from gnnbench.parts.options import option_fields as option_fields
from gnnbench.parts.options import parse_option as parse_option
from gnnbench.parts.placement import EvenShares as EvenShares
from gnnbench.parts.placement import Handed as Handed
from gnnbench.parts.placement import Placement as Placement
from gnnbench.parts.placement import SeedSession as SeedSession
from gnnbench.parts.placement import divide_evenly as divide_evenly
from gnnbench.parts.placement import hand_out as hand_out
from gnnbench.parts.sampler import UNIFORM as UNIFORM
from gnnbench.parts.sampler import UNSHUFFLED as UNSHUFFLED
from gnnbench.parts.sampler import Chunks as Chunks
from gnnbench.parts.sampler import DeviceCapacity as DeviceCapacity
from gnnbench.parts.sampler import FullGraphSampler as FullGraphSampler
from gnnbench.parts.sampler import Loader as Loader
from gnnbench.parts.sampler import MiniBatchSampler as MiniBatchSampler
from gnnbench.parts.sampler import Sampler as Sampler
from gnnbench.parts.sampler import find_coverage_fault as find_coverage_fault
from gnnbench.parts.sampler import shuffle_seeds as shuffle_seeds
