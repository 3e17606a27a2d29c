"""Starts a command once for every rank on this machine, watches the ranks, and ends them together.

``gnnbench compare --processes N`` works as ``torchrun`` does: every rank runs the same command with
``RANK`` and ``WORLD_SIZE`` in its environment. Rank 0 speaks for all of them. If one rank fails,
the others are stopped. All stop if the process that started them is gone.

Ranks meet on the loopback interface, and import nothing from the current folder.

``torchrun`` may start the ranks too, but cannot replace this module. Its rendezvous store listens
on every interface, and its workers are sessions that outlive it. It looks only at exit statuses,
the earliest first: it waits forever for a rank that hangs, and may blame one that only lost its
peers.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import IO, TYPE_CHECKING

from gnnbench.cli.progress import silence
from gnnbench.errors import GnnbenchError
from gnnbench.host import signals
from gnnbench.host.rank import (
    DONE,
    JOINED,
    LOOPBACK,
    REPORT_FD,
    STORE_FD,
    WATCHED,
    Place,
    find_loopback,
    is_watched,
    spell_command,
)
from gnnbench.report.results.output import find_standard_output

if TYPE_CHECKING:
    from gnnbench.run.collectives import Processes
    from gnnbench.run.joining import Make

#: Exit statuses of a rank that lost the others, and of one that waited for them in vain. Both are
#: another rank's fault.
LOST, SILENT = 5, 6
#: Exit status of a rank that refuses the command, as all others will.
REFUSED = 2
#: Replaces the status of a rank that exited with 0 before the work was done.
LEFT = 1000
#: Seconds between two looks at the ranks; for the others to exit, or to refuse the command too; and
#: before a rank is killed.
LOOK_S, GRACE_S, REFUSING_S, STOP_S = 0.05, 2.0, 20.0, 5.0
#: Seconds between two looks at the activity of the ranks.
PULSE_S = 0.5


class RankFailedError(GnnbenchError):
    """A rank that ended, or stood still, before the work was done."""


@dataclass(slots=True, eq=False)
class Rank:
    """A started process, with its reports so far.

    ``errors`` is the file of its standard error, None if it shares this command's.
    """

    process: subprocess.Popen[bytes]
    reports: int
    errors: IO[bytes] | None = None
    reported: str = ""
    still_s: float = field(default=0.0, init=False)

    def poll(self) -> int | None:
        """Return its exit status, None while it runs; ``LEFT`` if it had work left."""
        status = self.process.poll()
        try:
            while more := os.read(self.reports, 64):
                self.reported += more.decode()
        except BlockingIOError:
            pass
        return LEFT if status == 0 and DONE not in self.reported else status


def end_with_starter() -> None:
    """End this process when the one that started it is gone."""

    def wait() -> None:
        while os.read(sys.stdin.fileno(), 1):
            pass
        os._exit(LOST)

    threading.Thread(target=wait, daemon=True).start()


def begin_as_rank(*, debug: bool) -> None:
    """Prepare this process for its work as a rank, before torch is imported.

    A signal ends it even while it waits for others. Torch's own log is silent unless the user wants
    it: an error is one sentence.
    """
    signals.insist()
    if not debug:
        os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "FATAL")
    if is_watched():
        end_with_starter()


@contextmanager
def joined(place: Place, patience_s: float, make: Make | None = None) -> Iterator[Processes]:
    """Join the other ranks, run the body, and leave them.

    Raises ``RankFailedError`` if they are lost. In a rank that was started here, the starter names
    the rank that failed: rank 0 ends without a word, and the others say what they have seen.
    """
    from gnnbench.run.collectives import PeerLostError
    from gnnbench.run.joining import join

    try:
        processes = join(place, patience_s, make)
        signals.explain_by(processes.peers.find_fault)
        with processes.accounting():
            yield processes
        processes.leave()
    except PeerLostError as error:
        if is_watched():
            if place.rank == 0:
                signals.leave(error.exit_status)
            raise
        if signals.has_come() and signals.find_cause() is None:
            raise  # the signal was first
        signals.forget()
        raise RankFailedError(str(error)) from error
    except KeyboardInterrupt:
        fault = signals.find_cause()
        if is_watched() or fault is None:
            raise
        signals.forget()
        raise RankFailedError(fault) from None


def run_ranks(arguments: Sequence[str], processes: int, patience_s: float) -> int:
    """Run ``gnnbench`` with ``arguments`` as ``processes`` ranks; return the status of rank 0.

    Ranks give each other up after ``patience_s`` seconds in a step. Raises ``RankFailedError``,
    which names the rank that failed, after all have been stopped. It is raised before any is
    started if they could not meet.
    """
    if find_loopback() is None:
        raise RankFailedError(
            f"ranks meet at {LOOPBACK}, and no network interface that is up has this address; "
            f"bring the loopback interface up (ip link set lo up)."
        )
    silence()  # rank 0 writes the line
    ranks: list[Rank] = []
    with ExitStack() as stack:
        stack.callback(_stop, ranks)
        errors: list[IO[bytes] | None] = [None]
        for _ in range(1, processes):
            errors.append(stack.enter_context(tempfile.TemporaryFile()))
        store = stack.enter_context(socket.create_server((LOOPBACK, 0), backlog=processes))
        with _interrupts_held_back():
            for number in range(processes):
                rank = _start(number, processes, arguments, store, errors[number])
                stack.callback(os.close, rank.reports)
                ranks.append(rank)
        return _watch(ranks, patience_s)


def _start(
    number: int,
    processes: int,
    arguments: Sequence[str],
    store: socket.socket,
    errors: IO[bytes] | None,
) -> Rank:
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    environment = os.environ | {
        "RANK": str(number),
        "LOCAL_RANK": str(number),
        "WORLD_SIZE": str(processes),
        "LOCAL_WORLD_SIZE": str(processes),
        "GROUP_RANK": "0",
        "MASTER_ADDR": LOOPBACK,
        "MASTER_PORT": str(store.getsockname()[1]),
        WATCHED: "1",
        REPORT_FD: str(writing),
    }
    passed = [writing]
    if number == 0:
        environment[STORE_FD] = str(store.fileno())
        passed.append(store.fileno())
    try:
        process = subprocess.Popen(
            spell_command(arguments),
            env=environment,
            stdin=subprocess.PIPE,
            # Other ranks print to standard error, since their output is not the result.
            stdout=2 if number else find_standard_output(),
            stderr=errors,
            pass_fds=passed,
        )
    finally:
        os.close(writing)
    return Rank(process, reading, errors)


@contextmanager
def _interrupts_held_back() -> Iterator[None]:
    """Hide Ctrl-C from processes started in the body: this process handles it and stops them."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _watch(ranks: Sequence[Rank], patience_s: float) -> int:
    """Wait for all ranks; return the status of rank 0, unless another rank is to blame for it."""
    pulse = _Pulse(ranks, patience_s)
    while True:
        statuses = [rank.poll() for rank in ranks]
        if any(status is None for status in statuses) and not any(statuses):
            time.sleep(LOOK_S)
            pulse.feel()
            continue
        if any(statuses):
            statuses = _await_others(ranks)
        # A refused command is refused by all; rank 0 has printed the reason, or its results.
        if statuses[0] in (0, 1, 2, 4) and all(status in (0, statuses[0]) for status in statuses):
            return statuses[0] or 0
        culprit = find_culprit(statuses, [JOINED in rank.reported for rank in ranks])
        status = statuses[culprit]
        if culprit == 0 and (status or 0) > 0 and status not in (LOST, SILENT, LEFT):
            return status or 0
        if status is None:
            raise RankFailedError(
                f"rank {culprit} did not answer for {patience_s:g} s, so all ranks were stopped. "
                f"It hung, or a step takes longer: then give a longer --patience."
            )
        errors = ranks[culprit].errors
        if status in (LOST, SILENT):  # all say the same; rank 0's errors are not kept
            errors = next((rank.errors for rank in ranks if rank.errors is not None), None)
        raise RankFailedError(_describe(culprit, status, errors))


