"""Host tensors in memory and in mapped files: exact books, bounded memory, nothing left behind."""

import os
import shutil

import numpy as np
import pytest
import torch

from gnnbench.check.graphs import make_platform
from gnnbench.errors import DeviceOutOfMemoryError, UsageError
from gnnbench.lowering.footprint import HostTensor
from gnnbench.lowering.homes import Homes
from gnnbench.lowering.host_plan import PAGE_BYTES, HostPlan, page_bytes
from gnnbench.machines.machine import DISK
from gnnbench.program import Ledger
from gnnbench.run.host_store import HostStore

ROWS = 1000


def tensor(kind, layer, elements=ROWS):
    return HostTensor(kind, kind, (layer,), 8 * elements)


HOMES = Homes.spread(make_platform(), ROWS)
TENSORS = (
    tensor("representations", 1),
    tensor("intermediates", 1),
    tensor("intermediates", 2),
    tensor("gradients", 1),
)


def make_store(directory, budget_bytes, tensors=TENSORS):
    plan = HostPlan(tensors, budget_bytes, directory, HOMES)
    return HostStore(plan, torch.float64), plan


def hold(plan, capacity_bytes=10**9):
    ledger = Ledger({"host": capacity_bytes})
    plan.allocate(ledger)
    return ledger


def resident_pages(path="/proc/self/smaps"):
    """KiB of this process's memory that belong to deleted files of a store."""
    kib, ours = 0, False
    with open(path, encoding="utf-8") as lines:
        for line in lines:
            if "-" in line.split(" ")[0] and not line.startswith(("Rss", "Private")):
                ours = "gnnbench-" in line or "(deleted)" in line
            elif ours and line.startswith("Rss:"):
                kib += int(line.split()[1])
    return kib


def test_what_does_not_is_held_on_the_disk(tmp_path):
    store, plan = make_store(tmp_path, budget_bytes=2 * 8 * ROWS)
    assert [each.name for each in plan.spilled] == [
        "intermediates of layer 1",
        "intermediates of layer 2",
    ]
    for each in TENSORS:
        made = store.empty(each)
        assert made.shape == (ROWS,)
        assert store.is_on_disk(made) == (each in plan.spilled)
        assert store.is_on_disk(made[:10].view(5, 2)) == (each in plan.spilled)
    assert hold(plan).peak_bytes == {"host": 16 * ROWS, DISK: 16 * ROWS}
    assert plan.notes() == (
        "spilled to disk: intermediates of layer 1 (8.00 kB), intermediates of layer 2 (8.00 kB)",
    )
    assert HostPlan(TENSORS, 0, None, HOMES).spilled == ()  # nowhere to spill
    fits = HostPlan(TENSORS, 4 * 8 * ROWS, tmp_path, HOMES)
    assert (fits.spilled, fits.notes()) == ((), ())
    assert hold(fits).peak_bytes == {"host": 4 * 8 * ROWS}


def test_files_hold_what_is_written_and_are_not_to_be_seen(tmp_path):
    store, _ = make_store(tmp_path, budget_bytes=0)
    made = {each.name: store.empty(each) for each in TENSORS}
    for number, one in enumerate(made.values()):
        one.copy_(torch.arange(ROWS) + number)
    assert os.listdir(tmp_path) == []
    store.drop_pages()
    for number, one in enumerate(made.values()):
        assert torch.equal(one, torch.arange(ROWS, dtype=torch.float64) + number)


def test_dropped_pages_leave_this_process(tmp_path):
    large = (tensor("intermediates", 1, 1 << 20),)
    store, _ = make_store(tmp_path, budget_bytes=0, tensors=large)
    made = store.empty(large[0]).fill_(3.0)
    assert resident_pages() >= 8 << 10
    store.drop_pages()
    assert resident_pages() < 1 << 10
    assert float(made.sum()) == 3.0 * (1 << 20)


