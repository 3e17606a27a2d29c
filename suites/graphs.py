"""The graphs of kernel races, by their names in tables; made or read at first use."""

from collections.abc import Iterator, Mapping

import numpy as np

from gnnbench import datasets
from gnnbench.datasets.synthetic import draw_distinct
from gnnbench.datasets.topology import symmetrise
from gnnbench.errors import GnnbenchError
from gnnbench.records import Graph, IntArray

#: Specifications for ``datasets.load``, and one of this module's own.
GRAPHS = {
    "rmat-262k": "rmat:vertices=262144,edges=3800000,features=1",
    "rmat-1m": "rmat:vertices=1M,edges=16M,features=1",
    "uniform-262k": "uniform:vertices=262144,edges=3800000",
    "ego_twitter": "ego_twitter",
    "coauthor_physics": "coauthor_physics",
}
#: One thread takes several times as long on these graphs and shows little that is new.
LENGTHY_GRAPHS = ("rmat-1m", "uniform-262k")
SMALL_GRAPHS = {
    "rmat-4k": "rmat:vertices=4096,edges=60000,features=1",
    "uniform-4k": "uniform:vertices=4096,edges=60000",
}


def find_real(*names: str, otherwise: str) -> list[str]:
    """Return the shared graphs that exist here, or ``otherwise`` alone.

    Used as benchmark parameters, these names keep results on real and made graphs apart.
    """
    folders = datasets.data_folders()
    here = [name for folder in folders for name in names if (folder / f"{name}.npz").is_file()]
    return here or [otherwise]


class Graphs:
    """Graphs by name, each kept once loaded; ``absent`` has the reasons for missing ones."""

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
    """Load a graph of ``datasets.load``, or ``uniform:vertices=V,edges=E`` (undirected edges)."""
    kind, _, sizes = spec.partition(":")
    if kind != "uniform":
        return datasets.load(spec).graph
    given = {key: int(value) for key, value in (size.split("=") for size in sizes.split(","))}
    return make_uniform(given["vertices"], given["edges"])


def make_uniform(vertices: int, edges: int, seed: int = 0) -> Graph:
    """Return a uniformly drawn graph with this many undirected edges (Erdős and Rényi 1959)."""

    def draw(rng: np.random.Generator, count: int) -> tuple[IntArray, IntArray]:
        src, dst = rng.integers(vertices, size=(2, count))
        return src, dst

    rng = np.random.default_rng(seed)
    src, dst = draw_distinct(f"uniform graph, seed {seed}", draw, vertices, edges, rng)
    return symmetrise(src, dst, vertices)[0]
