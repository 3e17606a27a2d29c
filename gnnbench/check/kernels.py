"""The check of kernels: every operation of an adjacency, forward and backward, against dense NumPy.

Widths are below, at and above the sizes of vector registers and tiles. Blocks have isolated rows,
unread sources, own rows anywhere, and no edge at all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from gnnbench.check import dense as twin
from gnnbench.check.dense import Matrix
from gnnbench.check.outcome import NonConformingError, NotApplicableError
from gnnbench.check.subject import Subject
from gnnbench.kernels.csr import csr_tensor
from gnnbench.kernels.dispatch import pack_mask
from gnnbench.parts import Adjacency, Kernel, Scaling
from gnnbench.records import Block

WIDTHS = (1, 7, 64, 65, 100, 257)
DTYPES: dict[torch.dtype, type[np.floating]] = {
    torch.float32: np.float32,
    torch.float64: np.float64,
}
#: The largest error of a sum, relative to the sum of absolute values.
TOLERANCES = {torch.float32: 2e-5, torch.float64: 1e-12}
CPU = torch.device("cpu")
#: The methods of an adjacency that have a transposed twin, which adds to ``into``.
TRANSPOSED = {
    "sum": "sum_transposed",
    "sum with weights": "sum_transposed",
    "own_plus_sum": "own_plus_sum_transposed",
    "sum_scaled": "sum_scaled_transposed",
}


def check_kernel_maths(subject: Subject) -> str:
    """Check sums, means, softmax, transposes and updates against dense products, at all widths."""
    if not subject.covers("kernel"):
        raise NotApplicableError("it is about kernels")
    tried = {}
    for case, world in subject.worlds(wide=False):
        kernel = world.bundle.kernel
        for layer in range(len(world.setting.layers)):
            first = kernel.projects_first(layer, world.setting, world.mode)
            if not isinstance(first, bool):
                raise NonConformingError(
                    f"{case}: kernel {kernel.name!r} projects first: {first!r}"
                )
        if kernel.name in tried:
            continue
        tried[kernel.name] = sum(
            _Trial(kernel, name, block, dtype).run()
            for name, block in make_blocks()
            for dtype in DTYPES
        ) + sum(_check_update(kernel, dtype) for dtype in DTYPES)
    return "; ".join(f"kernel {name!r}: {count} results" for name, count in tried.items())


def make_blocks() -> Iterator[tuple[str, Block]]:
    """Yield blocks that are edge cases, each with its name."""
    random = np.random.default_rng(23)
    yield "a block with isolated rows", _make_block(random, 23, 11, (2, 7, 10))
    own = random.permutation(23)[:11].astype(np.int32)
    yield "a block that lists its own rows", _make_block(random, 23, 11, (0,), own)
    yield "a block without an edge", _make_block(random, 5, 3, (0, 1, 2))
    yield "a block of many sources", _make_block(random, 130, 2, (), share=0.8)


def _make_block(
    random: np.random.Generator,
    num_src: int,
    num_dst: int,
    isolated: tuple[int, ...],
    own: np.ndarray[tuple[int], np.dtype[np.int32]] | None = None,
    share: float = 0.3,
) -> Block:
    adjacent = random.random((num_dst, num_src)) < share
    adjacent[list(isolated)] = False
    adjacent[:, 3] = False
    indptr = np.concatenate(([0], np.cumsum(adjacent.sum(axis=1)))).astype(np.int64)
    indices = np.nonzero(adjacent)[1].astype(np.int32)
    return Block(random.permutation(num_src).astype(np.int64), num_dst, indptr, indices, own)


@dataclass(frozen=True, slots=True)
class _Examiner:
    """Checks a kernel's tensors against expected values; ``where`` begins its sentences."""

    where: str
    dtype: torch.dtype

    def require(self, what: str, got: object, expected: Matrix, bound: Matrix) -> int:
        """Return 1, or raise ``NonConformingError`` for another type, shape, dtype or values."""
        case = f"{self.where}: {what}"
        if not isinstance(got, Tensor):
            raise NonConformingError(f"{case} gave a {type(got).__name__}, not a tensor")
        if tuple(got.shape) != expected.shape:
            raise NonConformingError(
                f"{case} has the shape {tuple(got.shape)} where {expected.shape} is due"
            )
        if got.is_floating_point() and got.dtype != self.dtype:
            raise NonConformingError(f"{case} is {got.dtype} where {self.dtype} is due")
        values = got.detach().to(torch.float64).numpy()
        allowed = TOLERANCES[self.dtype] * (bound + 1e-30)
        # Negated on purpose: a value that is not a number must not pass.
        wrong = np.argwhere(~(np.abs(values - expected) <= allowed))
        if len(wrong):
            place = tuple(wrong[0].tolist())
            raise NonConformingError(
                f"{case} is {values[place]:.9g} at {list(place)} where dense matrices give "
                f"{expected[place]:.9g} ({len(wrong)} of {expected.size} entries are wrong)"
            )
        return 1


