"""Starts a command once for every rank on this machine, watches the ranks, and ends them together.

What ``torchrun`` does with a script, for ``gnnbench compare --processes N``: every rank runs the
same command with ``RANK`` and ``WORLD_SIZE`` in its environment. Rank 0 speaks for all of them. As
soon as one ends badly the others are stopped, and so they are when whoever started them is gone.
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
from collections.abc import Sequence
from contextlib import ExitStack
from typing import IO

from gnnbench.errors import GnnbenchError

#: Set for ranks that were started here: their standard input ends when they are left alone.
WATCHED = "GNNBENCH_WATCHED"
#: What a rank ends with that lost the others, and that waited for them in vain: both are some other
#: rank's doing.
LOST, SILENT = 5, 6
#: What a rank ends with that refuses the command, as all others will.
REFUSED = 2
#: Between two looks at the ranks; for the others to end by themselves, or to refuse the command
#: too; before one is killed.
LOOK_S, GRACE_S, REFUSING_S, STOP_S = 0.05, 2.0, 20.0, 5.0


class RankFailed(GnnbenchError):
    """A rank ended before the work was done."""


def watched() -> bool:
    """Whether this process is a rank that :func:`run_ranks` started."""
    return WATCHED in os.environ


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

    Raises ``RankFailed``, after all have been stopped, which names the rank that failed.
    """
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    ranks: list[subprocess.Popen[bytes]] = []
    with ExitStack() as stack:
        stack.callback(_stop, ranks)
        errors: list[IO[bytes] | None] = [None]
        for rank in range(processes):
            environment = os.environ | {
                "RANK": str(rank),
                "LOCAL_RANK": str(rank),
                "WORLD_SIZE": str(processes),
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": str(port),
                WATCHED: "1",
            }
            if rank:
                errors.append(stack.enter_context(tempfile.TemporaryFile()))
            ranks.append(
                subprocess.Popen(
                    [sys.executable, "-m", "gnnbench", *arguments],
                    env=environment,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.DEVNULL if rank else None,
                    stderr=errors[rank],
                )
            )
        return _watch(ranks, errors, patience_s)


def _watch(
    ranks: Sequence[subprocess.Popen[bytes]],
    errors: Sequence[IO[bytes] | None],
    patience_s: float,
) -> int:
    """Wait for all ranks; the status of rank 0, unless another is to blame for it."""
    while True:
        statuses = [rank.poll() for rank in ranks]
        if any(status is None for status in statuses) and not any(statuses):
            time.sleep(LOOK_S)
            continue
        if any(statuses):
            statuses = _await_others(ranks)
        # A refused command is refused by all; rank 0 has said why, and what it found at the end.
        if statuses[0] in (0, 1, 2, 4) and all(status in (0, statuses[0]) for status in statuses):
            return statuses[0] or 0
        culprit = find_culprit(statuses)
        if culprit == 0 and (statuses[0] or 0) > 0 and statuses[0] not in (LOST, SILENT):
            return statuses[0] or 0
        if statuses[culprit] is None:
            raise RankFailed(
                f"rank {culprit} did not answer: the other ranks waited {patience_s:g} s for it, "
                f"and all were stopped; it hung, or needs longer for a step: then give a longer "
                f"--patience."
            )
        raise RankFailed(_describe(culprit, statuses[culprit], errors[culprit]))


def _await_others(ranks: Sequence[subprocess.Popen[bytes]]) -> list[int | None]:
    """Statuses a little after the first has ended badly: it takes the others a moment to notice."""
    refused = any(rank.poll() == REFUSED for rank in ranks)
    deadline = time.monotonic() + (REFUSING_S if refused else GRACE_S)
    while time.monotonic() < deadline:
        statuses = [rank.poll() for rank in ranks]
        if None not in statuses or any(status is not None and status < 0 for status in statuses):
            return statuses
        time.sleep(LOOK_S)
    return [rank.poll() for rank in ranks]


def find_culprit(statuses: Sequence[int | None]) -> int:
    """The rank that failed first, from statuses of which one is bad: a killed one before one that
    ended by itself, that before one that others waited for in vain (its status is None), and that
    before one that only lost the others."""
    waited = SILENT in statuses

    def blame(status: int | None) -> int:
        if status is None:
            return 2 if waited else 4
        if status in (0, LOST, SILENT):
            return 3 if status else 4
        return 0 if status < 0 else 1

    return min(range(len(statuses)), key=lambda rank: blame(statuses[rank]))


def _describe(rank: int, status: int | None, errors: IO[bytes] | None) -> str:
    if status is not None and status < 0:
        return (
            f"rank {rank} was killed by {signal.Signals(-status).name}, and the other ranks were "
            f"stopped; see whether the machine ran out of memory, and run again."
        )
    said = ""
    if errors is not None:
        errors.seek(0)
        lines = errors.read().decode(errors="replace").strip().splitlines()
        said = f": {lines[-1].removeprefix('gnnbench: error: ')}" if lines else ""
    return f"rank {rank} ended with status {status}, and the other ranks were stopped{said}"


def _stop(ranks: Sequence[subprocess.Popen[bytes]]) -> None:
    """End every rank that is still there."""
    for rank in ranks:
        if rank.poll() is None:
            rank.terminate()
    deadline = time.monotonic() + STOP_S
    for rank in ranks:
        try:
            rank.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            rank.kill()
            rank.wait()
        if rank.stdin is not None:
            rank.stdin.close()
