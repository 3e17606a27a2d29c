"""Connections between ranks that tell which rank is present, waiting, or gone.

A thread of each rank sends every other rank a line, twice a second. So a rank that waits in vain
can name the rank to blame. A killed process closes its connections. A stopped process, or a node
that was cut off, is silent. A hanging rank is heard, but does not wait for others. A rank that ends
early says why first, and all ranks that lose it say the same.
"""

from __future__ import annotations

import contextlib
import selectors
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from gnnbench.constants import Bound

#: Seconds between two lines to each rank.
BEAT_S: Bound[float] = 0.5
#: A rank that was not heard for as long is silent.
SILENT_S: Bound[float] = 3.0
#: How long a rank that lost the others waits for news of the cause.
SETTLE_S: Bound[float] = 1.0
LOOK_S: Bound[float] = 0.05
#: The first letter of a line: the rank computes or waits, an order of rank 0 is out, the rank is
#: done, or it fails for the reason in the rest of the line.
COMPUTES, WAITS, ORDER, DONE, FAILS = "c", "w", "o", "d", "x"


@dataclass(slots=True, eq=False)
class _Peer:
    """Another rank, and what was heard from it."""

    name: str
    line: socket.socket
    heard_s: float
    waits: bool = False
    done: bool = False
    #: The moment when it ended, if it was not done, and the reason that it gave.
    ended_s: float | None = None
    reason: str = ""
    rest: bytes = field(default=b"", repr=False)


class Peers:
    """The other ranks, by rank; ``names`` has the words for each rank in messages."""

    def __init__(self, rank: int, lines: Mapping[int, socket.socket], names: Sequence[str]) -> None:
        self.names = tuple(names)
        self.name = names[rank]
        now_s = time.monotonic()
        self._peers = {each: _Peer(names[each], line, now_s) for each, line in lines.items()}
        self._orders = 0
        self._waiting = False
        self._sending = threading.Lock()
        self._selector = selectors.DefaultSelector()
        for peer in self._peers.values():
            peer.line.setblocking(False)
            self._selector.register(peer.line, selectors.EVENT_READ, peer)
        self._waker, woken = socket.socketpair()
        self._selector.register(woken, selectors.EVENT_READ)
        self._thread = threading.Thread(target=self._run, name="peers", daemon=True)
        self._thread.start()

    # ------------------------------------------------------------------ what is said

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Tell the others that this rank waits for them while the body runs."""
        self._waiting = True
        try:
            yield
        finally:
            self._waiting = False

    def order(self) -> None:
        """Tell the others that rank 0 has an order for them."""
        self._tell(ORDER)

    def fail(self, reason: str) -> None:
        """Tell the others why this rank ends before the work is done."""
        self._tell(FAILS + " ".join(reason.split()))

    def close(self) -> None:
        """Tell the others that this rank is done, and close the connections."""
        self._tell(DONE)
        self._waker.close()
        self._thread.join()
        for peer in self._peers.values():
            peer.line.close()
        self._selector.close()

    def _tell(self, line: str) -> None:
        text = f"{line}\n".encode()
        with self._sending:
            for peer in self._peers.values():
                # A full buffer belongs to a rank that has been silent for long.
                with contextlib.suppress(OSError):
                    peer.line.send(text)

    # ------------------------------------------------------------------ what is heard

    def _run(self) -> None:
        sent_s = 0.0
        while True:
            for key, _ in self._selector.select(BEAT_S / 2):
                if key.data is None:
                    return
                self._read(key.data)
            if time.monotonic() - sent_s >= BEAT_S:
                sent_s = time.monotonic()
                self._tell(WAITS if self._waiting else COMPUTES)

    def _read(self, peer: _Peer) -> None:
        try:
            found = peer.line.recv(1 << 16)
        except BlockingIOError:
            return
        except OSError:
            found = b""
        if not found:
            self._selector.unregister(peer.line)
            if not peer.done and peer.ended_s is None:
                peer.ended_s = time.monotonic()
            return
        peer.heard_s = time.monotonic()
        *lines, peer.rest = (peer.rest + found).split(b"\n")
        for line in lines:
            self._hear(peer, line.decode(errors="replace"))

    def _hear(self, peer: _Peer, line: str) -> None:
        kind, rest = line[:1], line[1:]
        if kind in (COMPUTES, WAITS):
            peer.waits = kind == WAITS
        elif kind == ORDER:
            self._orders += 1
        elif kind == DONE:
            peer.done = True
        elif kind == FAILS and peer.ended_s is None:
            peer.ended_s, peer.reason = peer.heard_s, rest

    def await_order(self, number: int, patience_s: float) -> bool:
        """Wait until rank 0 has told ``number`` orders, for any time while it is heard.

        Return False if a rank has ended before, or if rank 0 is silent for ``patience_s``.
        """
        began_s = time.monotonic()
        while self._orders < number:
            now_s, leader = time.monotonic(), self._peers[0]
            if any(peer.ended_s is not None for peer in self._peers.values()) or leader.done:
                return self._orders >= number
            if now_s - max(leader.heard_s, began_s) >= patience_s:
                return False
            time.sleep(LOOK_S)
        return True

    def find_fault(self) -> tuple[float, str] | None:
        """Return the moment when the first rank ended early, and why; None if none has."""
        ended = [(peer.ended_s, peer) for peer in self._peers.values() if peer.ended_s is not None]
        if not ended:
            return None
        moment_s, first = min(ended, key=lambda pair: pair[0])
        return moment_s, first.reason or (
            f"{first.name} is gone: it was killed, or its node has failed; see whether the machine "
            f"ran out of memory, and run again."
        )

    def explain(self, what: str, patience_s: float, why: str) -> str:
        """Return who is to blame that ``what`` was not finished, as a sentence.

        ``why`` is the process group's reason, for the case that no rank is known to be at fault.
        """
        until_s = time.monotonic() + SETTLE_S
        while self.find_fault() is None and time.monotonic() < until_s:
            time.sleep(LOOK_S)
        time.sleep(2 * LOOK_S)  # others may have ended before the one that was heard first
        if (fault := self.find_fault()) is not None:
            return fault[1]
        now_s = time.monotonic()
        present = [peer for peer in self._peers.values() if not peer.done]
        silent = [peer for peer in present if now_s - peer.heard_s >= SILENT_S]
        if len(silent) > 1 and len(silent) == len(self._peers):
            return (
                f"{self.name} has heard from no other rank for {_longest(silent, now_s):.0f} s, so "
                f"its node was cut off; check the network between the nodes, and run again."
            )
        if silent:
            return (
                f"{_list(silent)} did not answer for {_longest(silent, now_s):.0f} s: stopped by a "
                f"signal, or cut off; check the network between the nodes, and run again."
            )
        if late := self._find(lambda peer: not peer.waits) or self._find(lambda peer: peer.done):
            return (
                f"{_list(late)} did not take part: {self.name} waited {patience_s:g} s in {what}. "
                f"If a step takes longer, and no rank hangs, give a longer --patience."
            )
        return (
            f"{self.name} could not finish {what} with the other ranks, which are all there "
            f"({why}); check the network, and run again."
        )

    def _find(self, fits: Callable[[_Peer], bool]) -> list[_Peer]:
        return [peer for peer in self._peers.values() if fits(peer)]


def _longest(silent: Sequence[_Peer], now_s: float) -> float:
    return max(now_s - peer.heard_s for peer in silent)


def _list(peers: Sequence[_Peer]) -> str:
    return " and ".join(peer.name for peer in peers)
