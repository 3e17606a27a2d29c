"""What every lowering begins with: the memories of a platform, and what stays in them for a run."""

from __future__ import annotations

import numpy as np

from gnnbench.constants import Bound
from gnnbench.lowering.homes import Homes
from gnnbench.parts import Bundle, DeviceMemory, Memory, Setting
from gnnbench.platforms.machine import Device, Platform
from gnnbench.program import Ledger

#: What a ledger calls the topology of the data set.
TOPOLOGY = "graph topology"
#: And its features.
FEATURES = "vertex features"
#: Arrays as large as the model that a step of Adam reads and writes: gradients, parameters and both
#: moments, of which all but the gradients are written.
ADAM_ARRAYS: Bound[int] = 7


def host_capacity(memory: Memory, host: Device) -> int:
    """Bytes that a run has of a host's memory: what the part states, of what the host has."""
    return min(host.memory_bytes, memory.host_capacity_bytes(host))


def open_ledger(bundle: Bundle, platform: Platform, trainers: tuple[Device, ...]) -> Ledger:
    """Capacities of every host and of every trainer.

    The memory part may cap both, and what it states beyond a device's own memory is not there. Its
    cap of a device holds for a host that trains alone, but not for one that trains beside
    accelerators.
    """
    host, memory = platform.host, bundle.memory
    capacity = {each.name: host_capacity(memory, each) for each in platform.hosts}
    for device in trainers:
        if device.name != host.name:
            capacity[device.name] = min(device.memory_bytes, memory.capacity_bytes(device))
        elif len(trainers) == 1:
            capacity[host.name] = min(capacity[host.name], memory.capacity_bytes(host))
    return Ledger(capacity)


def compute_resource(device: Device, host: Device, op: str) -> tuple[str, ...]:
    """The resource that AGGREGATE or UPDATE holds: a pipelined device has one for each."""
    if device.pipelined:
        return (f"{device.name}.{op}",)
    return (f"{host.name}.train",) if device.name == host.name else (device.name,)


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


def stays_on_disk(setting: Setting) -> bool:
    """Whether topology and features are read from the host's disk where they are used: a data set's
    that is a folder, on a platform of one host that says how fast its disk is."""
    platform = setting.platform
    known = bool(platform.host.disk_bandwidth_bytes_per_s) or not platform.virtual
    return bool(setting.dataset.folder) and known and not platform.other_hosts


def describe_store(setting: Setting) -> tuple[str, ...]:
    """Where the arrays of a data set are that is a folder, and what is not priced of it."""
    dataset, platform = setting.dataset, setting.platform
    if not dataset.folder:
        return ()
    if not stays_on_disk(setting):
        return (
            f"{dataset.folder} is a folder, and is taken to be in memory: platform {platform.name} "
            f"has several hosts, or does not say how fast its disk is",
        )
    return (
        "features stay on disk, and every page is read again where it is used; so is the topology, "
        "whose reading is not priced",
    )


def host_graph_bytes(setting: Setting) -> dict[str, int]:
    """By name, bytes of the topology, the features as stored, and labels and masks, but for what
    stays on disk."""
    graph = setting.dataset.graph
    rest = {"labels and masks": 11 * graph.num_vertices}
    if stays_on_disk(setting):
        return {TOPOLOGY: graph.indptr.nbytes, **rest}
    weights = 0 if graph.weights is None else graph.weights.nbytes
    return {
        TOPOLOGY: graph.indptr.nbytes + graph.indices.nbytes + weights,
        FEATURES: feature_store_bytes(setting),
        **rest,
    }


def allocate_host_graph(
    ledger: Ledger,
    setting: Setting,
    homes: Homes,
    packed_bytes: int | None = None,
    *,
    replicated: bool = False,
) -> None:
    """The data set, the master model and Adam's moments. The topology is at every host, the rest of
    the data set where vertices are at home, and the model at the first.

    The features have ``packed_bytes`` where they are kept packed, and are at every host where they
    are ``replicated``."""
    sizes = host_graph_bytes(setting)
    if packed_bytes is not None and FEATURES in sizes:
        sizes[FEATURES] = packed_bytes
    everywhere = (TOPOLOGY, FEATURES) if replicated else (TOPOLOGY,)
    for name, size_bytes in sizes.items():
        whole = ((host, size_bytes) for host in homes.hosts)
        for host, part in whole if name in everywhere else homes.divide(size_bytes):
            ledger.allocate(host.name, name, part)
    name = setting.platform.host.name
    ledger.allocate(name, "optimiser state", 3 * setting.parameter_bytes)
