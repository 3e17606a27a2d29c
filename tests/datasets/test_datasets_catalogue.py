"""Names, folders, the list and the description."""

import os
from pathlib import Path

import numpy as np
import pytest

from gnnbench.datasets import (
    STAND_INS,
    build,
    cache_folder,
    data_folders,
    describe,
    find_shared_data,
    list_datasets,
    load,
    save_npz,
)
from gnnbench.errors import DatasetError


@pytest.fixture
def folders(tmp_path, monkeypatch):
    """Two folders in ``$GNNBENCH_DATA`` and the cache."""
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    second.mkdir()
    monkeypatch.setenv("GNNBENCH_DATA", os.pathsep.join((str(first), str(second))))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return first, second, tmp_path / "cache" / "gnnbench" / "datasets"


def star(leaves):
    """A centre with ``leaves`` leaves, and one isolated vertex."""
    edges = np.stack((np.zeros(leaves, dtype=np.int64), np.arange(1, leaves + 1)))
    x = np.zeros((leaves + 2, 4), dtype=np.float32)
    x[0] = 1
    labels = np.arange(leaves + 2) % 2
    labels[-1] = -1
    return build(
        "star", edges, num_vertices=leaves + 2, features=x, labels=labels, report_repairs=False
    )


def test_folders_in_order(folders):
    assert find_shared_data() == folders[0]
    assert data_folders()[-3:] == folders
    assert cache_folder() == folders[2]
    folders[0].rmdir()
    assert find_shared_data() == folders[1]


def test_cache_defaults_to_the_home_folder(monkeypatch):
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", "/home/someone")
    assert cache_folder() == Path("/home/someone/.cache/gnnbench/datasets")


def test_name_resolves_to_the_first_folder(folders):
    for leaves, folder in zip((3, 4, 5), folders, strict=True):
        save_npz(star(leaves), folder / "star_graph.npz")
    for leaves, folder in zip((3, 4, 5), folders, strict=True):
        assert load("star_graph").graph.num_edges == 2 * leaves
        assert load(str(folder / "star_graph.npz")).graph.num_edges == 2 * leaves
        (folder / "star_graph.npz").unlink()
    with pytest.raises(DatasetError, match="no dataset 'star_graph'"):
        load("star_graph")


def test_unknown_name_lists_close_ones(folders):
    save_npz(star(3), folders[0] / "star_graph.npz")
    with pytest.raises(DatasetError, match=r"did you mean star_graph\?.*gnnbench datasets list"):
        load("star_grahp")
    with pytest.raises(DatasetError, match=r"ogbn-products:0\.01"):
        load("ogbn-product")
    with pytest.raises(DatasetError, match="datasets list"):
        load("qqqqqqqqqqqqqqqqqqqqqqqqqq")
    with pytest.raises(DatasetError, match="datasets list"):
        load("")


def test_bare_stand_in_name_suggests_a_scale(folders):
    for name in ("reddit", "it-2004", "MAG240M"):
        with pytest.raises(DatasetError, match=f"stand-in {name.lower()}:0.01"):
            load(name)


def test_other_file_names_the_import(tmp_path):
    edges = tmp_path / "graph.txt"
    edges.write_text("0 1\n")
    with pytest.raises(DatasetError, match=f"gnnbench datasets import {edges}"):
        load(str(edges))


def test_list(folders):
    save_npz(star(3), folders[0] / "star_graph.npz")
    save_npz(star(4), folders[1] / "star_graph.npz")
    (folders[1] / "broken.npz").write_text("not a zip")
    entries = {entry.name: entry for entry in list_datasets()}
    found = entries["star_graph"]
    assert found.kind == "file"
    assert (found.vertices, found.edges, found.features, found.classes) == (5, 3, 4, 2)
    assert found.where == str(folders[0] / "star_graph.npz")
    assert entries["broken"].vertices is None
    assert "cannot be used: this is not a readable .npz" in entries["broken"].where
    assert entries["sbm"].edges == 400_000
    assert entries["rmat"].vertices == 1 << 20
    for real in STAND_INS:
        assert entries[f"{real.name}:SCALE"].where == real.source
    kinds = [entry.kind for entry in list_datasets()]
    assert list(dict.fromkeys(kinds)) == ["file", "synthetic", "stand-in", "ogb", "pyg"]


def test_list_reads_sizes_of_topologies_and_sparse_features(folders):
    np.savez(folders[0] / "topo.npz", indptr=np.array([0, 1, 2]), indices=np.array([1, 0]))
    np.savez_compressed(
        folders[0] / "sparse.npz",
        indptr=np.array([0, 1, 2]),
        indices=np.array([1, 0]),
        x_shape=np.array([2, 77]),
        y=np.array([0, 2]),
    )
    entries = {entry.name: entry for entry in list_datasets()}
    topo, sparse = entries["topo"], entries["sparse"]
    assert (topo.vertices, topo.edges, topo.features, topo.classes) == (2, 1, None, None)
    assert (sparse.features, sparse.classes) == (77, 3)


def test_describe():
    dataset = star(4)
    facts = describe(dataset)
    assert facts["num_vertices"] == 6
    assert facts["undirected_edges"] == 4
    assert facts["num_edges"] == 8
    assert facts["edge_convention"] == "directed entries of the symmetric CSR, no self loops"
    assert (facts["min_degree"], facts["max_degree"]) == (0, 4)
    assert facts["mean_degree"] == pytest.approx(8 / 6)
    assert facts["isolated_vertices"] == 1
    assert facts["feature_density"] == pytest.approx(1 / 6)
    assert facts["labelled_vertices"] == 5
    assert facts["num_classes"] == 2
    assert (facts["train_vertices"], facts["val_vertices"], facts["test_vertices"]) == (1, 2, 2)
    assert facts["digest"] == dataset.digest()
    assert facts["notes"] == dataset.notes
