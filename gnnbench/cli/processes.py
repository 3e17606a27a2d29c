"""Starts a command once for every rank on this machine, watches the ranks, and ends them together.

What ``torchrun`` does with a script, for ``gnnbench compare --processes N``: every rank runs the
same command with ``RANK`` and ``WORLD_SIZE`` in its environment. Rank 0 speaks for all of them. As
soon as one ends badly the others are stopped, and so they are when whoever started them is gone.

Ranks meet on the loopback interface, and import nothing from the current folder.

``torchrun`` may start the ranks too, but it cannot stand in for this: the store of its rendezvous
listens on every interface, its workers are sessions of their own that outlive it, and it looks at
nothing but exit statuses, the earliest first, so that a rank which hangs is waited for without end
and one that only lost its peers may be blamed.
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
from pathlib import Path
from typing import IO

import gnnbench
from gnnbench import signals
from gnnbench.errors import GnnbenchError
from gnnbench.rank import DONE, JOINED, LOOPBACK, REPORT_FD, STORE_FD, WATCHED, find_loopback
from gnnbench.results.output import find_standard_output

#: What a rank ends with that lost the others, and that waited for them in vain: both are some other
#: rank's doing.
LOST, SILENT = 5, 6
#: What a rank ends with that refuses the command, as all others will.
REFUSED = 2
#: Stands for the status of a rank that ended with 0 before the work was done.
LEFT = 1000
#: Between two looks at the ranks; for the others to end by themselves, or to refuse the command
#: too; before one is killed.
LOOK_S, GRACE_S, REFUSING_S, STOP_S = 0.05, 2.0, 20.0, 5.0
#: Between two looks at what the ranks are doing.
PULSE_S = 0.5

#: Runs the ``gnnbench`` whose package is the first argument with the other ones. What ``-c`` puts
#: first on the path, the current folder, is taken off before anything is imported; what the user
#: has in PYTHONPATH stays.
BOOTSTRAP = """
import sys
if not getattr(sys.flags, "safe_path", False):
    del sys.path[0]
from importlib.util import module_from_spec, spec_from_file_location
package = sys.argv.pop(1)
spec = spec_from_file_location(
    "gnnbench", f"{package}/__init__.py", submodule_search_locations=[package]
)
module = sys.modules["gnnbench"] = module_from_spec(spec)
spec.loader.exec_module(module)
from gnnbench.__main__ import start
start()
"""


class RankFailed(GnnbenchError):
    """A rank ended, or stood still, before the work was done."""


@dataclass(slots=True, eq=False)
class Rank:
    """A process that was started: what it has reported so far, and where its errors are, if not on
    this command's standard error."""

    process: subprocess.Popen[bytes]
    reports: int
    errors: IO[bytes] | None = None
    reported: str = ""
    still_s: float = field(default=0.0, init=False)

    def poll(self) -> int | None:
        """Its exit status, None while it runs; ``LEFT`` where it had work left."""
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


def run_ranks(arguments: Sequence[str], processes: int, patience_s: float) -> int:
    """Run ``gnnbench`` with ``arguments`` as so many ranks, which give each other up after
    ``patience_s`` in a step; the exit status of rank 0.

    Raises ``RankFailed``, after all have been stopped, which names the rank that failed, and before
    any is started where they could not meet.
    """
    if find_loopback() is None:
        raise RankFailed(
            f"ranks meet at {LOOPBACK}, and no network interface that is up has this address; "
            f"bring the loopback interface up (ip link set lo up)."
        )
    signals.begin_work()
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
            [sys.executable, "-c", BOOTSTRAP, str(Path(gnnbench.__file__).parent), *arguments],
            env=environment,
            stdin=subprocess.PIPE,
            # What others print is not the result, and goes where people read.
            stdout=2 if number else find_standard_output(),
            stderr=errors,
            pass_fds=passed,
        )
    finally:
        os.close(writing)
    return Rank(process, reading, errors)


