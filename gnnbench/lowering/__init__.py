"""The lowering of a bundle's parts to the steps of an epoch, by kind of schedule."""

from __future__ import annotations

from gnnbench.lowering.base import Lowering
from gnnbench.lowering.device_resident import DeviceResidentLowering
from gnnbench.lowering.feature_shards import FeatureShardsLowering
from gnnbench.lowering.host_resident import HostResidentLowering
from gnnbench.lowering.mini_batch import MiniBatchLowering
from gnnbench.lowering.overlapped import OverlappedLowering
from gnnbench.lowering.streamed import StreamedLowering
from gnnbench.lowering.working_sets import is_overlapped, is_streamed
from gnnbench.parts import Bundle, OffloadingMemory

__all__ = ["Lowering", "choose_lowering"]


def choose_lowering(bundle: Bundle) -> type[Lowering]:
    """Return the class that makes the programs of a bundle's epochs."""
    if bundle.mode == "mini-batch":
        return MiniBatchLowering
    if bundle.by_features:
        return FeatureShardsLowering
    if isinstance(bundle.memory, OffloadingMemory):
        if is_streamed(bundle):
            return StreamedLowering
        return OverlappedLowering if is_overlapped(bundle) else HostResidentLowering
    return DeviceResidentLowering
