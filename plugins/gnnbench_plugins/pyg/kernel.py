"""Aggregation by PyG's ``MessagePassing`` on bipartite blocks."""

from __future__ import annotations

import importlib.util
import warnings
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import torch
from torch import Tensor

from gnnbench.constants import Bound
from gnnbench.errors import MissingDependencyError
from gnnbench.machines.costs import Library, read_library
from gnnbench.machines.costs.aggregation import Aggregation
from gnnbench.machines.costs.passes import Passes
from gnnbench.machines.machine import DeviceKind
from gnnbench.parts import (
    Adjacency,
    Bundle,
    Kernel,
    LayerShape,
    Setting,
    csr_bytes,
    option,
    refuse_priced,
)
from gnnbench.parts.kernel import PLAIN
from gnnbench.records import Block, BlockSize, Mode
from gnnbench_plugins.reference.loader import RegularisedModel

if TYPE_CHECKING:
    from torch_geometric.edge_index import EdgeIndex

LIBRARY = Path(__file__).with_name("library.toml")


def require_pyg() -> None:
    """Import PyG; raise ``MissingDependencyError`` if it cannot be imported."""
    try:
        with warnings.catch_warnings():
            # A warning of torch about PyG, if torch is newer.
            warnings.filterwarnings("ignore", "`torch.jit.script` is deprecated")
            import gnnbench_plugins.pyg.propagation  # noqa: F401
    except ImportError as error:
        raise MissingDependencyError(_say_missing(str(error))) from error


def _say_missing(why: str) -> str:
    return (
        f"strategy 'pyg' needs torch-geometric, which does not import here ({why}); "
        f"install it with: pip install torch-geometric"
    )


def _needs_gradient(operand: Tensor) -> bool:
    return operand.requires_grad and torch.is_grad_enabled()


class PyGAdjacency(Adjacency):
    """A block as the matrix ``(D, S)`` of PyG's products.

    It is an ``EdgeIndex``, which keeps the transpose for its backward pass, or a sparse CSR tensor
    if no gradient is needed.

    Indices have 32 bits, which MKL's sparse product takes without conversion.
    """

    def __init__(self, block: Block, dtype: torch.dtype, device: torch.device) -> None:
        self.block = block
        self._dtype = dtype
        self._device = device
        index = torch.int32 if block.num_edges < 2**31 else torch.int64
        self._indptr = torch.from_numpy(block.indptr).to(device, index)
        self._indices = torch.from_numpy(block.indices).to(device, index)

    def sum(self, h: Tensor, weight: Tensor | None = None) -> Tensor:
        from gnnbench_plugins.pyg.propagation import SUM

        if weight is not None and _needs_gradient(weight):
            # A sparse tensor's values carry no gradient, so trained weights need messages.
            out: Tensor = SUM(self._edge_index, h, weight, (self.block.num_src, self.block.num_dst))
        elif _needs_gradient(h):
            out = self._edges.matmul(h, self._values(weight))
        else:
            out = SUM(self._csr(weight), h)
        return out

    def mean(self, h: Tensor) -> Tensor:
        from gnnbench_plugins.pyg.propagation import MEAN

        if _needs_gradient(h):
            mean: Tensor = self._edges.matmul(h, self._values(None), reduce="mean")
            return mean
        out: Tensor = MEAN(self._csr(None), h)
        return out

    @torch.no_grad()
    def sum_transposed(
        self, g: Tensor, weight: Tensor | None = None, into: Tensor | None = None
    ) -> Tensor:
        from gnnbench_plugins.pyg.propagation import SUM

        (indptr, indices), order = self._edges.get_csc()
        values = self._ones if weight is None else weight[order]
        size = (self.block.num_src, self.block.num_dst)
        out: Tensor = SUM(torch.sparse_csr_tensor(indptr, indices, values, size), g)
        return out if into is None else into.add_(out)

    def edge_softmax(self, scores: Tensor) -> Tensor:
        from torch_geometric.utils import softmax

        out: Tensor = softmax(scores, self.edge_dst, num_nodes=self.block.num_dst)
        return out

    @property
    def edge_src(self) -> Tensor:
        return self._edge_index[0]

    @property
    def edge_dst(self) -> Tensor:
        return self._edge_index[1]

    @cached_property
    def in_degrees(self) -> Tensor:
        return self._indptr.diff().to(self._dtype)

    @cached_property
    def _edge_index(self) -> Tensor:
        """PyG's ``edge_index``, int64 ``(2, E)``, sources above destinations, in CSR order."""
        from torch_geometric.index import ptr2index

        destinations = ptr2index(self._indptr, output_size=self.block.num_edges)
        return torch.stack((self._indices.long(), destinations.long()))

    @cached_property
    def _ones(self) -> Tensor:
        return torch.ones(self.block.num_edges, dtype=self._dtype, device=self._device)

    @cached_property
    def _edges(self) -> EdgeIndex:
        """PyG's ``EdgeIndex``, in CSR order: destinations above sources.

        PyG's layers have sources above destinations, but the backward pass of a bipartite block
        then has the wrong shape (2.8.1).
        """
        from torch_geometric.edge_index import EdgeIndex

        return EdgeIndex(self._csr(None))

    def _values(self, weight: Tensor | None) -> Tensor | None:
        """Return the values of ``EdgeIndex``; implicit ones would have torch's default dtype."""
        if weight is not None:
            return weight.detach()
        return None if self._dtype is torch.get_default_dtype() else self._ones

    def _csr(self, weight: Tensor | None) -> Tensor:
        values = self._ones if weight is None else weight.detach()
        size = (self.block.num_dst, self.block.num_src)
        return torch.sparse_csr_tensor(self._indptr, self._indices, values, size)


