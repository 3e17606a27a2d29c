"""Folders of data sets in use: mapped arrays, read-ahead, and reads from disk in training."""

import ctypes
import dataclasses
import errno
import hashlib
import itertools
import mmap
import os
import time
import tracemalloc

import numpy as np
import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gnnbench.parts.base
from gnnbench import comparison, datasets, plugins
from gnnbench.check.graphs import make_platform
from gnnbench.comparison import Request, compare
from gnnbench.comparison.dataset_guard import DatasetGuard
from gnnbench.datasets import npy
from gnnbench.errors import UsageError
from gnnbench.host import mapped
from gnnbench.host.mapped import ReadAhead, count_written, let_all_go
from gnnbench.kernels.slabs import SMALLEST_BYTES
from gnnbench.machines.tables import replace_fields
from gnnbench.price.model_clock import ModelClock
from gnnbench.records import Block, Workload
from gnnbench.run import Evidence, Training, features, input_rows
from gnnbench.run.host_movement import HostMovement
from tests.datasets.conftest import SBM


def make_workload(dataset, epochs=1):
    return Workload(
        model="gcn",
        dims=(dataset.num_features, 8, dataset.num_classes),
        epochs=epochs,
        batch_size=100,
        fanouts=(4, 3),
        seed=0,
    )


def make_setting(dataset, disk):
    platform = make_platform(2)
    rate = 1e9 if disk else None
    host = replace_fields(platform.host, disk_bandwidth_bytes_per_s=rate)
    platform = dataclasses.replace(platform, host=host)
    return comparison.make_setting(Request((), dataset, make_workload(dataset), platform))


def run_once(dataset, strategy, mode, disk=True):
    setting = make_setting(dataset, disk)
    registry = plugins.load()
    bundle = plugins.assemble(registry, registry.strategy(strategy).bundles[mode], {})
    clock = ModelClock(setting.platform, bundle.kernel, bundle.sampler)
    training = Training(bundle, setting, clock, Evidence(setting, 0))
    epoch = training.run_epoch(0)
    return epoch, training.finish([epoch])


def test_arrays_are_mapped_and_what_is_written_to_them_is_seen_and_undone(made):
    dataset = datasets.load(str(made))
    digest = hashlib.sha256((made / "x.npy").read_bytes()).hexdigest()
    right = dataset.features.copy()
    guard = DatasetGuard(dataset)
    assert guard.restore() == ""
    assert count_written(dataset.features) == 0
    dataset.features[4, 2] += 1
    assert count_written(dataset.features) > 0
    assert count_written(dataset.graph.indices) == 0
    assert "features; they were restored" in guard.restore()
    np.testing.assert_array_equal(dataset.features, right)
    assert guard.restore() == ""
    assert hashlib.sha256((made / "x.npy").read_bytes()).hexdigest() == digest


def test_pages_leave_memory_unless_they_were_written_to(made):
    dataset = datasets.load(str(made))
    dataset.features[4, 2] += 1
    arrays, sums = (dataset.features, dataset.graph.indices), []
    for _ in range(2):
        sums.append([float(array.sum()) for array in arrays])
        resident = [count_resident(array) for array in arrays]
        assert min(resident) > 0
        let_all_go()
    assert sums[0] == sums[1]
    assert [count_resident(array) for array in arrays] == [resident[0], 0]


def count_resident(array):
    """The bytes in memory of the mapping that an array is in."""
    for each in psutil.Process().memory_maps(grouped=False):
        begin, end = (int(edge, 16) for edge in each.addr.split("-"))
        if begin <= array.ctypes.data < end:
            return each.rss
    raise ValueError("it is in no memory")


