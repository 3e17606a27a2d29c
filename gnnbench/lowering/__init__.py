"""From a bundle's parts to the steps of an epoch, by kind of schedule."""

from __future__ import annotations

from gnnbench.lowering.base import Lowering
from gnnbench.lowering.device_resident import DeviceResidentLowering
from gnnbench.models import Layer
from gnnbench.parts import Bundle, Setting

__all__ = ["Lowering", "lower"]


def lower(bundle: Bundle, setting: Setting, layers: tuple[Layer, ...]) -> Lowering:
    """What makes the programs of a bundle's epochs; its parts must have begun."""
    return DeviceResidentLowering(bundle, setting, layers)
