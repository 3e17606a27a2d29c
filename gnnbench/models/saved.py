"""The tensors that autograd saves in a forward pass, and their offload (HongTu §4.2)."""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Sequence

import numpy as np
import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks

from gnnbench.models.bound import BoundBlock, Degrees
from gnnbench.models.layers import Layer
from gnnbench.parts import Kernel
from gnnbench.records import Block, BlockSize, Workload


class _Saved:
    """One saved tensor: on its device or, while offloaded, on the host."""

    __slots__ = ("tensor",)

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor


class SavedTensors:
    """The floating-point tensors that one forward pass saves, each once.

    ``resident`` tensors, the parameters, stay on the device anyway, as do indices, which are the
    topology. Within ``recording()`` autograd receives handles, and ``offload`` and ``restore`` move
    their tensors.
    """

    def __init__(self, resident: Collection[Tensor]) -> None:
        self._resident = {tensor.untyped_storage().data_ptr() for tensor in resident}
        self._saved: dict[tuple[int, torch.Size, tuple[int, ...]], _Saved] = {}

    def recording(self) -> saved_tensors_hooks:
        """Return a context for the forward pass."""
        return saved_tensors_hooks(self._pack, self._unpack)

    @property
    def size_bytes(self) -> int:
        """The bytes of all saved tensors."""
        return sum(one.tensor.numel() * one.tensor.element_size() for one in self._saved.values())

    def offload(self, room: Callable[[Tensor], Tensor]) -> None:
        """Copy each tensor to the host memory that ``room`` returns, and free the device's copy."""
        for one in self._saved.values():
            one.tensor = room(one.tensor).copy_(one.tensor)

    def restore(self, device: torch.device) -> None:
        """Copy each tensor back to its device."""
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
        # Detach: the autograd graph refers to this object, which must not refer to the graph.
        return self._saved.setdefault(key, _Saved(tensor.detach()))

    @staticmethod
    def _unpack(saved: Tensor | _Saved) -> Tensor:
        return saved if isinstance(saved, Tensor) else saved.tensor


class SavedSizes:
    """The bytes that autograd saves in a layer's forward pass, predicted without the block.

    Saved tensors have a row for each source, destination or edge. So a few passes over blocks of a
    handful of vertices, with a copy of the layer, determine the bytes for any other block.
    """

    def __init__(self, layers: Sequence[Layer], kernel: Kernel, workload: Workload) -> None:
        self._layers = layers
        self._kernel = kernel
        self._dtype = torch.float32 if workload.dtype == "float32" else torch.float64
        self._found: dict[tuple[int, bool, bool, str], tuple[int, int, int, int]] = {}

    def size_bytes(self, number: int, size: BlockSize, device: str) -> int:
        """Return the saved bytes of layer ``number`` over a block of this size on a torch device.

        If a block's sources are its destinations, one tensor may serve as both.
        """
        square = size.num_src == size.num_dst
        key = (number, size.own, square, device)
        if key not in self._found:
            self._found[key] = self._fit(number, size.own, square, device)
        constant, source, destination, edge = self._found[key]
        return constant + source * size.num_src + destination * size.num_dst + edge * size.num_edges

    def _fit(self, number: int, own: bool, square: bool, device: str) -> tuple[int, int, int, int]:
        """Return the constant bytes, and the bytes for each source, destination and edge."""
        least = BlockSize(7, 7 if square else 3, 5, own)
        larger = (
            least._replace(num_src=8, num_dst=8 if square else 3),
            least if square else least._replace(num_dst=4),
            least._replace(num_edges=6),
        )
        base = self._measure(number, least, device)
        each = [self._measure(number, size, device) - base for size in larger]
        constant = base - sum(map(int.__mul__, each, least[:3]))
        return constant, each[0], each[1], each[2]

    def _measure(self, number: int, size: BlockSize, on: str) -> int:
        device, first = torch.device(on), number == 0
        layer = copy.deepcopy(self._layers[number]).to(device)
        row_ends = np.minimum(np.arange(size.num_dst + 1) * size.num_edges, size.num_edges)
        block = Block(
            np.arange(size.num_src, dtype=np.int64),
            size.num_dst,
            row_ends.astype(np.int64),
            np.arange(size.num_edges, dtype=np.int32) % np.int32(size.num_src),
            np.arange(size.num_dst, dtype=np.int32)[::-1].copy() if size.own else None,
        )
        degrees = Degrees(np.ones(size.num_src, dtype=np.int64))
        bound = BoundBlock(block, self._kernel, degrees, self._dtype, device)
        rows = torch.ones((size.num_src, layer.in_features), dtype=self._dtype, device=device)
        rows.requires_grad_(not first)
        saved = SavedTensors(list(layer.parameters()))
        shared = [device] if device.type == "cuda" else []
        with torch.random.fork_rng(shared), saved.recording():
            with torch.set_grad_enabled(not layer.cacheable):
                made = layer.aggregate(bound, rows).detach()
            layer.update(bound, made.requires_grad_(not (first and layer.cacheable)))
            return saved.size_bytes