@given(
    rows=st.lists(st.integers(0, 9_999), max_size=40),
    width=st.sampled_from([1, 3, 700, 1024, 3000]),
)
def test_ranges_are_the_pages_of_the_rows(rows, width):
    array = np.lib.stride_tricks.as_strided(
        np.zeros(1, dtype=np.float32), (10_000, width), (4 * width, 4)
    )
    begin = array.ctypes.data
    wanted = {
        (begin + at) // mmap.PAGESIZE
        for row in rows
        for at in range(row * 4 * width, (row + 1) * 4 * width, 4)
    }
    found = mapped.find_ranges(array, np.array(rows, dtype=np.int32))
    asked = [
        set(range(int(start) // mmap.PAGESIZE, int(start + size) // mmap.PAGESIZE))
        for start, size in found
    ]
    assert (found % mmap.PAGESIZE == 0).all()
    assert wanted <= set().union(*asked)
    for one in asked:
        assert {min(one), max(one)} <= wanted
        near = sorted(one & wanted)
        assert all(b - a <= mapped._GAP_PAGES + 1 for a, b in itertools.pairwise(near))
    for one, other in itertools.pairwise(asked):
        assert min(other) - max(one) > mapped._GAP_PAGES + 1


def test_what_is_asked_for_is_read(tmp_path):
    """Ask for more ranges than one call takes, in a file whose pages are not in memory."""
    pages, apart = 1100, mapped._GAP_PAGES + 3
    with (tmp_path / "many").open("w+b") as file:
        file.write(os.urandom(mmap.PAGESIZE) * pages * apart)
        file.flush()
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        array = mapped.map_array(file, 0, np.dtype(np.uint8), (pages * apart, mmap.PAGESIZE))

    def find_there():
        there = np.zeros(len(array), dtype=np.uint8)
        ctypes.CDLL(None).mincore(
            ctypes.c_void_p(array.ctypes.data),
            ctypes.c_size_t(array.nbytes),
            ctypes.c_void_p(there.ctypes.data),
        )
        return np.flatnonzero(there & 1)

    wanted = np.arange(0, len(array), apart)
    if len(find_there()):
        assert len(find_there()) == len(array), "a file system in memory has all or nothing"
        return
    mapped.ask_for(array, wanted)
    for _ in range(5000):
        if len(find_there()) >= len(wanted):
            break
        time.sleep(0.01)
    np.testing.assert_array_equal(find_there(), wanted)


@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize(
    ("strategy", "mode", "scattered"), [("hyscale", "mini-batch", 1), ("hongtu", "full-graph", 0)]
)
def test_rows_of_mini_batches_are_scattered(made, monkeypatch, strategy, mode, scattered):
    advised = []
    monkeypatch.setattr(mapped, "_advise", lambda array, advice: advised.append(advice))
    run_once(datasets.load(str(made)), strategy, mode)
    random = [each for each in advised if each in (mmap.MADV_RANDOM, mmap.MADV_NORMAL)]
    assert random == [mmap.MADV_RANDOM, mmap.MADV_NORMAL] * scattered


class Asked(ReadAhead):
    """What is asked for, and what has been walked through, in this order."""

    def __init__(self, array):
        super().__init__(array)
        self.said = []

    def _ask(self, rows):
        self.said.append(("asked", rows.tolist()))

    def walk(self, rows):
        for window in super().walk(rows):
            self.said.append(("walked", rows[window].tolist()))
            yield window


def test_windows_are_asked_for_one_ahead(monkeypatch):
    monkeypatch.setattr(mapped, "WINDOW_BYTES", 2 * mmap.PAGESIZE)
    ahead = Asked(np.zeros((100, mmap.PAGESIZE // 8), dtype=np.float32))  # two rows a page
    first, second = np.array([0, 1, 2, 9, 11, 12, 13, 20]), np.array([5, 90])
    list(ahead.walk(first))
    ahead.begin(second)
    list(ahead.walk(second))
    windows = [[0, 1, 2], [9, 11], [12, 13, 20]]
    assert ahead.said == [
        ("asked", windows[0]), ("asked", windows[1]), ("walked", windows[0]),
        ("asked", windows[2]), ("walked", windows[1]), ("walked", windows[2]),
        ("asked", [5, 90]), ("walked", [5, 90]),
    ]  # fmt: skip


@pytest.mark.parametrize("width", [1, 700, 1024, 5000])
def test_windows_are_all_rows_once(monkeypatch, width):
    monkeypatch.setattr(mapped, "WINDOW_BYTES", 3 * mmap.PAGESIZE)
    ahead = Asked(np.zeros((600, width), dtype=np.float32))
    rows = np.random.default_rng(0).permutation(600)[:400]
    assert np.concatenate([rows[window] for window in ahead.walk(rows)]).tolist() == rows.tolist()
    assert list(ahead.walk(rows[:0])) == [slice(0, 0)]


@pytest.mark.usefixtures("one_thread")
def test_rows_are_asked_for_a_round_before(made, monkeypatch):
    monkeypatch.setattr("gnnbench.run.base.ReadAhead", Asked)
    bring, ends, aheads = HostMovement._bring_rows, [], set()

    def note(movement, operation):
        number, round_index, slot = operation.key
        move, said = movement.moves[round_index, slot], movement._ahead.said
        aheads.add(movement._ahead)
        before = ("asked", move.host_ids.tolist()) in said
        bring(movement, operation)
        if number == 0:
            assert before == (round_index > 0)
            assert ("walked", move.host_ids.tolist()) in said
            ends.append(move.host_ids.tolist())

    monkeypatch.setattr(HostMovement, "_bring_rows", note)
    run_once(datasets.load(str(made)), "hongtu", "full-graph")
    (ahead,) = aheads
    assert len(ends) == 2 * 4  # devices, and the rounds of each
    for what in ("asked", "walked"):
        assert sorted(rows for each, rows in ahead.said if each == what) == sorted(ends)


@pytest.mark.usefixtures("one_thread")
def test_rows_of_a_mini_batch_are_asked_for(made, monkeypatch):
    """All of them, a page at a time, and none is looked at that has not been asked for."""
    monkeypatch.setattr(mapped, "WINDOW_BYTES", mmap.PAGESIZE)
    asked, used = [], []
    feature_rows = input_rows.feature_rows

    def note(setting, ids, **options):
        assert ids.tolist() in asked
        used.append(ids.tolist())
        return feature_rows(setting, ids, **options)

    monkeypatch.setattr(ReadAhead, "_ask", lambda self, rows: asked.append(rows.tolist()))
    monkeypatch.setattr(input_rows, "feature_rows", note)
    dataset = datasets.load(str(made))
    run_once(dataset, "hyscale", "mini-batch")
    assert used
    assert sorted(used) == sorted(asked)
    row_bytes = dataset.features.nbytes // len(dataset.features)
    assert max(map(len, used)) <= 1 + mmap.PAGESIZE // row_bytes


def test_nothing_is_asked_of_arrays_in_memory():
    ahead = Asked(features.mapped_features(make_setting(datasets.load(SBM), disk=True)))
    ahead.begin(np.arange(3))
    assert list(ahead.walk(np.arange(3))) == [slice(0, 3)]
    assert ahead.said == [("walked", [0, 1, 2])]


def test_an_empty_array_is_mapped(tmp_path):
    np.save(tmp_path / "none.npy", np.empty((0, 3), dtype=np.float32))
    assert npy.ArrayFile.find(tmp_path / "none.npy").map().shape == (0, 3)


@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize(
    ("spec", "names"),
    [(SBM, ("reference", "hongtu", "mixgcn", "p3")), ("cora", ("hyscale", "partition"))],
)
def test_strategies_train_as_in_memory(tmp_path, spec, names):
    held = datasets.scale_features(datasets.load(spec))
    stored = datasets.make_folder(spec, tmp_path / "made")

    def train(dataset):
        workload = make_workload(dataset, epochs=2)
        request = Request(names, dataset, workload, make_platform(2), check=False)
        found = compare(request, plugins.load())
        assert all(run.status == "done" for run in found.runs)
        return [(run.strategy, run.loss) for run in found.runs], found.dataset["digest"]

    assert train(stored) == train(held)


def pages_of(ids, row_bytes):
    """Counted one byte at a time."""
    return len({
        (vertex * row_bytes + byte) // mmap.PAGESIZE for vertex in ids for byte in range(row_bytes)
    })  # fmt: skip


@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize(
    ("strategy", "mode"), [("hongtu", "full-graph"), ("hyscale", "mini-batch")]
)
def test_features_on_disk_are_read_a_page_at_a_time(made, strategy, mode):
    stored, held = datasets.load(str(made)), datasets.load(SBM)
    epoch, training = run_once(stored, strategy, mode)
    plain, other = run_once(held, strategy, mode)
    assert epoch.round_losses == plain.round_losses
    read = [span for span in epoch.spans if span.label == "read from disk"]
    before = {after for span in epoch.spans for after in span.after}
    assert read
    assert {span.id for span in read} <= before
    assert not [span for span in plain.spans if span.label == "read from disk"]
    whole = pages_of(range(300), 4 * 9) * mmap.PAGESIZE
    for span in read:
        assert span.work.bytes % mmap.PAGESIZE == 0
        assert 0 < span.work.bytes <= 2 * whole
        assert span.seconds >= span.work.bytes / 1e9
    host = make_platform(2).host.name
    stays = 300 * 9 * 4 + 2 * 1500 * 4  # features and the ends of edges
    more = other.peak_bytes[host] - training.peak_bytes[host]
    assert more == stays
    assert any("stay on disk" in note for note in training.notes)


def test_a_machine_whose_disk_is_not_known_has_a_folder_in_memory(made):
    epoch, training = run_once(datasets.load(str(made)), "hongtu", "full-graph", disk=False)
    plain, other = run_once(datasets.load(SBM), "hongtu", "full-graph", disk=False)
    assert [span.label for span in epoch.spans] == [span.label for span in plain.spans]
    assert training.peak_bytes == other.peak_bytes
    (said,) = (note for note in training.notes if "is a folder" in note)
    assert "does not say how fast its disk is" in said


@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize("strategy", ["hongtu", "hongtu-im"])
def test_what_is_made_of_a_folder_s_edges_is_on_disk_and_the_same(made, monkeypatch, strategy):
    plain, _ = run_once(datasets.load(SBM), strategy, "full-graph")
    monkeypatch.setattr("gnnbench.parts.base.SHELVED_BYTES", 0)
    kept = []
    shelve = gnnbench.parts.base.shelve

    def count(array):
        kept.append(array.nbytes)
        return shelve(array)

    monkeypatch.setattr("gnnbench.parts.base.shelve", count)
    epoch, _ = run_once(datasets.load(str(made)), strategy, "full-graph")
    assert epoch.round_losses == plain.round_losses
    # Every edge, at least as it was cut and as a device's buffer has it.
    assert sum(kept) > 2 * 4 * 3000


def test_a_record_is_kept_with_its_arrays(made, monkeypatch):
    monkeypatch.setattr("gnnbench.parts.base.SHELVED_BYTES", 100)
    large, small = np.arange(50, dtype=np.int64), np.arange(5, dtype=np.int64)[1:3]
    block = Block(large, 2, small, large.astype(np.int32))
    held = make_setting(datasets.load(SBM), True).keep((block,))
    assert held == (block,)
    (kept,) = make_setting(datasets.load(str(made)), True).keep((block,))
    for name in ("src_ids", "indptr", "indices"):
        np.testing.assert_array_equal(getattr(kept, name), getattr(block, name))
    assert (kept.num_dst, kept.own) == (2, None)
    assert isinstance(kept.src_ids.base.base, memoryview | mmap.mmap)
    assert kept.indptr.base is None  # it does not keep the array that it was cut from


def test_a_full_disk_is_one_sentence(made, monkeypatch):
    def refuse(*_):
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr("gnnbench.parts.base.shelve", refuse)
    monkeypatch.setattr("gnnbench.parts.base.SHELVED_BYTES", 0)
    with pytest.raises(UsageError, match=r"takes no more .* the disk is full; .* TMPDIR"):
        run_once(datasets.load(str(made)), "hongtu", "full-graph")


@pytest.mark.usefixtures("one_thread")
def test_planning_takes_no_more_memory_for_more_edges(tmp_path, monkeypatch):
    monkeypatch.setattr("gnnbench.parts.base.SHELVED_BYTES", 1000)
    # Pieces of slabs double up to 16 MB each, however many edges there are.
    monkeypatch.setattr("gnnbench.kernels.slabs.LARGEST_BYTES", SMALLEST_BYTES)

    def measure(edges):
        spec = f"rmat:vertices=2000,edges={edges},features=4,classes=2"
        dataset = datasets.make_folder(spec, tmp_path / str(edges), scaling="none")
        setting = make_setting(dataset, True)
        registry = plugins.load()
        parts = registry.strategy("hongtu").bundles["full-graph"]
        chunks = {"sampler": {"chunks_per_partition": "12", "search": "none"}}
        bundle = plugins.assemble(registry, parts, chunks)
        clock = ModelClock(setting.platform, bundle.kernel, bundle.sampler)
        tracemalloc.start()
        training = Training(bundle, setting, clock, Evidence(setting, 0))
        held, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        del training
        return held

    measure(5_000)
    small, large = measure(10_000), measure(60_000)
    assert large < small + 4 * 60_000
