"""The modelled time of a bundle's epochs on a platform, stage by stage."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gnnbench.parts import Bundle, Setting
from gnnbench.price.dry_run import DryRun
from gnnbench.records import Stage


@dataclass(frozen=True, slots=True)
class EpochPrice:
    """The seconds of an epoch, and the busy seconds of each of its stages.

    A stage's busiest device, link or thread gives its seconds.
    """

    epoch_s: float
    stages_s: Mapping[Stage, float]


def price_epochs(bundle: Bundle, setting: Setting, count: int) -> tuple[EpochPrice, ...]:
    """Return the prices of the first ``count`` epochs, by the sizes of their steps.

    Raises ``IncompatiblePartsError`` and ``DeviceOutOfMemoryError`` as :class:`DryRun` does.
    """
    digests = (found for _, found in DryRun(bundle, setting).run_epochs(count))
    return tuple(EpochPrice(found.epoch_s, found.stages) for found in digests)
