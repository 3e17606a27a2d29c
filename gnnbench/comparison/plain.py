"""Plain training of a setting on the host, one update at a time: the reference for all runs.

Results that several updates and rows share are computed once. They are the whole graph as the
kernel keeps it, the first layer's aggregates, if they have no parameters, and the first update of
rows that begin at the same parameters.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from gnnbench.comparison.bends import Bend, Bends, Turn
from gnnbench.comparison.rounding import Rounded
from gnnbench.models import (
    GNN,
    PROJECTED,
    BoundBlock,
    Degrees,
    EdgeValues,
    build,
    list_scales,
)
from gnnbench.parts import Kernel, MiniBatchSampler, Setting
from gnnbench.records import Block, IntArray
from gnnbench.run.evaluate import whole_graph_block
from gnnbench.run.evidence import Update
from gnnbench.run.features import feature_rows

#: Sparse features are multiplied as dense ones if more than one value in this many is stored.
DENSE_SHARE = 16
#: The logits of a few vertices of a whole graph are computed again over at most this share of all
#: edges, or this many edges if that is more.
CUT_SHARE, LEAST_CUT = 1 / 32, 4096
#: The most bytes kept for other updates and rows.
SHARED_BYTES = 1 << 29


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """Blocks, input layer first; ``ids`` are the vertices that the last block computes."""

    blocks: tuple[Block, ...]
    ids: IntArray


@dataclass(slots=True, eq=False)
class Pass:
    """A forward pass with its autograd graph: logits ``(n, classes)``, and all its bends in order.

    If it is ``rounded``, its backward pass is rounded too.
    """

    model: GNN
    logits: Tensor
    bends: tuple[Bend, ...]
    rounded: Rounded | None = None

    def gradients(self, of_logits: Tensor, turns: Sequence[Turn | None] = ()) -> list[Tensor]:
        """Return the parameters' gradients in float64 from the logits', with some bends turned."""
        parameters = [p for layer in self.model.stack for p in layer.parameters()]
        for bend, turn in zip(self.bends, turns or (None,) * len(self.bends), strict=True):
            bend.turn = turn
        with self.rounded or nullcontext():
            found = torch.autograd.grad(
                self.logits,
                parameters,
                of_logits.to(self.logits.dtype),
                allow_unused=True,
                retain_graph=True,
            )
        return [
            (torch.zeros_like(p) if g is None else g).double()
            for p, g in zip(parameters, found, strict=True)
        ]


@dataclass(slots=True, eq=False)
class Shared:
    """Results that the passes of one data set and model share, over updates and rows.

    ``firsts`` are first updates in float64 by the sampler that drew them, ``bounds`` the whole
    graph by dtype, and ``aggregates`` the first layer's aggregates by dtype.
    """

    firsts: dict[str, tuple[Update, Pass]] = field(default_factory=dict)
    bounds: dict[torch.dtype, BoundBlock] = field(default_factory=dict)
    aggregates: dict[torch.dtype, Tensor] = field(default_factory=dict)


class PlainTraining:
    """Computes updates again, from the parameters that they began at.

    ``kernel`` is the reference's. ``sampler``, already begun, draws the mini-batch of a round as a
    whole. If it draws other mini-batches for shares of a round, the units of the run are used.
    Without a sampler the whole graph is computed. Samplers with equal ``drawn_by`` share their
    first updates by ``shared``.
    """

    def __init__(
        self,
        setting: Setting,
        kernel: Kernel,
        sampler: MiniBatchSampler | None = None,
        *,
        drawn_by: str = "",
        shared: Shared | None = None,
    ) -> None:
        self._setting = setting
        self._kernel = kernel
        self._sampler = sampler if sampler is not None and sampler.split_invariant else None
        self._scales = list_scales(sampler, setting)
        self._drawn_by = drawn_by
        self._shared = Shared() if shared is None else shared
        self._degrees = Degrees.of(setting.dataset, setting.workload)
        self._wide = _find_wide_layers(setting)
        self._graph: Block | None = None
        self._models: dict[tuple[torch.dtype, frozenset[int]], GNN] = {}
        self._reads_sparse = 0 in self._wide and _is_sparse(setting)

    def _find_projected(self, *, whole: bool) -> frozenset[int]:
        """Return the layers that multiply by W first: the wide ones.

        The first layer is left out for the whole graph if its aggregates are computed only once.
        """
        once = whole and self._keeps and not self._reads_sparse
        return self._wide - {0} if once else self._wide

    @cached_property
    def feature_norm(self) -> float:
        """The Frobenius norm of the features."""
        features = self._setting.dataset.features
        values = features if isinstance(features, np.ndarray) else features.data
        return float(np.linalg.norm(values))

    @property
    def held_bytes(self) -> int:
        """The approximate bytes of a pass over the whole graph in float64.

        They are rows of all layers, gradients, intermediate rows, values on edges, and topology.
        """
        graph, layers = self._setting.dataset.graph, self._setting.layers
        dims = self._setting.workload.dims
        width = 4 * sum(dims[1:]) + (0 if self._reads_sparse else 2 * dims[0])
        values = 3 + sum(layer.on_edges.kept for layer in layers)
        return 8 * graph.num_vertices * width + 8 * graph.num_edges * values

    def batches(self, update: Update) -> tuple[Batch, ...]:
        """Return the whole graph, the round's mini-batch drawn again as a whole, or its units."""
        layers = self._setting.workload.num_layers
        if not update.units:
            block = self._bind_whole(torch.float64).block
            return (Batch((block,) * layers, block.dst_ids),)
        if self._sampler is None:
            return tuple(Batch(unit.blocks, unit.output_ids) for unit in update.units)
        seeds = np.concatenate([unit.output_ids for unit in update.units])
        whole = self._sampler.sample(seeds, update.epoch, self._setting.workload.threads)
        return (Batch(whole, seeds),)

    def cut_out(self, update: Update, ids: IntArray) -> tuple[Batch, ...]:
        """Return the blocks that compute the logits of ``ids``, from the units or the whole graph.

        In the whole graph, the number of vertices is halved until their blocks have at most
        ``CUT_SHARE`` of the edges.
        """
        graph, layers = self._setting.dataset.graph, self._setting.workload.num_layers
        if update.units:
            cuts = []
            for unit in update.units:
                rows = np.flatnonzero(np.isin(unit.output_ids, ids))
                if len(rows):
                    cuts.append(Batch(cut_out(unit.blocks, rows), unit.output_ids[rows]))
            return tuple(cuts)
        if self._graph is None:
            self._graph = whole_graph_block(self._setting.dataset)
        whole = (self._graph,) * layers
        most = max(LEAST_CUT, int(CUT_SHARE * layers * graph.num_edges))
        count = len(ids)
        while count:
            blocks = cut_out(whole, ids[:count], most)
            if blocks:
                return (Batch(blocks, ids[:count]),)
            count //= 2
        return ()

    def find_right(self, update: Update, batches: Sequence[Batch]) -> Pass:
        """Return the update in float64; rows that begin at the same parameters share the first."""
        known = self._shared.firsts.get(self._drawn_by)
        first = (update.epoch, update.round) == (0, 0)
        if first and known is not None and _same(known[0], update):
            return known[1]
        right = self.forward(update, batches, torch.float64)
        if first and self._keeps:
            self._shared.firsts[self._drawn_by] = update, right
        return right

    def forward(
        self,
        update: Update,
        batches: Sequence[Batch],
        dtype: torch.dtype,
        rounded: Rounded | None = None,
        *,
        differentiable: bool = True,
    ) -> Pass:
        """Return the update's forward pass over all batches, ``rounded`` if that is given.

        A pass that is not ``differentiable`` is for its logits alone, and takes less time.
        """
        model = self._find_model(dtype, self._find_projected(whole=not update.units))
        if differentiable:  # takes less time than drawing new parameters
            model = copy.deepcopy(model)
        model.load_state_dict(update.parameters)
        shares = rounded is None  # others must not have this pass's rounding
        with torch.set_grad_enabled(differentiable), Bends() as bends, rounded or nullcontext():
            logits = [self._compute(model, batch, dtype, shares=shares) for batch in batches]
        return Pass(model, torch.cat(logits), tuple(bends.found), rounded)

    def _find_model(self, dtype: torch.dtype, projected: frozenset[int]) -> GNN:
        """Return the model of a dtype and of the layers that multiply first, made once."""
        key = dtype, projected
        if key not in self._models:
            workload = replace(self._setting.workload, dtype=_name(dtype))
            self._models[key] = build(workload, projected, self._setting.model)
        return self._models[key]

    def _compute(self, model: GNN, batch: Batch, dtype: torch.dtype, *, shares: bool) -> Tensor:
        whole = shares and len(batch.ids) == self._setting.dataset.graph.num_vertices
        if whole and not self._scales and len({id(block) for block in batch.blocks}) == 1:
            bounds = [self._bind_whole(dtype)] * len(batch.blocks)
        else:
            whole, bounds = False, self._bind_all(batch, dtype)
        h = self._aggregate_first(model, bounds[0], dtype, whole=whole)
        h = model.stack[0].update(bounds[0], h)
        for layer, bound in zip(model.stack[1:], bounds[1:], strict=True):
            h = layer.update(bound, layer.aggregate(bound, h))
        return h

    def _aggregate_first(
        self, model: GNN, bound: BoundBlock, dtype: torch.dtype, *, whole: bool
    ) -> Tensor:
        """Return the aggregated features, kept for the whole graph if they have no parameters."""
        layer = model.stack[0]
        keeps = whole and layer.cacheable and self._keeps
        known = self._shared.aggregates.get(dtype) if keeps else None
        if known is not None:
            return known
        own = replace(self._setting, workload=replace(self._setting.workload, dtype=_name(dtype)))
        threads = torch.get_num_threads()
        rows = feature_rows(own, bound.block.src_ids, sparse=self._reads_sparse, threads=threads)
        found = layer.aggregate(bound, rows)
        if keeps:
            self._shared.aggregates[dtype] = found
        return found

    @property
    def _keeps(self) -> bool:
        return self.held_bytes < SHARED_BYTES

    def _bind_whole(self, dtype: torch.dtype) -> BoundBlock:
        bounds = self._shared.bounds
        if dtype in bounds:
            return bounds[dtype]
        blocks = [bound.block for bound in bounds.values()]
        block = blocks[0] if blocks else whole_graph_block(self._setting.dataset)
        bound = self._bind(block, None, dtype)
        if self._keeps:
            bounds[dtype] = bound
        return bound

    def _bind_all(self, batch: Batch, dtype: torch.dtype) -> list[BoundBlock]:
        scales = self._scales or (None,) * len(batch.blocks)
        return [self._bind(*each, dtype) for each in zip(batch.blocks, scales, strict=True)]

    def _bind(self, block: Block, scales: EdgeValues | None, dtype: torch.dtype) -> BoundBlock:
        cpu = torch.device("cpu")
        return BoundBlock(block, self._kernel, self._degrees, dtype, cpu, scales=scales)


