"""Gathers of random rows of a table into a reused buffer."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np
import torch
from torch import Tensor

from gnnbench.kernels import dispatch
from gnnbench.kernels.reference.rows import Rows
from gnnbench.records import IntArray
from suites.contestants import Scope
from suites.race import OURS, Case, Contestant, Target, check_close

WIDTHS = (32, 100, 128, 256, 602)


@dataclass(frozen=True, eq=False)
class Lookup:
    """A table of ``rows`` random rows, and ``count`` random ids to gather."""

    rows: int
    count: int
    width: int
    dtype: type[np.floating]

    @cached_property
    def table(self) -> Rows:
        rng = np.random.default_rng(self.width)
        return rng.random((self.rows, self.width), dtype=np.float32).astype(self.dtype)

    @cached_property
    def ids(self) -> IntArray:
        return np.random.default_rng(0).integers(self.rows, size=self.count)

    @property
    def row_bytes(self) -> int:
        return self.width * np.dtype(self.dtype).itemsize

    @property
    def compulsory_bytes(self) -> int:
        """Bytes if every id and gathered row (nearly all) is read once, and every row written."""
        return 8 * self.count + (min(self.rows, self.count) + self.count) * self.row_bytes

    def make_buffer(self) -> Rows:
        return np.zeros((self.count, self.width), dtype=self.dtype)


def gather_ours(lookup: Lookup) -> Contestant:
    out, threads = lookup.make_buffer(), torch.get_num_threads()
    table, ids = lookup.table, lookup.ids
    return Contestant(lambda _: dispatch.gather_rows(table, ids, out=out, threads=threads))


def gather_indexing(lookup: Lookup) -> Contestant:
    """Prepare ``x[ids]``, as in most training loops; its result is a new tensor."""
    table, ids = torch.from_numpy(lookup.table), torch.from_numpy(lookup.ids)
    return Contestant(lambda _: table[ids], Tensor.numpy)


def gather_index_select(lookup: Lookup) -> Contestant:
    table, ids = torch.from_numpy(lookup.table), torch.from_numpy(lookup.ids)
    out = torch.from_numpy(lookup.make_buffer())
    return Contestant(lambda _: torch.index_select(table, 0, ids, out=out), Tensor.numpy)


def gather_numpy(lookup: Lookup) -> Contestant:
    """Prepare NumPy's ``take``; without ``mode`` it would gather into a temporary buffer first."""
    table, ids, out = lookup.table, lookup.ids, lookup.make_buffer()
    return Contestant(lambda _: table.take(ids, axis=0, out=out, mode="clip"))


CONTESTANTS: dict[str, Callable[[Lookup], Contestant]] = {
    OURS: gather_ours,
    "torch x[ids]": gather_indexing,
    "torch index_select": gather_index_select,
    "numpy take": gather_numpy,
}
#: For rows of 512 bytes, the size of HyScale-GNN's features.
TARGETS = (Target("torch x[ids]", 4.0), Target("torch index_select", 1.15))


def race_cases(scope: Scope) -> Iterator[Case]:
    rows, count = (4096, 20_000) if scope.small else (1 << 18, 1_000_000)
    for dtype in (np.float32, np.float16):
        for width in WIDTHS[:2] if scope.small else WIDTHS:
            lookup = Lookup(rows, count, width, dtype)
            yield Case(
                "gather",
                f"{rows:,} rows",
                f"{np.dtype(dtype).name} width {width}",
                {who: partial(make, lookup) for who, make in CONTESTANTS.items()},
                partial(check_close, tolerance=0.0),
                TARGETS if (width, dtype) == (128, np.float32) else (),
                compulsory_bytes=lookup.compulsory_bytes,
                gathered_bytes=count * lookup.row_bytes,
            )
