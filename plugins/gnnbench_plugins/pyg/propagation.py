"""PyG's message passing for one block; importing this module imports ``torch_geometric``."""

import warnings

import torch
from torch import Tensor
from torch_geometric.nn import MessagePassing
from torch_geometric.typing import Adj, OptPairTensor, OptTensor, Size
from torch_geometric.utils import spmm


class Propagation(MessagePassing):  # type: ignore[misc]
    """A sum or mean of source rows, each scaled by its edge's weight.

    Over a sparse CSR tensor it is PyG's memory-efficient aggregation: there are no ``(E, f)``
    messages, and the weights are the tensor's values and constant. Over a ``(2, E)`` edge index the
    messages exist, and with them the gradient of ``weight``.
    """

    def forward(
        self, edge_index: Adj, h: Tensor, weight: OptTensor = None, size: Size = None
    ) -> Tensor:
        """Aggregate, ``(S, f) -> (D, f)``.

        An edge index needs ``weight`` ``(E,)`` and ``size`` ``(S, D)``.
        """
        # propagate_type: (x: OptPairTensor, weight: OptTensor)
        out: Tensor = self.propagate(edge_index, x=(h, None), weight=weight, size=size)
        return out

    def message(self, x_j: Tensor, weight: Tensor) -> Tensor:
        return weight.view(-1, 1) * x_j

    def message_and_aggregate(self, edge_index: Adj, x: OptPairTensor) -> Tensor:
        out: Tensor = spmm(edge_index, x[0], reduce=self.aggr)
        return out


def accept_sparse_warnings() -> None:
    """Trigger torch's one-time warnings on compressed sparse tensors while they are ignored."""
    checks = torch.sparse.check_sparse_tensor_invariants
    if not checks.is_enabled():  # type: ignore[no-untyped-call]
        # Already off; switching it off explicitly avoids a warning of torch.
        checks.disable()  # type: ignore[no-untyped-call]
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Sparse CSR tensor support is in beta", UserWarning)
        torch.sparse_csr_tensor([0, 0], [], [], (1, 1))


accept_sparse_warnings()
SUM = Propagation(aggr="sum")
MEAN = Propagation(aggr="mean")