def cut_out(
    blocks: Sequence[Block], rows: IntArray, most_edges: int | None = None
) -> tuple[Block, ...]:
    """Return the blocks, input layer first, that compute the last block's rows at ``rows``.

    Return an empty tuple if they have more than ``most_edges``. A block's sources are the
    destinations of the block below it, in order.
    """
    found: list[Block] = []
    left = most_edges
    for block in reversed(blocks):
        begins, counts = block.indptr[rows], block.indptr[rows + 1] - block.indptr[rows]
        indptr = np.concatenate(([0], np.cumsum(counts)))
        if left is not None:
            left -= int(indptr[-1])
            if left < 0:
                return ()
        edges = np.arange(indptr[-1]) + np.repeat(begins - indptr[:-1], counts)
        own = rows if block.own is None else block.own[rows].astype(np.int64)
        sources = block.indices[edges].astype(np.int64)
        rows = np.concatenate((own, np.setdiff1d(sources, own)))
        order = np.argsort(rows, kind="stable")
        indices = order[np.searchsorted(rows, sources, sorter=order)].astype(np.int32)
        found.append(Block(block.src_ids[rows], len(own), indptr, indices))
    return tuple(reversed(found))


def _name(dtype: torch.dtype) -> Literal["float32", "float64"]:
    return "float64" if dtype == torch.float64 else "float32"


