"""The aggregation kernels as differentiable functions of torch tensors on the CPU, without copies.

Each backward pass is a kernel too: a product with the transpose, which the matrix keeps, or a
sampled dense-dense product. ``S, D, E`` are the matrix's sources, destinations and edges; tensors
are float32 or float64 of one dtype. The kernels use torch's number of threads. They raise the
errors of :mod:`gnnbench.kernels.dispatch.aggregation`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np
import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import FunctionCtx, once_differentiable

from gnnbench.constants import Bound
from gnnbench.kernels.buffers import pool
from gnnbench.kernels.dispatch import aggregation as kernels
from gnnbench.kernels.dispatch import products
from gnnbench.kernels.dispatch.aggregation import SparseMatrix
from gnnbench.kernels.dispatch.checks import MaskArray
from gnnbench.kernels.reference.aggregation import Float


@dataclass(frozen=True, slots=True, eq=False)
class Factors:
    """The constant factors of a product: diag(dst) A diag(src), and diag(own) added to it.

    ``src`` ``(S,)``, ``dst`` and ``own`` ``(D,)``; None means 1 for ``src`` and ``dst``, and 0 for
    ``own``. ``mean`` divides by the number of in-edges.
    """

    src: Float | None = None
    dst: Float | None = None
    own: Float | None = None
    mean: bool = False


PLAIN = Factors()
MEAN = Factors(mean=True)
#: Products narrower than this many columns are padded, because MKL needs 3 to 15 times as long for
#: each column of a narrow one. It multiplies ``(8192, 256)`` by 4 to 8 columns at 3 to 16 GFLOP/s,
#: and by 16 columns at 55 GFLOP/s.
NARROW: Bound[int] = 16


def aggregate(
    matrix: SparseMatrix, h: Tensor, weight: Tensor | None = None, factors: Factors = PLAIN
) -> Tensor:
    """Return the sum over in-edges of ``weight[e] h[u]``, ``(S, f) -> (D, f)``.

    ``factors`` are constant. Differentiable in ``h`` and in ``weight`` ``(E,)``.
    """
    out: Tensor = _Aggregate.apply(matrix, h, weight, factors)  # type: ignore[no-untyped-call]
    return out


def aggregate_sum(matrix: SparseMatrix, h: Tensor, weight: Tensor | None = None) -> Tensor:
    """Return the sum over in-edges, weighted by ``weight`` ``(E,)``: ``(S, f) -> (D, f)``."""
    return aggregate(matrix, h, weight)


def aggregate_mean(matrix: SparseMatrix, h: Tensor) -> Tensor:
    """Return the mean over in-edges, zero where there are none: ``(S, f) -> (D, f)``."""
    return aggregate(matrix, h, None, MEAN)


def own_and_mean(matrix: SparseMatrix, h: Tensor) -> Tensor:
    """Return each destination's own row, and beside it the mean: ``(S, f) -> (D, 2 f)``."""
    out: Tensor = _OwnAndMean.apply(matrix, h)  # type: ignore[no-untyped-call]
    return out


def multiply_transposed(
    matrix: SparseMatrix,
    g: Tensor,
    weight: Tensor | None = None,
    factors: Factors = PLAIN,
    wanted: MaskArray | None = None,
    into: Tensor | None = None,
) -> Tensor:
    """Return the gradient of :func:`aggregate` for its input, ``(D, f) -> (S, f)``.

    The result is not differentiable.

    ``wanted`` is a mask of ``(S, f)``; elements outside it are zero (MixGCN's S-SpMM). With
    ``into``, a tensor of the result's shape, the gradient is added to it, and it is returned.
    """
    values = None if weight is None else _transpose(matrix, weight)
    return torch.from_numpy(_transposed(matrix, read(g), values, factors, wanted, _target(into)))


