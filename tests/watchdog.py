"""Ends a test process that makes no progress, and shows where its threads stand.

Neither a busy machine nor a slow one is a reason: time counts only while nothing happens, no
:meth:`Watchdog.tick` and hardly any work of this process's processors, as in a deadlock.
"""

import faulthandler
import os
import threading
import time
from contextlib import AbstractContextManager, nullcontext

#: Nothing may happen for so long.
STALL_S = 180.0
#: Less processor time than this is nothing: the watchdog itself takes some.
NOTHING_S = 0.1
LOOK_S = 1.0


class Watchdog:
    """Watches this process between ``start`` and ``stop``, from a thread of its own."""

    def __init__(
        self, stall_s: float = STALL_S, showing: AbstractContextManager[None] | None = None
    ) -> None:
        """In ``showing`` standard error is where people read it."""
        self._stall_s = stall_s
        self._showing = showing or nullcontext()
        self._ticks = self._looks = 0
        #: Ticks and processor time when something was last done.
        self._seen = (0, time.process_time())
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="watchdog", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join()

    def tick(self) -> None:
        """Say that something was done."""
        self._ticks += 1

    def look(self) -> bool:
        """Once in ``LOOK_S``: whether nothing has been done for too long."""
        now = (self._ticks, time.process_time())
        if now[0] != self._seen[0] or now[1] - self._seen[1] > NOTHING_S:
            self._seen, self._looks = now, 0
            return False
        # Looks are counted, not the clock: a machine may have slept meanwhile.
        self._looks += 1
        return self._looks * LOOK_S >= self._stall_s

    def _watch(self) -> None:
        while not self._stopped.wait(LOOK_S):
            if self.look():
                with self._showing:
                    os.write(2, f"nothing was done for {self._stall_s:g} s:\n".encode())
                    faulthandler.dump_traceback(2)
                    os._exit(1)
