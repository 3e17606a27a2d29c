"""One copy of a data set for the ranks of a machine, and partitions that are cut once."""

import os
import signal
import tempfile
from dataclasses import replace

import numpy as np
import pytest

from gnnbench import datasets
from gnnbench.datasets import partitioning, sharing
from gnnbench.datasets.folder import list_arrays
from gnnbench.datasets.partitioning import edge_cut, keep_partitions, partition
from gnnbench.errors import DatasetError, GnnbenchError
from gnnbench.host.apart import ChildFailedError, call_apart
from gnnbench.host.locks import locked
from gnnbench.host.mapped import is_mapped
from gnnbench.host.rank import Place

SBM = "sbm:vertices=400,edges=2400,features=4,classes=4"
PATIENCE_S = 60.0


@pytest.fixture
def scratch(tmp_path, monkeypatch):
    """The folder for temporary files, and the user's cache."""
    for name in ("scratch", "cache"):
        (tmp_path / name).mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "scratch"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "scratch"


def place(rank, size=2):
    return Place(rank, size, rank, size, 0, "127.0.0.1", 29500)


def share_with_two(make, spec="made"):
    return [sharing.share(make, spec, None, place(rank), PATIENCE_S) for rank in range(2)]


def same(one, other):
    ours, theirs = list_arrays(one), list_arrays(other)
    return ours.keys() == theirs.keys() and all(
        ours[name].dtype == theirs[name].dtype and np.array_equal(ours[name], theirs[name])
        for name in ours
    )


@pytest.mark.parametrize("kind", ["scaled", "sparse", "weighted"])
def test_ranks_map_what_one_of_them_has_made(scratch, kind):
    """Everything is equal but the memory, and nothing is left behind."""
    made = datasets.load("cora" if kind == "sparse" else SBM)
    if kind == "scaled":
        made = datasets.scale_features(made, "columns")
    if kind == "weighted":
        weights = np.linspace(0, 1, made.graph.num_edges, dtype=np.float32)
        made = replace(made, graph=replace(made.graph, weights=weights, directed=True))
    log = scratch / "log"

    def make():
        with log.open("a") as lines:
            lines.write(f"{os.getpid()}\n")
        return made

    shared = share_with_two(make)
    assert [int(line) == os.getpid() for line in log.read_text().split()] == [False]
    assert [path.name for path in scratch.iterdir()] == ["log"]
    for each in shared:
        assert each.mapped
        assert all(is_mapped(array) for array in list_arrays(each).values())
        assert same(each, made)
        assert each.digest() == made.digest()
        for field in ("name", "origin", "notes", "num_classes", "feature_scaling", "folder"):
            assert getattr(each, field) == getattr(made, field), field
        assert each.graph.directed == made.graph.directed


def test_a_folder_is_mapped_where_it_is(scratch, tmp_path):
    stored = datasets.make_folder(SBM, tmp_path / "stored")
    for each in share_with_two(lambda: datasets.load(stored.folder), stored.folder):
        assert same(each, stored)
        assert each.folder == stored.folder
        assert all(is_mapped(array) for array in list_arrays(each).values())
    assert not list(scratch.iterdir())


def test_what_a_job_changes_in_a_folder_is_not_lost(scratch, tmp_path):
    stored = datasets.make_folder(SBM, tmp_path / "stored")
    fewer = stored.train_mask & (np.arange(len(stored.train_mask)) % 2 == 0)
    few = stored.graph.num_vertices // 2
    indptr = np.minimum(stored.graph.indptr, stored.graph.indptr[few])
    graph = replace(stored.graph, indptr=indptr, indices=stored.graph.indices[: indptr[-1]])
    for changed in (replace(stored, train_mask=fewer), replace(stored, graph=graph)):
        for each in share_with_two(lambda changed=changed: changed, stored.folder):
            assert same(each, changed)
            assert is_mapped(each.labels)


def test_where_nothing_can_be_shared_each_rank_has_its_own(scratch, monkeypatch):
    made = datasets.load(SBM)
    monkeypatch.setattr(tempfile, "tempdir", str(scratch / "none"))
    assert share_with_two(lambda: made) == [made, made]


