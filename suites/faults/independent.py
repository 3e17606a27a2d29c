"""Independent versions of the six bundled models, over lists of edges.

They share no code with the package, so they measure a fault's effect and the rounding error
independently of the code under test. Each operation is a gather, a scatter or a product. Edges and
columns can be taken in another order, which rounds differently.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from gnnbench.parts import Setting
from gnnbench.records import Block
from gnnbench.run.evidence import Update

#: Number of summation orders that measure rounding.
ORDERS = 3
EPS = torch.finfo(torch.float32).eps
#: An effect above this multiple of the rounding error is a change that must be found.
CHANGED = 32.0
#: The least rounding error that is assumed of any result.
LEAST = 4 * EPS
#: Sizes count as at least this share of the usual size, as in the check itself.
TINY = 1 / 64


@dataclass(frozen=True, slots=True, eq=False)
class Edges:
    """A block as the ends of its edges.

    ``degrees`` are D(u) of the sources; ``own`` are the rows of the destinations among them.
    """

    src: Tensor
    dst: Tensor
    own: Tensor
    degrees: Tensor

    @classmethod
    def of(cls, block: Block, degrees: np.ndarray, dtype: torch.dtype, order: int) -> Edges:
        """Return the edges of a block; ``order`` 0 is the CSR's, others are random."""
        src = torch.from_numpy(block.indices.astype(np.int64))
        rows = np.repeat(np.arange(block.num_dst), np.diff(block.indptr))
        dst = torch.from_numpy(rows.astype(np.int64))
        if order:
            mixed = torch.randperm(len(src), generator=torch.Generator().manual_seed(order))
            src, dst = src[mixed], dst[mixed]
        own = torch.arange(block.num_dst) if block.own is None else torch.from_numpy(block.own)
        counts = torch.from_numpy(degrees[block.src_ids]).to(dtype)
        return cls(src, dst, own.long(), counts)

    def sum(self, messages: Tensor) -> Tensor:
        shape = (len(self.own), *messages.shape[1:])
        return messages.new_zeros(shape).index_add(0, self.dst, messages)

    def mean(self, h: Tensor) -> Tensor:
        count = torch.bincount(self.dst, minlength=len(self.own)).clamp(min=1).to(h.dtype)
        return self.sum(h[self.src]) / count.unsqueeze(1)


@dataclass(frozen=True, slots=True, eq=False)
class Model:
    """One of the models, with parameters by name; ``order`` is the summation order of columns."""

    name: str
    parameters: Mapping[str, Tensor]
    order: int = 0

    def times(self, h: Tensor, weight: Tensor) -> Tensor:
        if not self.order:
            return h @ weight
        generator = torch.Generator().manual_seed(self.order)
        mixed = torch.randperm(h.shape[1], generator=generator)
        return h[:, mixed] @ weight[mixed]

    def forward(self, blocks: Sequence[Edges], h: Tensor) -> Tensor:
        for number, edges in enumerate(blocks):
            prefix = f"layers.{number}."
            own = {
                name.removeprefix(prefix): value
                for name, value in self.parameters.items()
                if name.startswith(prefix)
            }
            h = getattr(self, self.name)(edges, h, own)
            if number < len(blocks) - 1:
                h = h.relu()
        return h

    def gcn(self, edges: Edges, h: Tensor, p: Mapping[str, Tensor]) -> Tensor:
        norm = 1 / torch.sqrt(edges.degrees + 1)
        mine = norm[edges.own]
        summed = edges.sum(h[edges.src] * (norm[edges.src] * mine[edges.dst]).unsqueeze(1))
        return (
            self.times(summed + (mine * mine).unsqueeze(1) * h[edges.own], p["weight"]) + p["bias"]
        )

    def sage(self, edges: Edges, h: Tensor, p: Mapping[str, Tensor]) -> Tensor:
        both = torch.cat((h[edges.own], edges.mean(h)), dim=1)
        out = self.times(both, p["weight"])
        return out + p["bias"] if "bias" in p else out

    commnet = sage

    def gin(self, edges: Edges, h: Tensor, p: Mapping[str, Tensor]) -> Tensor:
        summed = edges.sum(h[edges.src]) + h[edges.own]
        hidden = (self.times(summed, p["weight_1"]) + p["bias_1"]).relu()
        return self.times(hidden, p["weight_2"]) + p["bias_2"]

    def gat(self, edges: Edges, h: Tensor, p: Mapping[str, Tensor]) -> Tensor:
        rows = self.times(h, p["weight"])
        there, here = (rows @ p["attend_src"])[:, 0], (rows[edges.own] @ p["attend_dst"])[:, 0]
        count = len(edges.own)
        src = torch.cat((edges.src, edges.own))
        dst = torch.cat((edges.dst, torch.arange(count)))
        scores = torch.nn.functional.leaky_relu(there[src] + here[dst], 0.2)
        most = torch.full((count,), -torch.inf, dtype=h.dtype)
        most = most.scatter_reduce(0, dst, scores.detach(), "amax")
        shares = (scores - most[dst]).exp()
        shares = shares / shares.new_zeros(count).index_add(0, dst, shares)[dst]
        out = rows.new_zeros(count, rows.shape[1])
        return out.index_add(0, dst, rows[src] * shares.unsqueeze(1)) + p["bias"]

    def ggcn(self, edges: Edges, h: Tensor, p: Mapping[str, Tensor]) -> Tensor:
        mine = h[edges.own]
        gates = self.times(mine, p["gate_dst"])[edges.dst] + self.times(h, p["gate_src"])[edges.src]
        messages = gates.sigmoid() * self.times(h, p["message"])[edges.src]
        return self.times(mine, p["own"]) + edges.sum(messages) + p["bias"]


