"""Sums of rows over in-edges, C = A H, without and with the backward pass."""

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from gnnbench.kernels import dispatch
from gnnbench.kernels.dispatch import SparseMatrix
from gnnbench.records import Block, FloatArray, Graph
from gnnbench_plugins.dgl.kernel import DGLAdjacency
from gnnbench_plugins.pyg.kernel import PyGAdjacency, require_pyg
from suites.contestants import Scope
from suites.contestants.libraries import load_torch_sparse
from suites.graphs import LENGTHY_GRAPHS
from suites.race import OURS, Case, Contestant, Target, check_close

WIDTHS = (32, 100, 128, 256, 602)
TRAINED_WIDTHS = (100, 128, 256)
SMALL_WIDTHS = (32, 100)

CPU = torch.device("cpu")


@dataclass(frozen=True, eq=False)
class Product:
    """A graph and random rows, float32 ``(V, width)``, all positive so that errors are relative."""

    graph: Graph
    width: int

    @cached_property
    def h(self) -> FloatArray:
        return self._draw(self.width)

    @cached_property
    def gradient(self) -> FloatArray:
        return self._draw(self.width + 1)

    def _draw(self, seed: int) -> FloatArray:
        """Draw random rows in torch's memory, which starts at a cache line, as features do."""
        shape = (self.graph.num_vertices, self.width)
        rows: FloatArray = torch.rand(shape, generator=torch.Generator().manual_seed(seed)).numpy()
        return rows

    @property
    def tensor(self) -> Tensor:
        return torch.from_numpy(self.h)

    @property
    def edges_read(self) -> int:
        return self.graph.num_edges

    @property
    def gathered_bytes(self) -> int:
        return self.edges_read * self.width * 4

    @property
    def compulsory_bytes(self) -> int:
        """Bytes if every index and row is read once and every row written once."""
        return self.edges_read * 4 + self.graph.num_vertices * 2 * self.width * 4


@lru_cache(maxsize=1)
def matrix_of(graph: Graph) -> SparseMatrix:
    return SparseMatrix(graph.indptr, graph.indices, graph.num_vertices)


@lru_cache(maxsize=1)
def block_of(graph: Graph) -> Block:
    ids = np.arange(graph.num_vertices, dtype=np.int64)
    return Block(ids, graph.num_vertices, graph.indptr, graph.indices)


@lru_cache(maxsize=1)
def csr_of(graph: Graph) -> Tensor:
    """Return the graph as a CSR tensor with 32-bit indices, which MKL takes without conversion."""
    indptr, indices = torch.from_numpy(graph.indptr).int(), torch.from_numpy(graph.indices)
    shape = (graph.num_vertices, graph.num_vertices)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Sparse (CSR|invariant)", UserWarning)
        return torch.sparse_csr_tensor(indptr, indices, torch.ones(graph.num_edges), shape)


def settle(matrix: SparseMatrix, width: int, run: Callable[[], object], eighths: int = 8) -> None:
    """Run until all ways of computing a product have been tried (the twins have one).

    A mask leaves wanted elements in ``eighths`` eighths of the output's rows.
    """
    if dispatch.compiled():
        while not matrix.trials(width, 4, torch.get_num_threads(), False, eighths).settled:
            run()


# --------------------------------------------------------------------------- forward


def sum_ours(product: Product) -> Contestant:
    matrix, h, threads = matrix_of(product.graph), product.h, torch.get_num_threads()

    def call(_: int) -> FloatArray:
        return dispatch.aggregate(matrix, h, threads=threads)

    settle(matrix, product.width, lambda: call(0))
    return Contestant(call)


def sum_dgl(product: Product) -> Contestant:
    adjacency = DGLAdjacency(block_of(product.graph), torch.float32, CPU)
    h = product.tensor
    return Contestant(lambda _: adjacency.sum(h), Tensor.numpy)


def sum_torch(product: Product) -> Contestant:
    csr, h = csr_of(product.graph), product.tensor
    return Contestant(lambda _: csr @ h, Tensor.numpy)


def sum_torch_reduce(product: Product) -> Contestant:
    csr, h = csr_of(product.graph), product.tensor
    return Contestant(lambda _: torch.sparse.mm(csr, h, "sum"), Tensor.numpy)


def sum_torch_sparse(product: Product) -> Contestant:
    """Prepare the operator behind ``torch_sparse.matmul``."""
    ops, h = load_torch_sparse("spmm"), product.tensor
    indptr = torch.from_numpy(product.graph.indptr)
    indices = torch.from_numpy(product.graph.indices).long()
    return Contestant(
        lambda _: ops.spmm_sum(None, indptr, indices, None, None, None, h), Tensor.numpy
    )