def _is_sparse(setting: Setting) -> bool:
    """Return whether features are stored sparse, and sparse enough for cheaper sparse products."""
    features = setting.dataset.features
    if isinstance(features, np.ndarray):
        return False
    return bool(features.nnz * DENSE_SHARE < features.shape[0] * features.shape[1])


def _find_wide_layers(setting: Setting) -> frozenset[int]:
    """Return the layers that are cheaper if multiplied first, where the maths allows it.

    In float64 either order is exact enough to be right.
    """
    workload = setting.workload
    if workload.model not in PROJECTED:
        return frozenset()
    dims = workload.dims
    return frozenset(n for n in range(workload.num_layers) if dims[n] > dims[n + 1])


def _same(ours: Update, theirs: Update) -> bool:
    """Return whether two updates have the same parameters and seeds, in the same order."""
    one: Mapping[str, Tensor] = ours.parameters
    other: Mapping[str, Tensor] = theirs.parameters
    if one.keys() != other.keys() or not all(torch.equal(one[n], other[n]) for n in one):
        return False
    return np.array_equal(_seeds(ours), _seeds(theirs))


def _seeds(update: Update) -> IntArray:
    if not update.units:
        return np.empty(0, dtype=np.int64)
    return np.concatenate([unit.output_ids for unit in update.units])
