"""Aggregation by ``dgl.ops``: generalised sparse products on bipartite blocks."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal

import torch
from torch import Tensor

from gnnbench.constants import Bound
from gnnbench.datasets.dgl_library import find_dgl, load_dgl
from gnnbench.errors import MissingDependencyError
from gnnbench.machines.costs import Library, Operation, read_library
from gnnbench.machines.costs.aggregation import Aggregation
from gnnbench.machines.costs.passes import Passes
from gnnbench.machines.machine import Device, DeviceKind
from gnnbench.parts import Adjacency, Kernel, LayerShape, Scaling, Setting, option
from gnnbench.records import AggregateWork, Block, BlockSize, KernelWork, Mode
from gnnbench_plugins.reference.loader import RegularisedModel

if TYPE_CHECKING:
    from dgl import DGLGraph

LIBRARY = Path(__file__).with_name("library.toml")


class DGLAdjacency(Adjacency):
    """A block as a DGL block made from its CSC, with 32-bit ids if they suffice.

    DGL's autograd multiplies by the reversed block for rows and takes sampled dot products for
    weights, so no ``(E, f)`` messages exist.
    """

    def __init__(self, block: Block, dtype: torch.dtype, device: torch.device) -> None:
        self.block = block
        self._dtype = dtype
        self._dgl = load_dgl()
        self._ids = torch.int32 if block.num_edges < 2**31 else torch.int64
        self._device = device
        self._graph = self._make("csc", block.num_src, block.num_dst)

    def sum(self, h: Tensor, weight: Tensor | None = None) -> Tensor:
        return self._sum(self._graph, h, weight)

    def mean(self, h: Tensor) -> Tensor:
        out: Tensor = self._dgl.ops.copy_u_mean(self._graph, h)
        return out

    @torch.no_grad()
    def sum_transposed(
        self, g: Tensor, weight: Tensor | None = None, into: Tensor | None = None
    ) -> Tensor:
        out = self._sum(self._reversed, g, weight)
        return out if into is None else into.add_(out)

    def sum_scaled(self, h: Tensor, scaling: Scaling) -> Tensor:
        """Scale rows before and after an unweighted sum, the fastest sum, as ``GraphConv`` does."""
        total = self._sum(self._graph, h * scaling.src.unsqueeze(1), None)
        own = self.own_rows(h)
        return total.mul_(scaling.dst.unsqueeze(1)).addcmul_(own, scaling.own.unsqueeze(1))

    @torch.no_grad()
    def sum_scaled_transposed(
        self, g: Tensor, scaling: Scaling, into: Tensor | None = None
    ) -> Tensor:
        total = self._sum(self._reversed, g * scaling.dst.unsqueeze(1), None)
        out = total.mul_(scaling.src.unsqueeze(1))
        factors = scaling.own.unsqueeze(1)
        if self._own is None:
            out[: self.block.num_dst].addcmul_(g, factors)
        else:
            self.add_to_own_rows(out, factors * g)
        return out if into is None else into.add_(out)

    def edge_softmax(self, scores: Tensor) -> Tensor:
        out: Tensor = self._dgl.ops.edge_softmax(self._graph, scores.unsqueeze(1))
        return out.squeeze(1)

    def sum_edges(self, messages: Tensor) -> Tensor:
        out: Tensor = self._dgl.ops.copy_e_sum(self._graph, messages)
        return out

    @cached_property
    def edge_src(self) -> Tensor:
        return torch.from_numpy(self.block.indices).to(self._device, torch.int64)

    @cached_property
    def edge_dst(self) -> Tensor:
        rows = torch.arange(self.block.num_dst)
        degrees = torch.from_numpy(self.block.indptr).diff()
        return rows.repeat_interleave(degrees).to(self._device)

    @cached_property
    def in_degrees(self) -> Tensor:
        out: Tensor = self._graph.in_degrees().to(self._dtype)
        return out

    def _sum(self, graph: DGLGraph, rows: Tensor, weight: Tensor | None) -> Tensor:
        ops = self._dgl.ops
        out: Tensor = (
            ops.copy_u_sum(graph, rows)
            if weight is None
            else ops.u_mul_e_sum(graph, rows, weight.unsqueeze(1))
        )
        return out

    @cached_property
    def _reversed(self) -> DGLGraph:
        """The reversed block: the same arrays read as CSR, so edges keep their ids."""
        return self._make("csr", self.block.num_dst, self.block.num_src)

    def _make(self, layout: str, num_src: int, num_dst: int) -> DGLGraph:
        indptr = torch.from_numpy(self.block.indptr).to(self._ids)
        indices = torch.from_numpy(self.block.indices).to(self._ids)
        # By default DGL stores no array for ids in order, but its libxsmm products require one.
        ids = torch.arange(self.block.num_edges, dtype=self._ids)
        graph = self._dgl.create_block(
            (layout, (indptr, indices, ids)), num_src_nodes=num_src, num_dst_nodes=num_dst
        )
        if self._device.type == "cpu":
            return graph
        try:
            return graph.to(self._device)
        except self._dgl.DGLError as error:
            raise MissingDependencyError(
                f"kernel 'dgl' cannot run on {self._device}, which this build of DGL does not "
                f"support. Install DGL's CUDA build from its own wheel index."
            ) from error


@dataclass
class DGLKernel(RegularisedModel, Kernel):
    """A kernel that uses ``dgl.ops`` on blocks."""

    name: ClassVar[str] = "dgl"
    summary: ClassVar[str] = "Deep Graph Library's sparse products"
    device_kinds: ClassVar[frozenset[DeviceKind]] = frozenset({"cpu", "gpu"})
    library: ClassVar[Library] = read_library(LIBRARY)
    #: ``GraphConv`` scales source and destination rows around a sum without weights, and adds the
    #: scaled own rows. A mean is a sum divided by degrees, concatenated with the own rows. Biases
    #: are added after the product. ``GATConv`` calls ``apply_edges``, ``edge_softmax`` and
    #: ``update_all``.
    aggregation: ClassVar[Aggregation] = Aggregation(
        index_bytes=read_library(LIBRARY).index_bytes,
        weighted=frozenset(),
        of_rows={
            "scaled": ((3, 2), (3, 2)),
            "mean": ((3, 3), (3, 2)),
            "plus-own": ((2, 1), (2, 1)),
        },
        of_sources={"scaled": ((1, 1), (1, 1))},
        softmax_passes=8,
        counted=frozenset({"mean"}),
        calls=1,
        attention_calls=3,
    )
    update_passes: ClassVar[Bound[Passes]] = ((1, 1), (1, 0))

    projects: Literal["narrowing", "never"] = option(
        "narrowing",
        "layers that multiply by W before they aggregate: those whose rows become narrower, or "
        "none, as SAGEConv before DGL 0.7",
    )

    def begin(self, setting: Setting) -> None:
        """Check that DGL is installed; it is imported at the first computation."""
        find_dgl()

    def projects_first(self, layer: int, setting: Setting, mode: Mode) -> bool:
        """Return whether UPDATE precedes AGGREGATE.

        It does in ``GraphConv`` and ``SAGEConv`` if rows get narrower, and never in ``GINConv``.
        """
        if self.projects == "never" or setting.workload.model == "gin":
            return False
        shape = setting.layers[layer]
        return shape.in_features > shape.out_features

    def operations(self, work: KernelWork, device: Device) -> tuple[Operation, ...]:
        """Return the operations, with DGL's slow paths on a CPU.

        Sums with edge weights, softmax and dot products of edges' ends use no vector instructions
        there, and one core counts degrees.
        """
        if isinstance(work, AggregateWork):
            return self.aggregation.list_operations(work, scalar=device.kind == "cpu")
        return super().operations(work, device)

    def adjacency_bytes(self, block: BlockSize, layer: LayerShape, itemsize: int) -> int:
        """Return the bytes of the CSC and of the reversed block's CSR, both with edge ids.

        A layer with values on edges also has their ends in 64 bits.
        """
        size = 2 * 4 * (block.num_dst + 1 + 2 * block.num_edges) + itemsize * block.num_dst
        if layer.on_edges.kept:
            size += 16 * block.num_edges
        return size + (4 * block.num_dst if block.own else 0)

    def adjacency(self, block: Block, dtype: torch.dtype, device: torch.device) -> Adjacency:
        return DGLAdjacency(block, dtype, device)
