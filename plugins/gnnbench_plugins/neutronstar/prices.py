"""The time of a row: T_v, T_e and T_c of NeutronStar's cost model, from a platform's rates."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from gnnbench.machines.machine import Device, Platform
from gnnbench.parts import LayerShape


@dataclass(frozen=True, slots=True, eq=False)
class Prices:
    """Seconds of one device in an epoch, forward and backward, by layer; h^0 is layer 0.

    Computing a row of a layer takes ``vertex_s``, and ``edge_s`` for each of its in-edges; a row of
    features takes nothing. Reading a row from a peer takes ``sent_s[layer, slot]``, float64
    ``(L, m)``.
    """

    vertex_s: Sequence[float]
    edge_s: Sequence[float]
    sent_s: npt.NDArray[np.float64]


def price_rows(
    layers: Sequence[LayerShape],
    platform: Platform,
    devices: Sequence[Device],
    slot: int,
    item: int,
) -> Prices:
    """Return the prices of the device ``slot``, for values of ``item`` bytes.

    T_e and T_v follow HyScale-GNN's Equations 11 and 12 without the launch, which one more row does
    not lengthen. T_c is a value's time on the link between two devices, without its latency, for
    the same reason. Gradients return as many bytes as rows bring; features have no gradients.
    """
    device = devices[slot]
    vertex_s, edge_s = [0.0], [0.0]
    for number, shape in enumerate(layers[:-1]):
        gradients = not (number == 0 and shape.cacheable)
        width = shape.summed_features
        bandwidth = device.hardware.memory_bandwidth_bytes_per_s
        if device.rates.aggregate is not None:
            bandwidth = device.rates.aggregate.at(width)
        flops = device.hardware.flops_per_s
        if device.rates.update is not None:
            flops = device.rates.update.at(shape.out_features)
        products = 3 if gradients else 2
        edge_s.append((1 + gradients) * width * item / bandwidth)
        # Each additional vertex adds one row to each product, wherever it is computed.
        macs = shape.macs_per_row + shape.early.source_macs + shape.early.destination_macs
        vertex_s.append(products * 2 * macs / flops)
    sent_s = np.zeros((len(layers), len(devices)))
    for peer in range(len(devices)):
        if peer != slot:
            link = platform.link(devices[peer].name, device.name)
            for number, shape in enumerate(layers):
                values = shape.in_features * (2 if number else 1)
                sent_s[number, peer] = link.crossing_s(values * item)
    return Prices(vertex_s, edge_s, sent_s)
