"""The steps that a step waits for, derived from the buffers that these steps use."""

from __future__ import annotations

import threading

from gnnbench.program.step import Buffer, Step


class Waits:
    """The dependencies among the steps of one epoch, followed in their order.

    A step that reads a buffer waits for the last step that wrote it, and for all that added to it
    since. A step that adds waits for the last step that wrote the buffer, and for those that read
    it since. A step that writes waits for all of these. Several threads may follow steps at once if
    no wait orders these steps.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()

    def follow(self, step: Step, number: int) -> tuple[int, ...]:
        """Return the numbers of the steps that ``step`` waits for, ascending.

        ``number`` is the number of ``step``.
        """
        earlier: list[int] = []
        reads, writes, adds = step.access
        for buffer in reads:
            if buffer.follow is not self:
                self._open(buffer)
            earlier += buffer.written
            earlier += buffer.added
            buffer.read.append(number)
        for buffer in adds:
            if buffer.follow is not self:
                self._open(buffer)
            earlier += buffer.written
            earlier += buffer.read
            buffer.added.append(number)
        for buffer in writes:
            if buffer.follow is not self:
                self._open(buffer)
            earlier += buffer.written
            earlier += buffer.added
            earlier += buffer.read
            buffer.written, buffer.added, buffer.read = (number,), [], []
        if len(earlier) == 1 and earlier[0] != number:
            return (earlier[0],)
        return tuple(sorted({*earlier} - {number})) if earlier else ()

    def _open(self, buffer: Buffer) -> None:
        with self._lock:
            if buffer.follow is not self:
                buffer.written, buffer.added, buffer.read = (), [], []
                buffer.follow = self
