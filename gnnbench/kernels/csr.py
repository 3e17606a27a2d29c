"""Sparse CSR tensors of torch, made without the warnings that torch prints once a process."""

from __future__ import annotations

import warnings
from functools import cache

import torch
from torch import Tensor


def csr_tensor(row_ptr: Tensor, columns: Tensor, values: Tensor, size: tuple[int, int]) -> Tensor:
    """Return a sparse CSR tensor; ``row_ptr`` and ``columns`` have one dtype, int32 or int64.

    Nothing is checked. Columns outside ``size`` crash the process.
    """
    _hear_warnings()
    return torch.sparse_csr_tensor(row_ptr, columns, values, size, check_invariants=False)


@cache
def _hear_warnings() -> None:
    """Trigger torch's one-time warnings (sparse CSR is beta, checks are off) and ignore them."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.sparse_csr_tensor(torch.tensor([0, 0]), torch.tensor([]), torch.tensor([]), (1, 1))