def own_and_mean_transposed(
    matrix: SparseMatrix, g: Tensor, wanted: MaskArray | None = None, into: Tensor | None = None
) -> Tensor:
    """Return the gradient of :func:`own_and_mean` for its input, ``(D, 2 f) -> (S, f)``.

    ``wanted`` and ``into`` are as in :func:`multiply_transposed`.

    It is one product. The adjacent gradients of a destination's own row and of its mean are read as
    two rows of ``(2 D, f)``.
    """
    _check_own(matrix)
    rows = read(g.contiguous())
    scale = np.ones(2 * matrix.num_dst, dtype=rows.dtype)
    scale[1::2] /= np.maximum(np.diff(matrix.indptr), 1)
    out = kernels.aggregate(
        matrix.own_and_transposed,
        rows.reshape(2 * matrix.num_dst, rows.shape[1] // 2),
        src_scale=scale,
        mask=wanted,
        out=_target(into),
        add=into is not None,
        threads=torch.get_num_threads(),
    )
    return torch.from_numpy(out)


def mask_positive(h: Tensor) -> MaskArray:
    """Return the mask of elements of ``(n, f)`` above zero, where ReLU's gradient is not zero."""
    return kernels.pack_mask(read(h) > 0)


def keep_wanted(rows: Tensor, wanted: MaskArray) -> Tensor:
    """Return ``rows`` ``(n, f)`` with zeros, also for infinities, outside the mask."""
    bits = np.unpackbits(wanted, axis=1, count=rows.shape[1], bitorder="little")
    return torch.where(torch.from_numpy(bits).bool(), rows, 0.0)


def edge_softmax(matrix: SparseMatrix, scores: Tensor) -> Tensor:
    """Return the softmax of the scores of each destination's in-edges: ``(E,) -> (E,)``."""
    out: Tensor = _EdgeSoftmax.apply(matrix, scores)  # type: ignore[no-untyped-call]
    return out


def linear(
    a: Tensor, weight: Tensor | None, bias: Tensor, *, relu: bool, masked: bool = False
) -> Tensor:
    """Return ``a W + b``, with ReLU if ``relu``: ``(n, k) (k, f) + (f,) -> (n, f)``.

    Forward and backward are one pass each where the native products are faster than torch's; see
    :func:`gnnbench.kernels.dispatch.products.outrun_torch`. Elsewhere, and in float64, torch
    computes the products, and the other operations run in place, in reused memory. Without
    ``weight`` the result is ``a + b``. With ``masked``, the incoming gradient already has ReLU's
    zeros, so the result is not saved for them.
    """
    apply = _Linear.apply
    if weight is not None and _outruns(a):
        apply = _FusedLinear.apply
    out: Tensor = apply(a, weight, bias, relu, masked)  # type: ignore[no-untyped-call]
    return out


def multiply(a: Tensor, weight: Tensor) -> Tensor:
    """Return ``a W``, ``(n, k) (k, f) -> (n, f)``, by the fastest product on this processor."""
    apply = _FusedLinear.apply if _outruns(a) else _Linear.apply
    out: Tensor = apply(a, weight, None, False, False)  # type: ignore[no-untyped-call]
    return out


# --------------------------------------------------------------------------- functions


class _Context(FunctionCtx):
    """Values that forward passes save for their backward passes."""

    matrix: SparseMatrix
    factors: Factors
    needs_input_grad: tuple[bool, ...]
    saved_tensors: tuple[Tensor | None, ...]


class _Aggregate(Function):
    """A product with gradients dh = A^T g, same factors, and dw_e = dst[v] src[u] <g_v, h_u>.

    dw is a sampled dense-dense product.
    """

    @staticmethod
    def forward(
        ctx: _Context,
        matrix: SparseMatrix,
        h: Tensor,
        weight: Tensor | None,
        factors: Factors,
    ) -> Tensor:
        learned = weight is not None and ctx.needs_input_grad[2]
        ctx.matrix, ctx.factors = matrix, factors
        ctx.save_for_backward(weight, h if learned else None)  # type: ignore[arg-type]
        out = kernels.aggregate(
            matrix,
            read(h),
            weight=None if weight is None else read(weight),
            src_scale=factors.src,
            dst_scale=factors.dst,
            own=factors.own,
            mean=factors.mean,
            threads=torch.get_num_threads(),
        )
        return torch.from_numpy(out)

    @staticmethod
    @once_differentiable
    def backward(
        ctx: _Context, gradient: Tensor
    ) -> tuple[None, Tensor | None, Tensor | None, None]:
        matrix: SparseMatrix = ctx.matrix
        factors: Factors = ctx.factors
        weight, h = ctx.saved_tensors
        g = read(gradient)
        grad_h = grad_weight = None
        if ctx.needs_input_grad[1]:
            values = None
            if weight is not None:
                learned = ctx.needs_input_grad[2]
                values = _transpose(matrix, weight, constant=not (learned or weight.requires_grad))
            grad_h = torch.from_numpy(_transposed(matrix, g, values, factors, None))
        if ctx.needs_input_grad[2]:
            scale = _row_scale(matrix, factors, g.dtype)
            products = kernels.dot_edges(
                matrix, g, read(cast(Tensor, h)), threads=torch.get_num_threads()
            )
            if scale is not None:
                products *= np.repeat(scale, np.diff(matrix.indptr))
            if factors.src is not None:
                products *= factors.src[matrix.indices]
            grad_weight = torch.from_numpy(products)
        return None, grad_h, grad_weight, None


class _OwnAndMean(Function):
    """A product that writes both halves in place: no copy concatenates them."""

    @staticmethod
    def forward(ctx: _Context, matrix: SparseMatrix, h: Tensor) -> Tensor:
        _check_own(matrix)
        ctx.matrix = matrix
        rows = read(h)
        width = rows.shape[1]
        out = pool.take((matrix.num_dst, 2 * width), rows.dtype)
        kernels.aggregate(
            matrix, rows, mean=True, out=out[:, width:], threads=torch.get_num_threads()
        )
        both = torch.from_numpy(out)
        both[:, :width].copy_(h[: matrix.num_dst])
        return both

    @staticmethod
    @once_differentiable
    def backward(ctx: _Context, gradient: Tensor) -> tuple[None, Tensor]:
        return None, own_and_mean_transposed(ctx.matrix, gradient)


class _Linear(Function):
    """A dense layer with gradients da = g W^T, dW = a^T g, and db the sum of g's rows.

    g is masked to zero wherever ReLU's output is zero.

    Without a weight there is always a bias.
    """

    @staticmethod
    def forward(
        ctx: _Context,
        a: Tensor,
        weight: Tensor | None,
        bias: Tensor | None,
        relu: bool,
        masked: bool,
    ) -> Tensor:
        if weight is None:
            out = _empty(a.shape, a)
            torch.add(a, cast(Tensor, bias), out=out)
        else:
            out = _empty((len(a), weight.shape[1]), a)
            _multiply_into(out, a, weight)
            if bias is not None:
                out += bias
        if relu:
            out.relu_()
        _save_linear(ctx, a, weight, out if relu and not masked else None)
        return out

    @staticmethod
    @once_differentiable
    def backward(
        ctx: _Context, gradient: Tensor
    ) -> tuple[Tensor | None, Tensor | None, Tensor | None, None, None]:
        a, weight, out = ctx.saved_tensors
        g = gradient
        if out is not None:
            g = _empty(gradient.shape, gradient)
            torch.ops.aten.threshold_backward.grad_input(gradient, out, 0, grad_input=g)
        grad_a = grad_weight = None
        if ctx.needs_input_grad[0]:
            grad_a = g
            if weight is not None:
                grad_a = _empty((len(g), len(weight)), g)
                torch.mm(g, weight.t(), out=grad_a)
        if a is not None:
            grad_weight = g.new_empty(a.shape[1], g.shape[1])
            _multiply_into(grad_weight, a.t(), g)
        grad_bias = g.sum(dim=0) if ctx.needs_input_grad[2] else None
        return grad_a, grad_weight, grad_bias, None, None


class _FusedLinear(Function):
    """:class:`_Linear` with a weight, by the native products: float32, with or without a bias."""

    @staticmethod
    def forward(
        ctx: _Context, a: Tensor, weight: Tensor, bias: Tensor | None, relu: bool, masked: bool
    ) -> Tensor:
        out = torch.from_numpy(
            products.multiply(
                read(a),
                weight.detach().numpy(),
                None if bias is None else bias.detach().contiguous().numpy(),
                relu=relu,
                threads=torch.get_num_threads(),
            )
        )
        _save_linear(ctx, a, weight, out if relu and not masked else None)
        return out

    @staticmethod
    @once_differentiable
    def backward(
        ctx: _Context, gradient: Tensor
    ) -> tuple[Tensor | None, Tensor | None, Tensor | None, None, None]:
        a, weight, out = ctx.saved_tensors
        grad_a, grad_weight, grad_bias = products.differentiate(
            read(gradient),
            cast(Tensor, weight).detach().numpy(),
            None if a is None else read(a),
            None if out is None else read(out),
            of_a=ctx.needs_input_grad[0],
            threads=torch.get_num_threads(),
        )
        return (
            None if grad_a is None else torch.from_numpy(grad_a),
            None if grad_weight is None else torch.from_numpy(grad_weight),
            torch.from_numpy(grad_bias) if ctx.needs_input_grad[2] else None,
            None,
            None,
        )


def _multiply_into(out: Tensor, a: Tensor, b: Tensor) -> None:
    """Write ``a b`` to ``out``; pad a narrow ``b`` with columns that are dropped afterwards."""
    width = b.shape[1]
    if width >= NARROW:
        torch.mm(a, b, out=out)
    else:
        padded = torch.nn.functional.pad(b, (0, NARROW - width))
        out.copy_((a @ padded)[:, :width])


def _save_linear(ctx: _Context, a: Tensor, weight: Tensor | None, masking: Tensor | None) -> None:
    """Save the tensors that :class:`_Linear`'s gradients need.

    ``masking`` is ReLU's output if its zeros still have to be applied to the gradient.
    """
    needed = a if ctx.needs_input_grad[1] else None
    ctx.save_for_backward(needed, weight, masking)  # type: ignore[arg-type]


class _EdgeSoftmax(Function):
    @staticmethod
    def forward(ctx: _Context, matrix: SparseMatrix, scores: Tensor) -> Tensor:
        softmax = kernels.edge_softmax(matrix, read(scores), threads=torch.get_num_threads())
        ctx.matrix = matrix
        out = torch.from_numpy(softmax)
        ctx.save_for_backward(out)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: _Context, gradient: Tensor) -> tuple[None, Tensor]:
        softmax = read(cast(Tensor, ctx.saved_tensors[0]))
        out = kernels.edge_softmax_backward(
            ctx.matrix, softmax, read(gradient), threads=torch.get_num_threads()
        )
        return None, torch.from_numpy(out)