@dataclass(frozen=True, slots=True, eq=False)
class Found:
    """Logits, their vertices' sizes, and gradients of one computation, in float64."""

    logits: Tensor
    gradients: tuple[Tensor, ...]


def compute(
    setting: Setting, update: Update, begins: Tensor, dtype: torch.dtype, order: int = 0
) -> Found:
    """Compute an update of the whole graph, or of its units in order.

    ``begins`` are the gradients of the loss by the logits.
    """
    graph = setting.dataset.graph
    parameters = {
        name: value.to(dtype).requires_grad_() for name, value in update.parameters.items()
    }
    model = Model(setting.workload.model, parameters, order)
    parts = []
    for blocks in blocks_of(setting, update):
        edges = [Edges.of(block, graph.degrees, dtype, order) for block in blocks]
        rows = torch.from_numpy(setting.dataset.rows(blocks[0].src_ids)).to(dtype)
        parts.append(model.forward(edges, rows))
    logits = torch.cat(parts)
    gradients = torch.autograd.grad(logits, list(parameters.values()), begins.to(dtype))
    return Found(logits.detach().double(), tuple(part.double() for part in gradients))


def blocks_of(setting: Setting, update: Update) -> list[tuple[Block, ...]]:
    if update.units:
        return [unit.blocks for unit in update.units]
    graph = setting.dataset.graph
    ids = np.arange(graph.num_vertices, dtype=np.int64)
    whole = Block(ids, len(ids), graph.indptr, graph.indices)
    return [(whole,) * setting.workload.num_layers]


def loss_gradient(setting: Setting, ids: np.ndarray, logits: Tensor) -> Tensor:
    """Return the gradient of the mean cross entropy over the seeds among ``ids``.

    It is softmax minus one-hot.
    """
    dataset = setting.dataset
    seeds = (dataset.train_mask & (dataset.labels >= 0))[ids]
    labels = torch.from_numpy(np.where(seeds, dataset.labels[ids], 0))
    wanted = torch.nn.functional.one_hot(labels, logits.shape[1]).to(logits.dtype)
    share = torch.from_numpy(seeds / max(seeds.sum(), 1)).to(logits.dtype)
    return (logits.softmax(dim=1) - wanted) * share.unsqueeze(1)


def distances(ours: Found, right: Found) -> list[float]:
    """Return relative distances of all logits, of the furthest vertex, and of each gradient."""
    apart = torch.linalg.vector_norm(ours.logits - right.logits, dim=1)
    sizes = torch.linalg.vector_norm(right.logits, dim=1)
    whole = max(float(torch.linalg.vector_norm(sizes)), 1e-300)
    sizes = sizes.clamp(min=max(float(sizes.median()) * TINY, 1e-300))
    norms = [float(torch.linalg.vector_norm(part)) for part in right.gradients]
    least = max(math.hypot(*norms) * TINY, 1e-300)
    found = [float(torch.linalg.vector_norm(apart)) / whole, float((apart / sizes).max())]
    for one, other, norm in zip(ours.gradients, right.gradients, norms, strict=True):
        found.append(float(torch.linalg.vector_norm(one - other)) / max(norm, least))
    return found


def change(setting: Setting, updates: Sequence[Update]) -> float:
    """Return the largest effect of a fault in a float64 run, as a multiple of the rounding error.

    A fault must be found if this exceeds ``CHANGED``.

    ``setting`` is the run's; the rounding error is measured in float32, in several orders.
    """
    most = 0.0
    for update in updates:
        blocks = blocks_of(setting, update)
        ids = np.concatenate([each[-1].dst_ids for each in blocks])
        given = np.concatenate([part for part, _ in update.logits])
        rows = torch.cat([part for _, part in update.logits]).double()
        if not np.array_equal(np.sort(given), np.sort(ids)):
            return math.inf
        logits = rows[torch.from_numpy(np.argsort(given))][
            torch.from_numpy(np.argsort(np.argsort(ids)))
        ]
        begins = loss_gradient(setting, ids, logits)
        right = compute(setting, update, begins, torch.float64)
        ours = Found(logits, tuple(part.double() for part in update.gradients))
        effects = distances(ours, right)
        rounding = [LEAST] * len(effects)
        for order in range(ORDERS):
            other = compute(setting, update, begins, torch.float32, order)
            rounding = [max(pair) for pair in zip(rounding, distances(other, right), strict=True)]
        for effect, near in zip(effects, rounding, strict=True):
            ratio = effect / near if math.isfinite(near) else 0.0
            most = max(most, ratio if math.isfinite(ratio) else math.inf)
    return most
