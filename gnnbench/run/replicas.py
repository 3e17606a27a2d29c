"""The model on every torch device that trains, and its one optimiser."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.optim.adam import adam

from gnnbench.machines.machine import Device
from gnnbench.models import GNN, build
from gnnbench.parts import Setting
from gnnbench.records import Workload


def torch_dtype(workload: Workload) -> torch.dtype:
    """Return the workload's dtype in torch's terms."""
    return torch.float32 if workload.dtype == "float32" else torch.float64


@dataclass(frozen=True, slots=True, eq=False)
class State:
    """Parameters and Adam's state at one moment."""

    parameters: dict[str, Tensor]
    optimiser: tuple[Tensor, ...]


class Adam:
    """Adam with L2 decay over fixed parameters, in PyTorch's functional form.

    ``torch.optim.Adam`` computes the same to the bit, but imports PyTorch's compiler at its first
    step, which takes longer than a small run.
    """

    def __init__(self, parameters: list[Tensor], workload: Workload) -> None:
        self._parameters = parameters
        self._rate, self._decay = workload.learning_rate, workload.weight_decay
        self._means = [torch.zeros_like(parameter) for parameter in parameters]
        self._squares = [torch.zeros_like(parameter) for parameter in parameters]
        self._steps = [torch.zeros((), device=parameter.device) for parameter in parameters]

    @property
    def state(self) -> tuple[Tensor, ...]:
        """Both moments and the number of steps of each parameter, which a step changes."""
        return (*self._means, *self._squares, *self._steps)

    @torch.no_grad()
    def step(self, gradients: list[Tensor]) -> None:
        """Take one step with the gradient of each parameter, in their order."""
        adam(
            self._parameters,
            gradients,
            self._means,
            self._squares,
            [],
            self._steps,
            fused=True,
            amsgrad=False,
            maximize=False,
            beta1=0.9,
            beta2=0.999,
            eps=1e-8,
            lr=self._rate,
            weight_decay=self._decay,
        )


class Replicas:
    """The model on every torch device that trains, kept equal, and its one optimiser (Adam)."""

    def __init__(
        self,
        setting: Setting,
        trainers: tuple[Device, ...],
        projected: frozenset[int],
        *,
        masked: bool = False,
        scaled: bool = False,
    ) -> None:
        workload = setting.workload
        self.master = build(workload, projected, setting.model, masked=masked, scaled=scaled)
        self._copies: dict[str, GNN] = {"cpu": self.master}
        for device in trainers:
            if device.torch_device not in self._copies:
                self._copies[device.torch_device] = copy.deepcopy(self.master).to(
                    device.torch_device
                )
        #: The master's parameters, in the order of ``take_gradients``.
        self.parameters: list[Tensor] = [
            parameter for layer in self.master.stack for parameter in layer.parameters()
        ]
        self._optimiser = Adam(self.parameters, workload)

    def on(self, device: Device) -> GNN:
        """Return the copy of the model on a device."""
        return self._copies[device.torch_device]

    def step(self, gradients: list[Tensor]) -> None:
        """Take one optimiser step on the master with averaged gradients, then broadcast."""
        self._optimiser.step(gradients)
        self._broadcast()

    def save(self) -> State:
        """Return a copy of the current state."""
        return State(
            {name: value.clone() for name, value in self.master.state_dict().items()},
            tuple(value.clone() for value in self._optimiser.state),
        )

    def restore(self, state: State) -> None:
        """Restore a saved state."""
        self.master.load_state_dict(state.parameters)
        for value, saved in zip(self._optimiser.state, state.optimiser, strict=True):
            value.copy_(saved)
        self._broadcast()

    def _broadcast(self) -> None:
        for model in self._copies.values():
            if model is not self.master:
                model.load_state_dict(self.master.state_dict())


class Follower:
    """The parameters as the optimiser alone makes them, by a second one with the same gradients.

    Both compute equal values to the bit. A parameter with another value was thus not written by the
    optimiser.
    """

    def __init__(self, replicas: Replicas, workload: Workload) -> None:
        self._followed = replicas.parameters
        self._names = [name for name, _ in replicas.master.named_parameters()]
        self._own = [value.detach().clone() for value in replicas.parameters]
        self._optimiser = Adam(self._own, workload)

    @property
    def state(self) -> tuple[Tensor, ...]:
        """The state of the second optimiser, in the form of :attr:`Adam.state`."""
        return self._optimiser.state

    def step(self, gradients: Sequence[Tensor]) -> None:
        """Take one step with the gradient of each parameter, in their order."""
        self._optimiser.step(list(gradients))

    def find_change(self) -> str | None:
        """Return the name of the first parameter that differs from the optimiser's, or None."""
        pairs = zip(self._names, self._own, self._followed, strict=True)
        return next((name for name, own, other in pairs if not _same(own, other)), None)


def _same(own: Tensor, other: Tensor) -> bool:
    """Return whether two tensors are equal to the bit, with NaN equal to NaN."""
    return torch.equal(own, other) or bool(torch.allclose(own, other, 0, 0, equal_nan=True))
