"""A dense layer's product and its gradients, in NumPy."""

from __future__ import annotations

import numpy as np

from gnnbench.records import FloatArray


def multiply(a: FloatArray, w: FloatArray, bias: FloatArray | None, relu: bool) -> FloatArray:
    """See :func:`gnnbench.kernels.dispatch.products.multiply`."""
    out = a @ w if bias is None else a @ w + bias
    return np.maximum(out, np.float32(0)) if relu else out


def differentiate(
    g: FloatArray, w: FloatArray, a: FloatArray | None, output: FloatArray | None, of_a: bool
) -> tuple[FloatArray | None, FloatArray | None, FloatArray]:
    """See :func:`gnnbench.kernels.dispatch.products.differentiate`."""
    if output is not None:
        g = np.where(output <= 0, np.float32(0), g)
    return g @ w.T if of_a else None, None if a is None else a.T @ g, g.sum(axis=0)
