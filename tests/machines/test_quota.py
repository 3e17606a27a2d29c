"""The cores of control groups: quotas of both versions, and the periods in which they throttle."""

import os
import subprocess
import sys
import time

import psutil
import pytest

from gnnbench.comparison import machine
from gnnbench.comparison.machine import MachineLoad, Throttled
from gnnbench.host import cores
from gnnbench.host.cores import ControlGroups, Periods, count_cores, find_quota, memory_bytes

#: By layout: the line that names the group, its folder, and the files of a quota of 1.5 cores.
LAYOUTS = {
    "v2": ("0::/jobs/one", "jobs/one", {"cpu.max": "150000 100000\n"}),
    "v2 of a parent": ("0::/jobs/one", "jobs", {"cpu.max": "75000 50000"}),
    "v2 in a container": ("0::/../host/pod", "", {"cpu.max": "150000 100000"}),
    "v1": (
        "4:cpu,cpuacct:/jobs/one",
        "cpu,cpuacct/jobs/one",
        {"cpu.cfs_quota_us": "150000\n", "cpu.cfs_period_us": "100000\n"},
    ),
    "v1 in a container": (
        "4:cpuset:/other\n1:cpu:/docker/abc",
        "cpu",
        {"cpu.cfs_quota_us": "150000", "cpu.cfs_period_us": "100000"},
    ),
}


def write(folder, files):
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name).write_text(text)


def make_groups(tmp_path, line, folder, files):
    write(tmp_path / "cgroup" / folder, files)
    (tmp_path / "membership").write_text(f"7:memory:/elsewhere\n{line}\n")
    return ControlGroups(tmp_path / "cgroup", tmp_path / "membership")


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_quota_is_found_in_both_versions(layout, tmp_path, monkeypatch):
    groups = make_groups(tmp_path, *LAYOUTS[layout])
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(4)), raising=False)
    assert find_quota(groups) == 1.5
    assert count_cores(groups) == 1


@pytest.mark.parametrize(
    ("files", "allowed", "count"),
    [
        ({"cpu.max": "50000 100000"}, 4, 1),
        ({"cpu.max": "300000 100000"}, 4, 3),
        ({"cpu.max": "300000 100000"}, 2, 2),
        ({"cpu.max": "max 100000"}, 4, 4),
        ({"cpu.max": "no numbers"}, 4, 4),
        ({}, 4, 4),
    ],
)
def test_threads_are_as_many_as_affinity_and_quota_let_work(
    files, allowed, count, tmp_path, monkeypatch
):
    groups = make_groups(tmp_path, "0::/", "", files)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(allowed)), raising=False)
    assert count_cores(groups) == count


def test_the_least_of_nested_quotas_counts(tmp_path):
    groups = make_groups(tmp_path, "0::/jobs/one", "jobs/one", {"cpu.max": "300000 100000"})
    write(tmp_path / "cgroup" / "jobs", {"cpu.max": "200000 100000"})
    assert find_quota(groups) == 2.0
    assert find_quota(ControlGroups(tmp_path, tmp_path / "nothing")) is None


@pytest.mark.parametrize(
    ("line", "folder", "name"),
    [
        ("0::/jobs/one", "jobs/one", "memory.max"),
        ("5:memory:/a", "memory/a", "memory.limit_in_bytes"),
    ],
)
def test_a_group_s_limit_of_memory_counts(line, folder, name, tmp_path):
    groups = make_groups(tmp_path, line, folder, {name: "2000000"})
    assert memory_bytes(groups) == 2_000_000
    write(tmp_path / "cgroup" / folder, {name: "max"})
    assert memory_bytes(groups) == os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def test_throttled_periods_are_counted_over_turns_and_blame_nobody_else(tmp_path, monkeypatch):
    groups = make_groups(tmp_path, "0::/jobs", "jobs", {"cpu.max": "50000 100000"})
    read = Periods.read

    def set_counts(passed, throttled):
        text = f"usage_usec 5\nnr_periods {passed}\nnr_throttled {throttled}\n"
        write(tmp_path / "cgroup" / "jobs", {"cpu.stat": text})

    # The quota of the group above is wider, and throttles less often.
    write(tmp_path / "cgroup", {"cpu.stat": "nr_periods 9000\nnr_throttled 3\n"})
    set_counts(100, 40)
    monkeypatch.setattr(Periods, "read", classmethod(lambda cls: read(groups)))
    monkeypatch.setattr(cores, "find_quota", lambda: find_quota(groups))
    readings = iter([(0.0, 0.0, 0.0, 0.0), (10.0, 90.0, 0.0, 100.0)])
    monkeypatch.setattr(machine.MachineLoad, "_read", staticmethod(lambda: next(readings)))
    load, throttled = MachineLoad(), Throttled()
    with throttled.at_turn():
        set_counts(146, 81)
    set_counts(200, 90)  # another row's turn
    with throttled.at_turn():
        set_counts(300, 190)
    quota = "the control group's CPU quota of 0.5 cores stopped this process in"
    assert throttled.note().startswith(f"{quota} 141 of 146 periods of its epochs")
    assert load.describe() == f"{quota} 150 of 200 periods meanwhile"
    assert Throttled().note() == ""


def test_what_the_runs_own_processes_compute_is_not_of_others():
    """The ranks and programs of a run are children that live as long as it does."""
    before_s = MachineLoad._read()[0]
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as child:
        process = psutil.Process(child.pid)
        while process.cpu_times().user < 0.5:
            time.sleep(0.01)
        own_s = MachineLoad._read()[0] - before_s
        child.kill()
    assert own_s >= 0.4


def test_the_other_ranks_of_this_machine_are_the_runs_own(monkeypatch):
    assert machine._list_own()[0] == psutil.Process()
    for name, number in (("RANK", "1"), ("WORLD_SIZE", "4"), ("LOCAL_WORLD_SIZE", "2")):
        monkeypatch.setenv(name, number)
    assert machine._list_own()[0] == psutil.Process().parent()
