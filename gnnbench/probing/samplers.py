"""The times of a sampler's draw of a mini-batch: its calls, and its edges."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from statistics import median

import numpy as np
import torch

from gnnbench.machines.caches import make_sweep
from gnnbench.machines.machine import LibraryRates
from gnnbench.machines.tables import replace_fields
from gnnbench.machines.timing import round_rate, time_runs, torch_threads
from gnnbench.parts import MiniBatchSampler, Setting
from gnnbench.probing.kernels import LEAST_SHARE
from gnnbench.records import Dataset, Graph

#: The graph that mini-batches are drawn from.
VERTICES, DEGREE = 2**16, 32
FANOUTS = (25, 10)
#: Seeds of a mini-batch dominated by calls, and of one dominated by edges.
FEW_SEEDS, MANY_SEEDS = 2, 1024


def make_dataset(vertices: int, degree: int, width: int) -> Dataset:
    """Return a random graph of at most ``degree`` neighbours a vertex on average, with hubs like
    real graphs. Vertex k is an end of edges in proportion to k^-1/2. All vertices are in the
    training set."""
    random = np.random.default_rng(0)
    half = (random.random((vertices * degree // 2, 2)) ** 2 * vertices).astype(np.int64)
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


def measure_sampler(
    sampler: MiniBatchSampler, setting: Setting, each_s: float, known: LibraryRates
) -> LibraryRates:
    """Return the ``known`` rates of its library, extended by the sampler's, from mini-batches of
    few and of many seeds. Rates are measured on one core and on all cores of this machine."""
    host = setting.platform.host
    alone, joint = (
        _split_batches(
            *(
                _measure_batch(sampler, setting, size, threads, each_s)
                for size in (FEW_SEEDS, MANY_SEEDS)
            )
        )
        for threads in (1, host.cores)
    )
    return replace_fields(
        known,
        sampled_edges_per_s=round_rate(alone[0]),
        jointly_sampled_edges_per_s=round_rate(max(alone[0], joint[0])),
        sampling_call_s=round_rate(alone[1] / setting.workload.num_layers),
    )


def _split_batches(few: tuple[int, float], many: tuple[int, float]) -> tuple[float, float]:
    """Return the edges/s and the constant seconds of drawing, from two mini-batches as (edges,
    seconds)."""
    edge_s = max(many[1] - few[1], LEAST_SHARE * many[1]) / max(1, many[0] - few[0])
    return 1.0 / edge_s, max(0.0, few[1] - few[0] * edge_s)


def _measure_batch(
    sampler: MiniBatchSampler, setting: Setting, size: int, threads: int, each_s: float
) -> tuple[int, float]:
    """Return the edges of a mini-batch of ``size`` seeds, and the seconds of drawing it. Caches are
    swept, since training displaces them between two draws."""
    sampler.begin(replace(setting, workload=replace(setting.workload, batch_size=size)))
    seeds = sampler.rounds(0)[0]
    with torch_threads(threads):
        edges = sum(block.num_edges for block in sampler.sample(seeds, 0, threads))
        draw = partial(sampler.sample, seeds, 0, threads)
        return edges, median(time_runs(draw, each_s, torch.device("cpu"), threads, make_sweep()))