# --------------------------------------------------------------------------- arrays


def read(tensor: Tensor) -> Float:
    """Return a tensor's memory as an array, copied only if its rows are not contiguous."""
    if tensor.device.type != "cpu":
        raise ValueError(f"these kernels run on the CPU, and a tensor is on {tensor.device}.")
    if tensor.dim() != 2 or (tensor.shape[1] > 1 and tensor.stride(1) != 1):
        tensor = tensor.contiguous()
    elif len(tensor) > 1 and tensor.stride(0) < tensor.shape[1]:
        tensor = tensor.contiguous()  # expanded rows
    array: Float = tensor.detach().numpy()
    return array


def _target(into: Tensor | None) -> Float | None:
    """Return the memory of a tensor that a product adds to; it is never a copy."""
    if into is None:
        return None
    array: Float = into.detach().numpy()
    return array


def _outruns(a: Tensor) -> bool:
    """Return whether the native products accept ``a`` and are faster than torch's."""
    return a.dtype == torch.float32 and a.device.type == "cpu" and products.outrun_torch()


def _check_own(matrix: SparseMatrix) -> None:
    if matrix.num_dst > matrix.num_src:
        raise ValueError(
            f"the {matrix.num_dst} destinations must be among the {matrix.num_src} sources."
        )


def _empty(shape: Sequence[int], like: Tensor) -> Tensor:
    """Return an uninitialised tensor of ``shape``, in reused memory if there is some."""
    if like.device.type != "cpu":
        raise ValueError(f"these kernels run on the CPU, and a tensor is on {like.device}.")
    memory = pool.take(shape, np.float64 if like.dtype == torch.float64 else np.float32)
    return torch.from_numpy(memory)


