"""What freed arrays leave in the process, in processes of their own: the setting is for good."""

from __future__ import annotations

import os
import platform
import subprocess
import sys

import pytest

from gnnbench.kernels.pages import MALLOC_VARIABLES

GLIBC = platform.libc_ver()[0] == "glibc"
#: An array of 24 MiB, once and then ten times over: whether pages are kept, how many are touched
#: for the first time in the ten, and how many bytes a trim gives back; and how many are touched for
#: the first time in an array of 64 MiB that was there before.
PROGRAM = """
import ctypes, resource
import numpy as np
from gnnbench.kernels.pages import keep_pages

print(keep_pages(), keep_pages())
def fill(mebibytes=24):
    np.empty(mebibytes << 20, dtype=np.uint8)[::4096] = 1
def count_faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
def resident_bytes():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()
fill()
before = count_faults()
for _ in range(10):
    fill()
print(count_faults() - before)
kept = resident_bytes()
ctypes.CDLL(None).malloc_trim(0)
print(kept - resident_bytes())
fill(64)
before = count_faults()
fill(64)
print(count_faults() - before)
"""


def run_program(**variables: str) -> list[str]:
    chosen = {**os.environ, **variables}
    if not variables:
        for name in (*MALLOC_VARIABLES, "GLIBC_TUNABLES"):
            chosen.pop(name, None)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={**chosen, "NUMPY_MADVISE_HUGEPAGE": "0"},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.splitlines()


@pytest.mark.skipif(not GLIBC, reason="mallopt is glibc's")
def test_freed_pages_are_used_again_and_can_be_given_back() -> None:
    kept, faults, trimmed_bytes, large_faults = run_program()
    assert kept == "True True"
    assert int(faults) < 1000  # of 61,440 pages
    assert int(trimmed_bytes) > 20e6
    assert int(large_faults) > 16_000


@pytest.mark.skipif(not GLIBC, reason="mallopt is glibc's")
@pytest.mark.parametrize(
    ("name", "value"),
    [("MALLOC_TRIM_THRESHOLD_", "131072"), ("GLIBC_TUNABLES", "glibc.malloc.mmap_max=65536")],
)
def test_a_user_who_has_decided_is_left_alone(name: str, value: str) -> None:
    kept, faults, *_ = run_program(**{name: value})
    assert kept == "False False"
    assert int(faults) > 50_000