def sum_pyg(product: Product) -> Contestant:
    require_pyg()
    adjacency = PyGAdjacency(block_of(product.graph), torch.float32, CPU)
    h = product.tensor
    return Contestant(lambda _: adjacency.sum(h), Tensor.numpy)


def sum_scipy(product: Product) -> Contestant:
    graph, h = product.graph, product.h
    parts = (np.ones(graph.num_edges, np.float32), graph.indices, graph.indptr.astype(np.int32))
    csr = sp.csr_matrix(parts, shape=(graph.num_vertices, graph.num_vertices))
    return Contestant(lambda _: csr @ h)


CONTESTANTS: dict[str, Callable[[Product], Contestant]] = {
    OURS: sum_ours,
    "dgl": sum_dgl,
    "torch csr": sum_torch,
    "torch reduce": sum_torch_reduce,
    "torch-sparse": sum_torch_sparse,
}
SLOW: dict[str, Callable[[Product], Contestant]] = {"pyg": sum_pyg, "scipy": sum_scipy}


def race_cases(scope: Scope) -> Iterator[Case]:
    for name, graph in scope.graphs:
        for width in SMALL_WIDTHS if scope.small else WIDTHS:
            product = Product(graph, width)
            makers = CONTESTANTS | (SLOW if scope.all_peers else {})
            yield Case(
                "aggregation",
                name,
                f"width {width}",
                {who: partial(make, product) for who, make in makers.items()},
                check_close,
                (*([Target("dgl", 1.7)] if is_rmat(name) else []), Target("", 1.2)),
                lengthy=name in LENGTHY_GRAPHS,
                compulsory_bytes=product.compulsory_bytes,
                gathered_bytes=product.gathered_bytes,
            )


def is_rmat(name: str) -> bool:
    return name.startswith("rmat")


# --------------------------------------------------------------------------- with backward


def train(product: Product, multiply: Callable[[Tensor], Tensor]) -> Contestant:
    """Prepare the product and the gradient of its input."""
    h, gradient = product.tensor.clone().requires_grad_(), torch.from_numpy(product.gradient)

    def call(_: int) -> tuple[Tensor, Tensor]:
        out = multiply(h)
        return out.detach(), torch.autograd.grad(out, h, gradient)[0]

    return Contestant(call, lambda pair: [tensor.numpy() for tensor in pair])


def train_ours(product: Product) -> Contestant:
    from gnnbench.kernels import autograd

    matrix = matrix_of(product.graph)
    contestant = train(product, lambda h: autograd.aggregate_sum(matrix, h))
    for product_matrix in (matrix, matrix.transposed[0]):
        settle(product_matrix, product.width, lambda: contestant.call(0))
    return contestant


def train_dgl(product: Product) -> Contestant:
    return train(product, DGLAdjacency(block_of(product.graph), torch.float32, CPU).sum)


def train_torch(product: Product) -> Contestant:
    csr = csr_of(product.graph)
    return train(product, lambda h: csr @ h)


def train_torch_sparse(product: Product) -> Contestant:
    """Prepare the operator behind ``torch_sparse.matmul``, with its cached data for backward."""
    ops, graph = load_torch_sparse("spmm"), product.graph
    indptr, indices = torch.from_numpy(graph.indptr), torch.from_numpy(graph.indices).long()
    rows = torch.repeat_interleave(torch.arange(graph.num_vertices), indptr.diff())
    by_column = torch.argsort(indices, stable=True)
    arrays = (rows, indptr, indices, None, indptr, by_column)  # a symmetric graph
    return train(product, lambda h: ops.spmm_sum(*arrays, h))


TRAINED: dict[str, Callable[[Product], Contestant]] = {OURS: train_ours, "dgl": train_dgl}
TRAINED_SLOW: dict[str, Callable[[Product], Contestant]] = {
    "torch csr": train_torch,
    "torch-sparse": train_torch_sparse,
}


def backward_cases(scope: Scope) -> Iterator[Case]:
    for name, graph in scope.graphs:
        for width in SMALL_WIDTHS if scope.small else TRAINED_WIDTHS:
            product = Product(graph, width)
            makers = TRAINED | (TRAINED_SLOW if scope.all_peers else {})
            yield Case(
                "backward",
                name,
                f"width {width}",
                {who: partial(make, product) for who, make in makers.items()},
                check_pair,
                [Target("dgl", 1.7)] if is_rmat(name) else (),
                lengthy=name in LENGTHY_GRAPHS,
                compulsory_bytes=2 * product.compulsory_bytes,
                gathered_bytes=2 * product.gathered_bytes,
            )


def check_pair(result: Any, ours: Any) -> None:
    for theirs, mine in zip(result, ours, strict=True):
        check_close(theirs, mine)
