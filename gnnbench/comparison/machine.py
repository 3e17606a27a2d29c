"""The machine that computed the numerics, as the result file describes it."""

from __future__ import annotations

import platform as host_os
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import psutil
import torch

from gnnbench.host.cores import Periods
from gnnbench.host.rank import read_place
from gnnbench.kernels.pages import are_kept
from gnnbench.machines.local import cpu_model


def describe_machine() -> dict[str, str | int | float | None]:
    """Describe the machine that computed the numerics."""
    gpu = torch.cuda.get_device_name(0) if torch.cuda.is_available() else None
    return {
        "cpu": cpu_model(),
        "cores": psutil.cpu_count(logical=True) or 1,
        "memory_bytes": psutil.virtual_memory().total,
        "gpu": gpu,
        "os": f"{host_os.system()} {host_os.release()}",
        "python": host_os.python_version(),
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "freed_pages": "kept" if are_kept() else "as the C library does",
    }


#: The share of the cores' time taken by other processes from which a warning is given.
BUSY_SHARE = 0.1


class Throttled:
    """The periods in which a row's turns were throttled by a control group's CPU quota."""

    def __init__(self) -> None:
        self._periods = Periods()

    @contextmanager
    def at_turn(self) -> Iterator[None]:
        """Count the throttled periods of a turn."""
        before = Periods.read()
        yield
        self._periods += Periods.read() - before

    def note(self) -> str:
        """Return a note for the row's result; empty if nothing was throttled."""
        said = self._periods.describe()
        return f"{said} of its epochs; give the group more, or use fewer threads" if said else ""


class MachineLoad:
    """The time that others took from the cores, or that a quota left unused, since creation."""

    def __init__(self) -> None:
        self._began, self._periods = self._read(), Periods.read()

    def describe(self) -> str:
        """Return a sentence if this process was throttled, or else if other processes were at work.

        It is empty otherwise. Time that a quota takes away is not counted as taken by others.
        """
        throttled = (Periods.read() - self._periods).describe()
        if throttled:
            return f"{throttled} meanwhile"
        own, busy, stolen, total = (
            now - before for now, before in zip(self._read(), self._began, strict=True)
        )
        if total <= 0:
            return ""
        others = max(0.0, (busy - own) / total)
        causes = []
        if others > BUSY_SHARE:
            causes.append(f"other processes took {others:.0%} of the processor's time")
        if stolen / total > BUSY_SHARE / 5:
            causes.append(f"the virtual machine's host took {stolen / total:.0%} of it away")
        return f"{' and '.join(causes)} meanwhile" if causes else ""

    @staticmethod
    def _read() -> tuple[float, float, float, float]:
        """Return seconds of the run's processes, of all, stolen, and of all cores."""
        machine = psutil.cpu_times()
        idle = machine.idle + getattr(machine, "iowait", 0.0)
        stolen = getattr(machine, "steal", 0.0)
        own = 0.0
        for process in _list_own():
            with suppress(psutil.Error):
                own += sum(process.cpu_times()[:4])
        counted = sum(
            getattr(machine, name, 0.0) for name in ("user", "nice", "system", "irq", "softirq")
        )
        return own, counted, stolen, counted + idle + stolen


def _list_own() -> list[psutil.Process]:
    """Return this process and its descendants; if it is one of several ranks, its starter's."""
    root = psutil.Process()
    place = read_place()
    if place is not None and place.local_size > 1:
        root = root.parent() or root
    return [root, *root.children(recursive=True)]