@contextmanager
def _interrupts_held_back() -> Iterator[None]:
    """Processes that are started in the body never see Ctrl-C: it is for this one, which stops
    them."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _watch(ranks: Sequence[Rank], patience_s: float) -> int:
    """Wait for all ranks; the status of rank 0, unless another is to blame for it."""
    pulse = _Pulse(ranks, patience_s)
    while True:
        statuses = [rank.poll() for rank in ranks]
        if any(status is None for status in statuses) and not any(statuses):
            time.sleep(LOOK_S)
            pulse.feel()
            continue
        if any(statuses):
            statuses = _await_others(ranks)
        # A refused command is refused by all; rank 0 has said why, and what it found at the end.
        if statuses[0] in (0, 1, 2, 4) and all(status in (0, statuses[0]) for status in statuses):
            return statuses[0] or 0
        culprit = find_culprit(statuses, [JOINED in rank.reported for rank in ranks])
        status = statuses[culprit]
        if culprit == 0 and (status or 0) > 0 and status not in (LOST, SILENT, LEFT):
            return status or 0
        if status is None:
            raise RankFailed(
                f"rank {culprit} did not answer: the other ranks waited {patience_s:g} s for it, "
                f"and all were stopped; it hung, or needs longer for a step: then give a longer "
                f"--patience."
            )
        errors = ranks[culprit].errors
        if status in (LOST, SILENT):  # all say the same, but rank 0, whose errors are not kept
            errors = next((rank.errors for rank in ranks if rank.errors is not None), None)
        raise RankFailed(_describe(culprit, status, errors))


class _Pulse:
    """Notices ranks that stand still though nobody has ended: one that was stopped by a signal, or
    all of them at once, so that none is left to miss another.

    Time counts as far as it was looked at: while this process is stopped itself, it does not."""

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
        """Look, if it is time to; raises ``RankFailed`` after patience for a rank at a stand."""
        since_s = time.monotonic() - self._felt_s
        if since_s < PULSE_S:
            return
        self._felt_s += since_s
        passed_s = min(since_s, 2 * PULSE_S)
        try:
            used_s = sum(sum(process.cpu_times()[:2]) for process in self._processes)
            stopped = [process.status() == self._stopped for process in self._processes]
        except self._gone:  # one has ended: the next look at its status tells more
            return
        for number, (rank, stands) in enumerate(zip(self._ranks, stopped, strict=True)):
            rank.still_s = rank.still_s + passed_s if stands else 0.0
            if rank.still_s >= self._patience_s:
                raise RankFailed(
                    f"rank {number} was stopped by a signal, did not go on for "
                    f"{self._patience_s:g} s, and was ended with all others; run again."
                )
        self._idle_s = self._idle_s + passed_s if used_s == self._used_s else 0.0
        self._used_s = used_s
        # Those that wait for one another in a step are first to say whom they miss.
        if self._idle_s >= self._patience_s + GRACE_S:
            away = [n for n, rank in enumerate(self._ranks) if JOINED not in rank.reported]
            where = f"rank {away[0]} had not met the others yet" if away else "all had met"
            raise RankFailed(
                f"no rank did anything for {self._patience_s:g} s, and all were stopped; {where}: "
                f"they hang, or wait for something outside: then give a longer --patience."
            )


def _await_others(ranks: Sequence[Rank]) -> list[int | None]:
    """Statuses a little after the first has ended badly: it takes the others a moment to notice."""
    refused = any(rank.poll() == REFUSED for rank in ranks)
    deadline = time.monotonic() + (REFUSING_S if refused else GRACE_S)
    while time.monotonic() < deadline:
        statuses = [rank.poll() for rank in ranks]
        if None not in statuses or any(status is not None and status < 0 for status in statuses):
            return statuses
        time.sleep(LOOK_S)
    return [rank.poll() for rank in ranks]


def find_culprit(statuses: Sequence[int | None], joined: Sequence[bool] = ()) -> int:
    """The rank that failed first, from statuses of which one is bad: a killed one before one that
    failed, that before one that left its work undone, that before one that others waited for in
    vain (its status is None; those that had not ``joined`` the others before those that had), and
    that before one that only lost the others."""
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
    """End every rank that is still there."""
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