@pytest.mark.parametrize("budget_bytes", [0, 10**6])
def test_rooms_under_one_name_are_apart_and_come_again(tmp_path, budget_bytes):
    saved = (HostTensor("intermediates", "saved intermediates", (1,), 1000),)
    store, plan = make_store(tmp_path, budget_bytes, saved)
    memory = DISK if budget_bytes == 0 else "host"
    shapes = [(3, 5), (0, 4), (7,), ()]
    for _ in range(2):
        rooms = [
            store.like(1, torch.empty(shape, dtype=torch.float32)).fill_(float(number))
            for number, shape in enumerate(shapes)
        ]
        assert [tuple(room.shape) for room in rooms] == shapes
        assert all((room == number).all() for number, room in enumerate(rooms))
        size_bytes = [4 * room.numel() for room in rooms]
        held = [plan.save(1, each, HOMES.hosts[0]) for each in size_bytes][-1]
        assert (held.memory, held.tensor) == (memory, "saved intermediates of layer 1")
        assert held.size_bytes == 4 * (15 + 7 + 1)
        store.rewind()
        plan.clear()


class Cudart:
    """CUDA's runtime, which counts what is registered, and has room for some of it."""

    def __init__(self, room_bytes):
        self.room_bytes, self.registered = room_bytes, {}

    def cudaHostRegister(self, pointer, size_bytes, flags):
        assert flags == 1  # for every device
        if size_bytes + sum(self.registered.values()) > self.room_bytes:
            return 2
        self.registered[pointer] = size_bytes
        return 0

    def cudaHostUnregister(self, pointer):
        del self.registered[pointer]
        return 0


def test_tensors_in_memory_are_pinned_as_long_as_the_store_lives(tmp_path, monkeypatch):
    """What cannot be pinned is said."""
    cudart = Cudart(room_bytes=10**6)
    monkeypatch.setattr(torch.cuda, "cudart", lambda: cudart)
    store, _ = make_store(tmp_path, budget_bytes=3 * 8 * ROWS)
    made = [store.empty(each) for each in TENSORS]
    assert [store.is_on_disk(one) for one in made].count(True) == 1
    store.pin([*made, torch.empty(0)])
    wanted = {one.data_ptr(): 8 * ROWS for one in made if not store.is_on_disk(one)}
    assert cudart.registered == wanted
    assert store.notes() == ()
    del store
    assert cudart.registered == {}
    cudart.room_bytes = 8 * ROWS
    store, _ = make_store(tmp_path, budget_bytes=10**9)
    store.pin([store.empty(each) for each in TENSORS])
    assert len(cudart.registered) == 1
    (note,) = store.notes()
    assert note.endswith("not pinned: cudaHostRegister of 8.00 kB failed with error 2")
    del store
    assert cudart.registered == {}


def test_a_full_disk_and_a_full_host_say_so(tmp_path, monkeypatch):
    usage = shutil.disk_usage(tmp_path)._replace(free=8 * ROWS - 1)
    monkeypatch.setattr(shutil, "disk_usage", lambda directory: usage)
    with pytest.raises(
        DeviceOutOfMemoryError,
        match=r"disk is out of memory: [\d,]+ bytes are needed for representations of layer",
    ):
        hold(HostPlan(TENSORS, 0, tmp_path, HOMES))
    with pytest.raises(DeviceOutOfMemoryError, match="host is out of memory"):
        hold(HostPlan(TENSORS, 10**9, tmp_path, HOMES), capacity_bytes=100)
    store, _ = make_store(tmp_path, budget_bytes=0)
    tmp_path.rmdir()
    with pytest.raises(UsageError, match="name another directory with"):
        store.empty(TENSORS[0])


def test_pages_that_rows_touch():
    per_page = PAGE_BYTES // 512
    everything = np.arange(4 * per_page)
    assert page_bytes(everything, 512) == 4 * PAGE_BYTES
    assert page_bytes(everything[::per_page], 512) == 4 * PAGE_BYTES
    assert page_bytes(everything[:2], 512) == PAGE_BYTES
    # Rows that are larger than a page, and rows across the border of two.
    assert page_bytes(np.array([0, 5]), 2 * PAGE_BYTES) == 4 * PAGE_BYTES
    assert page_bytes(np.array([0, 1]), PAGE_BYTES * 3 // 2) == 3 * PAGE_BYTES
    assert page_bytes(np.empty(0, dtype=np.int64), 512) == 0