class _Trial:
    """One kernel on one block in one dtype."""

    def __init__(self, kernel: Kernel, name: str, block: Block, dtype: torch.dtype) -> None:
        self._random = np.random.default_rng(29)
        self._narrow = DTYPES[dtype]
        self._dense = twin.round_factors(twin.densify(block, self._random), self._narrow)
        self._block, self._dtype = block, dtype
        self._comparison = _Examiner(
            f"kernel {kernel.name!r}, {str(dtype).rpartition('.')[2]}, {name}", dtype
        )
        self._adjacency = kernel.adjacency(block, dtype, CPU)
        self._masks = kernel.masks_gradients() or (
            type(self._adjacency).masked is not Adjacency.masked
        )
        self._scaling = Scaling(*map(self._tensor, self._factors()))

    def _factors(self) -> tuple[Matrix, Matrix, Matrix]:
        return self._dense.src, self._dense.dst, self._dense.own

    def _tensor(self, values: Matrix) -> Tensor:
        return torch.from_numpy(values.astype(self._narrow))

    def _draw(self, *shape: int) -> Matrix:
        """Draw normal numbers that the dtype represents exactly."""
        return self._random.standard_normal(shape).astype(self._narrow).astype(np.float64)

    def run(self) -> int:
        """Return the number of results compared."""
        tried = self._check_structure()
        for width in WIDTHS:
            tried += sum(self._check_product(name, width) for name in twin.PRODUCTS)
            tried += self._check_pairs(width)
            tried += self._check_messages(width)
            if self._masks:
                tried += self._check_masked(width)
        tried += self._check_softmax() + self._check_weight_gradient()
        # After an offload, released tensors are made again.
        self._adjacency.offload()
        return tried + sum(self._check_product(name, WIDTHS[1]) for name in twin.PRODUCTS)

    def _call(self, name: str, h: Tensor) -> Tensor:
        adjacency = self._adjacency
        if name == "sum with weights":
            return adjacency.sum(h, self._tensor(self._dense.weights))
        if name == "sum_scaled":
            return adjacency.sum_scaled(h, self._scaling)
        operation: Callable[[Tensor], Tensor] = getattr(adjacency, name)
        return operation(h)

    def _call_transposed(
        self, adjacency: Adjacency, name: str, g: Tensor, into: Tensor | None
    ) -> Tensor:
        if name == "sum with weights":
            return adjacency.sum_transposed(g, self._tensor(self._dense.weights), into)
        if name == "sum_scaled":
            return adjacency.sum_scaled_transposed(g, self._scaling, into)
        operation: Callable[[Tensor, Tensor | None], Tensor] = getattr(adjacency, TRANSPOSED[name])
        return operation(g, into) if name != "sum" else adjacency.sum_transposed(g, into=into)

    def _check_structure(self) -> int:
        compare, adjacency = self._comparison.require, self._adjacency
        ends = (("edge_src", self._dense.columns), ("edge_dst", self._dense.rows))
        tried = 0
        for name, expected in ends:
            values = expected.astype(np.float64)
            tried += compare(name, getattr(adjacency, name), values, np.zeros_like(values))
        degrees = self._dense.degrees
        return tried + compare("in_degrees", adjacency.in_degrees, degrees, degrees)

    def _check_product(self, name: str, width: int) -> int:
        """Check a product with and without autograd, its gradient, and its transpose."""
        matrix = twin.PRODUCTS[name](self._dense)
        h, g = self._draw(self._block.num_src, width), self._draw(self._block.num_dst, width)
        what, compare = f"{name} of width {width}", self._comparison.require
        expected, bound = matrix @ h, np.abs(matrix) @ np.abs(h)
        tried = compare(what, self._call(name, self._tensor(h)), expected, bound)
        leaf = self._tensor(h).requires_grad_()
        out = self._call(name, leaf)
        tried += compare(f"{what}, with a gradient wanted,", out, expected, bound)
        (gradient,) = torch.autograd.grad(out, leaf, self._tensor(g))
        back, bound = matrix.T @ g, np.abs(matrix.T) @ np.abs(g)
        tried += compare(f"the gradient of {what}", gradient, back, bound)
        if name not in TRANSPOSED:
            return tried
        return tried + self._check_transposed(self._adjacency, name, what, g, back, bound)

    def _check_transposed(
        self, adjacency: Adjacency, name: str, what: str, g: Matrix, back: Matrix, bound: Matrix
    ) -> int:
        """Check the transpose of an operation, alone and added to given rows."""
        compare = self._comparison.require
        plain = self._call_transposed(adjacency, name, self._tensor(g), None)
        tried = compare(f"the transpose of {what}", plain, back, bound)
        base = self._draw(*back.shape)
        into = self._tensor(base)
        given = self._call_transposed(adjacency, name, self._tensor(g), into)
        case = f"the transpose of {what}, added to the rows given as 'into',"
        tried += compare(case, given, base + back, np.abs(base) + bound)
        return tried + compare(f"{case} in place", into, base + back, np.abs(base) + bound)

    def _check_pairs(self, width: int) -> int:
        """Check ``own_and_mean``, which returns two matrices side by side."""
        selves, mean = self._dense.selves, self._dense.averaging
        compare, what = self._comparison.require, f"own_and_mean of width {width}"
        h, g = self._draw(self._block.num_src, width), self._draw(self._block.num_dst, 2 * width)
        expected = np.hstack((selves @ h, mean @ h))
        bound = np.hstack((selves @ np.abs(h), mean @ np.abs(h)))
        tried = compare(what, self._adjacency.own_and_mean(self._tensor(h)), expected, bound)
        leaf = self._tensor(h).requires_grad_()
        out = self._adjacency.own_and_mean(leaf)
        tried += compare(f"{what}, with a gradient wanted,", out, expected, bound)
        back = selves.T @ g[:, :width] + mean.T @ g[:, width:]
        bound = selves.T @ np.abs(g[:, :width]) + mean.T @ np.abs(g[:, width:])
        (gradient,) = torch.autograd.grad(out, leaf, self._tensor(g))
        tried += compare(f"the gradient of {what}", gradient, back, bound)
        base = self._draw(*back.shape)
        plain = self._adjacency.own_and_mean_transposed(self._tensor(g))
        tried += compare(f"the transpose of {what}", plain, back, bound)
        into = self._tensor(base)
        given = self._adjacency.own_and_mean_transposed(self._tensor(g), into)
        case = f"the transpose of {what}, added to the rows given as 'into',"
        return tried + compare(case, given, base + back, np.abs(base) + bound)

    def _check_masked(self, width: int) -> int:
        """Check transposed products of a masked adjacency: zero outside the mask."""
        wanted = self._random.random((self._block.num_src, width)) < 0.5
        masked = self._adjacency.masked(pack_mask(wanted))
        tried = 0
        for name in TRANSPOSED:
            matrix = twin.PRODUCTS[name](self._dense)
            g = self._draw(self._block.num_dst, width)
            back, bound = (matrix.T @ g) * wanted, np.abs(matrix.T) @ np.abs(g) * wanted
            what = f"{name} of width {width}, masked,"
            tried += self._check_transposed(masked, name, what, g, back, bound)
        pairs = self._draw(self._block.num_dst, 2 * width)
        own, mean = np.hsplit(pairs, 2)
        matrices = self._dense.selves.T, self._dense.averaging.T
        back = (matrices[0] @ own + matrices[1] @ mean) * wanted
        bound = matrices[0] @ np.abs(own) + matrices[1] @ np.abs(mean)
        got = masked.own_and_mean_transposed(self._tensor(pairs))
        what = f"the transpose of own_and_mean of width {width}, masked,"
        return tried + self._comparison.require(what, got, back, bound * wanted)

    def _check_messages(self, width: int) -> int:
        incidence, compare = self._dense.incidence, self._comparison.require
        messages = self._draw(self._block.num_edges, width)
        g = self._draw(self._block.num_dst, width)
        leaf = self._tensor(messages).requires_grad_()
        out = self._adjacency.sum_edges(leaf)
        what = f"sum_edges of width {width}"
        tried = compare(what, out, incidence @ messages, incidence @ np.abs(messages))
        (gradient,) = torch.autograd.grad(out, leaf, self._tensor(g))
        expected = incidence.T @ g
        return tried + compare(f"the gradient of {what}", gradient, expected, np.abs(expected))

    def _check_softmax(self) -> int:
        compare = self._comparison.require
        # Scores far apart: their exponentials would overflow.
        scores = 30.0 * self._draw(self._block.num_edges)
        scores = scores.astype(self._narrow).astype(np.float64)
        g = self._draw(self._block.num_edges)
        leaf = self._tensor(scores).requires_grad_()
        out = self._adjacency.edge_softmax(leaf)
        ones = np.ones_like(scores)
        # A score's rounding moves its exponential in proportion to the score.
        tried = compare("edge_softmax", out, twin.softmax_edges(self._dense, scores), 100 * ones)
        (gradient,) = torch.autograd.grad(out, leaf, self._tensor(g))
        expected = twin.softmax_edges_backward(self._dense, scores, g)
        return tried + compare("the gradient of edge_softmax", gradient, expected, 400 * ones)

    def _check_weight_gradient(self) -> int:
        """Check the weights' gradient of a sum: dw_e = <g_v, h_u> for each edge e = (u, v)."""
        width, dense = WIDTHS[3], self._dense
        h, g = self._draw(self._block.num_src, width), self._draw(self._block.num_dst, width)
        weights = self._tensor(dense.weights).requires_grad_()
        out = self._adjacency.sum(self._tensor(h), weights)
        (gradient,) = torch.autograd.grad(out, weights, self._tensor(g))
        products = g[dense.rows] * h[dense.columns]
        return self._comparison.require(
            "the gradient of a sum's weights",
            gradient,
            products.sum(axis=1),
            np.abs(products).sum(axis=1),
        )


