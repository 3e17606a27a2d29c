"""What a step waits for, derived from the buffers that it and the steps before it use."""

from __future__ import annotations

import threading

from gnnbench.program.step import Buffer, Step


class Waits:
    """Follows the steps of one epoch, in their order.

    A step that reads waits for the last that wrote the buffer and for all that added to it since;
    one that adds, for the last that wrote it and for those that read it since; one that writes, for
    all of these. Several threads may follow steps at once that no wait orders.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()

    def follow(self, step: Step, number: int) -> tuple[int, ...]:
        """Which steps, by number and ascending, ``step`` waits for, which is ``number`` itself."""
        earlier: list[int] = []
        for buffer in step.reads:
            if buffer.follow is not self:
                self._open(buffer)
            earlier += buffer.written
            earlier += buffer.added
            buffer.read.append(number)
        for buffer in step.adds:
            if buffer.follow is not self:
                self._open(buffer)
            earlier += buffer.written
            earlier += buffer.read
            buffer.added.append(number)
        for buffer in step.writes:
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
