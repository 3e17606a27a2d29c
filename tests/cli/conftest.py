"""A data set for commands whose data do not matter."""

import pytest

from gnnbench import datasets


@pytest.fixture
def small(tmp_path):
    """A file of 60 vertices, so that loading costs nothing."""
    path = tmp_path / "small.npz"
    datasets.save_npz(datasets.load("sbm:vertices=60,edges=200,features=4,classes=3"), path)
    return path
