"""The graphs that kernels race on, by the names they have in tables; made or read at first use."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from gnnbench import datasets
from gnnbench.datasets.synthetic import draw_distinct
from gnnbench.datasets.topology import symmetrise
from gnnbench.errors import GnnbenchError
from gnnbench.records import Graph, IntArray

#: Specifications of ``datasets.load``, and ours of the graph that it has not.
GRAPHS = {
    "rmat-262k": "rmat:vertices=262144,edges=3800000,features=1",
    "rmat-1m": "rmat:vertices=1M,edges=16M,features=1",
    "uniform-262k": "uniform:vertices=262144,edges=3800000",
    "ego_twitter": "ego_twitter",
    "coauthor_physics": "coauthor_physics",
}
#: On these one thread shows little that it does not show on the others, in several times as long.
LENGTHY_GRAPHS = ("rmat-1m", "uniform-262k")
SMALL_GRAPHS = {
    "rmat-4k": "rmat:vertices=4096,edges=60000,features=1",
    "uniform-4k": "uniform:vertices=4096,edges=60000",
}


def find_real(*names: str, otherwise: str) -> list[str]:
    """Those of the shared graphs that are at hand, else ``otherwise`` alone.

    For parameters of benchmarks: results on the two are then never taken for one another.
    """
    folders = datasets.data_folders()
    here = [name for folder in folders for name in names if (folder / f"{name}.npz").is_file()]
    return here or [otherwise]


class Graphs:
    """Goes through graphs by name, each kept once loaded; ``absent`` says why some are left out."""

    def __init__(self, specs: Mapping[str, str]) -> None:
        self.absent: dict[str, str] = {}
        self._specs = specs
        self._loaded: dict[str, Graph] = {}

    def __iter__(self) -> Iterator[tuple[str, Graph]]:
        for name, spec in self._specs.items():
            if name not in self._loaded and name not in self.absent:
                try:
                    self._loaded[name] = load_graph(spec)
                except GnnbenchError as error:
                    self.absent[name] = str(error)
            if name in self._loaded:
                yield name, self._loaded[name]


def load_graph(spec: str) -> Graph:
    """What ``datasets.load`` knows, or ``uniform:vertices=V,edges=E`` (undirected edges)."""
    kind, _, sizes = spec.partition(":")
    if kind != "uniform":
        return datasets.load(spec).graph
    given = {key: int(value) for key, value in (size.split("=") for size in sizes.split(","))}
    return make_uniform(given["vertices"], given["edges"])


def make_uniform(vertices: int, edges: int, seed: int = 0) -> Graph:
    """A graph drawn evenly from those with this many undirected edges (Erdős and Rényi 1959)."""

    def draw(rng: np.random.Generator, count: int) -> tuple[IntArray, IntArray]:
        src, dst = rng.integers(vertices, size=(2, count))
        return src, dst

    rng = np.random.default_rng(seed)
    src, dst = draw_distinct(f"uniform graph, seed {seed}", draw, vertices, edges, rng)
    return symmetrise(src, dst, vertices)[0]
