"""The graphs and the model whose epochs a hand can count."""

from functools import cache

import numpy as np

from gnnbench.datasets import build

#: Values of 4 bytes, the widths of the layers, vertices a device, and of both.
S = 4
F0, F1, F2 = 6, 4, 3
N, V = 5, 10
#: The model's bytes: two weights and two biases.
MODEL = (F0 * F1 + F1 + F1 * F2 + F2) * S


@cache
def dataset(name):
    """``complete``: 45 edges between all of ten vertices. ``pair``: twice ten, and one between."""
    groups = [range(V)] if name == "complete" else [range(N), range(N, V)]
    edges = [(a, b) for group in groups for a in group for b in group if a < b]
    edges += [] if name == "complete" else [(N - 1, N)]
    random = np.random.default_rng(3)
    labels = np.arange(V) % F2
    everyone, nobody = np.ones(V, dtype=bool), np.zeros(V, dtype=bool)
    return build(
        name,
        np.array(edges, dtype=np.int64).T,
        num_vertices=V,
        features=random.standard_normal((V, F0)).astype(np.float32),
        labels=labels,
        masks=(everyone, nobody, nobody),
    )
