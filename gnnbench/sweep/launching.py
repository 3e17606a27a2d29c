"""Runs in processes of their own: in several ranks, on several nodes, or on some of the GPUs.

A run on one node is the hidden command ``gnnbench run-configuration``, which starts its ranks as
``gnnbench compare --processes`` does. On several nodes ``torchrun`` starts this command on each of
them. Rank 0 writes the result.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING

from gnnbench.errors import GnnbenchError, UsageError
from gnnbench.host.rank import HAS_FAILED, spell_command
from gnnbench.machines.describe import is_made_of_cores
from gnnbench.report.results.schema import ResultDocument, read_json
from gnnbench.sweep.grid import Configuration

if TYPE_CHECKING:
    from gnnbench.sweep.running import Task

#: The hidden command that trains a configuration.
COMMAND = "run-configuration"
#: The variable that limits the CUDA devices of a process.
CUDA_DEVICES = "CUDA_VISIBLE_DEVICES"
#: The beginning of a sentence on standard error, and of one about ranks.
_ERROR, _RANK = "gnnbench: error: ", "rank "
#: ``prctl``'s request for a signal when the parent process ends.
_PR_SET_PDEATHSIG = 1

#: Runs ``torchrun``, without the current folder on the path, and exits with the status of the rank
#: that failed first, where a rank has failed.
_TORCHRUN = """
import sys
if not getattr(sys.flags, "safe_path", False):
    del sys.path[0]
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
from torch.distributed.run import main
try:
    main()
except ChildFailedError as error:
    status = error.get_first_failure()[1].exitcode
    sys.exit(status if status >= 0 else 128 - status)
"""


class RunLostError(GnnbenchError):
    """A run that lost a node or a process of another node; it is to be run again."""


@dataclass(frozen=True, slots=True)
class Node:
    """A node of a run: its number, and where the ranks of all nodes meet."""

    number: int = 0
    address: str = ""
    port: int = 0


def needs_command(configuration: Configuration) -> bool:
    """Whether a configuration trains in other processes than the one that carries it out."""
    spread = configuration.spread
    return spread.ranks > 1 or spread.gpus > 0 or is_made_of_cores(str(configuration.job.platform))


def end_with_parent(number: signal.Signals) -> Callable[[], None]:
    """Return a function that has Linux signal this process when its parent process ends."""
    library = ctypes.CDLL(None)

    def ask() -> None:
        with suppress(AttributeError):  # not on macOS
            library.prctl(_PR_SET_PDEATHSIG, number)

    return ask


def run_command(task: Task, node: Node) -> ResultDocument | None:
    """Run a task's configuration by its command on this node, and return the result.

    The result is None on a node other than the first. Raises ``UsageError`` for a configuration
    that cannot work, ``RunLostError`` if another node is lost, and ``GnnbenchError`` for other
    failures.
    """
    target = (task.store / f".{task.key}.json").absolute()
    described = json.dumps(task.configuration.to_json())
    command = spell_command([COMMAND, described, str(target)])
    nodes = task.configuration.spread.nodes
    if nodes > 1:
        command = [*_spell_torchrun(task.configuration, node), *command]
    if node.number == 0:
        target.unlink(missing_ok=True)
    with tempfile.TemporaryFile() as errors:
        ended = subprocess.run(
            command,
            env=os.environ | choose_devices(task.configuration),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=errors,
            start_new_session=True,  # Ctrl-C is the sweep's, which ends this process
            preexec_fn=end_with_parent(signal.SIGTERM),
            check=False,
        )
        said = _find_error(errors)
    if node.number > 0:
        return None
    try:
        document = read_json(target) if target.exists() else None
    finally:
        target.unlink(missing_ok=True)
    if document is not None:
        return document.model_copy(update={"command": ("gnnbench", "sweep")})
    if ended.returncode == UsageError.exit_status:
        raise UsageError(said)
    if nodes > 1 and said.startswith(_RANK) and HAS_FAILED not in said and ended.returncode < 128:
        raise RunLostError(said)
    raise GnnbenchError(said or f"its processes ended with status {ended.returncode}")


def _spell_torchrun(configuration: Configuration, node: Node) -> list[str]:
    spread = configuration.spread
    return [
        *(sys.executable, "-c", _TORCHRUN),
        *("--nnodes", str(spread.nodes)),
        *("--nproc-per-node", str(spread.ranks // spread.nodes)),
        *("--node-rank", str(node.number)),
        *("--master-addr", node.address),
        *("--master-port", str(node.port)),
        "--no-python",
    ]


def choose_devices(configuration: Configuration) -> dict[str, str]:
    """Return the variable that leaves a run its number of this process's CUDA devices."""
    spread = configuration.spread
    if not spread.gpus:
        return {}
    each = spread.gpus // spread.nodes
    visible = os.environ.get(CUDA_DEVICES)
    known = list(map(str, range(each))) if visible is None else visible.split(",")
    return {CUDA_DEVICES: ",".join(known[:each])}


def _find_error(errors: IO[bytes]) -> str:
    """Return the first sentence of an error; else the last line, if there is one."""
    errors.seek(0)
    lines = errors.read().decode(errors="replace").strip().splitlines()
    said = [line.removeprefix(_ERROR) for line in lines if line.startswith(_ERROR)]
    return (said or lines[-1:] or [""])[0]