def _row_scale(
    matrix: SparseMatrix, factors: Factors, dtype: np.dtype[np.floating]
) -> Float | None:
    """Return the factor of each destination's sum in the forward pass."""
    if not factors.mean:
        return factors.dst
    scale: Float = (1.0 / np.maximum(np.diff(matrix.indptr), 1)).astype(dtype)
    return scale if factors.dst is None else scale * factors.dst


def _transpose(matrix: SparseMatrix, weight: Tensor, *, constant: bool = False) -> Float:
    """Return edge weights in the order of the transpose's edges, cached if ``constant``."""
    values, threads = read(weight), torch.get_num_threads()
    if constant:
        return matrix.keep_transposed(values, weight._version, threads=threads)
    return matrix.transpose_values(values, threads=threads)


def _transposed(
    matrix: SparseMatrix,
    g: Float,
    weight: Float | None,
    factors: Factors,
    mask: MaskArray | None,
    into: Float | None = None,
) -> Float:
    transposed, _ = matrix.transposed
    # The transpose swaps rows and columns. A row's own term fits only if each source is a
    # destination.
    square = matrix.num_src == matrix.num_dst
    out = kernels.aggregate(
        transposed,
        g,
        weight=weight,
        src_scale=_row_scale(matrix, factors, g.dtype),
        dst_scale=factors.src,
        own=factors.own if square else None,
        mask=mask,
        out=into,
        add=into is not None,
        threads=torch.get_num_threads(),
    )
    if factors.own is not None and not square:
        own = torch.from_numpy(factors.own[:, None] * g)
        if mask is not None:
            own = keep_wanted(own, mask[: matrix.num_dst])
        out[: matrix.num_dst] += own.numpy()
    return out
