"""A model's three functions (Algorithm 3 and UPDATE): off the shelf, checked, and trained with."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.autograd import Function
from torch.autograd.function import FunctionCtx

from gnnbench.errors import UsageError
from gnnbench.models import BoundBlock, Layer, glorot
from gnnbench_plugins.hpgnn.adjacency import HpgnnAdjacency

#: The weight of an edge u, v: 1; 1 over the in-edges of v in the block; or 1/sqrt((D(u)+1)(D(v)+1))
#: of the graph.
EdgeWeight = Literal["one", "mean", "gcn"]


@dataclass(frozen=True, slots=True)
class Operators:
    """The functions of Algorithm 3 and of UPDATE, on rows of features.

    ``scatter(h_u, weight)`` makes an edge's update from its source's row. ``gather(a, b)`` combines
    two updates, or sums of them, in any order, so it must be associative and commutative.
    ``update(a_v, h_v, W, b)`` makes the new row from the combined updates and the destination's own
    row. It multiplies rows of ``update_widths`` times f^{l-1} values by W.
    """

    scatter: Callable[[Tensor, Tensor], Tensor]
    gather: Callable[[Tensor, Tensor], Tensor]
    update: Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]
    update_widths: int = 1


def _scale(h: Tensor, weight: Tensor) -> Tensor:
    return h * weight


def _transform(a: Tensor, own: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return torch.relu(a @ weight + bias)


def _transform_both(a: Tensor, own: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return torch.relu(torch.cat((own, a), dim=-1) @ weight + bias)


def _transform_sum(a: Tensor, own: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return torch.relu((own + a) @ weight + bias)


#: Edge weights distinguish the models: 1/sqrt(D(u) D(v)) for GCN, with an edge from each vertex to
#: itself; 1/D(v) for GraphSAGE; 1 for GIN (this is its perceptron's first layer).
OFF_THE_SHELF = {
    "GCN": Operators(_scale, torch.add, _transform),
    "SAGE": Operators(_scale, torch.add, _transform_both, update_widths=2),
    "GIN": Operators(_scale, torch.add, _transform_sum),
}


def check_gather(model: str, gather: Callable[[Tensor, Tensor], Tensor]) -> None:
    """Raise ``UsageError`` for a gather that is not associative and commutative on random rows."""
    generator = torch.Generator().manual_seed(0)
    a, b, c = torch.randn(3, 64, generator=generator, dtype=torch.float64)
    laws = {
        "associative": (gather(gather(a, b), c), gather(a, gather(b, c))),
        "commutative": (gather(a, b), gather(b, a)),
    }
    for law, (one, other) in laws.items():
        if one.shape != a.shape or not torch.allclose(one, other, rtol=1e-9, atol=1e-12):
            raise UsageError(
                f"gather of model {model} is not {law}, but updates reach a gather PE in any "
                f"order. Use a sum, a product, a minimum or a maximum, and divide in update."
            )


# --------------------------------------------------------------------------- training


class _Watch(Function):
    """Pass rows through, and note when their gradient arrives, even if nothing below needs one."""

    @staticmethod
    def forward(
        ctx: FunctionCtx, rows: Tensor, anchor: Tensor, adjacency: HpgnnAdjacency | None
    ) -> Tensor:
        ctx.adjacency = adjacency  # type: ignore[attr-defined]
        if adjacency is not None:
            adjacency.note(backward=False)
        return rows.view_as(rows)

    @staticmethod
    def backward(ctx: FunctionCtx, gradient: Tensor) -> tuple[Tensor, None, None]:
        adjacency: HpgnnAdjacency | None = ctx.adjacency  # type: ignore[attr-defined]
        if adjacency is not None:
            adjacency.note(backward=True)
        return gradient, None, None


def reduce_edges(
    messages: Tensor, degrees: Tensor, gather: Callable[[Tensor, Tensor], Tensor]
) -> Tensor:
    """Combine each destination's messages, which are adjacent: ``(E, f) -> (D, f)``.

    ``degrees`` int64 ``(D,)`` add up to E. Neighbours are combined in pairs until one is left, log2
    of the largest degree times. A destination without a message has zeros.
    """
    filled = torch.nonzero(degrees).squeeze(1)
    out = messages.new_zeros(len(degrees), messages.shape[1])
    rows, counts = messages, degrees[filled]
    while len(rows) > len(counts):
        firsts = (counts.cumsum(0) - counts).repeat_interleave(counts)
        ends = counts.repeat_interleave(counts)
        places = torch.arange(len(rows), device=rows.device) - firsts
        left = torch.nonzero((places % 2 == 0) & (places + 1 < ends)).squeeze(1)
        alone = torch.nonzero((places % 2 == 0) & (places + 1 == ends)).squeeze(1)
        order = torch.argsort(torch.cat((left, alone)))
        rows = torch.cat((gather(rows[left], rows[left + 1]), rows[alone]))[order]
        counts = (counts + 1) // 2
    return out.index_copy(0, filled, rows)


class OperatorLayer(Layer):
    """A layer of a user's functions, for ``make_layer``.

    AGGREGATE yields the destinations' own rows and, beside them, the gathered rows.
    """

    operators: ClassVar[Operators]
    #: Functions of the last layer, without an outermost ReLU.
    last: ClassVar[Operators]
    edge_weight: ClassVar[EdgeWeight]
    cacheable = False

    def __init__(
        self, in_features: int, out_features: int, *, activation: bool, generator: torch.Generator
    ) -> None:
        super().__init__(in_features, out_features, activation=activation)
        inner = self.operators.update_widths * in_features
        self.weight = glorot(inner, out_features, generator)
        self.bias: Tensor = nn.Parameter(torch.zeros(out_features, dtype=torch.float64))

    @property
    def aggregate_features(self) -> int:
        return 2 * self.in_features

    @property
    def macs_per_row(self) -> int:
        return self.operators.update_widths * self.in_features * self.out_features

    @property
    def edge_features(self) -> int:
        """The source's row, the combined rows (E, half as many, ...), and the weight."""
        return 3 * self.in_features + 1

    def aggregate(self, bound: BoundBlock, h: Tensor) -> Tensor:
        adjacency = bound.adjacency
        messages = self.operators.scatter(h[adjacency.edge_src], self._weigh(bound).unsqueeze(1))
        gathered = reduce_edges(messages, adjacency.in_degrees.long(), self.operators.gather)
        rows = torch.cat((bound.own_rows(h), gathered), dim=1)
        watched = adjacency if isinstance(adjacency, HpgnnAdjacency) else None
        anchor = rows.new_zeros(()).requires_grad_()
        out: Tensor = _Watch.apply(rows, anchor, watched)  # type: ignore[no-untyped-call]
        return out

    def update(self, bound: BoundBlock, a: Tensor) -> Tensor:
        own, gathered = a[:, : self.in_features], a[:, self.in_features :]
        operators = self.operators if self.activation else self.last
        return operators.update(gathered, own, self.weight, self.bias)

    def _weigh(self, bound: BoundBlock) -> Tensor:
        adjacency = bound.adjacency
        if self.edge_weight == "gcn":
            return bound.gcn_scaling.of_edges(adjacency)
        if self.edge_weight == "mean":
            return (1 / adjacency.in_degrees)[adjacency.edge_dst]
        return adjacency.in_degrees.new_ones(adjacency.block.num_edges)


def make_layer(
    name: str, operators: Operators, last_update: Callable[..., Tensor], edge_weight: EdgeWeight
) -> type[OperatorLayer]:
    """Return a layer class with these functions; ``last_update`` is the last layer's update."""
    check_gather(name, operators.gather)
    members = {
        "name": name,
        "title": name,
        "operators": operators,
        "last": replace(operators, update=last_update),
        "edge_weight": edge_weight,
        "__doc__": f"Functions of one's own, {name}.",
    }
    return type(f"{name.title()}Layer", (OperatorLayer,), members)
