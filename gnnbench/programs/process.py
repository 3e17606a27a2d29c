"""A program's process: started with its limits, stopped between its turns, and ended for certain.

A keeper stands between gnnbench and the program (``keeper.py``), so that no process is left when
either of them ends.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
import weakref
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from gnnbench.host.files import explain
from gnnbench.programs import keeper
from gnnbench.programs.messages import (
    Message,
    ProgramFailedError,
    ProgramRefusedError,
    parse_message,
    read_text,
)
from gnnbench.records import CommandProgram, Task

#: A line of more bytes is no message.
MOST_LINE_BYTES = 1 << 20
#: How long a program may take to end after its input was closed.
END_S = 30.0
#: Environment variables of gnnbench's own Python, which would lead a program to gnnbench's modules.
OWN_VARIABLES = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")
#: Variables that limit the threads of a program's libraries.
THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
)


def make_environment(program: CommandProgram, task: Task, folder: Path) -> dict[str, str]:
    """Return the environment variables of a program."""
    inherited = {name: text for name, text in os.environ.items() if name not in OWN_VARIABLES}
    threads = dict.fromkeys(THREAD_VARIABLES, str(task.threads))
    own = {"GNNBENCH_TASK": str(folder), "PYTHONUNBUFFERED": "1"}
    return inherited | threads | own | dict(program.environment)


class ProgramProcess:
    """A program that runs: messages come in, orders go out.

    Errors are ``ProgramFailedError``, each with the cause: a wrong line, an early end, or silence.
    """

    def __init__(self, program: CommandProgram, task: Task, folder: Path) -> None:
        self._patience_s = float(program.patience_s)
        self._errors = folder / "standard_error.txt"
        self._buffer = b""
        self._read_at_s = 0.0
        report, reported = os.pipe()
        os.set_inheritable(reported, True)
        self._report = report
        command = program.fill(task=str(folder), python=sys.executable)
        self._first_word = command[0]
        limits = [str(reported), ",".join(map(str, task.cores)), str(task.memory_bytes)]
        try:
            with self._errors.open("wb") as errors:
                self._keeper = subprocess.Popen(
                    [sys.executable, "-I", "-S", keeper.__file__, *limits, *command],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=errors,
                    pass_fds=(reported,),
                    env=make_environment(program, task, folder),
                    cwd=program.folder or None,
                    bufsize=0,
                )
        except OSError as error:
            os.close(report)
            raise ProgramFailedError(f"it cannot be started: {explain(error)}.") from error
        finally:
            os.close(reported)
        # Also for a run that nobody has ended, such as after an interrupt.
        self._end = weakref.finalize(self, _terminate, self._keeper)
        assert self._keeper.stdin is not None
        assert self._keeper.stdout is not None
        self._stdin, self._stdout = self._keeper.stdin, self._keeper.stdout
        self._poll = select.poll()
        self._poll.register(self._stdout, select.POLLIN | select.POLLHUP)

    # ------------------------------------------------------------------ messages and orders

    def send(self, order: bytes) -> None:
        """Write an order; a program that has ended is noticed when its answer is awaited."""
        with suppress(BrokenPipeError):
            self._stdin.write(order)

    def expect(self, *events: str) -> Message:
        """Return the next message, which is one of ``events``. Raises ``ProgramFailedError``."""
        message = parse_message(self._read_line(events), self._read_at_s)
        if message.event == "refused":
            raise ProgramRefusedError(read_text(message, "reason") or "it does not say why.")
        if message.event not in events:
            raise ProgramFailedError(
                f"it sent {message.event!r} where {' or '.join(map(repr, events))} was due; "
                f"answer each order once, and wait for the next."
            )
        return message

    @property
    def is_quiet(self) -> bool:
        """Whether nothing has come that no order asked for."""
        return not self._buffer and not self._poll.poll(0)

    def _read_line(self, events: Sequence[str]) -> bytes:
        until_s = time.monotonic() + self._patience_s
        while b"\n" not in self._buffer:
            left_ms = 1000 * (until_s - time.monotonic())
            if left_ms <= 0 or not self._poll.poll(left_ms):
                raise ProgramFailedError(
                    f"it sent no {' or '.join(map(repr, events))} for "
                    f"{self._patience_s:g} s; {self._quote_errors()}."
                )
            piece = os.read(self._stdout.fileno(), 1 << 16)
            self._read_at_s = time.perf_counter()
            if not piece:
                raise ProgramFailedError(self._describe_end(events))
            self._buffer += piece
            if len(self._buffer) > MOST_LINE_BYTES:
                raise ProgramFailedError(
                    f"it wrote a line of over {MOST_LINE_BYTES:,} bytes to standard output, which "
                    f"is for messages; print everything else to standard error."
                )
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line

    # ------------------------------------------------------------------ turns

    @property
    def keeper(self) -> int:
        """The process that keeps the program."""
        return self._keeper.pid

    @property
    def processes(self) -> list[int]:
        """All processes of the program."""
        return list(keeper.list_descendants(self._keeper.pid))

    def stop(self) -> None:
        """Stop all processes of the program until its next turn."""
        stopped: set[int] = set()
        while new := set(self.processes) - stopped:
            _signal(new, signal.SIGSTOP)
            stopped |= new

    def resume(self) -> None:
        """Let all processes of the program continue."""
        _signal(self.processes, signal.SIGCONT)

    def read_peak_bytes(self) -> int:
        """Return the sum of the largest resident sizes of the program's processes so far."""
        return sum(map(_read_peak_bytes, self.processes))

    # ------------------------------------------------------------------ the end

    def close(self) -> None:
        """Close the program's input, and wait for its end.

        Raises ``ProgramFailedError`` if the program does not end, or leaves processes behind.
        """
        self.resume()
        with suppress(OSError):
            self._stdin.close()
        try:
            self._keeper.wait(END_S + keeper.GRACE_S)
        except subprocess.TimeoutExpired:
            self.kill()
            raise ProgramFailedError(
                f"it did not end within {END_S:.0f} s after its standard input was closed. Leave "
                f"the loop over orders when there are no more."
            ) from None
        found = self._read_outcome()
        self.kill()
        if found.get("left"):
            count = found["left"]
            raise ProgramFailedError(
                f"it left {count} {'process' if count == 1 else 'processes'} behind, which "
                f"{'was' if count == 1 else 'were'} ended; end its workers before it ends."
            )

    def kill(self) -> None:
        """End all processes of the program at once, and release what belongs to them."""
        self._end()
        for stream in (self._stdin, self._stdout):
            with suppress(OSError):
                stream.close()
        if self._report >= 0:
            os.close(self._report)
            self._report = -1

    def _read_outcome(self) -> dict[str, int | str]:
        """Return the keeper's report, which it writes at its end; empty if it was killed."""
        text = b""
        while piece := os.read(self._report, 1 << 12):
            text += piece
        try:
            found: dict[str, int | str] = json.loads(text)
        except ValueError:
            return {}
        return found

    def _describe_end(self, events: Sequence[str]) -> str:
        """Describe a program that closed its output while a message was awaited."""
        with suppress(subprocess.TimeoutExpired):
            self._keeper.wait(END_S + keeper.GRACE_S)
        if self._keeper.poll() is None:
            return f"it closed its standard output before {' or '.join(map(repr, events))}."
        found = self._read_outcome()
        if "failed" in found:
            return f"its command {self._first_word!r} cannot be started: {found['failed']}."
        status = found.get("status")
        how = f"with status {status}"
        if isinstance(status, int) and status < 0:
            how = f"by signal {signal.Signals(-status).name}"
        return f"it ended {how} before {' or '.join(map(repr, events))}; {self._quote_errors()}."

    def _quote_errors(self) -> str:
        """Return the last line of the program's standard error, or that it is empty."""
        with self._errors.open("rb") as stream:
            stream.seek(max(0, self._errors.stat().st_size - 4096))
            lines = stream.read().decode("utf-8", "replace").split("\n")
        last = next((line.strip() for line in reversed(lines) if line.strip()), "")
        if not last:
            return "its standard error is empty"
        return f"its standard error ends with {last[:200].rstrip('.')!r}"


def _terminate(keeper_process: subprocess.Popen[bytes]) -> None:
    """End a keeper, and with it all processes of its program."""
    if keeper_process.poll() is None:
        keeper_process.terminate()
    keeper_process.wait()


def _signal(processes: Sequence[int] | set[int], number: signal.Signals) -> None:
    for process in processes:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(process, number)


def _read_peak_bytes(process: int) -> int:
    with suppress(OSError):
        for line in Path(f"/proc/{process}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return 1024 * int(line.split()[1])
    return 0
