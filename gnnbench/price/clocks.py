"""The choice of the clock that times a platform's runs."""

from __future__ import annotations

from gnnbench.parts import Bundle, Setting
from gnnbench.price.model_clock import ModelClock
from gnnbench.price.wall_clock import WallClock


def clock_for(bundle: Bundle, setting: Setting) -> ModelClock | WallClock:
    """Return the wall clock if every device exists here, else the model clock."""
    if setting.platform.virtual:
        return ModelClock(setting.platform, bundle.kernel, bundle.sampler)
    return WallClock()
