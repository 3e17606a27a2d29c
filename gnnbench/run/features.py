"""Rows of features in the form in which a device computes on them."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from gnnbench.host.mapped import is_mapped
from gnnbench.kernels.csr import csr_tensor
from gnnbench.kernels.dispatch import gather_rows
from gnnbench.parts import Setting
from gnnbench.records import FloatArray, IndexArray, IntArray
from gnnbench.run.replicas import torch_dtype

#: The bytes of features that are converted at a time.
FILLED_BYTES = 1 << 26


def feature_rows(
    setting: Setting,
    ids: IntArray | IndexArray,
    *,
    sparse: bool,
    threads: int = 0,
    out: Tensor | None = None,
) -> Tensor:
    """Return the features of ``ids``, in the workload's dtype: dense, or a sparse CSR tensor.

    Dense rows are gathered by ``threads`` (0: every core), into ``out`` if it is given.
    """
    dtype = torch_dtype(setting.workload)
    features = setting.dataset.features
    if isinstance(features, np.ndarray) and features.flags.c_contiguous:
        if out is not None and out.numpy().dtype == features.dtype:
            gather_rows(features, ids, out=out.numpy(), threads=threads)
            return out
        rows = torch.from_numpy(gather_rows(features, ids, threads=threads))
    elif not sparse:
        rows = torch.from_numpy(setting.dataset.rows(ids))
    else:
        stored = setting.dataset.sparse_rows(ids)
        return csr_tensor(
            torch.from_numpy(stored.indptr.astype(np.int32)),
            torch.from_numpy(stored.indices.astype(np.int32)),
            torch.from_numpy(stored.data).to(dtype),
            stored.shape,
        )
    return rows.to(dtype) if out is None else out.copy_(rows)


def pick_rows(features: Tensor, ids: IntArray | IndexArray, threads: int) -> Tensor:
    """Return some of the rows ``(n, f)`` that a device has, contiguous on the device.

    On the host, ``threads`` threads pick them (0: every core).
    """
    if features.device.type == "cpu":
        return torch.from_numpy(gather_rows(features.numpy(), ids, threads=threads))
    return features[torch.from_numpy(ids).to(features.device)]


def mapped_features(setting: Setting) -> FloatArray | None:
    """Return the features if they are contiguous rows of a data set in a folder, else None."""
    features = setting.dataset.features
    folder = bool(setting.dataset.folder)
    if not folder or not isinstance(features, np.ndarray) or not is_mapped(features):
        return None
    return features if features.flags.c_contiguous else None


def fill_features(setting: Setting, into: Tensor, vertices: IntArray) -> None:
    """Write the features of ``vertices`` into ``into`` ``(n, f)``, some rows at a time."""
    rows = max(1, FILLED_BYTES // (into.shape[1] * into.element_size()))
    for begin in range(0, len(into), rows):
        ids = vertices[begin : begin + rows]
        into[begin : begin + rows] = feature_rows(setting, ids, sparse=False)
