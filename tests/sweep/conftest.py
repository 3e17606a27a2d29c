"""Workers of a sweep that start soon."""

import multiprocessing
from importlib.metadata import entry_points
from multiprocessing import forkserver

import pytest


@pytest.fixture(scope="module")
def forked_workers():
    """Workers are forks of one process that has imported every plugin."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([each.module for each in entry_points(group="gnnbench")])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(multiprocessing, "get_context", lambda how: context)
        yield
    forkserver._forkserver._stop()
