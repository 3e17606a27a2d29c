"""A base class for a user's own model, in plain torch."""

from __future__ import annotations

from abc import abstractmethod

import torch
from torch import Tensor

from gnnbench.errors import PluginError
from gnnbench.models.bound import BoundBlock
from gnnbench.models.layers import Layer
from gnnbench.records import Block, BlockSize, Work


class TorchLayer(Layer):
    """A user's own layer: override ``__init__`` and ``forward`` (HongTu §6, computation engine).

    ::

        class Mean(TorchLayer):
            name, title = "mean", "mean of the neighbours"

            def __init__(self, in_features, out_features, *, activation, generator):
                super().__init__(in_features, out_features, activation=activation)
                self.linear = torch.nn.Linear(in_features, out_features)

            def forward(self, block, h):
                out = self.linear(block.own_rows(h) + block.adjacency.mean(h))
                return torch.relu(out) if self.activation else out

    Parameters and buffers are registered as in any module, and converted to the workload's dtype.
    They may be drawn from ``generator`` or by torch's own initialisers, which are seeded alike. The
    layer trains whole graphs, chunks and mini-batches: AGGREGATE is all of ``forward``, recomputed
    rather than cached, and UPDATE passes its rows on. So ``forward`` must compute a destination's
    row from its in-edges alone, with equal results each time: no dropout, no statistics over the
    rows.

    Memory and modelled times of some strategies use two further members; override them if their
    defaults are wrong. ``edge_features`` is 0. ``aggregate_work`` counts one source row read per
    edge, and one multiplication by every parameter per source row.
    """

    cacheable = False

    @abstractmethod
    def forward(self, block: BoundBlock, h: Tensor) -> Tensor:
        """Apply the layer and its activation, ``(S, in_features) -> (D, out_features)``.

        The result must be differentiable. ``block.adjacency`` has the graph's operations,
        ``block.own_rows(h)`` the destinations' own rows, ``block.degrees`` the sources' degrees in
        the whole graph. Do not write to ``h``. It may have rows that no vertex of the block uses.
        """

    @property
    def aggregate_features(self) -> int:
        return self.out_features

    @property
    def loop_features(self) -> int:
        """The values of an edge, as if ``forward`` read ``adjacency_with_self_loops``."""
        return self.edge_features

    @property
    def macs_per_row(self) -> int:
        return 0

    def aggregate(self, bound: BoundBlock, h: Tensor) -> Tensor:
        rows: object = self(bound, h)
        what = f"forward of model {self.name!r} ({type(self).__name__})"
        if not isinstance(rows, Tensor):
            raise PluginError(f"{what} returns {rows!r}; it must return a tensor.")
        expected = (bound.block.num_dst, self.out_features)
        if rows.shape != expected:
            raise PluginError(
                f"{what} returns a tensor of shape {tuple(rows.shape)} for a block of "
                f"{bound.block.num_src} sources and {bound.block.num_dst} destinations; it must "
                f"return one row per destination, {expected}."
            )
        if rows.dtype != h.dtype or rows.device != h.device:
            raise PluginError(
                f"{what} returns {rows.dtype} on {rows.device} for rows of {h.dtype} on "
                f"{h.device}; make new tensors with dtype=h.dtype and device=h.device."
            )
        if torch.is_grad_enabled() and not rows.requires_grad:
            raise PluginError(
                f"{what} returns rows without a gradient; compute them from the parameters or "
                f"from h with differentiable operations, without detach or no_grad."
            )
        return rows

    def update(self, bound: BoundBlock, a: Tensor) -> Tensor:
        return a

    def aggregate_work(self, block: Block | BlockSize, itemsize: int) -> Work:
        return Work(
            op="aggregate",
            edges=block.num_edges,
            rows=block.num_dst,
            features=self.in_features,
            macs=block.num_src * sum(parameter.numel() for parameter in self.parameters()),
            itemsize=itemsize,
            sources=block.num_src,
        )
