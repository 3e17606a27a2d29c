"""HP-GNN's layers edge by edge, and the share of the channels that bursts reach."""

import math

import torch
from torch import Tensor

from gnnbench.kernels.reference.fpga import Aggregation, Machine
from gnnbench_plugins.hpgnn.layout import EdgeStream
from gnnbench_plugins.hpgnn.operators import Operators


def run_layer(
    operators: Operators,
    stream: EdgeStream,
    edge_weight: Tensor,
    h: Tensor,
    own: Tensor,
    weight: Tensor,
    bias: Tensor,
) -> Tensor:
    """Compute a layer by its operators, as in Algorithm 3: edge by edge, then UPDATE.

    ``edge_weight`` is ``(E,)`` in the order of the stream, ``h`` ``(S, f_in)`` the sources' rows,
    ``own`` ``(D, f_in)`` the destinations'. A destination without edges has gathered zeros.
    """
    gathered: list[Tensor | None] = [None] * stream.num_dst
    for u, v, w in zip(stream.src.tolist(), stream.dst.tolist(), edge_weight, strict=True):
        message = operators.scatter(h[u], w)
        so_far = gathered[v]
        gathered[v] = message if so_far is None else operators.gather(so_far, message)
    nothing = torch.zeros_like(h[0])
    rows = torch.stack([nothing if row is None else row for row in gathered])
    return operators.update(rows, own, weight, bias)


def alpha_of(aggregation: Aggregation, machine: Machine, row_words: int) -> float:
    """Return Equation 8's achieved alpha: the share of the channels' time spent in bursts."""
    busy = int(aggregation.channel_ticks.sum())
    bursts = int(aggregation.loads.sum()) * row_words * machine.channel.burst_ticks
    return bursts / busy if busy else math.nan
