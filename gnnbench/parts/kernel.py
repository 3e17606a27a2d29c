"""Kernels: how AGGREGATE and UPDATE are computed on one device, and what they cost."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar, get_args

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from gnnbench.machines.costs import (
    Library,
    Operation,
    Product,
    Sum,
    price_calls,
    price_measured,
    price_operations,
)
from gnnbench.machines.costs.aggregation import Aggregation
from gnnbench.machines.costs.loading import UNMEASURED
from gnnbench.machines.costs.passes import RELU, Passes, update
from gnnbench.machines.machine import Device, DeviceKind, LibraryRates, SumRates
from gnnbench.parts.base import Part, Setting
from gnnbench.parts.layer_shape import LayerShape
from gnnbench.records import (
    AggregateWork,
    Block,
    BlockSize,
    KernelWork,
    LossWork,
    Mode,
    PartKind,
    UpdateWork,
)

#: By form of AGGREGATE, torch's reads and writes of destination rows besides the sum over
#: neighbours, forward and backward. GCN scales and adds the own rows, SAGE places the mean beside
#: the own rows, GIN adds the own rows.
PLAIN = Aggregation(
    index_bytes=4.0,
    of_rows={
        "scaled": ((3, 2), (3, 2)),
        "mean": ((3, 3), (3, 2)),
        "plus-own": ((2, 1), (2, 1)),
    },
)


class Adjacency(ABC):
    """A block bound to one kernel, one dtype and one device: the graph operations of a model.

    Shapes: S = ``block.num_src``, D = ``block.num_dst``, E = ``block.num_edges``. All methods but
    those called ``..._transposed`` are differentiable in their tensor arguments. The transposed
    methods accept ``into``, a tensor of their result's shape; if given, they add to it and return
    it.
    """

    block: Block

    def offload(self) -> None:  # noqa: B027 - an optional hook
        """Free the adjacency's memory on an accelerator; host arrays rebuild it on demand."""

    def masked(self, wanted: npt.NDArray[np.uint8]) -> Adjacency:
        """Return the adjacency with transposed products that are zero except where ``wanted``.

        This is MixGCN's S-SpMM (its Equation 4). Only kernels with ``masks_gradients`` support it.

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
        """``(S, f) -> (D, 2 f)``: each destination's own row beside the mean over in-edges."""
        return torch.cat((self.own_rows(h), self.mean(h)), dim=1)

    @torch.no_grad()
    def own_and_mean_transposed(self, g: Tensor, into: Tensor | None = None) -> Tensor:
        """``(D, 2 f) -> (S, f)``: the backward pass of ``own_and_mean`` without its forward."""
        own, mean = g.chunk(2, dim=1)
        out = self.sum_transposed(mean / self.in_degrees.clamp(min=1).unsqueeze(1), into=into)
        self.add_to_own_rows(out, own)
        return out

    def own_plus_sum(self, h: Tensor) -> Tensor:
        """``(S, f) -> (D, f)``: each destination's own row plus the sum over in-edges."""
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
        """Return the destinations' own rows, ``(S, f) -> (D, f)``.

        The result is a view if they are the first rows of ``h``.
        """
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
            # Do not read ``adjacency.edge_src``: the adjacency would keep it, as int64.
            block, device = adjacency.block, self.src.device
            sources = torch.from_numpy(np.require(block.indices, requirements="W"))
            in_edges = torch.from_numpy(np.diff(block.indptr))
            self._edges = self.src.index_select(0, sources.to(device))
            self._edges *= self.dst.repeat_interleave(in_edges.to(device))
        return self._edges


def csr_bytes(block: BlockSize) -> int:
    """Return the bytes of a block's CSR and its transpose, with 32-bit positions."""
    rows = block.num_dst + 1 + block.num_src + 1
    return 4 * (rows + 2 * block.num_edges + (block.num_dst if block.own else 0))


