"""What a forward pass leaves for the backward pass; of some layers it is on the host meanwhile."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor

from gnnbench.models.saved import SavedTensors
from gnnbench.run.movement import empty
from gnnbench.run.passes import AggregateTape, UpdateTape, without_outputs

HOST = torch.device("cpu")
#: A round and a slot: which unit.
UnitKey = tuple[int, int]


class Tapes:
    """The tapes of an epoch, by layer and unit.

    Of a layer that is watched, what autograd saves can wait on the host: its outputs are let go
    then, which the next layer has read.
    """

    def __init__(self) -> None:
        self.aggregates: dict[tuple[int, UnitKey], AggregateTape] = {}
        self.updates: dict[tuple[int, UnitKey], UpdateTape] = {}
        self._saved: dict[tuple[int, UnitKey], SavedTensors] = {}

    def watch(self, number: int, key: UnitKey, parameters: Sequence[Tensor]) -> None:
        """Note what autograd saves of a layer of one unit but its parameters."""
        self._saved[number, key] = SavedTensors(list(parameters))

    def recording(self, number: int, key: UnitKey) -> AbstractContextManager[object]:
        """While a pass forward of a layer runs that may be watched."""
        saved = self._saved.get((number, key))
        return nullcontext() if saved is None else saved.recording()

    def swap_out(self, number: int, slot: int) -> None:
        """Let what the units of a slot keep of a layer wait on the host."""
        for (layer, key), saved in self._saved.items():
            if layer == number and key[1] == slot:
                tapes = without_outputs(self.aggregates[number, key], self.updates[number, key])
                self.aggregates[number, key], self.updates[number, key] = tapes
                saved.offload(lambda tensor: empty(tensor.shape, tensor.dtype, HOST, tensor.device))

    def swap_in(self, number: int, slot: int, device: torch.device) -> None:
        """Have it back on its device."""
        for layer, key in [*self._saved]:
            if layer == number and key[1] == slot:
                self._saved.pop((number, key)).restore(device)
