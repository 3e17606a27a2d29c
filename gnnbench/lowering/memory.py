"""The memories of a platform, and what stays in them for a run; every lowering begins here."""

from __future__ import annotations

import numpy as np

from gnnbench.constants import Bound
from gnnbench.lowering.homes import Homes
from gnnbench.machines.machine import Device, Platform
from gnnbench.parts import Bundle, DeviceMemory, Memory, Setting
from gnnbench.program import Ledger

#: The name in a ledger of the data set's topology.
TOPOLOGY = "graph topology"
#: The name in a ledger of the data set's features.
FEATURES = "vertex features"
#: Arrays as large as the model that a step of Adam reads and writes: gradients, parameters and both
#: moments, of which all but the gradients are written.
ADAM_ARRAYS: Bound[int] = 7


def host_capacity(memory: Memory, host: Device) -> int:
    """Return the bytes of a host's memory that a run may use, as the memory part limits it."""
    return min(host.hardware.memory_bytes, memory.host_capacity_bytes(host))


def open_ledger(bundle: Bundle, platform: Platform, trainers: tuple[Device, ...]) -> Ledger:
    """Return a ledger with the capacities of every host and of every trainer.

    The memory part may cap both, but cannot exceed a device's own memory. Its cap of a device
    applies to a host that trains alone, but not to a host that trains beside accelerators.
    """
    host, memory = platform.host, bundle.memory
    capacity = {each.name: host_capacity(memory, each) for each in platform.hosts}
    for device in trainers:
        if device.name != host.name:
            capacity[device.name] = min(device.hardware.memory_bytes, memory.capacity_bytes(device))
        elif len(trainers) == 1:
            capacity[host.name] = min(capacity[host.name], memory.capacity_bytes(host))
    return Ledger(capacity)


def compute_resource(device: Device, host: Device, op: str) -> tuple[str, ...]:
    """Return the resource that AGGREGATE or UPDATE holds; a pipelined device has one for each."""
    if device.hardware.pipelined:
        return (f"{device.name}.{op}",)
    return (f"{host.name}.train",) if device.name == host.name else (device.name,)


def masks_gradients(bundle: Bundle) -> bool:
    """Return whether the backward pass of AGGREGATE applies the masks of the preceding ReLUs.

    The masks are kept with the tapes, so vertex data must live on devices. They must be the masks
    of the rows' owners, which excludes stale rows.
    """
    return (
        bundle.mode == "full-graph"
        and isinstance(bundle.memory, DeviceMemory)
        and not bundle.stale
        and bundle.kernel.masks_gradients()
    )


def allocate_model(ledger: Ledger, setting: Setting, device: Device) -> None:
    """Place the parameters and their gradients on a device."""
    ledger.allocate(device.name, "model parameters", setting.parameter_bytes)
    ledger.allocate(device.name, "model gradients", setting.parameter_bytes)


def feature_store_bytes(setting: Setting) -> int:
    """Return the bytes of the feature matrix as it is stored."""
    features = setting.dataset.features
    if not isinstance(features, np.ndarray):
        return int(features.data.nbytes + features.indices.nbytes + features.indptr.nbytes)
    return int(features.size) * setting.workload.itemsize


def stays_on_disk(setting: Setting) -> bool:
    """Return whether topology and features stay on the host's disk, to be read where used.

    This holds for a data set in a folder, on a platform of one host with a known disk bandwidth.
    """
    platform = setting.platform
    known = bool(platform.host.memory.disk_bandwidth_bytes_per_s) or not platform.virtual
    return bool(setting.dataset.folder) and known and not platform.other_hosts


def describe_store(setting: Setting) -> tuple[str, ...]:
    """Return where the arrays of a data set in a folder are, and what of them is not priced."""
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
    """Return the bytes of the topology, the stored features, and labels and masks, by name.

    Arrays that stay on disk are left out.
    """
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
    """Place the data set, the master model and Adam's moments on the hosts.

    Every host has the topology, the first host has the model, and the rest of the data set is where
    the vertices are at home. Packed features take ``packed_bytes``, and every host has the features
    if they are ``replicated``.
    """
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
