"""Every deliberate error of gnnbench, and a test for one error of other libraries.

Each message is one sentence that says what is wrong, where, and how to fix it. The command line
prints it unchanged and exits with ``exit_status``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

#: The most characters that a message quotes from another error.
_REASON_LENGTH = 200


class GnnbenchError(Exception):
    """The base of every deliberate error; ``exit_status`` is the command line's."""

    exit_status = 3


class UsageError(GnnbenchError):
    """A request that is wrong in itself: a name, a number, an option."""

    exit_status = 2


class DatasetError(UsageError):
    """A dataset file or name that cannot be used as it is."""


class PlatformError(UsageError):
    """A platform file or name that cannot be used as it is."""


class PluginError(UsageError):
    """A plugin that cannot be found, loaded or told apart from another."""


class IncompatiblePartsError(UsageError):
    """A combination of parts that cannot work; raised before anything runs."""


class MissingDependencyError(GnnbenchError):
    """A library that a strategy needs and that is not installed here; its run is skipped."""


def words_of(error: BaseException) -> str:
    """Return an exception's message, or a stand-in if a plugin's exception cannot state one."""
    try:
        return str(error)
    except KeyboardInterrupt:
        raise
    except BaseException:
        return "it cannot say why"


def reason_of(error: BaseException) -> str:
    """Return an exception's message on one line, or its type's name if it has none.

    The full stop and escape sequences are left out.
    """
    words = " ".join(re.sub("\x1b\\[[0-9;]*m", "", words_of(error)).split()).rstrip(".")
    return words[:_REASON_LENGTH] or type(error).__name__


class StageFailedError(GnnbenchError):
    """The failure of a stage of mini-batch training; its error is the ``__cause__``.

    Attributes: ``stage``, ``round`` and ``device`` say where; ``also`` holds concurrent failures of
    other threads. The exit status is the cause's, if it has one.
    """

    def __init__(self, stage: str, round: int, device: str, cause: BaseException) -> None:
        self.stage = stage
        self.round = round
        self.device = device
        self.also: tuple[GnnbenchError, ...] = ()
        if isinstance(cause, GnnbenchError):
            self.exit_status = cause.exit_status
            what = str(cause)
        else:
            what = f"{type(cause).__name__}: {words_of(cause)}; run with --debug for the traceback."
        super().__init__(f"stage {stage} of round {round} failed on {device}: {what}")


class Interrupted(KeyboardInterrupt):
    """Ctrl-C in mini-batch training.

    ``running`` has (stage, round, device) of every stage that was running, the earliest round
    first.
    """

    def __init__(self, running: tuple[tuple[str, int, str], ...]) -> None:
        self.running = running
        places = [
            f"stage {stage} of round {number} on {device}" for stage, number, device in running
        ]
        super().__init__(f"interrupted in {', '.join(places)}." if places else "interrupted.")


class DeviceOutOfMemoryError(GnnbenchError):
    """An allocation that would exceed a device's capacity.

    Attributes: ``device`` (name), ``tensor`` (what was being allocated), ``requested_bytes``,
    ``in_use_bytes`` and ``capacity_bytes``. In mini-batch training ``stage`` and ``round`` say
    where, and ``also`` holds concurrent failures of other threads.
    """

    def __init__(
        self,
        device: str,
        tensor: str,
        requested_bytes: int,
        in_use_bytes: int,
        capacity_bytes: int,
    ) -> None:
        self.device = device
        self.tensor = tensor
        self.requested_bytes = requested_bytes
        self.in_use_bytes = in_use_bytes
        self.capacity_bytes = capacity_bytes
        self.stage = ""
        self.round = -1
        self.also: tuple[GnnbenchError, ...] = ()
        super().__init__(device, tensor)

    def __str__(self) -> str:
        where = f" in stage {self.stage} of round {self.round}" if self.stage else ""
        return (
            f"{self.device} is out of memory: {self.requested_bytes:,} bytes are needed for "
            f"{self.tensor}{where}, {self.in_use_bytes:,} of {self.capacity_bytes:,} are in use. "
            f"Use a smaller batch, more chunks, a memory part that offloads, or a larger budget."
        )


def is_host_memory_error(error: BaseException) -> bool:
    """Return whether this machine lacked the memory for an allocation.

    torch has no separate class for this on CPUs: it raises :class:`RuntimeError` with a message.
    """
    return isinstance(error, MemoryError) or (
        isinstance(error, RuntimeError) and "can't allocate memory" in str(error)
    )


def closest(name: str, known: Iterable[str]) -> str:
    """Return ``" (did you mean 'x'?)"`` if a known name is spelt alike, else an empty text."""
    import difflib

    matches = difflib.get_close_matches(name, list(known), n=2)
    return f" (did you mean {' or '.join(map(repr, matches))}?)" if matches else ""
