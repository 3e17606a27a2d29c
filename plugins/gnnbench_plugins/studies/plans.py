"""Plans from sizes, as ``gnnbench plan`` makes them: the price of every library in every study."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from gnnbench.jobs.job import PlanJob
from gnnbench.jobs.sized import prepare_sizes
from gnnbench.plugins import Registry, load
from gnnbench.price.sized import SizedEpochs, price_sizes

#: Options of a plan, by name, as a job has them; each can be hashed.
PlanOptions = tuple[tuple[str, Any], ...]


@cache
def find_registry() -> Registry:
    """Return the parts and strategies of the installed plugins."""
    return load()


def make_epochs(options: Mapping[str, Any]) -> SizedEpochs:
    """Return the epochs of a plan with these options.

    Raises ``DeviceOutOfMemoryError`` where a memory cannot hold them.
    """
    return price_sizes(*prepare_sizes(PlanJob(**options), find_registry()))


@cache
def price_plan(options: PlanOptions) -> SizedEpochs:
    """Return the epochs of a plan, which are kept; raises as :func:`make_epochs` does."""
    return make_epochs(dict(options))


def forget_prices() -> None:
    """Forget all prices, since constants have changed."""
    price_plan.cache_clear()
