"""Folders with sparse features that are made dense on load: mapped, and equal to the ``.npz``."""

import errno

import numpy as np
import pytest
import scipy.sparse as sp

from gnnbench import datasets
from gnnbench.comparison.dataset_guard import DatasetGuard
from gnnbench.errors import DatasetError
from gnnbench.host.mapped import FileMapping, is_mapped, let_go

VERTICES, FEATURES = 300, 60


@pytest.fixture(scope="module")
def spec(tmp_path_factory):
    """The path of one data set without its ending: a folder and a ``.npz``."""
    root = tmp_path_factory.mktemp("sparse")
    rng = np.random.default_rng(0)
    np.savetxt(root / "e.csv", rng.integers(0, VERTICES, (4 * VERTICES, 2)), "%d", ",")
    labels = np.arange(VERTICES) % 4
    np.savetxt(root / "y.csv", np.c_[np.arange(VERTICES), labels], "%d", ",")
    x = sp.random(VERTICES, FEATURES, 0.4, format="csr", dtype=np.float32, random_state=0)
    sp.save_npz(root / "x.npz", x)
    extras = datasets.Extras(features=root / "x.npz", labels=root / "y.csv", keep_isolated=True)
    datasets.import_folder(root / "e.csv", root / "folder", extras, scaling="none")
    made = datasets.import_graph(root / "e.csv", extras).dataset
    datasets.save_npz(made, root / "file.npz")
    return root


def test_features_made_dense_are_mapped_and_survive_without_their_pages(spec):
    dataset, other = datasets.load(str(spec / "folder")), datasets.load(str(spec / "file.npz"))
    assert is_mapped(dataset.features)
    assert not is_mapped(other.features)
    guard = DatasetGuard(dataset)
    dataset.features[3] += 1
    assert "features" in guard.restore()
    for array in (dataset.features, other.features):
        let_go(array)
    np.testing.assert_array_equal(dataset.features, other.features)
    assert np.count_nonzero(other.features) > VERTICES


def test_an_array_is_mapped_where_its_memory_is():
    with open(__file__, "rb") as file:
        mapped = FileMapping(file.fileno(), 64, prot=1)
    array = np.frombuffer(mapped, np.uint8)
    assert is_mapped(array)
    assert is_mapped(array[3:7].reshape(2, 2).T)
    assert not is_mapped(array.copy())
    assert not is_mapped(np.zeros(4))


def test_a_full_disk_is_one_sentence(spec, monkeypatch):
    def refuse(*given):
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr("gnnbench.records.data.shelve_pieces", refuse)
    with pytest.raises(DatasetError, match=r"has no room for dense features of .*TMPDIR"):
        datasets.load(str(spec / "folder"))
