"""Graphs, partitions and mini-batches of which the sizes are known and nothing else.

A dry run reads only a block's numbers of sources, destinations and edges. Arrays of the right
length therefore stand for a block. Arrays of edges have one element, however long they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from gnnbench.parts.base import Setting
from gnnbench.parts.communication import Communication, HaloExchange
from gnnbench.parts.placement import divide_evenly
from gnnbench.parts.sampler import Chunks
from gnnbench.records import Block, Dataset, Graph, IntArray, Round, Sizes, Unit


def make_block(source_ids: IntArray, destinations: int, edges: int) -> Block:
    """Make a block of ``edges`` edges, evenly spread over its destinations, which come first."""
    indptr = np.linspace(0, edges, destinations + 1).astype(np.int64)
    return Block(source_ids, destinations, indptr, np.broadcast_to(np.int32(0), (edges,)))


def make_sized_dataset(
    name: str, vertices: int, edges: int, dims: Sequence[int], train: int
) -> Dataset:
    """Make a data set of these sizes; its first ``train`` vertices train."""
    whole = make_block(np.arange(vertices, dtype=np.int64), vertices, edges)
    training = np.arange(vertices) < train
    nothing = np.broadcast_to(np.False_, (vertices,))
    return Dataset(
        name=name,
        graph=Graph(whole.indptr, whole.indices),
        features=np.broadcast_to(np.float32(0), (vertices, dims[0])),
        labels=np.broadcast_to(np.int64(0), (vertices,)),
        num_classes=dims[-1],
        train_mask=training,
        val_mask=nothing,
        test_mask=nothing,
        origin="sizes alone",
    )


# --------------------------------------------------------------------------- full graphs


def cut_evenly(setting: Setting, communication: Communication, devices: int) -> Chunks:
    """Return a partition for each device, all of equal sizes.

    A partition reads all rows of the others if rows are broadcast. Otherwise it reads as many as
    the replication factor states, an equal number from each other device.
    """
    graph = setting.dataset.graph
    halo = _count_halo(setting, communication, devices)
    ranges = divide_evenly(graph.num_vertices, devices)
    edges = divide_evenly(graph.num_edges, devices)
    owner = np.repeat(np.arange(devices), [end - begin for begin, end in ranges])
    units = []
    for slot, (begin, end) in enumerate(ranges):
        peers = [bounds for peer, bounds in enumerate(ranges) if peer != slot]
        shares = divide_evenly(halo, len(peers)) if peers else ()
        read = [np.arange(begin, end, dtype=np.int64)]
        for (first, last), (start, stop) in zip(peers, shares, strict=True):
            read.append(np.arange(first, min(last, first + stop - start), dtype=np.int64))
        size = edges[slot][1] - edges[slot][0]
        units.append(Unit(slot, (make_block(np.concatenate(read), end - begin, size),)))
    return Chunks((Round(0, tuple(units)),), owner)


def _count_halo(setting: Setting, communication: Communication, devices: int) -> int:
    vertices = setting.dataset.graph.num_vertices
    if isinstance(communication, HaloExchange) and communication.broadcasts:
        return vertices - vertices // devices
    replication = 1.0 if setting.sizes is None else setting.sizes.replication
    return round((replication - 1.0) * vertices / devices)


# --------------------------------------------------------------------------- mini-batches


class Draws(Protocol):
    """The origin of mini-batches: a sampler, or sizes in its place."""

    def rounds(self, epoch: int) -> Sequence[IntArray]:
        """Return the seeds of every round of an epoch."""

    def sample(self, seeds: IntArray, epoch: int, threads: int) -> tuple[Block, ...]:
        """Return a block for each layer, input layer first."""


class SizedDraws:
    """Rounds of mini-batches of known sizes, with ``seeds`` seeds in each round.

    A mini-batch is the one of ``sizes.batch`` for as many seeds, in proportion for fewer, and no
    larger for more.
    """

    def __init__(self, sizes: Sizes, seeds: int) -> None:
        if sizes.batch is None:
            raise TypeError("mini-batches need the sizes of one")
        self._profile, self._rounds, self._seeds = sizes.batch, sizes.walked, seeds
        self._drawn: dict[int, tuple[Block, ...]] = {}

    def rounds(self, epoch: int) -> Sequence[IntArray]:
        """Return the seeds of every round that is gone through."""
        return [np.arange(self._seeds, dtype=np.int64)] * self._rounds

    def sample(self, seeds: IntArray, epoch: int, threads: int) -> tuple[Block, ...]:
        """Return blocks of the known sizes, input layer first."""
        if len(seeds) not in self._drawn:
            self._drawn[len(seeds)] = self._make_blocks(len(seeds))
        return self._drawn[len(seeds)]

    def _make_blocks(self, seeds: int) -> tuple[Block, ...]:
        share = min(1.0, seeds / self._profile.seeds)
        vertices = [max(seeds, round(share * count)) for count in self._profile.vertices]
        vertices[-1] = seeds
        return tuple(
            make_block(np.arange(sources, dtype=np.int64), destinations, round(share * edges))
            for sources, destinations, edges in zip(
                vertices[:-1], vertices[1:], self._profile.edges, strict=True
            )
        )