class _Pulse:
    """A watch for ranks that stand still though none has ended.

    Either one was stopped by a signal, or all hang at once, so that none can miss another. Only
    time during which this process itself runs counts.
    """

    def __init__(self, ranks: Sequence[Rank], patience_s: float) -> None:
        import psutil

        self._ranks = ranks
        self._patience_s = patience_s
        self._processes = [psutil.Process(rank.process.pid) for rank in ranks]
        self._gone, self._stopped = psutil.Error, psutil.STATUS_STOPPED
        self._used_s = -1.0
        self._idle_s = 0.0
        self._felt_s = time.monotonic()

    def feel(self) -> None:
        """Look, if it is time to."""
        since_s = time.monotonic() - self._felt_s
        if since_s < PULSE_S:
            return
        self._felt_s += since_s
        passed_s = min(since_s, 2 * PULSE_S)
        try:
            used_s = sum(sum(process.cpu_times()[:2]) for process in self._processes)
            stopped = [process.status() == self._stopped for process in self._processes]
        except self._gone:  # one has ended: its status tells more at the next look
            return
        for number, (rank, stands) in enumerate(zip(self._ranks, stopped, strict=True)):
            rank.still_s = rank.still_s + passed_s if stands else 0.0
            if rank.still_s >= self._patience_s:
                raise RankFailedError(
                    f"rank {number} was stopped by a signal, did not go on for "
                    f"{self._patience_s:g} s, and was ended with all others; run again."
                )
        self._idle_s = self._idle_s + passed_s if used_s == self._used_s else 0.0
        self._used_s = used_s
        # Ranks that wait for one another in a step report a missing peer first.
        if self._idle_s >= self._patience_s + GRACE_S:
            away = [n for n, rank in enumerate(self._ranks) if JOINED not in rank.reported]
            where = f"rank {away[0]} had not met the others yet" if away else "all had met"
            raise RankFailedError(
                f"no rank did anything for {self._patience_s:g} s, and all were stopped; {where}: "
                f"they hang, or wait for something outside: then give a longer --patience."
            )


