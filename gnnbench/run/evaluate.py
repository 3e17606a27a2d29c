"""Full-graph evaluation of a trained model, outside everything that is timed.

The evaluation goes layer by layer, and within a layer over some destinations at a time. It holds
the representations of two layers and one block's rows. The representations are in memory that
training lends, or are spilled as the memory part would spill them.
"""

from __future__ import annotations

import copy
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from gnnbench.kernels.buffers import pool
from gnnbench.kernels.dispatch import induce_block
from gnnbench.kernels.pages import trim_heap
from gnnbench.lowering.footprint import (
    HostTensor,
    adjacency_bytes,
    intermediate_bytes,
    layer_buffers,
    message_bytes,
    size_of,
)
from gnnbench.lowering.homes import Homes
from gnnbench.lowering.host_plan import HostPlan, shares_features
from gnnbench.lowering.memory import host_capacity, host_graph_bytes
from gnnbench.models import GNN, BoundBlock, Degrees, Layer
from gnnbench.parts import Kernel, Memory, OffloadingMemory, Setting
from gnnbench.records import Block, Dataset, Graph, IntArray
from gnnbench.run.features import feature_rows
from gnnbench.run.host_store import HostStore, IdleMemory
from gnnbench.run.movement import read_rows
from gnnbench.run.multiplied import MultipliedFirst, multiplies_first
from gnnbench.run.replicas import torch_dtype

#: The most that the rows of a block's destinations and in-edges take, one row for each.
BLOCK_BYTES = 1 << 29
#: The parts of a block, each at most as large as its rows by destination and in-edge: input rows,
#: projected rows or values on edges, aggregates, outputs, and the topology.
BLOCK_PARTS = 5


def whole_graph_block(dataset: Dataset) -> Block:
    """Return the whole graph as one block: every vertex is a source and a destination."""
    graph = dataset.graph
    return Block(
        src_ids=np.arange(graph.num_vertices, dtype=np.int64),
        num_dst=graph.num_vertices,
        indptr=graph.indptr,
        indices=graph.indices,
    )