# --------------------------------------------------------------------------- UPDATE


def _check_update(kernel: Kernel, dtype: torch.dtype) -> int:
    """Check ``linear`` and the products of a kernel, with their gradients."""
    random = np.random.default_rng(31)
    narrow = DTYPES[dtype]
    compare = _Examiner(f"kernel {kernel.name!r}, {str(dtype).rpartition('.')[2]}", dtype)
    tried = 0
    for rows, inner, width in ((9, 7, 5), (33, 100, 65), (1, 1, 1)):
        drawn = [
            random.standard_normal(shape).astype(narrow)
            for shape in ((rows, inner), (inner, width), (width,), (rows, width))
        ]
        for relu in (False, True):
            for weighted in (False, True):
                for masked in (False, True):
                    tried += _check_linear(kernel, compare, drawn, relu, weighted, masked)
        tried += _check_multiply(kernel, compare, drawn)
    return tried


def _check_linear(
    kernel: Kernel,
    compare: _Examiner,
    drawn: list[np.ndarray[tuple[int, ...], np.dtype[np.floating]]],
    relu: bool,
    weighted: bool,
    masked: bool,
) -> int:
    rows, matrix, shift, g = (np.asarray(values, dtype=np.float64) for values in drawn)
    if not weighted:
        rows = g[::-1].copy()
    before = (rows @ matrix if weighted else rows) + shift
    bound = (np.abs(rows) @ np.abs(matrix) if weighted else np.abs(rows)) + np.abs(shift)
    kept = before > 0 if relu else np.ones_like(before, dtype=bool)
    expected = before * kept
    # With 'masked', the gradient is promised to be zero where ReLU's output is.
    g = g * kept if masked else g
    inside = g * kept

    def leaf(values: Matrix) -> Tensor:
        return torch.from_numpy(values).to(compare.dtype).requires_grad_()

    a, weight, bias = leaf(rows), leaf(matrix), leaf(shift)
    out = kernel.linear(a, weight if weighted else None, bias, relu=relu, masked=masked)
    what = "linear" + " with ReLU" * relu + " without weights" * (not weighted)
    what += " before a mask" * masked
    tried = compare.require(what, out, expected, bound)
    leaves = [a, bias, *([weight] if weighted else [])]
    gradients = torch.autograd.grad(out, leaves, torch.from_numpy(g).to(compare.dtype))
    size = np.abs(inside)
    due = [
        (inside @ matrix.T, size @ np.abs(matrix.T)) if weighted else (inside, size),
        (inside.sum(axis=0), size.sum(axis=0)),
        (rows.T @ inside, np.abs(rows.T) @ size),
    ]
    names = ("input", "bias", "weight")
    for name, gradient, (exact, around) in zip(names, gradients, due, strict=False):
        tried += compare.require(f"the gradient of the {name} of {what}", gradient, exact, around)
    return tried


