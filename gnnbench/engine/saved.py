"""What autograd saves of a forward pass, moved to the host and back: HongTu §4.2's alternative."""

from __future__ import annotations

from collections.abc import Callable, Collection

import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks


class _Saved:
    """One saved tensor: on its device, and while it is away, on the host."""

    __slots__ = ("tensor",)

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor


class SavedTensors:
    """The floating-point tensors that one forward pass saves, each once.

    ``resident`` are tensors that stay on the device anyway, the parameters. So do indices: they
    are the topology. Within ``recording()`` autograd is given handles, which ``offload`` and
    ``restore`` move.
    """

    def __init__(self, resident: Collection[Tensor]) -> None:
        self._resident = {tensor.untyped_storage().data_ptr() for tensor in resident}
        self._saved: dict[tuple[int, torch.Size, tuple[int, ...]], _Saved] = {}

    def recording(self) -> saved_tensors_hooks:
        """A context for the forward pass."""
        return saved_tensors_hooks(self._pack, self._unpack)

    @property
    def size_bytes(self) -> int:
        """Bytes of all of them."""
        return sum(one.tensor.numel() * one.tensor.element_size() for one in self._saved.values())

    def offload(self, room: Callable[[Tensor], Tensor]) -> None:
        """Copy each to the host memory that ``room`` gives for it, and let go of the device's."""
        for one in self._saved.values():
            one.tensor = room(one.tensor).copy_(one.tensor)

    def restore(self, device: torch.device) -> None:
        """Copy each back to its device."""
        for one in self._saved.values():
            one.tensor = one.tensor.to(device, copy=True)

    def _pack(self, tensor: Tensor) -> Tensor | _Saved:
        if (
            not tensor.is_floating_point()
            or tensor.layout != torch.strided
            or tensor.untyped_storage().data_ptr() in self._resident
        ):
            return tensor
        key = (tensor.data_ptr(), tensor.shape, tensor.stride())
        return self._saved.setdefault(key, _Saved(tensor))

    @staticmethod
    def _unpack(saved: Tensor | _Saved) -> Tensor:
        return saved if isinstance(saved, Tensor) else saved.tensor
