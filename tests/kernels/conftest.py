"""Fixtures of the kernels' tests: with and without compiled loops, small blocks, the plugins."""

import pytest

from tests.kernels.blocks import BLOCKS

LEVELS = ["baseline", "avx2", "avx512"]


def choose_loops(request, monkeypatch):
    """Run the twins of the topic that a test file is named after, or loops of one level."""
    topic = request.module.__name__.rpartition("test_")[2]
    if request.param == "pure":
        monkeypatch.setattr(f"gnnbench.kernels.dispatch.{topic}.load", lambda topic: None)
    elif request.param in LEVELS:
        monkeypatch.setenv("GNNBENCH_SIMD", request.param)


@pytest.fixture(params=["pure", *LEVELS])
def anywhere(request, monkeypatch):
    """Every instruction set of the compiled loops, and the twins."""
    choose_loops(request, monkeypatch)


@pytest.fixture(params=["pure", "compiled"])
def both_ways(request, monkeypatch):
    """The compiled loops and the twins."""
    choose_loops(request, monkeypatch)


@pytest.fixture(params=BLOCKS.values(), ids=BLOCKS.keys())
def block(request):
    found = request.param
    return found
