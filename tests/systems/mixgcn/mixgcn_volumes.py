"""What crosses between devices in an epoch, in closed form: MixGCN's Proposition 3.4.

With k vertices, widths d^(0) .. d^(L) and m devices that all aggregate and update, an all-to-all
takes a matrix of k rows and d columns from ranges of columns to ranges of rows, and (m - 1) / m of
it crosses: k d (m - 1) / m values, exact where m divides both, and never more than k d. Neither the
edges nor the cut of any partition are in it.
"""

from __future__ import annotations

from collections.abc import Sequence

from gnnbench.parts import divide_evenly


def count_crossing(rows: int, width: int, sparse: int, dense: int, shared: int) -> int:
    """Values of a ``(rows, width)`` matrix that cross between ``sparse`` ranges of its columns and
    ``dense`` ranges of its rows, the first ``shared`` of which are on the same devices."""
    columns, ranges = divide_evenly(width, sparse), divide_evenly(rows, dense)
    stays = sum(
        (of_columns[1] - of_columns[0]) * (of_rows[1] - of_rows[0])
        for of_columns, of_rows in zip(columns[:shared], ranges[:shared], strict=True)
    )
    return rows * width - stays


def count_all_to_all_bytes(
    stages: Sequence[int],
    widths: Sequence[int],
    copies: int,
    itemsize: int,
    *,
    sparse: int,
    dense: int,
    shared: int,
) -> int:
    """Bytes of all all-to-alls of an epoch.

    ``stages`` are the vertices of each pipeline stage, ``widths`` d^(0) .. d^(L-1), and ``copies``
    how many matrices of that width AGGREGATE gives (2 where the own row goes beside the mean).
    Forward, every layer sends its aggregates and all but the last their representations; backward
    the gradients of both come back, but for those of the first layer's aggregates, which nobody
    needs.
    """
    values = 0
    for layer, width in enumerate(widths):
        times = copies if layer == 0 else 2 * copies + 2
        values += times * sum(count_crossing(rows, width, sparse, dense, shared) for rows in stages)
    return values * itemsize


def count_all_reduce_bytes(parameter_bytes: int, dense: int) -> int:
    """Bytes of the ring all-reduce of all devices together: 2 (m - 1) / m of the model each."""
    return 2 * (dense - 1) * parameter_bytes
