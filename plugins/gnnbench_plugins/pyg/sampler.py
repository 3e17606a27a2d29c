"""PyG's own neighbour sampler, which needs the compiled routines of pyg-lib or torch-sparse."""

from __future__ import annotations

import importlib.util
import warnings
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import torch

from gnnbench.errors import MissingDependencyError
from gnnbench.machines.costs import Library, read_library
from gnnbench.parts import UNIFORM, Bundle, MiniBatchSampler, Setting
from gnnbench.records import Block, IntArray, Loading
from gnnbench_plugins.pyg.kernel import LIBRARY, require_pyg
from gnnbench_plugins.reference.loader import LoaderOptions
from gnnbench_plugins.reference.sampler import draw_neighbours

if TYPE_CHECKING:
    from torch_geometric.sampler import NeighborSampler, SamplerOutput

INSTALL = (
    "install one (pip install --no-build-isolation torch-scatter torch-sparse builds it from "
    "source), or choose sampler 'neighbour'."
)


def can_draw() -> bool:
    """Return whether a library that PyG's sampler needs is installed, without importing it."""
    if importlib.util.find_spec("pyg_lib"):
        return True
    # torch-sparse imports torch-scatter without declaring it.
    return all(importlib.util.find_spec(name) for name in ("torch_sparse", "torch_scatter"))


def blocks_of(output: SamplerOutput, num_seeds: int, num_layers: int) -> tuple[Block, ...]:
    """Return a sampled subgraph of PyG as L blocks, input layer first.

    PyG draws a vertex's neighbours once, when the vertex is first reached, and numbers vertices in
    that order. The destinations of layer l are therefore a prefix of ``output.node``. Its edges are
    the ones that end in the prefix, as ``torch_geometric.utils.trim_to_layer`` keeps them. The
    prefixes are found from ``row`` and ``col``, because torch-sparse does not report the sizes of
    the hops.
    """
    node, row, col = output.node.numpy(), output.row.numpy(), output.col.numpy()
    order = np.argsort(col, kind="stable")
    row, col = row[order], col[order]
    blocks: list[Block] = []
    num_dst = num_seeds
    for _ in range(num_layers):
        num_edges = int(np.searchsorted(col, num_dst))
        indices = row[:num_edges].astype(np.int32)
        num_src = max(num_dst, int(indices.max(initial=-1)) + 1)
        indptr = np.zeros(num_dst + 1, dtype=np.int64)
        np.cumsum(np.bincount(col[:num_edges], minlength=num_dst), out=indptr[1:])
        blocks.append(
            Block(
                src_ids=node[:num_src].astype(np.int64),
                num_dst=num_dst,
                indptr=indptr,
                indices=indices,
            )
        )
        num_dst = num_src
    return tuple(reversed(blocks))


@dataclass
class PyGSampler(LoaderOptions, MiniBatchSampler):
    """``torch_geometric.sampler.NeighborSampler``, the sampler of ``NeighborLoader``.

    Its draws come from torch's generator, seeded for every batch. The seed comes from the
    workload's seed, the epoch and the batch's first vertex, which is unique in the epoch. The draws
    depend on the whole batch, so they are not split-invariant.
    """

    name: ClassVar[str] = "pyg"
    summary: ClassVar[str] = "PyTorch Geometric's NeighborSampler"
    law: ClassVar[str] = "PyG's neighbours, drawn once for each vertex of a mini-batch"
    split_invariant: ClassVar[bool] = False
    library: ClassVar[Library] = read_library(LIBRARY)
    loading: ClassVar[Loading] = "staged"

    _drawer: NeighborSampler = field(init=False, repr=False, compare=False)

    def refuses(self, bundle: Bundle, setting: Setting) -> str | None:
        # Where sizes stand for draws, nothing draws.
        if setting.sizes is None and not can_draw():
            return (
                "sampler 'pyg' draws with pyg-lib or torch-sparse and neither is installed here; "
                + INSTALL
            )
        return None

    def begin(self, setting: Setting) -> None:
        super().begin(setting)
        require_pyg()
        import torch_geometric.typing
        from torch_geometric.data import Data
        from torch_geometric.index import ptr2index
        from torch_geometric.sampler import NeighborSampler

        if not (torch_geometric.typing.WITH_PYG_LIB or torch_geometric.typing.WITH_TORCH_SPARSE):
            raise MissingDependencyError(
                "sampler 'pyg' draws with pyg-lib or torch-sparse and neither loads with this "
                "torch; " + INSTALL
            )
        graph, workload = setting.dataset.graph, setting.workload
        sources = torch.from_numpy(graph.indices).long()
        destinations = ptr2index(torch.from_numpy(graph.indptr), output_size=graph.num_edges)
        data = Data(edge_index=torch.stack((sources, destinations)), num_nodes=graph.num_vertices)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Using 'NeighborSampler' without a 'pyg-lib'")
            self._drawer = NeighborSampler(
                data,
                num_neighbors=[fanout or -1 for fanout in workload.fanouts],
                is_sorted=True,
            )

    def sample(self, seeds: IntArray, epoch: int, threads: int) -> tuple[Block, ...]:
        from torch_geometric.sampler import NodeSamplerInput

        workload = self._setting.workload
        key = np.random.SeedSequence((workload.seed, epoch, *seeds[:1].tolist()))
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(int(key.generate_state(1)[0]))
            output = self._drawer.sample_from_nodes(
                NodeSamplerInput(input_id=None, node=torch.from_numpy(seeds))
            )
        return blocks_of(output, len(seeds), workload.num_layers)

    def notes(self) -> tuple[str, ...]:
        import torch_geometric.typing

        if torch_geometric.typing.WITH_PYG_LIB:
            return ()
        return (
            "torch-sparse drew the neighbours: its draw without replacement is biased "
            "(Floyd's algorithm with one value left out).",
        )


@dataclass
class PyGLoader(LoaderOptions, MiniBatchSampler):
    """Mini-batches of gnnbench's own draws, at what PyG's loader takes for them.

    It stands for PyG where neither pyg-lib nor torch-sparse is installed, and where several devices
    share a round.
    """

    name: ClassVar[str] = "pyg-loader"
    summary: ClassVar[str] = "gnnbench's neighbour sampling, priced as PyG's loader"
    law: ClassVar[str] = UNIFORM
    library: ClassVar[Library] = PyGSampler.library
    loading: ClassVar[Loading] = "staged"

    def sample(self, seeds: IntArray, epoch: int, threads: int) -> tuple[Block, ...]:
        return draw_neighbours(self._setting, seeds, epoch, threads)

    def notes(self) -> tuple[str, ...]:
        return (
            "gnnbench's own sampler drew the neighbours; modelled times are those of PyG's loader.",
        )
