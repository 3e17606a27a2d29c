"""What every lowering begins with: the memories of a platform, and what stays in them for a run."""

from __future__ import annotations

import numpy as np

from gnnbench.parts import Bundle, DeviceMemory, Setting
from gnnbench.platforms.machine import Device, Platform
from gnnbench.program import Ledger


def open_ledger(bundle: Bundle, platform: Platform, trainers: tuple[Device, ...]) -> Ledger:
    """Capacities of the host and of every trainer.

    The memory part may cap both. Its cap of a device holds for a host that trains alone, but not
    for one that trains beside accelerators.
    """
    host = platform.host
    capacity = {host.name: bundle.memory.host_capacity_bytes(host)}
    for device in trainers:
        if device.name != host.name:
            capacity[device.name] = bundle.memory.capacity_bytes(device)
        elif len(trainers) == 1:
            capacity[host.name] = min(capacity[host.name], bundle.memory.capacity_bytes(host))
    return Ledger(capacity)


def compute_resource(device: Device, host: Device, op: str) -> tuple[str, ...]:
    """The resource that AGGREGATE or UPDATE holds: a pipelined device has one for each."""
    if device.pipelined:
        return (f"{device.name}.{op}",)
    return ("host.train",) if device.name == host.name else (device.name,)


def masks_gradients(bundle: Bundle) -> bool:
    """Whether the backward pass of AGGREGATE applies the masks of the ReLUs before it.

    They are kept with the tapes, which is where vertex data lives on devices; and they must be
    those of the rows' owners, which those of stale rows are not.
    """
    return (
        bundle.mode == "full-graph"
        and isinstance(bundle.memory, DeviceMemory)
        and not bundle.stale
        and bundle.kernel.masks_gradients()
    )


def allocate_model(ledger: Ledger, setting: Setting, device: Device) -> None:
    """Parameters, their gradients, and Adam's two moments."""
    ledger.allocate(device.name, "model parameters", setting.parameter_bytes)
    ledger.allocate(device.name, "model gradients", setting.parameter_bytes)


def feature_store_bytes(setting: Setting) -> int:
    """Bytes of the feature matrix as it is stored."""
    features = setting.dataset.features
    if not isinstance(features, np.ndarray):
        return int(features.data.nbytes + features.indices.nbytes + features.indptr.nbytes)
    return int(features.size) * setting.workload.itemsize


def host_graph_bytes(setting: Setting) -> dict[str, int]:
    """By name, bytes of the topology, the features as stored, and labels and masks."""
    graph = setting.dataset.graph
    return {
        "graph topology": graph.indptr.nbytes + graph.indices.nbytes,
        "vertex features": feature_store_bytes(setting),
        "labels and masks": 11 * graph.num_vertices,
    }


def allocate_host_graph(ledger: Ledger, setting: Setting) -> None:
    """The data set, the master model and Adam's moments."""
    host = setting.platform.host.name
    for name, size_bytes in host_graph_bytes(setting).items():
        ledger.allocate(host, name, size_bytes)
    ledger.allocate(host, "optimiser state", 3 * setting.parameter_bytes)
