"""Reverse Cuthill-McKee orders, and the resulting bandwidths of the adjacency matrix."""

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
import scipy.sparse as sp
import torch
from scipy.sparse.csgraph import reverse_cuthill_mckee

from gnnbench.kernels import dispatch
from gnnbench.records import Graph, IndexArray
from suites.contestants import Scope
from suites.race import OURS, Case, Contestant, Target, WrongResultError


def order_ours(graph: Graph) -> Contestant:
    indptr, indices, threads = graph.indptr, graph.indices, torch.get_num_threads()
    return Contestant(
        lambda _: dispatch.reverse_cuthill_mckee(indptr, indices, threads=threads),
    )


def order_scipy(graph: Graph) -> Contestant:
    parts = (np.ones(graph.num_edges, np.int8), graph.indices, graph.indptr.astype(np.int32))
    csr = sp.csr_matrix(parts, shape=(graph.num_vertices, graph.num_vertices))
    return Contestant(lambda _: reverse_cuthill_mckee(csr, symmetric_mode=True))


CONTESTANTS: dict[str, Callable[[Graph], Contestant]] = {OURS: order_ours, "scipy": order_scipy}


def race_cases(scope: Scope) -> Iterator[Case]:
    for name, graph in scope.graphs:
        yield Case(
            "ordering",
            name,
            "reverse Cuthill-McKee",
            {who: partial(make, graph) for who, make in CONTESTANTS.items()},
            partial(check_order, graph),
            (Target("scipy", 2.0),),
        )


def check_order(graph: Graph, order: IndexArray, ours: IndexArray) -> None:
    """Check that each order is a permutation, and that none has less bandwidth than ours."""
    if not np.array_equal(np.sort(order), np.arange(graph.num_vertices)):
        raise WrongResultError("the order is no permutation of the vertices.")
    theirs, mine = (
        dispatch.bandwidth(graph.indptr, graph.indices, each.astype(np.int32))
        for each in (order, ours)
    )
    if mine > theirs:
        raise WrongResultError(f"the bandwidth is {theirs:,}, below the {mine:,} of ours.")