def _await_others(ranks: Sequence[Rank]) -> list[int | None]:
    """Return the statuses shortly after the first bad one: the others need a moment to notice."""
    refused = any(rank.poll() == REFUSED for rank in ranks)
    deadline = time.monotonic() + (REFUSING_S if refused else GRACE_S)
    while time.monotonic() < deadline:
        statuses = [rank.poll() for rank in ranks]
        if None not in statuses or any(status is not None and status < 0 for status in statuses):
            return statuses
        time.sleep(LOOK_S)
    return [rank.poll() for rank in ranks]


def find_culprit(statuses: Sequence[int | None], joined: Sequence[bool] = ()) -> int:
    """Return the rank that failed first, from statuses of which at least one is bad.

    In order of blame: a killed rank; one that failed; one that left its work undone; one that
    others waited for in vain (status None), first those that had not ``joined``; one that only lost
    the others.
    """
    waited = SILENT in statuses

    def blame(rank: int) -> int:
        status = statuses[rank]
        if status is None:
            if not waited:
                return 6
            return 4 if joined and joined[rank] else 3
        if status in (LOST, SILENT):
            return 5
        if status == 0:
            return 7
        return 0 if status < 0 else 2 if status == LEFT else 1

    return min(range(len(statuses)), key=blame)


def _describe(rank: int, status: int, errors: IO[bytes] | None) -> str:
    if status < 0:
        return (
            f"rank {rank} was killed by {signal.Signals(-status).name}, and the other ranks were "
            f"stopped; see whether the machine ran out of memory, and run again."
        )
    said = ""
    if errors is not None:
        errors.seek(0)
        lines = errors.read().decode(errors="replace").strip().splitlines()
        own = [line for line in lines if line.startswith("gnnbench: error: ")] or lines
        said = f": {own[-1].removeprefix('gnnbench: error: ')}" if own else ""
    if status == LEFT:
        return f"rank {rank} ended before the work was done, and the other ranks were stopped{said}"
    return f"rank {rank} ended with status {status}, and the other ranks were stopped{said}"


def _stop(ranks: Sequence[Rank]) -> None:
    """End every rank that still runs."""
    processes = [rank.process for rank in ranks]
    for process in processes:
        if process.poll() is None:
            process.terminate()
            process.send_signal(signal.SIGCONT)
    deadline = time.monotonic() + STOP_S
    for process in processes:
        try:
            process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if process.stdin is not None:
            process.stdin.close()
