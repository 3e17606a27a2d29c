"""The layers that multiply before they aggregate, and whether features enter them sparse.

Both training and plans without training use these functions.
"""

from __future__ import annotations

import numpy as np

from gnnbench.machines.machine import Device
from gnnbench.models import PROJECTED
from gnnbench.parts import Bundle, Setting


def projected_layers(bundle: Bundle, setting: Setting) -> frozenset[int]:
    """Return the layers that the kernel multiplies by W before it aggregates.

    There are none if ranges of columns are aggregated apart, since the product mixes columns. There
    are none if in-edges come in pieces, since each piece would need a product.
    """
    whole = not (bundle.by_features or bundle.in_pieces)
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
    """Return whether sparse features enter the first layer in their stored form.

    The features must have few stored values, and a kernel that supports them must multiply them
    first. The host must train: rows that cross a link or wait in a buffer are dense. Positions in
    sparse rows are int32.
    """
    return (
        bundle.kernel.takes_sparse_features
        and (0 in projected or (setting.layers[0].traits.takes_sparse and not bundle.by_features))
        and setting.dataset.multiplies_stored
        and not isinstance(setting.dataset.features, np.ndarray)
        and setting.dataset.features.nnz < 2**31
        and trainers == setting.platform.hosts
        and not bundle.shares_rows
    )
