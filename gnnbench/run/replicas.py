"""The model on every torch device that trains, and its one optimiser."""

from __future__ import annotations

import copy
from dataclasses import dataclass

import torch
from torch import Tensor

from gnnbench.models import GNN, build
from gnnbench.parts import Setting
from gnnbench.platforms.machine import Device
from gnnbench.records import Workload


def torch_dtype(workload: Workload) -> torch.dtype:
    return torch.float32 if workload.dtype == "float32" else torch.float64


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
        self.parameters = [
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
        for parameter, gradient in zip(self.parameters, gradients, strict=True):
            parameter.grad = gradient
        self._optimiser.step()
        for parameter in self.parameters:
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