@dataclass
class Kernel(Part):
    """Aggregation and update on one device: how they are computed and what they cost."""

    kind: ClassVar[PartKind] = "kernel"
    #: The kinds of devices that the kernel is written for, as the platform describes them.
    device_kinds: ClassVar[frozenset[DeviceKind]] = frozenset(get_args(DeviceKind))
    #: Whether UPDATE of the first layer may be handed features as a sparse CSR tensor.
    takes_sparse_features: ClassVar[bool] = False
    #: Whether the memory of outputs is kept and used again, for sums, products and UPDATE. Terms of
    #: attention use torch's.
    reuses_outputs: ClassVar[bool] = False
    #: Whether transposed products add into given rows without a temporary tensor.
    adds_in_place: ClassVar[bool] = False

    def projects_first(self, layer: int, setting: Setting, mode: Mode) -> bool:
        """Return whether layer ``layer`` (from 0) multiplies by W before it aggregates.

        Only called for models that allow both orders, A (H W) = (A H) W: GCN, SAGE, GIN and
        CommNet.
        """
        return False

    def masks_gradients(self) -> bool:
        """Return whether AGGREGATE's backward pass skips gradients that ReLU stops.

        It does so by ``Adjacency.masked``. Only called for full graphs on the devices.

        The mask then needs no separate pass.
        """
        return False

    def linear(
        self, a: Tensor, weight: Tensor | None, bias: Tensor, *, relu: bool, masked: bool = False
    ) -> Tensor:
        """Compute UPDATE: ``a W + b``, or ``a + b`` without a weight, and ReLU if ``relu``.

        ``a`` is ``(n, f_in)``, ``weight`` ``(f_in, f_out)``, ``bias`` ``(f_out,)``; differentiable.
        ``masked`` says that the incoming gradient is zero wherever ReLU's output is, so the
        backward pass may skip ReLU's mask.
        """
        out = a + bias if weight is None else torch.addmm(bias, a, weight)
        return torch.relu_(out) if relu else out

    def multiply(self, rows: Tensor, weight: Tensor) -> Tensor:
        """Return ``(n, f_in)`` times ``weight`` ``(f_in, f_out)``, differentiable."""
        return rows @ weight

    def multiply_sparse(self, rows: Tensor, weight: Tensor) -> Tensor:
        """Return a sparse CSR tensor ``(n, f_in)`` times ``weight`` ``(f_in, f_out)``.

        The product is differentiable in the weight only.
        """
        product: Tensor = torch.sparse.mm(rows, weight)
        return product

    def adjacency_bytes(self, block: BlockSize, layer: LayerShape, itemsize: int) -> int:
        """Return the bytes that a block's adjacency keeps on its device.

        This is after a layer's forward and backward pass. The tensors reachable from the adjacency
        must not be larger. By default these are the CSR and its transpose, with 32-bit positions.
        """
        return csr_bytes(block)

    def shape_of(self, layer: LayerShape) -> LayerShape:
        """Return the sizes of a layer as this kernel computes it.

        There are no messages of edges, unless ``aggregation`` says that sums with trained weights
        write them.
        """
        aggregation = self.choose_aggregation()
        makes = aggregation.messages or aggregation.trained_messages
        return layer if makes else replace(layer, on_edges=replace(layer.on_edges, messages=0))

    @abstractmethod
    def adjacency(self, block: Block, dtype: torch.dtype, device: torch.device) -> Adjacency:
        """Bind a block to this kernel; the engine keeps it as long as the unit exists."""

    def expect(self, block: Block, *, backward: bool) -> None:
        """Announce that the next AGGREGATE passed to ``seconds`` is over ``block``.

        If ``backward``, it is that of the backward pass.

        Kernels that price more than sizes use it, in training and in dry runs. A graph that is
        counted but not stored has no block, and then there is no call.
        """

    def operations(self, work: KernelWork, device: Device) -> tuple[Operation, ...]:
        """Return the operations of ``work`` on a device, one for each kernel of its library.

        They state bytes read, gathered and written, arithmetic, launches and calls. The result must
        depend on the two arguments alone, since equal work is priced once. A kernel that knows more
        than sizes overrides ``seconds``.

        The default is plain torch's: sparse products, a dense one with its bias, and passes over
        tensors to scale, add and concatenate.
        """
        if isinstance(work, AggregateWork):
            listed = self.choose_aggregation().list_operations(work)
        else:
            listed = update(work, self.update_passes, self.list_hidden_passes())
        if not self.reuses_outputs:
            return listed
        return tuple(
            replace(each, outputs=0)
            if isinstance(work, UpdateWork) or isinstance(each, Sum | Product)
            else each
            for each in listed
        )

    #: How AGGREGATE is composed, UPDATE's reads and writes besides its products and ReLU, and the
    #: library's constants.
    aggregation: ClassVar[Aggregation] = PLAIN
    update_passes: ClassVar[Passes] = ((0, 0), (1, 0))
    #: Reads and writes of what follows UPDATE in a hidden layer: ReLU.
    hidden_passes: ClassVar[Passes] = RELU
    library: ClassVar[Library] = Library()

    def choose_aggregation(self) -> Aggregation:
        """Return how AGGREGATE is composed, by the kernel's options."""
        return self.aggregation

    def list_hidden_passes(self) -> Passes:
        """Return the reads and writes of what follows UPDATE, by the kernel's options."""
        return self.hidden_passes

    def batch_seconds(self, device: Device) -> float:
        """Return the seconds that an update takes once, besides its memory traffic.

        These are the calls for the loss, the gradients and the optimiser. They are the library's
        own, unless the platform has its measured times or its rates as a whole.
        """
        measured = device.libraries.get(self.name, UNMEASURED)
        whole = device.rates.aggregate or device.rates.update or measured.update
        if measured.sums.aggregate or whole or device.kind not in ("cpu", "gpu"):
            return measured.calls.batch_s
        return measured.calls.batch_s or self.library.batch_s

    def seconds(self, work: KernelWork, device: Device) -> float:
        """Return the modelled duration of ``work`` on a described device.

        On a CPU or GPU it is the time of the ``operations`` (``machines.costs``), at the library's
        measured rates if the platform has them. HyScale-GNN's equations apply to other
        accelerators, and if the platform has rates of AGGREGATE or UPDATE as a whole. Equation 11
        is t_aggregate = |E| f S_feat / BW; Equation 12 is t_update = MACs / (N freq), with N freq =
        half the FLOP/s. The device's launch time is added. More work never takes less time, and no
        work takes less than its bytes and operations at the device's rates.
        """
        if not isinstance(work, AggregateWork | UpdateWork):
            raise TypeError(f"a kernel has no cost for {type(work).__name__}.")
        measured = device.libraries.get(self.name, UNMEASURED)
        if measured.sums.aggregate is not None:
            operations = self.operations(work, device)
            summed_s = price_measured(operations, device, self.library, measured, work.threads)
            return summed_s + price_calls(work, measured)
        known = measured
        if not measured.update:
            summed = (work.backward and device.rates.aggregate_backward) or device.rates.aggregate
            known = LibraryRates(sums=SumRates(aggregate=summed), update=device.rates.update)
        if known.sums.aggregate or known.update or device.kind not in ("cpu", "gpu"):
            call_s = (measured.calls.call_s or 0.0) if isinstance(work, AggregateWork) else 0.0
            return call_s + _by_equations(work, device, known)
        library = self.library
        if measured.calls.call_s is not None:
            library = replace(library, call_s=measured.calls.call_s)
        # A described cache's hit rate is for an arbitrary order; a plan does not know the order.
        sized = work._replace(order=None) if isinstance(work, AggregateWork) else work
        operations = self.operations(sized, device)
        seconds = price_operations(operations, device, library, work.threads)
        return seconds + (self.batch_seconds(device) if isinstance(work, LossWork) else 0.0)


def _by_equations(work: KernelWork, device: Device, known: LibraryRates) -> float:
    """Price work by HyScale-GNN's Equations 11 and 12.

    Rates are the known ones, or else the device's peaks.
    """
    bandwidth = device.bandwidth_bytes_per_s(work.threads)
    if known.sums.aggregate is not None:
        bandwidth = known.sums.aggregate.at(work.features, work.threads)
    flops = device.hardware.flops_per_s * device.share_of_cores(work.threads)
    if known.update is not None:
        flops = known.update.at(work.features, work.threads)
    edges = work.edges if isinstance(work, AggregateWork) else 0
    traffic = edges * work.features * work.itemsize
    return device.hardware.launch_s + traffic / bandwidth + 2.0 * work.macs / flops
