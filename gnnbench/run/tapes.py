"""The tapes that a forward pass leaves for backward; some layers' are on the host meanwhile."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor

from gnnbench.models.saved import SavedTensors
from gnnbench.run.movement import empty
from gnnbench.run.passes import AggregateTape, UpdateTape, without_outputs

HOST = torch.device("cpu")
#: The round and the device index of a unit.
UnitKey = tuple[int, int]


class Tapes:
    """The tapes of an epoch, by layer and unit.

    In a layer that is watched, what autograd saves can wait on the host. The layer's outputs are
    released then, since the next layer has read them.
    """

    def __init__(self) -> None:
        self.aggregates: dict[tuple[int, UnitKey], AggregateTape] = {}
        self.updates: dict[tuple[int, UnitKey], UpdateTape] = {}
        self._saved: dict[tuple[int, UnitKey], SavedTensors] = {}

    def watch(self, number: int, key: UnitKey, parameters: Sequence[Tensor]) -> None:
        """Record what autograd saves for a layer of one unit, except the layer's parameters."""
        self._saved[number, key] = SavedTensors(list(parameters))

    def recording(self, number: int, key: UnitKey) -> AbstractContextManager[object]:
        """Return the context for a forward pass of a layer that may be watched."""
        saved = self._saved.get((number, key))
        return nullcontext() if saved is None else saved.recording()

    def swap_out(self, number: int, slot: int) -> None:
        """Move to the host what the units of a device keep of a layer."""
        for (layer, key), saved in self._saved.items():
            if layer == number and key[1] == slot:
                tapes = without_outputs(self.aggregates[number, key], self.updates[number, key])
                self.aggregates[number, key], self.updates[number, key] = tapes
                saved.offload(lambda tensor: empty(tensor.shape, tensor.dtype, HOST, tensor.device))

    def swap_in(self, number: int, slot: int, device: torch.device) -> None:
        """Move a layer's saved tensors back to their device."""
        for layer, key in [*self._saved]:
            if layer == number and key[1] == slot:
                self._saved.pop((number, key)).restore(device)
