"""Kernels: AGGREGATE and UPDATE on one device, how they are computed and what they cost."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar, get_args

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from gnnbench.costs import (
    Library,
    Operation,
    price_calls,
    price_measured,
    price_operations,
)
from gnnbench.costs.aggregation import Aggregation
from gnnbench.costs.loading import UNMEASURED
from gnnbench.costs.passes import RELU, Passes, update
from gnnbench.parts.base import LayerShape, Part, Setting
from gnnbench.platforms.machine import Device, DeviceKind, LibraryRates
from gnnbench.records import Block, BlockSize, Mode, PartKind, Work

#: By form of AGGREGATE, what torch reads and writes of destinations' rows besides the sum of the
#: neighbours': of GCN the own rows scaled and added, of SAGE the mean and the own rows beside it,
#: of GIN the own rows added; and backward.
PLAIN = Aggregation(
    index_bytes=4.0,
    of_rows={
        "scaled": ((3, 2), (3, 2)),
        "mean": ((3, 3), (3, 2)),
        "plus-own": ((2, 1), (2, 1)),
    },
)


class Adjacency(ABC):
    """A block bound to one kernel, one dtype and one device: what a model may ask of a graph.

    Shapes: S = ``block.num_src``, D = ``block.num_dst``, E = ``block.num_edges``. All methods but
    those called ``..._transposed`` are differentiable in their tensor arguments. Those add to
    ``into``, a tensor of their result's shape, and return it, where it is given.
    """

    block: Block

    def offload(self) -> None:  # noqa: B027 - an optional hook
        """Let go of what is on a device that is not the host's; it is made there again when it is
        needed, of what stays on the host."""

    def masked(self, wanted: npt.NDArray[np.uint8]) -> Adjacency:
        """The same adjacency, whose transposed products are zero but where they are ``wanted``:
        MixGCN's S-SpMM (its Equation 4), of kernels that ``masks_gradients`` says can.

        ``wanted`` is a mask of ``(S, f)`` as ``kernels.dispatch.pack_mask`` makes it.
        """
        raise TypeError(f"{type(self).__name__} takes no masks")

    @abstractmethod
    def sum(self, h: Tensor, weight: Tensor | None = None) -> Tensor:
        """``(S, f) -> (D, f)``: out[v] = sum over in-edges (u, v) of weight[e] * h[u]."""

    @abstractmethod
    def mean(self, h: Tensor) -> Tensor:
        """``(S, f) -> (D, f)``: the mean over in-edges, zero where there are none."""

    def own_and_mean(self, h: Tensor) -> Tensor:
        """``(S, f) -> (D, 2 f)``: each destination's own row, and beside it the mean."""
        return torch.cat((self.own_rows(h), self.mean(h)), dim=1)

    @torch.no_grad()
    def own_and_mean_transposed(self, g: Tensor, into: Tensor | None = None) -> Tensor:
        """``(D, 2 f) -> (S, f)``: the backward pass of ``own_and_mean`` without its forward."""
        own, mean = g.chunk(2, dim=1)
        out = self.sum_transposed(mean / self.in_degrees.clamp(min=1).unsqueeze(1), into=into)
        self.add_to_own_rows(out, own)
        return out

    def own_plus_sum(self, h: Tensor) -> Tensor:
        """``(S, f) -> (D, f)``: each destination's own row, and the sum over in-edges added."""
        return self.sum(h) + self.own_rows(h)

    @torch.no_grad()
    def own_plus_sum_transposed(self, g: Tensor, into: Tensor | None = None) -> Tensor:
        """``(D, f) -> (S, f)``: the backward pass of ``own_plus_sum`` without its forward."""
        out = self.sum_transposed(g, into=into)
        self.add_to_own_rows(out, g)
        return out

    @abstractmethod
    def sum_transposed(
        self, g: Tensor, weight: Tensor | None = None, into: Tensor | None = None
    ) -> Tensor:
        """``(D, f) -> (S, f)``: out[u] = sum over out-edges (u, v) of weight[e] * g[v].

        The backward pass of ``sum`` without its forward; not differentiable itself.
        """

    def sum_scaled(self, h: Tensor, scaling: Scaling) -> Tensor:
        """``(S, f) -> (D, f)``: out[v] = dst[v] * sum of src[u] * h[u] + own[v] * h[v]."""
        own = scaling.own.unsqueeze(1) * self.own_rows(h)
        return self.sum(h, scaling.of_edges(self)) + own

    @torch.no_grad()
    def sum_scaled_transposed(
        self, g: Tensor, scaling: Scaling, into: Tensor | None = None
    ) -> Tensor:
        """``(D, f) -> (S, f)``: the backward pass of ``sum_scaled`` without its forward."""
        out = self.sum_transposed(g, scaling.of_edges(self), into)
        self.add_to_own_rows(out, scaling.own.unsqueeze(1) * g)
        return out

    def own_rows(self, h: Tensor) -> Tensor:
        """``(S, f) -> (D, f)``: the destinations' own rows; a view where they are the first."""
        return h[: self.block.num_dst] if self._own is None else h.index_select(0, self._own)

    def add_to_own_rows(self, out: Tensor, rows: Tensor) -> None:
        """Add ``(D, f)`` to the destinations' own rows of ``out`` ``(S, f)``, in place."""
        if self._own is None:
            out[: self.block.num_dst] += rows
        else:
            out.index_add_(0, self._own, rows)

    @cached_property
    def _own(self) -> Tensor | None:
        """``block.own`` on the device of the features."""
        own = self.block.own
        return None if own is None else torch.from_numpy(own).to(self.in_degrees.device)

    @abstractmethod
    def edge_softmax(self, scores: Tensor) -> Tensor:
        """``(E,) -> (E,)``: softmax of the scores of each destination's in-edges."""

    def sum_edges(self, messages: Tensor) -> Tensor:
        """``(E, f) -> (D, f)``: out[v] = sum of the messages of v's in-edges, in CSR order."""
        out = messages.new_zeros(self.block.num_dst, messages.shape[1])
        return out.index_add(0, self.edge_dst, messages)

    @property
    @abstractmethod
    def edge_src(self) -> Tensor:
        """int64 ``(E,)``: source position of each edge, in CSR order."""

    @property
    @abstractmethod
    def edge_dst(self) -> Tensor:
        """int64 ``(E,)``: destination position of each edge, in CSR order."""

    @property
    @abstractmethod
    def in_degrees(self) -> Tensor:
        """``(D,)`` in the dtype of the features: number of in-edges in this block."""


