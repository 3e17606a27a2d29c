"""Fixtures of data sets: an empty cache, and a data set as a folder."""

import pytest

from gnnbench import datasets

SBM = "sbm:vertices=300,edges=1500,features=9,classes=3"


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "gnnbench" / "datasets"


@pytest.fixture
def made(tmp_path):
    datasets.make_folder(SBM, tmp_path / "made", scaling="none")
    return tmp_path / "made"
