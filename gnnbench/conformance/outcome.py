"""What a check says: it passed, it failed, or it has nothing to say here and tells why."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from gnnbench.plugins import Registry


class NonConforming(AssertionError):
    """Raised by a check: the strategy breaks the promise, and how, in one sentence."""


class NotApplicable(Exception):
    """Raised by a check that cannot say anything about this strategy, and why."""


@dataclass(frozen=True, slots=True)
class Check:
    """A check by name. ``function(registry, strategy)`` returns what it established, in words, or
    raises :class:`NonConforming` or :class:`NotApplicable`. ``why`` is the promise it guards."""

    name: str
    function: Callable[[Registry, str], str]
    why: str


@dataclass(frozen=True, slots=True)
class CheckOutcome:
    """What a check said of a strategy; ``reason`` is never empty."""

    check: str
    status: Literal["passed", "failed", "not-applicable"]
    reason: str
    why: str