@dataclass(slots=True, eq=False)
class Scaling:
    """The factors of a normalised adjacency, diag(dst) A diag(src) + diag(own).

    ``src`` ``(S,)``, ``dst`` and ``own`` ``(D,)``, in the dtype and on the device of the features.
    """

    src: Tensor
    dst: Tensor
    own: Tensor
    _edges: Tensor | None = None

    def of_edges(self, adjacency: Adjacency) -> Tensor:
        """``(E,)``: dst[v] * src[u] of each edge, for kernels that take one weight an edge."""
        if self._edges is None:
            # Not by the adjacency's own positions of edges, which it would keep, int64.
            block, device = adjacency.block, self.src.device
            sources = torch.from_numpy(np.require(block.indices, requirements="W"))
            in_edges = torch.from_numpy(np.diff(block.indptr))
            self._edges = self.src.index_select(0, sources.to(device))
            self._edges *= self.dst.repeat_interleave(in_edges.to(device))
        return self._edges


@dataclass
class Kernel(Part):
    """Aggregation and update on one device: how they are computed and what they cost."""

    kind: ClassVar[PartKind] = "kernel"
    #: The kinds of devices that the kernel is written for, as the platform describes them.
    device_kinds: ClassVar[frozenset[DeviceKind]] = frozenset(get_args(DeviceKind))
    #: Whether UPDATE of the first layer may be handed features as a sparse CSR tensor.
    takes_sparse_features: ClassVar[bool] = False
    #: Whether transposed products add to rows that they are given without making rows to add.
    adds_in_place: ClassVar[bool] = False

    def projects_first(self, layer: int, setting: Setting, mode: Mode) -> bool:
        """Whether layer ``layer`` (from 0) multiplies by W before it aggregates.

        Asked for models whose maths allows both, A (H W) = (A H) W: GCN, SAGE, GIN and CommNet.
        """
        return False

    def masks_gradients(self) -> bool:
        """Whether AGGREGATE's backward pass computes only those gradients that the ReLU before it
        lets through, by ``Adjacency.masked``; asked for full graphs on the devices.

        So the mask costs no pass of its own.
        """
        return False

    def linear(
        self, a: Tensor, weight: Tensor | None, bias: Tensor, *, relu: bool, masked: bool = False
    ) -> Tensor:
        """UPDATE: ``a W + b``, or ``a + b`` without a weight, and ReLU of it where ``relu``.

        ``a`` is ``(n, f_in)``, ``weight`` ``(f_in, f_out)``, ``bias`` ``(f_out,)``; differentiable.
        ``masked`` says that the gradient will be zero wherever ReLU was: it need not be applied
        once more.
        """
        out = a + bias if weight is None else torch.addmm(bias, a, weight)
        return torch.relu_(out) if relu else out

    def multiply(self, rows: Tensor, weight: Tensor) -> Tensor:
        """``(n, f_in)`` times ``weight`` ``(f_in, f_out)``, differentiable."""
        return rows @ weight

    def multiply_sparse(self, rows: Tensor, weight: Tensor) -> Tensor:
        """A sparse CSR tensor ``(n, f_in)`` times ``weight`` ``(f_in, f_out)``; for its gradient
        only the latter counts."""
        product: Tensor = torch.sparse.mm(rows, weight)
        return product

    def adjacency_bytes(self, block: BlockSize, layer: LayerShape, itemsize: int) -> int:
        """What the adjacency of a block of this size keeps on its device once a layer has used it
        forward and backward, bytes; the tensors that can be reached from it must not be more. By
        default the CSR and its transpose, with 32-bit positions."""
        rows = block.num_dst + 1 + block.num_src + 1
        return 4 * (rows + 2 * block.num_edges + (block.num_dst if block.own else 0))

    def shape_of(self, layer: LayerShape) -> LayerShape:
        """The sizes of a layer as this kernel computes it: without messages of its edges, unless
        ``aggregation`` says that sums with trained weights make them."""
        makes = self.aggregation.messages or self.aggregation.trained_messages
        return layer if makes else replace(layer, message_features=0)

    @abstractmethod
    def adjacency(self, block: Block, dtype: torch.dtype, device: torch.device) -> Adjacency:
        """Bind a block to this kernel; the engine keeps it as long as the unit lives."""

    def expect(self, block: Block, *, backward: bool) -> None:
        """The next AGGREGATE that ``seconds`` is asked about is over ``block``, or ``backward``.

        For kernels that price more than sizes, in training and in dry runs. Where a graph is
        counted and not stored there is no block, and nobody says so.
        """

    def operations(self, work: Work, device: Device) -> tuple[Operation, ...]:
        """What this kernel does for ``work`` on a device, a kernel of its library each: bytes that
        are read, picked and written, arithmetic, launches and calls. It rests on the two alone:
        equal work is priced once. A kernel that knows more than sizes states ``seconds`` itself.

        By default plain torch's: sparse products, a dense one with its bias, and passes over
        tensors for what is scaled, added and put beside each other.
        """
        if work.op == "update":
            return update(work, self.update_passes, self.hidden_passes)
        return self.aggregation.list_operations(work)

    #: How AGGREGATE is put together, reads and writes of UPDATE beside its products and ReLU, and
    #: the constants of the library.
    aggregation: ClassVar[Aggregation] = PLAIN
    update_passes: ClassVar[Passes] = ((0, 0), (1, 0))
    #: Those of what follows in a hidden layer: ReLU.
    hidden_passes: ClassVar[Passes] = RELU
    library: ClassVar[Library] = Library()

    def batch_seconds(self, device: Device) -> float:
        """What the loss and the optimiser take besides what they move, where the platform has it
        of this library."""
        return device.libraries.get(self.name, UNMEASURED).batch_s

    def seconds(self, work: Work, device: Device) -> float:
        """Modelled duration of ``work`` on a described device.

        On a CPU or GPU what its ``operations`` take there (``gnnbench.costs``), at the rates that
        its library was measured to reach where the platform has them. Where the platform has the
        rates of all of AGGREGATE or UPDATE, whoever computes them, and on accelerators of
        other kinds, HyScale-GNN's Equation 11, t_aggregate = |E| f S_feat / BW, and Equation 12,
        t_update = MACs / (N freq), with N freq = half the FLOP/s; plus the device's launch time.
        More work never takes less, and none takes less than its bytes and operations at the
        device's rates.
        """
        if work.op not in ("aggregate", "update"):
            raise ValueError(f"a kernel has no cost for {work.op!r}")
        measured = device.libraries.get(self.name, UNMEASURED)
        if measured.aggregate is not None:
            operations = self.operations(work, device)
            summed_s = price_measured(operations, device, self.library, measured, work.threads)
            return summed_s + price_calls(work, measured)
        known = measured
        if not measured.update:
            summed = (work.backward and device.aggregate_backward) or device.aggregate
            known = LibraryRates(aggregate=summed, update=device.update)
        if known.aggregate or known.update or device.kind not in ("cpu", "gpu"):
            call_s = (measured.call_s or 0.0) if work.op == "aggregate" else 0.0
            return call_s + _by_equations(work, device, known)
        library = self.library
        if measured.call_s is not None:
            library = replace(library, call_s=measured.call_s)
        # Shares that a described cache keeps are of any order; those of plans know of none.
        operations = self.operations(work._replace(order=None), device)
        seconds = price_operations(operations, device, library, work.threads)
        return seconds + (library.batch_s if work.form == "loss" else 0.0)


def _by_equations(work: Work, device: Device, known: LibraryRates) -> float:
    """HyScale-GNN's Equations 11 and 12 at rates that are known, or else at the plain ones."""
    bandwidth = device.bandwidth_bytes_per_s(work.threads)
    if known.aggregate is not None:
        bandwidth = known.aggregate.at(work.features, work.threads)
    flops = device.flops_per_s * device.share_of_cores(work.threads)
    if known.update is not None:
        flops = known.update.at(work.features, work.threads)
    traffic = work.edges * work.features * work.itemsize
    return device.launch_s + traffic / bandwidth + 2.0 * work.macs / flops
