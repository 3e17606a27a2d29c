"""Memory of one device that another is given to use; here both are the CPU."""

import gc
import weakref

import pytest
import torch

from gnnbench.run import zero_copy
from gnnbench.run.movement import put_rows, read_rows
from gnnbench.run.zero_copy import CPU, alias, see_from

HERE = torch.device("cpu")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_what_is_lent_is_the_same_memory(dtype: torch.dtype) -> None:
    whole = torch.arange(12.0, dtype=dtype).view(4, 3)
    seen = alias(whole[1:], CPU, 0)
    assert (seen.dtype, tuple(seen.shape)) == (dtype, (3, 3))
    assert torch.equal(seen, whole[1:])
    seen[0, 2] = 77.0
    assert whole[1, 2] == 77.0


def test_memory_is_held_as_long_as_it_is_lent_and_no_longer() -> None:
    before, whole = len(zero_copy._lent), torch.full((1000,), 3.0)
    held, seen = weakref.ref(whole), alias(whole, CPU, 0)
    row = seen[:1]
    del seen, whole
    gc.collect()
    assert len(zero_copy._lent) == before + 1
    assert held() is not None
    assert row[0] == 3.0
    del row
    assert len(zero_copy._lent) == before
    assert held() is None


def test_no_kernel_sees_memory_that_is_not_pinned() -> None:
    rows = torch.ones(3, 2)
    assert see_from(HERE, rows) is None
    assert see_from(torch.device("cuda", 0), rows) is None


def test_rows_go_to_their_places_where_nothing_is_pinned() -> None:
    rows, ids = torch.zeros(5, 2), torch.tensor([3, 0])
    put_rows(rows, ids, torch.tensor([[1.0, 2.0], [3.0, 4.0]]))
    assert rows.tolist() == [[3, 4], [0, 0], [0, 0], [1, 2], [0, 0]]
    assert read_rows(rows, torch.tensor([3, 3, 1]), HERE).tolist() == [[1, 2], [1, 2], [0, 0]]