class Evaluator:
    """The training loss and accuracies over the whole graph, computed on the host.

    Beside the data set it holds the outputs of two layers and one block. The block's rows, one for
    each destination and in-edge, take about ``block_bytes``. The outputs are in memory borrowed
    from training, if it is large enough. The block is then held in the run's ledger, and is small
    enough for what the host has left. Otherwise the outputs may be on disk: ``memory`` must spill,
    and its budget of the host be too small for them.
    """

    def __init__(
        self, setting: Setting, kernel: Kernel, memory: Memory, block_bytes: int = BLOCK_BYTES
    ) -> None:
        self._setting = setting
        self._kernel = kernel
        self._memory = memory
        self._block_bytes = block_bytes
        self._dtype = torch_dtype(setting.workload)
        self._degrees = Degrees.of(setting.dataset, setting.workload)
        self._borrowed: IdleMemory | None = None

    def borrow(self, idle: IdleMemory) -> None:
        """Evaluate in this memory from now on, if it is large enough."""
        self._borrowed = idle

    def give_back(self) -> None:
        """Release the borrowed memory."""
        self._borrowed = None

    @torch.no_grad()
    def evaluate(self, model: GNN) -> tuple[float, Mapping[str, float]]:
        """Return the mean training loss, and the accuracies on train, val and test.

        Accuracies of empty sets are absent. Raises ``DeviceOutOfMemoryError`` when the lending host
        has no memory left for one vertex and its neighbours.
        """
        dataset = self._setting.dataset
        if next(model.parameters()).device.type != "cpu":
            model = copy.deepcopy(model).to("cpu")
        logits = self._compute_logits(model)
        labels = torch.from_numpy(dataset.labels)
        train = torch.from_numpy(dataset.train_ids)
        loss = float(torch.nn.functional.cross_entropy(logits[train], labels[train]))
        correct = (logits.argmax(dim=1) == labels).numpy()
        accuracy = {}
        for name, mask in (
            ("train", dataset.train_mask),
            ("val", dataset.val_mask),
            ("test", dataset.test_mask),
        ):
            chosen = mask & (dataset.labels >= 0)
            if chosen.any():
                accuracy[name] = float(correct[chosen].mean())
        return loss, accuracy

    def _compute_logits(self, model: GNN) -> Tensor:
        """Return h^L, ``(V, classes)``."""
        vertices = self._setting.dataset.graph.num_vertices
        buffers = layer_buffers(model.shapes, vertices, self._setting.workload.itemsize)
        flats, drop_pages = self._find_room(buffers)
        large = buffers[0].size_bytes > self._block_bytes
        h: Tensor | None = None
        stack: list[Layer | MultipliedFirst] = list(model.stack)
        if multiplies_first(self._setting, model.stack[0], self._block_bytes):
            stack[0], h, drop_pages = self._multiply(model.stack[0], drop_pages)
        for number, layer in enumerate(stack):
            width = layer.out_features
            out = flats[number % 2][: vertices * width].view(vertices, width)
            for ids, bound in self._blocks(layer):
                if large:
                    # Memory that training or the previous block has left idle.
                    pool.release()
                    trim_heap()
                with self._hold_block(number, layer, bound.block, h):
                    rows = self._read(h, bound.block)
                    out[ids[0] : ids[-1] + 1] = layer.update(bound, layer.aggregate(bound, rows))
                    del rows
                drop_pages()
            h = out
        if h is None:
            raise ValueError("a model has at least one layer")
        return h

    def _multiply(
        self, layer: Layer, drop_pages: Callable[[], None]
    ) -> tuple[MultipliedFirst, Tensor, Callable[[], None]]:
        """Return the first layer for features on disk, and the products that it reads instead.

        The products are on disk if ``memory`` spills. The third result drops the pages of their
        file, too.
        """
        made, vertices = MultipliedFirst(layer), self._setting.dataset.graph.num_vertices
        size_bytes = vertices * made.in_features * self._setting.workload.itemsize
        room = HostTensor("representations", "products of features", (0,), size_bytes)
        store = HostStore(self._plan((room,), 0), self._dtype)
        products = store.empty(room).view(vertices, made.in_features)
        made.multiply(self._setting, products, store.drop_pages)

        def drop_both() -> None:
            drop_pages()
            store.drop_pages()

        return made, products, drop_both

    def _plan(self, tensors: Sequence[HostTensor], budget_bytes: int) -> HostPlan:
        """Return the plan of tensors for ``budget_bytes`` of the host's memory."""
        memory, setting = self._memory, self._setting
        directory = memory.spill_directory() if isinstance(memory, OffloadingMemory) else None
        if setting.dataset.mapped and not setting.dataset.folder:
            # One rank of several evaluates, and none has room for the whole graph's rows.
            directory, budget_bytes = Path(tempfile.gettempdir()), 0
        homes = Homes.spread(setting.platform, setting.dataset.graph.num_vertices)
        return HostPlan(tensors, budget_bytes, directory, homes)

    def _find_room(
        self, buffers: Sequence[HostTensor]
    ) -> tuple[Sequence[Tensor], Callable[[], None]]:
        """Return memory for ``buffers``, in their order, and a function that drops file pages."""
        idle = self._borrowed
        if idle is not None and len(idle.buffers) == len(buffers):
            pairs = zip(idle.buffers, buffers, strict=True)
            if all(lent.numel() * lent.itemsize >= own.size_bytes for lent, own in pairs):
                return idle.buffers, idle.drop_pages
        setting, host = self._setting, self._setting.platform.host
        held_bytes = sum(host_graph_bytes(setting).values()) + self._block_bytes
        budget_bytes = host_capacity(self._memory, host) - held_bytes
        store = HostStore(self._plan(buffers, budget_bytes), self._dtype)
        return [store.empty(buffer) for buffer in buffers], store.drop_pages

    def _blocks(self, layer: Layer | MultipliedFirst) -> Iterator[tuple[IntArray, BoundBlock]]:
        """Yield consecutive destinations and their block, which is the whole graph if that fits."""
        graph = self._setting.dataset.graph
        width = max(layer.in_features, layer.out_features)
        block_bytes = self._block_bytes
        if self._borrowed is not None:
            free_bytes = self._borrowed.ledger.free_bytes(self._borrowed.host)
            block_bytes = min(block_bytes, free_bytes // BLOCK_PARTS)
        rows = max(1, block_bytes // (width * self._setting.workload.itemsize))
        whole = graph.num_vertices + graph.num_edges <= rows
        for ids in cut_rows(graph, rows):
            block = (
                whole_graph_block(self._setting.dataset)
                if whole
                else induce_block(graph.indptr, graph.indices, ids)
            )
            yield (
                ids,
                BoundBlock(block, self._kernel, self._degrees, self._dtype, torch.device("cpu")),
            )

    @contextmanager
    def _hold_block(
        self, number: int, layer: Layer | MultipliedFirst, block: Block, h: Tensor | None
    ) -> Iterator[None]:
        """Account for one block if memory was borrowed.

        The block's bytes are its topology, its input rows if they are copied, and its results.
        """
        if self._borrowed is None:
            yield
            return
        itemsize, size = self._setting.workload.itemsize, size_of(block)
        shape = self._kernel.shape_of(layer.shape)
        held_bytes = adjacency_bytes([shape], size, itemsize, self._kernel)
        held_bytes += intermediate_bytes(shape, size, itemsize)
        held_bytes += message_bytes(shape, size, itemsize)
        if not self._reads_in_place(h, block):
            held_bytes += size.rows * layer.in_features * itemsize
        ledger, host = self._borrowed.ledger, self._borrowed.host
        with ledger.scope(host):
            ledger.allocate(host, f"a block to evaluate layer {number + 1}", held_bytes)
            yield

    def _reads_in_place(self, h: Tensor | None, block: Block) -> bool:
        """Return whether a block's sources are the rows of an existing tensor.

        That holds for the whole graph. A part may read every vertex too, but its destinations come
        first.
        """
        whole = block.num_dst == len(self._degrees.counts)
        return whole and (h is not None or shares_features(self._setting))

    def _read(self, h: Tensor | None, block: Block) -> Tensor:
        """Return a block's input rows: of the layer below, or of the features if ``h`` is None."""
        if self._reads_in_place(h, block):
            return torch.from_numpy(self._setting.dataset.features) if h is None else h
        if h is None:
            return feature_rows(self._setting, block.src_ids, sparse=False)
        return read_rows(h, torch.from_numpy(block.src_ids), h.device)


def cut_rows(graph: Graph, rows: int) -> Iterator[IntArray]:
    """Yield consecutive ranges of vertices, int64, of at most ``rows`` vertices and in-edges.

    A vertex with more in-edges is alone.
    """
    ends = graph.indptr + np.arange(len(graph.indptr))
    begin = 0
    while begin < graph.num_vertices:
        end = int(np.searchsorted(ends, ends[begin] + rows, side="right")) - 1
        end = max(end, begin + 1)
        yield np.arange(begin, end, dtype=np.int64)
        begin = end
