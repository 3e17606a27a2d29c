"""The cores and the memory that this process may use, of those that the machine has.

A control group's CPU quota is processor time for each period. Version 2 has it in ``cpu.max``,
version 1 in ``cpu.cfs_quota_us`` and ``cpu.cfs_period_us``. Sources are Linux's
Documentation/admin-guide/cgroup-v2.rst, and scheduler/sched-bwc.rst. A process that has used up its
quota is stopped until the next period, with any number of threads; ``cpu.stat`` counts those
periods.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal


@dataclass(frozen=True, slots=True)
class ControlGroups:
    """The control groups of this process: their mount point, and the file that names them."""

    root: Path = Path("/sys/fs/cgroup")
    membership: Path = Path("/proc/self/cgroup")

    def list_folders(self, controller: Literal["cpu", "memory"] = "cpu") -> Iterator[Path]:
        """Yield the folders that may limit the CPU time or the memory, each before its parents."""
        with suppress(OSError):
            for line in self.membership.read_text(encoding="utf-8").splitlines():
                _, controllers, path = line.split(":", 2)
                if not controllers:
                    mounts = [self.root, self.root / "unified"]
                elif controller in controllers.split(","):
                    mounts = [self.root / controllers, self.root / controller]
                else:
                    continue
                for mount in dict.fromkeys(mounts):
                    # Inside a container the path may be the host's, and its folder the mount.
                    group = Path(path.strip("/"))
                    yield from (mount / each for each in (group, *group.parents))


GROUPS = ControlGroups()


def count_cores(groups: ControlGroups = GROUPS) -> int:
    """Return how many whole cores this process may keep busy, at least 1."""
    if hasattr(os, "sched_getaffinity"):
        allowed = len(os.sched_getaffinity(0))
    else:
        allowed = os.cpu_count() or 1
    quota = find_quota(groups)
    return allowed if quota is None else max(1, min(allowed, int(quota)))


@cache
def find_quota(groups: ControlGroups = GROUPS) -> float | None:
    """Return the least quota of the control groups of this process, in cores; None without one."""
    quotas = [quota for folder in groups.list_folders() if (quota := _read_quota(folder))]
    return min(quotas, default=None)


def _read_quota(folder: Path) -> float | None:
    with suppress(OSError, ValueError):
        quota, period = (folder / "cpu.max").read_text().split()
        return None if quota == "max" else int(quota) / int(period)
    with suppress(OSError, ValueError):
        quota, period = (
            (folder / f"cpu.cfs_{name}_us").read_text() for name in ("quota", "period")
        )
        return int(quota) / int(period) if int(quota) > 0 else None
    return None


def memory_bytes(groups: ControlGroups = GROUPS) -> int:
    """Return the bytes of memory that this process may use.

    It is the least of the machine's memory and of the limits of its control groups: ``memory.max``
    in version 2, and ``memory.limit_in_bytes`` in version 1.
    """
    sizes = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    for folder in groups.list_folders("memory"):
        for name in ("memory.max", "memory.limit_in_bytes"):
            with suppress(OSError, ValueError):  # no such file, or "max"
                sizes.append(int((folder / name).read_text()))
    return min(sizes)


@dataclass(frozen=True, slots=True)
class Periods:
    """The number of periods of quotas that passed, and of those with throttled processes."""

    passed: int = 0
    throttled: int = 0

    @classmethod
    def read(cls, groups: ControlGroups = GROUPS) -> Periods:
        """Read the periods of the control group that was throttled most often."""
        found = [cls()]
        for folder in groups.list_folders():
            with suppress(OSError, ValueError, KeyError):
                lines = (folder / "cpu.stat").read_text().splitlines()
                counts = dict(line.split() for line in lines)
                found.append(cls(int(counts["nr_periods"]), int(counts["nr_throttled"])))
        return max(found, key=lambda each: each.throttled)

    def __add__(self, other: Periods) -> Periods:
        return Periods(self.passed + other.passed, self.throttled + other.throttled)

    def __sub__(self, other: Periods) -> Periods:
        return Periods(self.passed - other.passed, self.throttled - other.throttled)

    def describe(self) -> str:
        """Return a sentence's clause on the throttling; empty without throttling."""
        if self.throttled <= 0:
            return ""
        quota = find_quota()
        size = "" if quota is None else f" of {quota:g} cores"
        return (
            f"the control group's CPU quota{size} stopped this process in {self.throttled:,} of "
            f"{self.passed:,} periods"
        )
