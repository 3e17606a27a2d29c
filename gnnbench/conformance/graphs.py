"""The small world that the checks run in: a graph, a workload and a described machine.

Small enough that every check takes about a second, and awkward on purpose: a hub, isolated
vertices, training vertices without a label, a last round smaller than the others, and three
accelerators, by which nothing divides evenly.
"""

from __future__ import annotations

import dataclasses
from typing import Literal

import numpy as np

from gnnbench.platforms.machine import Device, Link, Platform
from gnnbench.records import Dataset, Graph, Workload

NUM_VERTICES = 60
NUM_ISOLATED = 2
NUM_FEATURES = 7
NUM_HIDDEN = 6
NUM_CLASSES = 3


def make_graph() -> Graph:
    """A random symmetric graph: vertex 0 knows every third one, the last two know nobody."""
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
    """The graph with normal features, random labels, and every other vertex for training."""
    random = np.random.default_rng(11)
    labels = random.integers(0, NUM_CLASSES, size=NUM_VERTICES)
    labels[[4, 9]] = -1
    position = np.arange(NUM_VERTICES)
    return Dataset(
        name="conformance",
        graph=make_graph(),
        features=random.standard_normal((NUM_VERTICES, NUM_FEATURES)).astype(np.float32),
        labels=labels.astype(np.int64),
        num_classes=NUM_CLASSES,
        train_mask=position % 2 == 0,
        val_mask=position % 4 == 1,
        test_mask=position % 4 == 3,
        origin="made in memory",
    )


def make_workload(model: str = "gcn", num_layers: int = 2, epochs: int = 2) -> Workload:
    """Float64, rounds of 13, 13 and the remaining seeds, fan-outs below and above the degrees."""
    return Workload(
        model=model,
        dims=(NUM_FEATURES, *[NUM_HIDDEN] * (num_layers - 1), NUM_CLASSES),
        epochs=epochs,
        batch_size=13,
        fanouts=(4, 3, 2)[:num_layers],
        seed=5,
        dtype="float64",
    )


def make_platform(num_accelerators: int = 3, kind: Literal["gpu", "fpga"] = "gpu") -> Platform:
    """A described machine: a host with 8 cores, and accelerators that are all linked.

    FPGAs are of a board that exists, since what trains on them asks what there is to build with.
    """
    host = Device(
        name="host",
        kind="cpu",
        model="conformance host",
        flops_per_s=1e12,
        memory_bandwidth_bytes_per_s=1e11,
        memory_bytes=10**9,
        launch_s=1e-6,
        cores=8,
        core_bandwidth_bytes_per_s=2e10,
        sampled_edges_per_s=1e7,
    )
    accelerators = tuple(
        Device(
            name=f"{kind}{index}",
            kind=kind,
            model="conformance accelerator" if kind == "gpu" else "Xilinx Alveo U250",
            pipelined=kind == "fpga",
            flops_per_s=1e13,
            memory_bandwidth_bytes_per_s=1e12,
            memory_bytes=10**8,
            launch_s=1e-6,
        )
        for index in range(num_accelerators)
    )
    links = [
        Link(f"pcie{index}", ("host", device.name), 1e10, 1e-6)
        for index, device in enumerate(accelerators)
    ]
    links += [
        Link(f"nvlink{a}-{b}", (f"{kind}{a}", f"{kind}{b}"), 1e11, 1e-6)
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


def make_platforms() -> tuple[Platform, ...]:
    """Machines to try a strategy on: the first that it does not refuse."""
    return make_platform(), make_platform(kind="fpga")


def with_memory(platform: Platform, device_names: frozenset[str], memory_bytes: int) -> Platform:
    """The platform with less memory on some of its devices."""

    def shrink(device: Device) -> Device:
        if device.name not in device_names:
            return device
        return dataclasses.replace(device, memory_bytes=memory_bytes)

    return dataclasses.replace(
        platform,
        host=shrink(platform.host),
        accelerators=tuple(shrink(device) for device in platform.accelerators),
    )
