"""What a bundle's kernel multiplies before it aggregates, and whether features go there sparse.

The engine trains by these, and plans made without training ask them too.
"""

from __future__ import annotations

import numpy as np

from gnnbench.models import PROJECTED
from gnnbench.parts import Bundle, GridSampler, Setting
from gnnbench.platforms.machine import Device


def projected_layers(bundle: Bundle, setting: Setting) -> frozenset[int]:
    """The layers that the kernel multiplies by W before it aggregates: none where columns are
    aggregated by themselves, for the product mixes them, or in-edges come in pieces, of which each
    would have a product of its own."""
    whole = not (bundle.by_features or isinstance(bundle.sampler, GridSampler))
    if setting.workload.model not in PROJECTED or not whole:
        return frozenset()
    return frozenset(
        number
        for number in range(setting.workload.num_layers)
        if bundle.kernel.projects_first(number, setting, bundle.mode)
    )


def keeps_sparse(
    bundle: Bundle, setting: Setting, trainers: tuple[Device, ...], projected: frozenset[int]
) -> bool:
    """Whether sparse features go to the first layer as they are stored.

    They must have few values, and be multiplied before anything else, by a kernel that can, and on
    the host: rows that cross a link or wait in a buffer are dense, and positions in sparse ones are
    int32.
    """
    return (
        bundle.kernel.takes_sparse_features
        and (0 in projected or (setting.layers[0].takes_sparse and not bundle.by_features))
        and setting.dataset.multiplies_stored
        and not isinstance(setting.dataset.features, np.ndarray)
        and setting.dataset.features.nnz < 2**31
        and trainers == setting.platform.hosts
        and not bundle.shares_rows
    )
