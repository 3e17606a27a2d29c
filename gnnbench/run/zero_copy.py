"""The host's pinned memory as CUDA kernels see it (HongTu, section 6: zero-copy memory access).

Kernels read and write it over the link, row by row. Torch cannot express memory of one device that
another device addresses. DLPack, the format in which torch takes tensors of other libraries, states
only the address of memory and the device that is to use it.
"""

from __future__ import annotations

import ctypes
from ctypes import POINTER, Structure, c_int32, c_int64, c_uint8, c_uint16, c_uint64, c_void_p

import torch
from torch import Tensor
from torch.utils.dlpack import from_dlpack

#: DLPack's numbers for the kinds of devices, and for floating-point values.
CPU, CUDA = 1, 2
FLOAT = 2


class _Device(Structure):
    _fields_ = (("kind", c_int32), ("index", c_int32))


class _Type(Structure):
    _fields_ = (("code", c_uint8), ("bits", c_uint8), ("lanes", c_uint16))


class _Array(Structure):
    """DLPack's ``DLTensor``; without strides its rows follow each other."""

    _fields_ = (
        ("data", c_void_p),
        ("device", _Device),
        ("ndim", c_int32),
        ("dtype", _Type),
        ("shape", POINTER(c_int64)),
        ("strides", POINTER(c_int64)),
        ("byte_offset", c_uint64),
    )


class _Managed(Structure):
    """DLPack's ``DLManagedTensor``."""

    _fields_ = (("array", _Array), ("context", c_void_p), ("deleter", c_void_p))


#: By address, the structures that torch received and their memory, until torch releases them.
_lent: dict[int, tuple[_Managed, Tensor]] = {}


@ctypes.CFUNCTYPE(None, c_void_p)  # type: ignore[untyped-decorator]
def _give_back(address: int) -> None:
    del _lent[address]


_new_capsule = ctypes.pythonapi.PyCapsule_New
_new_capsule.restype = ctypes.py_object
_new_capsule.argtypes = (c_void_p, ctypes.c_char_p, c_void_p)


def alias(tensor: Tensor, kind: int, index: int) -> Tensor:
    """Return a tensor over the memory of ``tensor``, on the device DLPack ``kind``, ``index``.

    ``tensor`` is contiguous floating-point values, and lives as long as the result.
    """
    shape = (c_int64 * tensor.dim())(*tensor.shape)
    managed = _Managed(
        _Array(
            data=tensor.data_ptr(),
            device=_Device(kind, index),
            ndim=tensor.dim(),
            dtype=_Type(FLOAT, 8 * tensor.element_size(), 1),
            shape=shape,
        ),
        deleter=ctypes.cast(_give_back, c_void_p),
    )
    address = ctypes.addressof(managed)
    _lent[address] = managed, tensor
    seen: Tensor = from_dlpack(_new_capsule(address, b"dltensor", None))
    return seen


def see_from(device: torch.device, tensor: Tensor) -> Tensor | None:
    """Return ``tensor``, which is the host's, as a tensor of ``device`` over the same memory.

    The result is None if kernels of ``device`` cannot reach the memory: the device is not a CUDA
    device, or the memory is not pinned. Nothing waits for what kernels do with it.
    """
    if device.type != "cuda" or tensor.device.type != "cpu":
        return None
    if not (tensor.numel() and tensor.is_contiguous() and tensor.is_pinned()):
        return None
    return alias(tensor, CUDA, device.index or 0)
