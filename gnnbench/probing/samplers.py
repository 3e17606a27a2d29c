"""What a sampler takes to draw a mini-batch: its calls, and its edges."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import torch

from gnnbench.parts import MiniBatchSampler, Setting
from gnnbench.platforms.machine import LibraryRates
from gnnbench.platforms.timing import round_rate, time_runs, torch_threads
from gnnbench.probing.kernels import LEAST_SHARE
from gnnbench.records import Dataset, Graph

#: The graph that mini-batches are drawn from; every vertex has about as many neighbours.
VERTICES, DEGREE = 2**16, 32
FANOUTS = (25, 10)
#: Seeds of a mini-batch that is nearly all calls, and of one that is nearly all edges.
FEW_SEEDS, MANY_SEEDS = 2, 1024


def make_dataset(vertices: int, degree: int, width: int) -> Dataset:
    """A random graph of about so many neighbours a vertex, all of them in the training set."""
    random = np.random.default_rng(0)
    half = random.integers(0, vertices, (vertices * degree // 2, 2))
    half = half[half[:, 0] != half[:, 1]]
    both = np.unique(np.concatenate((half, half[:, ::-1])), axis=0)
    indptr = np.zeros(vertices + 1, dtype=np.int64)
    np.cumsum(np.bincount(both[:, 0], minlength=vertices), out=indptr[1:])
    everyone = np.ones(vertices, dtype=bool)
    return Dataset(
        "probe",
        Graph(indptr, both[:, 1].astype(np.int32)),
        np.ones((vertices, width), dtype=np.float32),
        np.zeros(vertices, dtype=np.int64),
        2,
        everyone,
        ~everyone,
        ~everyone,
    )


def measure_sampler(sampler: MiniBatchSampler, setting: Setting, each_s: float) -> LibraryRates:
    """Its rates on one core of this machine, from mini-batches of few and of many seeds."""
    (few, few_s), (many, many_s) = (
        _measure_batch(sampler, setting, size, each_s) for size in (FEW_SEEDS, MANY_SEEDS)
    )
    edge_s = max(many_s - few_s, LEAST_SHARE * many_s) / max(1, many - few)
    call_s = max(0.0, few_s - few * edge_s) / setting.workload.num_layers
    return LibraryRates(
        sampled_edges_per_s=round_rate(1.0 / edge_s), sampling_call_s=round_rate(call_s)
    )


def _measure_batch(
    sampler: MiniBatchSampler, setting: Setting, size: int, each_s: float
) -> tuple[int, float]:
    """The edges of a mini-batch of some size, and seconds of drawing it."""
    sampler.begin(replace(setting, workload=replace(setting.workload, batch_size=size)))
    seeds = sampler.rounds(0)[0]
    with torch_threads(1):
        edges = sum(block.num_edges for block in sampler.sample(seeds, 0, 1))
        draw = partial(sampler.sample, seeds, 0, 1)
        return edges, min(time_runs(draw, each_s, torch.device("cpu"), 1))
