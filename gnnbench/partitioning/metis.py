"""METIS's partition of a graph, made in a process of its own, and checked.

METIS traps SIGTERM while it works and takes it for an error of its own, from which it may return
with a partition that it did not finish; and it cannot be interrupted before it is done. In a child
it can be ended at once, and this process's signals stay its own.
"""

from __future__ import annotations

import math
import os
import signal
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

import numpy as np
import scipy

from gnnbench.errors import GnnbenchError
from gnnbench.records import Graph, IntArray

#: How many times the mean the largest part may have. METIS asks itself for 1.03 at most, and misses
#: that where a graph leaves it little choice: among the real graphs of the test suite up to 1.05.
#: What it did not finish had 3 to 8.
IMBALANCE = 1.25
#: Vertices more than that which small parts may have: bisections each round once.
ROUNDED = 2


def partition_metis(graph: Graph, parts: int, seed: int) -> IntArray:
    """METIS's edge-cut partition, int64 ``(V,)``, in 2 to V parts.

    By bisection up to 8 parts, else by its k-way method, or again by bisection where parts are so
    small that this method misses ``IMBALANCE``. Raises ``GnnbenchError`` where METIS fails or both
    miss it.
    """
    most = math.ceil(IMBALANCE * graph.num_vertices / parts) + ROUNDED
    largest = 0
    for bisecting in (False, True) if parts > 8 else (True,):
        part = _call_apart(graph, parts, seed, bisecting)
        if len(part) != graph.num_vertices or part.min() < 0 or part.max() >= parts:
            raise GnnbenchError(
                f"METIS has not given every vertex of {graph.num_vertices:,} one of {parts} parts; "
                f"choose another partitioner, such as sampler.partitioner=ldg."
            )
        largest = int(np.bincount(part, minlength=parts).max())
        if largest <= most:
            return part
    raise GnnbenchError(
        f"METIS has made a part of {largest:,} vertices, where {most:,} is the most that was asked "
        f"for ({graph.num_vertices:,} in {parts} parts); choose another partitioner, such as "
        f"sampler.partitioner=ldg."
    )


def _call_apart(graph: Graph, parts: int, seed: int, bisecting: bool) -> IntArray:
    """What METIS returns in a child, int64; the child is gone when this returns or raises."""
    import pymetis  # here, so that no child has to

    del pymetis
    reading, writing = os.pipe()
    child = ended = 0
    with open(reading, "rb") as pipe:
        try:
            try:
                with _deferring_signals(), warnings.catch_warnings():
                    # Threads of this process are none of the child's, which calls METIS alone.
                    warnings.simplefilter("ignore", DeprecationWarning)
                    child = os.fork()
                    if not child:
                        os.close(reading)
                        _answer(writing, graph, parts, seed, bisecting)
            finally:
                os.close(writing)
            answer = pipe.read()
        except BaseException:
            if child:
                os.kill(child, signal.SIGKILL)
            raise
        finally:
            if child:
                ended = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if ended == 0:
        return np.frombuffer(answer, dtype=np.int64).copy()
    why = answer.decode(errors="replace") if ended > 0 else signal.Signals(-ended).name
    raise GnnbenchError(
        f"METIS did not finish {parts} parts of {graph.num_vertices:,} vertices ({why}); run "
        f"again, or choose another partitioner, such as sampler.partitioner=ldg."
    )


@contextmanager
def _deferring_signals() -> Iterator[None]:
    """Signals that come in the body are handled after it, so that nothing is raised between a fork
    and the moment at which somebody knows of the child. A mask would not do: what another thread
    receives is handled in this one, too."""
    if threading.current_thread() is not threading.main_thread():
        yield  # handlers run in the main thread
        return
    came: list[int] = []
    both = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    # One that Python has not installed cannot be put back, and raises nothing.
    handlers = {number: handler for number, handler in both.items() if handler is not None}
    for number in handlers:
        signal.signal(number, lambda which, _: came.append(which))
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        for which in came:
            signal.raise_signal(which)


def _answer(
    writing: int, graph: Graph, parts: int, seed: int, bisecting: bool
) -> NoReturn:  # pragma: no cover - in the child
    """Write the part of every vertex, or why there is none, and end this process."""
    failed = 1
    try:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.dup2(2, 1)  # METIS prints its errors
        with open(writing, "wb") as pipe:
            try:
                pipe.write(_call(graph, parts, seed, bisecting).tobytes())
                failed = 0
            except Exception as error:
                pipe.write(f"{type(error).__name__}: {error}".encode())
    finally:
        os._exit(failed)


def _undirect(graph: Graph) -> Graph:
    """The graph with every edge in both directions, which METIS wants."""
    if not graph.directed:
        return graph
    entries = np.ones(graph.num_edges, dtype=np.int8)
    shape = (graph.num_vertices,) * 2
    matrix = scipy.sparse.csr_matrix((entries, graph.indices, graph.indptr), shape=shape)
    both = matrix + matrix.T
    both.sort_indices()
    return Graph(both.indptr.astype(np.int64), both.indices.astype(np.int32, copy=False))


def _call(graph: Graph, parts: int, seed: int, bisecting: bool) -> IntArray:
    import pymetis

    warnings.simplefilter("ignore", DeprecationWarning)
    graph = _undirect(graph)
    _, membership = pymetis.part_graph(
        parts,
        xadj=graph.indptr,
        adjncy=graph.indices,
        recursive=bisecting,
        options=pymetis.Options(seed=seed % 2**31),
    )
    return np.asarray(membership, dtype=np.int64)
