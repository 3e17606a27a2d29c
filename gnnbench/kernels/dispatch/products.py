"""Products of tall float32 matrices with a layer's weights, and their gradients: UPDATE.

Bias, ReLU and their gradients belong to the same pass over the rows. The compiled loops need
AVX-512. ``threads`` is 0 for every core. The gradients of weights and bias are sums of per-thread
sums, so their last bits depend on it.
"""

from __future__ import annotations

from types import ModuleType

import numpy as np

from gnnbench.kernels.buffers import pool
from gnnbench.kernels.native import limit_simd, load, resolve_threads
from gnnbench.kernels.reference import products as reference
from gnnbench.records import FloatArray

_AVX512 = 2


def outrun_torch() -> bool:
    """Return whether the compiled loops run here and are faster than torch's product.

    torch calls MKL, which uses AVX-512 only on Intel's processors, and AVX2 on others.
    """
    compiled = _find_loops()
    return compiled is not None and not compiled.made_by_intel()


def multiply(
    a: FloatArray,
    w: FloatArray,
    bias: FloatArray | None = None,
    *,
    relu: bool = False,
    threads: int = 0,
) -> FloatArray:
    """Return ``a w + bias``, with ReLU if ``relu``: ``(n, k) (k, f) + (f,) -> (n, f)``.

    Arrays are float32; the rows of ``a`` and the bias are contiguous, ``w`` may have any strides.
    Raises ``ValueError`` for other arrays, and for shapes that do not match.
    """
    _check_rows("a", a, (len(a), len(w)))
    _check_weight(w)
    if bias is not None:
        _check_bias(bias, w)
    workers = resolve_threads(threads)
    compiled = _find_loops()
    if compiled is None or a.size == 0 or w.size == 0:
        return reference.multiply(a, w, bias, relu)
    out = pool.take((len(a), w.shape[1]), np.float32)
    space = pool.take((compiled.product_space(*w.shape),), np.float32)
    compiled.multiply(a, w, bias, relu, out, space, compiled.crew(workers, len(a)))
    return out


def differentiate(
    g: FloatArray,
    w: FloatArray,
    a: FloatArray | None = None,
    output: FloatArray | None = None,
    *,
    of_a: bool = True,
    threads: int = 0,
) -> tuple[FloatArray | None, FloatArray | None, FloatArray]:
    """Return the gradients of :func:`multiply` for ``a``, ``w`` and the bias.

    They are ``g w^T`` ``(n, k)``, None unless ``of_a``; ``a^T g`` ``(k, f)``, None without ``a``;
    and the sum of the rows of ``g``, ``(f,)``. ``g`` ``(n, f)`` is the gradient of the output, and
    counts as zero wherever ``output`` ``(n, f)``, ReLU's output, is zero. Arrays and errors are as
    in :func:`multiply`.
    """
    _check_weight(w)
    _check_rows("g", g, (len(g), w.shape[1]))
    if a is not None:
        _check_rows("a", a, (len(g), len(w)))
    if output is not None:
        _check_rows("output", output, g.shape)
    workers = resolve_threads(threads)
    compiled = _find_loops()
    if compiled is None or g.size == 0 or w.size == 0:
        return reference.differentiate(g, w, a, output, of_a)
    crew = compiled.crew(workers, len(g))
    grad_a = pool.take((len(g), len(w)), np.float32) if of_a else None
    grad_w = None if a is None else np.empty(w.shape, dtype=np.float32)
    grad_bias = np.empty(w.shape[1], dtype=np.float32)
    space = pool.take((compiled.gradient_space(*w.shape, crew),), np.float32)
    compiled.differentiate(g, output, a, w, grad_a, grad_w, grad_bias, space, crew)
    return grad_a, grad_w, grad_bias


def _find_loops() -> ModuleType | None:
    """Return the compiled loops, or None if this processor lacks their instructions."""
    compiled = load("products")
    if compiled is None or not compiled.runs() or limit_simd(_AVX512) < _AVX512:
        return None
    return compiled


def _check_weight(w: FloatArray) -> None:
    if not isinstance(w, np.ndarray) or w.ndim != 2 or w.dtype != np.float32:
        raise ValueError("w must be a two-dimensional float32 array.")


def _check_bias(bias: FloatArray, w: FloatArray) -> None:
    if (
        not isinstance(bias, np.ndarray)
        or bias.dtype != np.float32
        or bias.shape != w.shape[1:]
        or not bias.flags.c_contiguous
    ):
        raise ValueError(f"bias must be a contiguous float32 array of shape {w.shape[1:]}.")


def _check_rows(name: str, rows: FloatArray, shape: tuple[int, ...]) -> None:
    if (
        not isinstance(rows, np.ndarray)
        or rows.dtype != np.float32
        or rows.shape != shape
        or (rows.size and rows.shape[1] > 1 and rows.strides[1] != rows.itemsize)
    ):
        raise ValueError(f"{name} must be float32 of shape {shape}, its rows contiguous.")
