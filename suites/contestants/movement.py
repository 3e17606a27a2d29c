"""Moves of rows between two buffers, without and with addition to the target."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np
import torch
from torch import Tensor

from gnnbench.kernels import dispatch
from gnnbench.records import FloatArray, IndexArray
from suites.contestants import Scope
from suites.race import OURS, Case, Contestant, check_close

WIDTHS = (32, 128, 256, 602)


@dataclass(frozen=True, eq=False)
class Transfer:
    """A transfer of ``count`` of a table's ``rows`` to places of a buffer half as large.

    Rows and places ascend, as HongTu's rows do between host and device. They are copied or added.
    """

    rows: int
    count: int
    width: int
    add: bool

    @cached_property
    def source(self) -> FloatArray:
        return np.random.default_rng(self.width).random((self.rows, self.width), dtype=np.float32)

    def make_target(self) -> FloatArray:
        return np.ones((self.rows // 2, self.width), dtype=np.float32)

    @cached_property
    def ids(self) -> IndexArray:
        return self._choose(self.rows, seed=0)

    @cached_property
    def places(self) -> IndexArray:
        return self._choose(self.rows // 2, seed=1)

    def _choose(self, rows: int, seed: int) -> IndexArray:
        chosen = np.random.default_rng(seed).choice(rows, self.count, replace=False)
        return np.sort(chosen).astype(np.int32)

    @property
    def moved_bytes(self) -> int:
        """Bytes if every row is read and written; with addition, the target is read too."""
        return (3 if self.add else 2) * self.count * self.width * 4


def move_ours(transfer: Transfer) -> Contestant:
    source, ids, places = transfer.source, transfer.ids, transfer.places
    target, threads = transfer.make_target(), torch.get_num_threads()

    def move(_: int) -> FloatArray:
        dispatch.move_rows(source, ids, target, places, add=transfer.add, threads=threads)
        return target

    return Contestant(move)


def move_torch(transfer: Transfer) -> Contestant:
    """Prepare ``index_select``, followed by ``index_copy_`` or ``index_add_``."""
    source, target = torch.from_numpy(transfer.source), torch.from_numpy(transfer.make_target())
    ids = torch.from_numpy(transfer.ids.astype(np.int64))
    places = torch.from_numpy(transfer.places.astype(np.int64))
    put = target.index_add_ if transfer.add else target.index_copy_
    return Contestant(lambda _: put(0, places, source.index_select(0, ids)), Tensor.numpy)


def move_numpy(transfer: Transfer) -> Contestant:
    source, ids, places = transfer.source, transfer.ids, transfer.places
    target = transfer.make_target()

    def move(_: int) -> FloatArray:
        if transfer.add:
            target[places] += source[ids]
        else:
            target[places] = source[ids]
        return target

    return Contestant(move)


CONTESTANTS: dict[str, Callable[[Transfer], Contestant]] = {
    OURS: move_ours,
    "torch index_select": move_torch,
    "numpy": move_numpy,
}


def race_cases(scope: Scope) -> Iterator[Case]:
    rows, count = (8192, 3000) if scope.small else (1 << 18, 100_000)
    for add in (False, True):
        for width in WIDTHS[:2] if scope.small else WIDTHS:
            transfer = Transfer(rows, count, width, add)
            yield Case(
                "movement",
                f"{rows:,} rows",
                f"{'add' if add else 'copy'} width {width}",
                {who: partial(make, transfer) for who, make in CONTESTANTS.items()},
                partial(check_close, tolerance=0.0),
                compulsory_bytes=transfer.moved_bytes,
                gathered_bytes=count * width * 4,
            )
