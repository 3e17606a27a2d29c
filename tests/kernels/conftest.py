"""Fixtures of the kernels' tests: with and without compiled loops, small blocks, the plugins."""

from __future__ import annotations

import pytest

from gnnbench import plugins
from gnnbench.plugins import Registry
from gnnbench.records import Block
from tests.kernels.blocks import BLOCKS

LEVELS = ["baseline", "avx2", "avx512"]


def choose_loops(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run the twins of the topic that a test file is named after, or loops of one level."""
    topic = request.module.__name__.rpartition("test_")[2]
    if request.param == "pure":
        monkeypatch.setattr(f"gnnbench.kernels.dispatch.{topic}.load", lambda topic: None)
    elif request.param in LEVELS:
        monkeypatch.setenv("GNNBENCH_SIMD", request.param)


@pytest.fixture(params=["pure", *LEVELS])
def anywhere(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every instruction set of the compiled loops, and the twins."""
    choose_loops(request, monkeypatch)


@pytest.fixture(params=["pure", "compiled"])
def both_ways(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The compiled loops and the twins."""
    choose_loops(request, monkeypatch)


@pytest.fixture(params=BLOCKS.values(), ids=BLOCKS.keys())
def block(request: pytest.FixtureRequest) -> Block:
    found: Block = request.param
    return found


@pytest.fixture(scope="module")
def registry() -> Registry:
    return plugins.load()
