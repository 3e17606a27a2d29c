"""What both engines stand on: the model's replicas, the optimiser, and the memories' ledger."""

from __future__ import annotations

import copy
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from gnnbench.engine.recorder import Ledger
from gnnbench.kernels.csr import csr_tensor
from gnnbench.kernels.dispatch import gather_rows
from gnnbench.models import GNN, Layer, build
from gnnbench.parts import Bundle, Setting
from gnnbench.platforms.machine import Device, Platform
from gnnbench.records import IntArray, Workload

#: How many bytes of features are converted at a time.
FILLED_BYTES = 1 << 26


def torch_dtype(workload: Workload) -> torch.dtype:
    return torch.float32 if workload.dtype == "float32" else torch.float64


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


@dataclass(frozen=True, slots=True, eq=False)
class State:
    """Parameters and Adam's state at one moment."""

    parameters: dict[str, Tensor]
    optimiser: dict[str, object]


class Replicas:
    """The model on every torch device that trains, kept equal, and its one optimiser (Adam)."""

    def __init__(
        self,
        setting: Setting,
        trainers: tuple[Device, ...],
        projected: frozenset[int],
        *,
        masked: bool = False,
    ) -> None:
        workload = setting.workload
        self.master = build(workload, projected, setting.model, masked=masked)
        self._copies: dict[str, GNN] = {"cpu": self.master}
        for device in trainers:
            if device.torch_device not in self._copies:
                self._copies[device.torch_device] = copy.deepcopy(self.master).to(
                    device.torch_device
                )
        #: The master's, in the order of ``take_gradients``.
        self._parameters = [
            parameter for layer in self.master.stack for parameter in layer.parameters()
        ]
        self._optimiser = torch.optim.Adam(
            self.master.parameters(),
            lr=workload.learning_rate,
            weight_decay=workload.weight_decay,
            fused=True,
        )

    def on(self, device: Device) -> GNN:
        return self._copies[device.torch_device]

    def step(self, gradients: list[Tensor]) -> None:
        """One optimiser step on the master with averaged gradients, then broadcast."""
        for parameter, gradient in zip(self._parameters, gradients, strict=True):
            parameter.grad = gradient
        self._optimiser.step()
        for parameter in self._parameters:
            parameter.grad = None
        self._broadcast()

    def save(self) -> State:
        """A copy of the current state."""
        return State(
            {name: value.clone() for name, value in self.master.state_dict().items()},
            copy.deepcopy(self._optimiser.state_dict()),
        )

    def restore(self, state: State) -> None:
        """Go back to a saved state."""
        self.master.load_state_dict(state.parameters)
        self._optimiser.load_state_dict(copy.deepcopy(state.optimiser))
        self._broadcast()

    def _broadcast(self) -> None:
        for model in self._copies.values():
            if model is not self.master:
                model.load_state_dict(self.master.state_dict())


def masks_gradients(bundle: Bundle) -> bool:
    """Whether the backward pass of AGGREGATE applies the masks of the ReLUs before it.

    They are kept with the tapes, which is where vertex data lives on devices; and they must be
    those of the rows' owners, which those of stale rows are not.
    """
    return (
        bundle.sampler.mode == "full-graph"
        and bundle.memory.vertex_data == "device"
        and not bundle.communication.stale
        and bundle.kernel.masks_gradients()
    )


def feature_rows(
    setting: Setting,
    ids: IntArray,
    *,
    sparse: bool,
    threads: int = 0,
    out: Tensor | None = None,
) -> Tensor:
    """The features of ``ids``, in the workload's dtype: dense, or as a sparse CSR tensor.

    Dense rows are gathered by ``threads`` (0: every core), into ``out`` where it is given.
    """
    dtype = torch_dtype(setting.workload)
    features = setting.dataset.features
    if isinstance(features, np.ndarray) and features.flags.c_contiguous:
        if out is not None and out.numpy().dtype == features.dtype:
            gather_rows(features, ids, out=out.numpy(), threads=threads)
            return out
        rows = torch.from_numpy(gather_rows(features, ids, threads=threads))
    elif not sparse:
        rows = torch.from_numpy(setting.dataset.rows(ids))
    else:
        stored = setting.dataset.sparse_rows(ids)
        return csr_tensor(
            torch.from_numpy(stored.indptr.astype(np.int32)),
            torch.from_numpy(stored.indices.astype(np.int32)),
            torch.from_numpy(stored.data).to(dtype),
            stored.shape,
        )
    return rows.to(dtype) if out is None else out.copy_(rows)


def shares_features(setting: Setting) -> bool:
    """Whether the data set's features can be trained on as they are, without a copy."""
    features = setting.dataset.features
    return (
        isinstance(features, np.ndarray)
        and features.dtype == np.float32 == np.dtype(setting.workload.dtype)
        and features.flags.c_contiguous
        and features.flags.writeable
    )


def fill_features(setting: Setting, into: Tensor) -> None:
    """Write all features into ``into`` ``(V, f)``, some rows at a time."""
    rows = max(1, FILLED_BYTES // (into.shape[1] * into.element_size()))
    for begin in range(0, len(into), rows):
        ids = np.arange(begin, min(begin + rows, len(into)))
        into[begin : begin + rows] = feature_rows(setting, ids, sparse=False)


def stored_bytes(rows: Tensor) -> int:
    """Bytes of a dense tensor, or of the three of a sparse one."""
    if rows.layout != torch.sparse_csr:
        return rows.numel() * rows.element_size()
    parts = (rows.crow_indices(), rows.col_indices(), rows.values())
    return sum(part.numel() * part.element_size() for part in parts)


def count_stored_macs(layer: Layer, rows: Tensor, num_dst: int) -> int:
    """Multiply-accumulates of AGGREGATE where its input is sparse CSR: of the stored values alone.
    The destinations' own rows are the first ``num_dst``."""
    ends = rows.crow_indices()
    macs = int(ends[-1]) * layer.source_macs + int(ends[num_dst]) * layer.destination_macs
    return macs // layer.in_features


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
