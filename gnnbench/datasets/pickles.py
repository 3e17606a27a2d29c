"""Pickles that a dataset's own library reads, kept to arrays.

A pickle names functions and calls them, so whoever wrote one may run anything. OGB keeps what it
has parsed as pickled NumPy arrays, and some of PyTorch Geometric's datasets are downloaded as
pickled SciPy matrices. Both are read here with everything but arrays, matrices and plain containers
refused.
"""

from __future__ import annotations

import contextlib
import io
import pickle
import types
from collections.abc import Iterator
from typing import Any, BinaryIO

import numpy as np

#: What the pickles of arrays, sparse matrices, tensors and dictionaries name, under the modules'
#: names of Python 2 and of older NumPy and SciPy too.
_ALLOWED = {
    *((module, "_reconstruct") for module in ("numpy.core.multiarray", "numpy._core.multiarray")),
    *((module, "scalar") for module in ("numpy.core.multiarray", "numpy._core.multiarray")),
    *((module, "_frombuffer") for module in ("numpy.core.numeric", "numpy._core.numeric")),
    ("numpy", "ndarray"),
    ("numpy", "dtype"),
    *((module, "csr_matrix") for module in ("scipy.sparse.csr", "scipy.sparse._csr")),
    ("torch._utils", "_rebuild_tensor_v2"),
    ("collections", "OrderedDict"),
    ("collections", "defaultdict"),
    *((module, name) for module in ("builtins", "__builtin__") for name in ("list", "object")),
    *((module, "_reconstructor") for module in ("copyreg", "copy_reg")),
    ("_codecs", "encode"),
    # The classes of dtypes, which newer NumPy pickles by name.
    *(("numpy.dtypes", type(np.dtype(code)).__name__) for code in np.typecodes["All"]),
}


class PickledCode(pickle.UnpicklingError):
    """A pickle that names something which is no array: ``name``."""

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(f"it holds a pickled {name}, which could run code")


class ArrayUnpickler(pickle.Unpickler):
    """Reads pickles of arrays and raises :class:`PickledCode` for all others."""

    def find_class(self, module: str, name: str) -> Any:
        """Return a class that arrays need. Raises :class:`PickledCode` for any other."""
        if (module, name) not in _ALLOWED:
            raise PickledCode(f"{module}.{name}")
        return super().find_class(module, name)


def _load(stream: BinaryIO, **options: Any) -> Any:
    return ArrayUnpickler(stream, **options).load()


def _loads(data: bytes, **options: Any) -> Any:
    return ArrayUnpickler(io.BytesIO(data), **options).load()


@contextlib.contextmanager
def arrays_only() -> Iterator[None]:
    """Restrict ``pickle.load(s)``, ``numpy.load`` and ``torch.load`` to arrays within the block.

    Their arguments do not lift the restriction. ``torch.load`` with ``weights_only`` reads all that
    this option allows.
    """
    import torch

    module = types.ModuleType("pickle")
    vars(module).update(vars(pickle) | {"Unpickler": ArrayUnpickler, "load": _load})
    load = torch.load

    def load_arrays(*given: Any, **options: Any) -> Any:
        if options.get("weights_only"):
            return load(*given, **options)
        # Whatever was to unpickle, by whichever name or place, is not what does.
        given = given[:2]
        return load(*given, **(options | {"weights_only": False, "pickle_module": module}))

    replacements = (
        (pickle, "load", _load),
        (pickle, "loads", _loads),
        (torch, "load", load_arrays),
    )
    with contextlib.ExitStack() as stack:
        for owner, name, function in replacements:
            stack.callback(setattr, owner, name, getattr(owner, name))
            setattr(owner, name, function)
        yield