def test_what_cannot_be_made_is_refused_by_each_rank(scratch):
    def fail():
        raise DatasetError("there is no such data set.")

    for rank in range(2):
        with pytest.raises(DatasetError, match="no such data set"):
            sharing.share(fail, "none", None, place(rank), PATIENCE_S)


def test_a_rank_that_is_stopped_at_its_work_is_named(scratch):
    reading, writing = os.pipe()
    holder = os.fork()
    if not holder:
        with locked("key", PATIENCE_S):
            os.write(writing, b"!")
            os.kill(os.getpid(), signal.SIGSTOP)
        os._exit(0)
    try:
        assert os.read(reading, 1)
        stopped = pytest.raises(GnnbenchError, match=f"process {holder} .* stopped by a signal")
        with stopped, locked("key", 0.2):
            pass
        os.kill(holder, signal.SIGCONT)
        with locked("key", PATIENCE_S):
            assert len(list(scratch.iterdir())) == 1
        assert not list(scratch.iterdir())
    finally:
        os.kill(holder, signal.SIGKILL)
        os.waitpid(holder, 0)
        os.close(reading)
        os.close(writing)


def test_a_child_says_why_it_failed():
    def fail():
        raise ValueError("no such luck")

    assert call_apart(lambda: b"all" * 100_000) == b"all" * 100_000
    with pytest.raises(ChildFailedError, match="ValueError: no such luck"):
        call_apart(fail)
    with pytest.raises(ChildFailedError, match="SIGKILL"):
        call_apart(lambda: os.kill(os.getpid(), signal.SIGKILL))


@pytest.fixture
def cuts(monkeypatch):
    """The parts that METIS was asked for."""
    asked = []

    def cut(graph, parts, seed):
        asked.append((parts, seed))
        return partitioning.partition_metis(graph, parts, seed)

    monkeypatch.setattr(edge_cut, "partition_metis", cut)
    return asked


def cut_anew(dataset, parts=3, seed=5):
    """The partition that a process cuts or reads which has loaded the data set anew."""
    with keep_partitions(dataset, PATIENCE_S):
        return partition(dataset.graph, parts, "metis", seed)


@pytest.mark.parametrize("writable", [True, False])
def test_a_partition_is_cut_once_and_kept_beside_the_data_set(scratch, tmp_path, cuts, writable):
    """In the user's cache where the folder is not to be written to."""
    file = tmp_path / "own" / "graph.npz"
    datasets.save_npz(datasets.load(SBM), file)
    file.parent.chmod(0o700 if writable else 0o500)
    try:
        found = [cut_anew(datasets.load(str(file))) for _ in range(2)]
        kept = list(tmp_path.rglob("*.npy"))
    finally:
        file.parent.chmod(0o700)
    expected = partitioning.partition_metis(datasets.load(SBM).graph, 3, 5)
    assert all(each.dtype == np.int64 and np.array_equal(each, expected) for each in found)
    assert cuts == [(3, 5)]
    beside = file.with_name("graph.partitions")
    assert [each.parent for each in kept] == [
        beside if writable else tmp_path / "cache" / "gnnbench" / "partitions"
    ]
    assert not list(scratch.iterdir())


def test_other_partitions_and_graphs_are_cut(scratch, cuts):
    dataset, other = datasets.load(SBM), datasets.load(SBM, seed=1)
    for each in ((dataset, 3, 5), (dataset, 4, 5), (dataset, 3, 6), (other, 3, 5)):
        cut_anew(*each)
    assert cuts == [(3, 5), (4, 5), (3, 6), (3, 5)]
    with keep_partitions(dataset, PATIENCE_S):
        partition(other.graph, 3, "metis", 5)  # none of the data set's
    assert len(cuts) == 5


@pytest.mark.parametrize("damage", ["cut off", "other vertices", "other parts"])
def test_a_file_that_is_no_partition_is_made_anew(scratch, tmp_path, cuts, damage):
    dataset = datasets.load(SBM)
    right = cut_anew(dataset)
    (kept,) = tmp_path.rglob("*.npy")
    if damage == "cut off":
        kept.write_bytes(kept.read_bytes()[:-1])
    elif damage == "other vertices":
        np.save(kept, np.zeros(399, dtype=np.uint8))
    else:
        np.save(kept, np.full(400, 3, dtype=np.uint8))
    assert np.array_equal(cut_anew(dataset), right)
    assert cuts == [(3, 5)] * 2
