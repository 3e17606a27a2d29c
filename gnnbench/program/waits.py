"""What a step waits for, derived from the buffers that it and the steps before it use."""

from __future__ import annotations

from dataclasses import dataclass, field

from gnnbench.program.step import Buffer, Step


@dataclass(slots=True)
class _Uses:
    """Numbers of the steps that used a buffer since it was last written."""

    written: tuple[int, ...] = ()
    added: list[int] = field(default_factory=list)
    read: list[int] = field(default_factory=list)


class Waits:
    """Follows the steps of one epoch, in their order.

    A step that reads waits for the last that wrote the buffer and for all that added to it since;
    one that adds, for the last that wrote it and for those that read it since; one that writes, for
    all of these.
    """

    def __init__(self) -> None:
        self._uses: dict[Buffer, _Uses] = {}

    def follow(self, step: Step, number: int) -> tuple[int, ...]:
        """Which steps, by number and ascending, ``step`` waits for, which is ``number`` itself."""
        earlier: set[int] = set()
        for buffer in step.reads:
            uses = self._uses_of(buffer)
            earlier.update(uses.written, uses.added)
        for buffer in step.adds:
            uses = self._uses_of(buffer)
            earlier.update(uses.written, uses.read)
        for buffer in step.writes:
            uses = self._uses_of(buffer)
            earlier.update(uses.written, uses.added, uses.read)
        for buffer in step.reads:
            self._uses[buffer].read.append(number)
        for buffer in step.adds:
            self._uses[buffer].added.append(number)
        for buffer in step.writes:
            self._uses[buffer] = _Uses((number,))
        return tuple(sorted(earlier))

    def _uses_of(self, buffer: Buffer) -> _Uses:
        uses = self._uses.get(buffer)
        if uses is None:
            uses = self._uses[buffer] = _Uses()
        return uses
