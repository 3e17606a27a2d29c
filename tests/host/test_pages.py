"""What freed arrays leave in the process, in processes of their own: the setting is for good."""

import os
import platform
import resource
from dataclasses import replace

import pytest

from gnnbench import plugins, run
from gnnbench.check.graphs import fit_workload, make_dataset, make_this_host
from gnnbench.kernels.pages import MALLOC_VARIABLES, count_kept_bytes, keep_pages
from gnnbench.machines import probe
from gnnbench.machines.local import load_local, save_local
from gnnbench.models import build
from gnnbench.parts import Setting
from gnnbench.price.wall_clock import WallClock
from tests.commands import run_python

GLIBC = platform.libc_ver()[0] == "glibc"
#: Of a machine of 2 GiB an eighth is kept, of which arrays of 224 MiB have room. An array of 24 MiB
#: ten times over, one of 200 MiB, and one of 300 MiB, each once before: how many pages are touched
#: for the first time; how many bytes a trim gives back, and whether the large one is kept again
#: then, and after large ones are returned.
PROGRAM = """
import resource
import numpy as np
from gnnbench.kernels import pages

LIMIT
pages.psutil.virtual_memory = lambda: type("Memory", (), {"total": 2 << 30})
print(pages.keep_pages(), pages.keep_pages(), pages.are_kept(), pages.count_kept_bytes() >> 20)
def fill(mebibytes):
    np.empty(mebibytes << 20, dtype=np.uint8)[::4096] = 1
def count_faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
def count_again(mebibytes, times=1):
    fill(mebibytes)
    before = count_faults()
    for _ in range(times):
        fill(mebibytes)
    print(count_faults() - before)
def resident_bytes():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()
count_again(24, 10)
count_again(200)
count_again(300)
kept = resident_bytes()
pages.trim_heap()
print(kept - resident_bytes())
count_again(200)
kept = resident_bytes()
pages.return_large_arrays()
print(kept - resident_bytes())
count_again(200)
count_again(24, 10)
"""
#: Of 4 KiB in 24, 200 and 300 MiB.
PAGES = {each: each * 256 for each in (24, 200, 300)}


def run_program(limit="", **variables):
    chosen = {**os.environ, **variables}
    if not variables:
        for name in (*MALLOC_VARIABLES, "GLIBC_TUNABLES"):
            chosen.pop(name, None)
    program, chosen = PROGRAM.replace("LIMIT", limit), {**chosen, "NUMPY_MADVISE_HUGEPAGE": "0"}
    return run_python("-c", program, env=chosen, check=True).stdout.splitlines()


@pytest.mark.skipif(not GLIBC, reason="mallopt is glibc's")
def test_freed_pages_are_used_again_and_can_be_given_back():
    kept, *numbers = run_program()
    assert kept == "True True True 224"
    small, large, larger, trimmed_bytes, again, returned_bytes, mapped, kept_small = map(
        int, numbers
    )
    assert small < 1000
    assert large < 1000
    assert larger >= PAGES[300]
    assert trimmed_bytes > 190e6
    assert again < 1000
    assert returned_bytes > 190e6
    assert mapped >= PAGES[200]
    assert kept_small < 1000


@pytest.mark.skipif(not GLIBC, reason="mallopt is glibc's")
def test_where_address_space_is_limited_no_more_is_asked_for_than_is_used():
    limit = "resource.setrlimit(resource.RLIMIT_AS, (4 << 30, resource.RLIM_INFINITY))"
    kept, small, large, *_ = run_program(limit)
    assert kept == "True True True 32"
    assert int(small) < 1000
    assert int(large) >= PAGES[200]


@pytest.mark.skipif(not GLIBC, reason="mallopt is glibc's")
@pytest.mark.parametrize(
    ("name", "value"),
    [("MALLOC_TRIM_THRESHOLD_", "131072"), ("GLIBC_TUNABLES", "glibc.malloc.mmap_max=65536")],
)
def test_a_user_who_has_decided_is_left_alone(name, value):
    kept, small, large, *_ = run_program(**{name: value})
    assert kept == "False False False 32"
    assert int(small) > 50_000
    assert int(large) >= PAGES[200]


def test_what_is_mapped_here_is_what_nobody_keeps(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert load_local().host.memory.mapped_from_bytes == count_kept_bytes()
    save_local(replace(load_local(), description="probed"))
    monkeypatch.setattr("gnnbench.machines.local.count_kept_bytes", lambda: 4096)
    probed = load_local()
    assert (probed.description, probed.host.memory.mapped_from_bytes) == ("probed", 4096)


def test_fresh_memory_is_fresh_each_time(monkeypatch):
    """4 MiB are 1,024 pages, or two huge ones, in a process that keeps its freed pages."""
    keep_pages()
    touched = []

    def rate(fill, amount, budget_s, device):
        for _ in range(20):
            before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
            fill()
            touched.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
        return amount

    monkeypatch.setattr(probe, "best_rate", rate)
    monkeypatch.setattr(probe, "FRESH_FLOATS", 2**20)
    assert probe._fresh_rate(1.0) == 2**22
    assert min(touched) >= 2


class _AskedError(Exception):
    pass


def test_memory_is_not_kept_beside_a_graph_on_disk(monkeypatch):
    def ask():
        raise _AskedError

    monkeypatch.setattr(run, "return_large_arrays", ask)
    data, registry = make_dataset(), plugins.load()
    workload = fit_workload(data, "gcn", 1)
    setting = Setting(data, make_this_host(), workload, build(workload).shapes)
    parts = registry.strategy("reference").bundles["full-graph"]
    run.Training(plugins.assemble(registry, parts, {}), setting, WallClock())
    on_disk = replace(setting, dataset=replace(data, folder="somewhere"))
    with pytest.raises(_AskedError):
        run.Training(plugins.assemble(registry, parts, {}), on_disk, WallClock())
