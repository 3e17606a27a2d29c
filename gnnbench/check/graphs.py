"""The small worlds that the checks run in: graphs, workloads and described machines.

Every check takes about a second in them. They are awkward on purpose: a hub, isolated vertices,
training vertices without a label, and a last round smaller than the others. Three accelerators make
every division uneven. An even graph has wide rows, and the first graph has sparse features too.
Draws are counted on cliques, and on a graph with rows much longer than the fan-outs.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Literal

import numpy as np
import numpy.typing as npt
import scipy

from gnnbench.machines.machine import Device, Hardware, Link, MemoryRates, Platform, TrainerRates
from gnnbench.machines.tables import replace_fields
from gnnbench.records import Dataset, FloatArray, Graph, Workload

NUM_VERTICES = 60
NUM_ISOLATED = 2
NUM_FEATURES = 7
NUM_HIDDEN = 6
NUM_CLASSES = 3
WIDE_FEATURES = 100
WIDE_HIDDEN = 70


def make_graph() -> Graph:
    """Make a random symmetric graph: vertex 0 is a hub, and the last two vertices are isolated."""
    random = np.random.default_rng(7)
    connected = NUM_VERTICES - NUM_ISOLATED
    adjacent = np.zeros((NUM_VERTICES, NUM_VERTICES), dtype=bool)
    ends = random.integers(0, connected, size=(2, 3 * NUM_VERTICES))
    adjacent[ends[0], ends[1]] = True
    adjacent[0, :connected:3] = True
    adjacent |= adjacent.T
    np.fill_diagonal(adjacent, False)
    indptr = np.concatenate(([0], np.cumsum(adjacent.sum(axis=1)))).astype(np.int64)
    return Graph(indptr=indptr, indices=np.nonzero(adjacent)[1].astype(np.int32))


def make_dataset() -> Dataset:
    """Make the graph with normal features, random labels, and every other vertex for training."""
    random = np.random.default_rng(11)
    labels = random.integers(0, NUM_CLASSES, size=NUM_VERTICES)
    labels[[4, 9]] = -1
    return _with_split(
        "conformance",
        make_graph(),
        random.standard_normal((NUM_VERTICES, NUM_FEATURES)).astype(np.float32),
        labels,
    )


def make_wide_dataset() -> Dataset:
    """Make a ring lattice of 128 vertices of degree 8 with wide rows.

    The rows are wider than a vector register or a tile of most kernels.
    """
    count, reach = 128, (1, 2, 5, 11)
    neighbours = [
        sorted({(vertex + sign * step) % count for step in reach for sign in (1, -1)})
        for vertex in range(count)
    ]
    graph = Graph(
        indptr=np.arange(0, 8 * count + 1, 8, dtype=np.int64),
        indices=np.array(neighbours, dtype=np.int32).ravel(),
    )
    random = np.random.default_rng(13)
    return _with_split(
        "conformance-wide",
        graph,
        random.standard_normal((count, WIDE_FEATURES)).astype(np.float32),
        random.integers(0, NUM_CLASSES, size=count),
    )


def make_sparse_dataset() -> Dataset:
    """Make the first graph with a fifth of its features, stored sparse."""
    dataset = make_dataset()
    kept = np.random.default_rng(17).random(dataset.features.shape) < 0.2
    return dataclasses.replace(
        dataset,
        name="conformance-sparse",
        features=scipy.sparse.csr_matrix(dataset.features * kept),
    )


def make_long_rows(count: int = 160) -> Dataset:
    """Make a random symmetric graph of ``count`` vertices (Chung and Lu 2002), all for training.

    Degrees are from a few to more than a hundred.
    """
    random = np.random.default_rng(23)
    weights = random.permutation(np.geomspace(3.0, 400.0, count))
    adjacent = random.random((count, count)) < np.outer(weights, weights) / weights.sum()
    adjacent = np.triu(adjacent, 1)
    adjacent |= adjacent.T
    indptr = np.concatenate(([0], np.cumsum(adjacent.sum(axis=1)))).astype(np.int64)
    return _for_training(
        "conformance-long-rows",
        Graph(indptr=indptr, indices=np.nonzero(adjacent)[1].astype(np.int32)),
        random,
    )


def make_cliques(sizes: Sequence[int], copies: int) -> Dataset:
    """Make ``copies`` complete graphs of each size, with every vertex for training.

    A vertex of a clique of n has degree n - 1.
    """
    indices, degrees, begin = [], [], 0
    for size in [size for size in sizes for _ in range(copies)]:
        members = np.arange(begin, begin + size, dtype=np.int32)
        indices += [members[members != vertex] for vertex in members]
        degrees += [size - 1] * size
        begin += size
    graph = Graph(
        indptr=np.concatenate(([0], np.cumsum(degrees))).astype(np.int64),
        indices=np.concatenate(indices),
    )
    return _for_training("conformance-cliques", graph, np.random.default_rng(19))


def _for_training(name: str, graph: Graph, random: np.random.Generator) -> Dataset:
    """Return the graph with random features and labels, and every vertex for training."""
    whole = _with_split(
        name,
        graph,
        random.standard_normal((graph.num_vertices, NUM_FEATURES)).astype(np.float32),
        random.integers(0, NUM_CLASSES, size=graph.num_vertices),
    )
    everywhere = np.ones(graph.num_vertices, dtype=np.bool_)
    return dataclasses.replace(
        whole, train_mask=everywhere, val_mask=~everywhere, test_mask=~everywhere
    )


def _with_split(
    name: str, graph: Graph, features: FloatArray, labels: npt.NDArray[np.int64]
) -> Dataset:
    """Put every other vertex into training, the others into validation and test alternately."""
    position = np.arange(graph.num_vertices)
    return Dataset(
        name=name,
        graph=graph,
        features=features,
        labels=labels.astype(np.int64),
        num_classes=NUM_CLASSES,
        train_mask=position % 2 == 0,
        val_mask=position % 4 == 1,
        test_mask=position % 4 == 3,
        origin="made in memory",
    )


def make_workload(model: str = "gcn", num_layers: int = 2, epochs: int = 2) -> Workload:
    """Make a float64 workload: rounds of 13 and a rest, fan-outs below and above the degrees."""
    return Workload(
        model=model,
        dims=(NUM_FEATURES, *[NUM_HIDDEN] * (num_layers - 1), NUM_CLASSES),
        epochs=epochs,
        batch_size=13,
        fanouts=(4, 3, 2)[:num_layers],
        seed=5,
        dtype="float64",
    )


def fit_workload(dataset: Dataset, model: str = "gcn", num_layers: int = 2) -> Workload:
    """Make such a workload for any dataset: about three rounds, and wide rows for wide features."""
    hidden = NUM_HIDDEN if dataset.num_features < WIDE_FEATURES else WIDE_HIDDEN
    return dataclasses.replace(
        make_workload(model, num_layers),
        dims=(dataset.num_features, *[hidden] * (num_layers - 1), dataset.num_classes),
        batch_size=max(13, -(-2 * len(dataset.train_ids) // 5)),
    )


Kind = Literal["gpu", "fpga", "cpu", "sparse"]


def make_platform(
    num_accelerators: int = 3, kind: Kind = "gpu", *, slow_host: bool = False
) -> Platform:
    """Make a described machine: a host with 8 cores, and accelerators that are all linked.

    FPGAs are of a real board, since strategies for them ask for its resources. Accelerators of kind
    ``cpu`` are nodes of a cluster. Half of the accelerators of kind ``sparse`` are GPUs, for work
    that sparse accelerators cannot compute. A ``slow_host`` leaves no reason to train on it.
    """
    slower = 1e-4 if slow_host else 1.0
    host = Device(
        name="host",
        kind="cpu",
        model="conformance host",
        hardware=Hardware(1e12 * slower, 1e11 * slower, memory_bytes=10**9, launch_s=1e-6),
        cores=8,
        memory=MemoryRates(core_bandwidth_bytes_per_s=2e10 * slower),
        rates=TrainerRates(sampled_edges_per_s=1e7),
    )
    kinds = [kind] * num_accelerators
    if kind == "sparse":
        kinds[: num_accelerators // 2] = ["gpu"] * (num_accelerators // 2)
    accelerators = tuple(
        _make_accelerator(each, kinds[:index].count(each)) for index, each in enumerate(kinds)
    )
    links = [
        Link(f"pcie{index}", ("host", device.name), 1e10, 1e-6)
        for index, device in enumerate(accelerators)
    ]
    links += [
        Link(f"nvlink{a}-{b}", (accelerators[a].name, accelerators[b].name), 1e11, 1e-6)
        for a in range(num_accelerators)
        for b in range(a + 1, num_accelerators)
    ]
    return Platform(
        name="conformance",
        description="a described machine for the conformance checks",
        host=host,
        accelerators=accelerators,
        links=tuple(links),
    )


def _make_accelerator(kind: Kind, index: int) -> Device:
    device = Device(
        name=f"{kind}{index}",
        kind=kind,
        model="Xilinx Alveo U250" if kind == "fpga" else "conformance accelerator",
        hardware=Hardware(1e13, 1e12, memory_bytes=10**8, launch_s=1e-6, pipelined=kind == "fpga"),
    )
    if kind != "cpu":
        return device
    return replace_fields(device, cores=8, core_bandwidth_bytes_per_s=2e11)


def make_platforms(*, slow_host: bool = False) -> tuple[Platform, ...]:
    """Make the machines to try a strategy on, each with one kind of accelerators."""
    kinds: tuple[Kind, ...] = ("gpu", "fpga", "cpu")
    return (
        *(make_platform(kind=kind, slow_host=slow_host) for kind in kinds),
        make_platform(4, "sparse", slow_host=slow_host),
    )


def make_this_host() -> Platform:
    """Make a platform of the host alone, which exists, so that its times are measured."""
    host = dataclasses.replace(make_platform().host, virtual=False)
    return Platform("conformance-host", "a host that is this machine", host, (), ())


def with_memory(platform: Platform, device_names: frozenset[str], memory_bytes: int) -> Platform:
    """Return the platform with less memory on some of its devices."""

    def shrink(device: Device) -> Device:
        if device.name not in device_names:
            return device
        return replace_fields(device, memory_bytes=memory_bytes)

    return dataclasses.replace(
        platform,
        host=shrink(platform.host),
        accelerators=tuple(shrink(device) for device in platform.accelerators),
    )
