"""A pass in which every operation is off by rounding, as in any correct run.

A sum rounds by the size of its summands, however small the sum is. A correct run may add in another
order, so its sum may differ by a unit of rounding of the summands. All later results differ with
it. So the passes that measure rounding add such an error to every result, forward and backward.
This is Monte Carlo arithmetic (Parker, Pierce and Eggert, Computing in Science and Engineering,
2000), with the errors of sums instead of single additions (Higham, Accuracy and Stability of
Numerical Algorithms, section 4.2).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

#: Operations that add up, by their names in ATen: linear in each tensor that they read.
SUMS = frozenset(
    {
        *("mm", "addmm", "addmm_", "bmm", "baddbmm", "mv", "addmv", "dot", "sparse_sampled_addmm"),
        *("sum", "mean", "cumsum", "segment_reduce", "index_add", "index_add_"),
        *("scatter_add", "scatter_add_", "index_put", "index_put_", "addcmul", "addcmul_"),
    }
)
#: Elementwise operations that only copy or choose values, or are exact.
EXACT = frozenset({"clone", "copy_", "fill_", "zero_", "_to_copy", "where", "neg", "abs"})
ROUNDED = frozenset({"_softmax", "_log_softmax", "logsumexp"})


class Rounded(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """A mode in which results in ``dtype`` are off by up to a unit of rounding, at random.

    A sum is off by a unit of the sum of its summands' magnitudes, another result by a unit of its
    magnitude. Each may also be off by the smallest normal number, below which a kernel may
    flush results to zero. ``seed`` decides the errors.
    """

    def __init__(self, dtype: torch.dtype, seed: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._dtype = dtype
        self._unit, self._least = torch.finfo(dtype).eps, torch.finfo(dtype).tiny
        self._generator = torch.Generator().manual_seed(seed)

    def __torch_dispatch__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Call an operation, and perturb its result."""
        kwargs = dict(kwargs or {})
        name = func._schema.name.removeprefix("aten::")  # type: ignore[attr-defined]
        summed = _add_magnitudes(func, args, kwargs) if name in SUMS else None
        out = func(*args, **kwargs)
        if self._is_rounded(func, name) and isinstance(out, Tensor) and out.dtype == self._dtype:
            values = _list_values(out)
            sizes = values.abs() if summed is None else _list_values(summed)
            shares = torch.empty_like(values).uniform_(-1, 1, generator=self._generator)
            sizes = torch.nan_to_num_(sizes * self._unit + self._least, 0.0, 0.0, 0.0)
            values.add_(sizes.mul_(shares))
        return out

    def _is_rounded(self, func: Callable[..., Any], name: str) -> bool:
        """Return whether an operation computes values, rather than only moving or choosing them."""
        if name in SUMS or name in ROUNDED:
            return True
        return torch.Tag.pointwise in func.tags and name not in EXACT  # type: ignore[attr-defined]


def _list_values(tensor: Tensor) -> Tensor:
    """Return the values that a tensor stores, as a view."""
    return tensor.values() if tensor.layout == torch.sparse_csr else tensor


def _add_magnitudes(func: Callable[..., Any], args: Sequence[Any], kwargs: Any) -> Tensor:
    """Return a sum's result for the magnitudes of its summands, in the shape of the result."""
    given = {name: _magnitude(value) for name, value in kwargs.items()}
    if "out" in given:
        given["out"] = torch.empty_like(kwargs["out"])
    sizes: Tensor = func(*(_magnitude(each) for each in args), **given)
    return sizes


def _magnitude(value: Any) -> Any:
    """Return the magnitudes of a floating-point tensor, or any other argument unchanged."""
    if not isinstance(value, Tensor) or not value.is_floating_point():
        return value
    if value.layout == torch.sparse_csr:
        parts = (value.crow_indices(), value.col_indices(), value.values().abs())
        return torch.sparse_csr_tensor(*parts, size=value.shape)
    return value.abs()