@dataclass
class PyGKernel(RegularisedModel, Kernel):
    """A kernel that uses ``MessagePassing``, fused with its aggregation if weights are constant.

    Products with a gradient use ``EdgeIndex``, because torch's product with a sparse CSR tensor
    transposes it again in each backward pass.
    """

    name: ClassVar[str] = "pyg"
    summary: ClassVar[str] = "PyTorch Geometric's message passing"
    device_kinds: ClassVar[frozenset[DeviceKind]] = frozenset({"cpu", "gpu"})
    library: ClassVar[Library] = read_library(LIBRARY)
    update_passes: ClassVar[Bound[Passes]] = ((1, 1), (1, 0))

    #: Sums with constant weights are products of a sparse tensor, which reads a value an edge.
    #: Attention has trained weights and writes a message for every edge.
    aggregation: ClassVar[Aggregation] = replace(
        PLAIN,
        index_bytes=read_library(LIBRARY).index_bytes,
        weighted=frozenset({"plain", "scaled", "mean", "plus-own"}),
        trained_messages=True,
        calls=1,
    )

    messages: bool = option(
        False,
        "sums are priced as messages of edges, as over the edge_index that PyG's samplers return",
    )

    def begin(self, setting: Setting) -> None:
        """Check that PyG is installed; it is imported at the first computation."""
        if importlib.util.find_spec("torch_geometric") is None:
            raise MissingDependencyError(_say_missing("it is not installed"))

    def projects_first(self, layer: int, setting: Setting, mode: Mode) -> bool:
        """Return whether UPDATE comes first: in ``GCNConv`` always, in ``SAGEConv`` never."""
        return setting.workload.model == "gcn"

    def adjacency_bytes(self, block: BlockSize, layer: LayerShape, itemsize: int) -> int:
        """Return the bytes of both CSRs, of ``EdgeIndex``'s caches, of ones and of in-degrees.

        ``EdgeIndex`` caches the other end of each edge in either order, and the permutation of the
        transpose. It and the CSR tensor each have ones. A layer with values on edges also has PyG's
        ``edge_index``.
        """
        size = csr_bytes(block)
        ends = 16 if layer.on_edges.kept else 0
        return size + (16 + 8 + ends) * block.num_edges + itemsize * block.num_dst

    def adjacency(self, block: Block, dtype: torch.dtype, device: torch.device) -> Adjacency:
        require_pyg()
        return PyGAdjacency(block, dtype, device)

    def choose_aggregation(self) -> Aggregation:
        if not self.messages:
            return self.aggregation
        # Every sum makes messages, a row an edge, and scatters them.
        return replace(self.aggregation, weighted=frozenset({"scaled"}), messages=True)

    def refuses(self, bundle: Bundle, setting: Setting) -> str | None:
        reason = RegularisedModel.refuses(self, bundle, setting)
        if reason is not None or not self.messages:
            return reason
        return refuse_priced("kernel", self.name, "messages", setting.platform)
