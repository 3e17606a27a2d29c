"""The outcomes of a check: passed, failed, not reached, or not applicable, with a reason."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from gnnbench.errors import MissingDependencyError

if TYPE_CHECKING:
    from gnnbench.check.subject import Subject

Verdict = Literal["passed", "failed", "not-reached", "not-applicable"]


class NonConformingError(AssertionError):
    """Raised by a check: the strategy breaks the promise, and how, in one sentence."""


class NotReachedError(Exception):
    """Raised by a check that could not bring about its test case, which the message names."""


class NotApplicableError(Exception):
    """Raised by a check that does not apply to this strategy, with the reason."""


@dataclass(frozen=True, slots=True)
class Check:
    """A check by name, with the promise ``why`` that it guards.

    ``function(subject)`` returns its findings in words, or raises :class:`NonConformingError`,
    :class:`NotReachedError` or :class:`NotApplicableError`.
    """

    name: str
    function: Callable[[Subject], str]
    why: str


@dataclass(frozen=True, slots=True)
class CheckOutcome:
    """The outcome of a check on a strategy or a part; ``reason`` is never empty."""

    check: str
    status: Verdict
    reason: str
    why: str


def judge(check: Check, subject: Subject) -> CheckOutcome:
    """Run one check; an exception of the plugin, ``SystemExit`` too, becomes a failure.

    Only ``KeyboardInterrupt`` is passed on.
    """
    status: Verdict
    try:
        status, reason = "passed", check.function(subject)
    except KeyboardInterrupt:
        raise
    except NonConformingError as broken:
        status, reason = "failed", str(broken)
    except (NotReachedError, MissingDependencyError) as missing:
        status, reason = "not-reached", describe_error(missing, named=False)
    except NotApplicableError as nothing:
        status, reason = "not-applicable", str(nothing)
    except BaseException as error:
        status, reason = "failed", f"raised {describe_error(error)}{_locate(error)}"
    return CheckOutcome(check.name, status, reason, check.why)


def describe_error(error: BaseException, *, named: bool = True) -> str:
    """Return an exception's type, if it is to be ``named``, and its message on one line.

    If the exception has no readable text, the error of reading it stands in for the message.
    """
    name = type(error).__name__
    try:
        message = " ".join(str(error).split())
    except KeyboardInterrupt:
        raise
    except BaseException as another:
        return f"{name}, whose message cannot be read ({type(another).__name__} is raised for it)"
    if not message:
        return name
    return f"{name}: {message}" if named else message


def _locate(error: BaseException) -> str:
    """Return where an exception was raised, in brackets; empty if that is unknown."""
    frames = traceback.extract_tb(error.__traceback__)
    if not frames:
        return ""
    return f" ({Path(frames[-1].filename).name}, line {frames[-1].lineno})"
