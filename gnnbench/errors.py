"""Everything gnnbench raises on purpose.

Each message is one sentence that says what is wrong, where, and how to mend it; the command line
prints it as it stands and exits with ``exit_status``.
"""

from __future__ import annotations


class GnnbenchError(Exception):
    """Base of every deliberate error; ``exit_status`` is what the command line returns."""

    exit_status = 3


class UsageError(GnnbenchError):
    """The request itself is wrong: a name, a number, an option."""

    exit_status = 2


class DatasetError(UsageError):
    """A dataset file or name that cannot be used as it is."""


class PlatformError(UsageError):
    """A platform file or name that cannot be used as it is."""


class PluginError(UsageError):
    """A plugin that cannot be found, loaded or told apart from another."""


class IncompatibleParts(UsageError):
    """A combination of parts that cannot work; raised before anything runs."""


class MissingDependency(GnnbenchError):
    """A strategy needs a library that is not installed here; its run is skipped."""


class DeviceOutOfMemory(GnnbenchError):
    """An allocation that would exceed a device's capacity.

    Attributes: ``device`` (name), ``tensor`` (what was being allocated), ``requested_bytes``,
    ``in_use_bytes`` and ``capacity_bytes``.
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
        super().__init__(
            f"{device} is out of memory: {tensor} needs {requested_bytes:,} bytes, "
            f"{in_use_bytes:,} of {capacity_bytes:,} are in use; use smaller units "
            f"(a smaller batch, more chunks) or a memory part that offloads."
        )
