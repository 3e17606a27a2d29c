"""Plugins that break a promise, as files."""

from __future__ import annotations

import textwrap

import pytest

from gnnbench import plugins

TEMPLATE = """
from dataclasses import dataclass
import numpy as np
from gnnbench.hookspecs import hookimpl
from gnnbench.parts import CacheMemory, CacheSession, HostLoading, MiniBatchSampler
from gnnbench.parts import RoundedLoading, RowSharing
from gnnbench.parts import SeedSession, TrafficSession, option
from gnnbench.records import Block, Fetch, Parts, RoundTraffic, Share, Strategy
from gnnbench_plugins.reference.communication import VanillaCommunication
from gnnbench_plugins.reference.kernel import TorchKernel
from gnnbench_plugins.reference.memory import HostMemory
from gnnbench_plugins.reference.placement import SinglePlacement
from gnnbench_plugins.reference.sampler import NeighbourSampler

@hookimpl
def gnnbench_{kind}():
    return [Wrong]

@hookimpl
def gnnbench_strategy():
    names = dict(sampler="neighbour", placement="single", communication="vanilla",
                 memory="host", kernel="torch") | {{"{kind}": "wrong"}}
    return [Strategy("wrong", "breaks a promise", "these tests", {{"mini-batch": Parts(**names)}})]

"""


@pytest.fixture
def load_wrong(tmp_path):
    """A registry with a strategy ``wrong``, plain but for one part, class ``Wrong`` of ``body``."""

    def load(kind, body, name="wrong"):
        path = tmp_path / f"{name}.py"
        path.write_text(TEMPLATE.format(kind=kind) + textwrap.dedent(body), encoding="utf-8")
        return plugins.load([str(path)])

    return load