def _check_multiply(
    kernel: Kernel,
    compare: _Examiner,
    drawn: list[np.ndarray[tuple[int, ...], np.dtype[np.floating]]],
) -> int:
    """Check ``multiply``, and ``multiply_sparse`` if a kernel overrides it or says it takes it."""
    rows, matrix, _, g = (np.asarray(values, dtype=np.float64) for values in drawn)

    def leaf(values: Matrix) -> Tensor:
        return torch.from_numpy(values).to(compare.dtype).requires_grad_()

    upstream = torch.from_numpy(g).to(compare.dtype)
    a, weight = leaf(rows), leaf(matrix)
    out = kernel.multiply(a, weight)
    tried = compare.require("multiply", out, rows @ matrix, np.abs(rows) @ np.abs(matrix))
    grad_rows, grad_weight = torch.autograd.grad(out, (a, weight), upstream)
    size, back = np.abs(g), "the gradient of the {} of {}"
    tried += compare.require(
        back.format("rows", "multiply"), grad_rows, g @ matrix.T, size @ np.abs(matrix.T)
    )
    tried += compare.require(
        back.format("weight", "multiply"), grad_weight, rows.T @ g, np.abs(rows.T) @ size
    )
    own = type(kernel).multiply_sparse is not Kernel.multiply_sparse
    if not (kernel.takes_sparse_features or own):
        return tried
    rows = rows * (rows > 0.4)
    present = rows != 0
    pointers = np.concatenate(([0], np.cumsum(present.sum(axis=1)))).astype(np.int32)
    stored = csr_tensor(
        torch.from_numpy(pointers),
        torch.from_numpy(np.nonzero(present)[1].astype(np.int32)),
        torch.from_numpy(rows[present]).to(compare.dtype),
        rows.shape,
    )
    weight = leaf(matrix)
    out = kernel.multiply_sparse(stored, weight)
    tried += compare.require("multiply_sparse", out, rows @ matrix, np.abs(rows) @ np.abs(matrix))
    (gradient,) = torch.autograd.grad(out, weight, upstream)
    return tried + compare.require(
        back.format("weight", "multiply_sparse"), gradient, rows.T @ g, np.abs(rows.T) @ size
    )
