"""The buffer pool hands memory out again, and never while anything still refers to it."""

import threading

import numpy as np
import pytest
import torch

from gnnbench.kernels.buffers import SMALLEST_BYTES, BufferPool

COUNT = SMALLEST_BYTES  # float32 values, four times the smallest size


def take(pool, count=COUNT):
    return pool.take((count,), np.float32)


def address(array):
    return int(array.ctypes.data)


def test_memory_comes_back():
    pool = BufferPool(1 << 30)
    array = take(pool)
    first = address(array)
    assert pool.idle_bytes == 0
    del array
    assert pool.idle_bytes == 4 * COUNT
    again = pool.take((COUNT // 64, 32), np.float64)
    assert address(again) == first
    assert again.shape == (COUNT // 64, 32)
    assert again.dtype == np.float64
    assert pool.idle_bytes == 0
    del again
    assert pool.idle_bytes == 4 * COUNT
    pool.release()
    assert pool.idle_bytes == 0


KEEPERS = [
    lambda a: a[5:],
    lambda a: a.view(np.int32)[::2].T,
    lambda a: memoryview(a)[3:],
    lambda a: torch.from_numpy(a),
    lambda a: torch.from_numpy(a[7:])[7:],
    lambda a: torch.from_numpy(a.reshape(-1, 8)).T.detach()[2:3],
    lambda a: torch.from_numpy(a[7:]).numpy()[1:],
    lambda a: torch.from_numpy(a).requires_grad_().view(-1, 2),
]


def test_memory_in_use_is_never_handed_out():
    """By a view, a view of a view, a buffer, or a tensor made of any of them."""
    for keep in KEEPERS:
        pool = BufferPool(1 << 30)
        array = take(pool)
        first, kept = address(array), keep(array)
        del array
        assert pool.idle_bytes == 0
        other = take(pool)
        assert address(other) != first
        del other, kept
        assert pool.idle_bytes == 8 * COUNT


def test_the_limit_drops_the_oldest():
    pool = BufferPool(9 * COUNT)
    arrays = [take(pool) for _ in range(3)]
    places = [address(array) for array in arrays]
    for _ in range(3):
        del arrays[0]
    assert pool.idle_bytes == 8 * COUNT
    held = [take(pool), take(pool)]
    assert [address(array) for array in held] == [places[2], places[1]]
    del held
    large = take(pool, 4 * COUNT)
    del large
    assert pool.idle_bytes == 0


def test_only_memory_of_about_the_size_is_used():
    pool = BufferPool(1 << 30)
    array = take(pool)
    first = address(array)
    del array
    assert address(take(pool, COUNT * 8 // 9 + 1)) == first
    assert pool.idle_bytes == 4 * COUNT
    small, large = take(pool, COUNT * 8 // 9 - 8), take(pool, COUNT + 1)
    assert first not in (address(small), address(large))
    assert len(large) == COUNT + 1


@pytest.mark.parametrize("shape", [(), (0,), (3, 0), (1,), (7, 3), (1024, 1025)])
def test_arrays_are_aligned_and_writeable(shape):
    for dtype in (np.float32, np.float64, np.int32):
        array = BufferPool(0).take(shape, np.dtype(dtype))
        assert array.shape == shape
        assert array.dtype == dtype
        assert array.ctypes.data % 64 == 0
        assert array.flags.writeable
        assert array.flags.c_contiguous


def test_small_arrays_are_not_kept():
    pool = BufferPool(1 << 30)
    take(pool, SMALLEST_BYTES // 4 - 1)
    assert pool.idle_bytes == 0


def test_threads_never_share_memory():
    """Memory is taken and comes back on many threads at a time."""
    pool, wrong = BufferPool(6 * SMALLEST_BYTES), []

    def work(mark):
        generator = np.random.default_rng(mark)
        for _ in range(150):
            array = take(pool, SMALLEST_BYTES // 4 + int(generator.integers(0, 2000)))
            array[::512] = mark
            view = array[::512]
            del array
            if not (view == mark).all():
                wrong.append(mark)

    threads = [threading.Thread(target=work, args=(mark,)) for mark in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert pool.idle_bytes <= 6 * SMALLEST_BYTES
