"""Seeds that are shuffled are not said not to be, and others are."""

import numpy as np
import pytest

from gnnbench.run.shuffling import PairsAgain, Shuffling

SEEDS, SIZE = 64, 16


def cut(seeds, size=SIZE):
    return [seeds[begin : begin + size] for begin in range(0, len(seeds), size)]


def look(make, epochs, size=SIZE):
    shuffling = Shuffling()
    for epoch in range(epochs):
        shuffling.look(cut(make(epoch), size))
    return shuffling.missing


def shuffle(epoch, count=SEEDS):
    return np.random.default_rng([7, epoch]).permutation(count)


def order_rounds(epoch):
    order = np.random.default_rng(epoch).permutation(SEEDS // SIZE)
    return np.concatenate([cut(np.arange(SEEDS))[place] for place in order])


@pytest.mark.parametrize(
    "make",
    [
        lambda epoch: np.arange(SEEDS),
        order_rounds,
        # A seed further in every epoch, which the epoch before shows; every other epoch as the
        # first, which that shows.
        lambda epoch: np.roll(np.arange(SEEDS), epoch),
        lambda epoch: shuffle(epoch if epoch % 2 else 0),
        lambda epoch: shuffle(epoch % 3),
        # Seeds change places within two mini-batches alone.
        lambda epoch: np.concatenate((shuffle(epoch, 32), 32 + shuffle(epoch + 99, 32))),
    ],
)
def test_the_same_mini_batches_again_are_seen(make):
    assert look(make, 10)


@pytest.mark.parametrize(
    ("count", "size", "epochs"), [(64, 16, 30), (3, 2, 20), (30, 13, 2), (5, 1, 9), (64, 32, 5)]
)
def test_chance_is_no_fault(count, size, epochs):
    for start in range(0, 60 * epochs, epochs):
        assert not look(lambda epoch, start=start: shuffle(start + epoch, count), epochs, size)


def test_one_mini_batch_of_all_seeds_needs_no_shuffling():
    assert not look(lambda epoch: np.arange(SEEDS), 10, SEEDS)


def test_pairs_are_counted_and_due_as_over_all_orders():
    """Of five seeds in rounds of three and two: four pairs, of ten, and of those 1.6 again."""
    again = PairsAgain()
    again.add(cut(np.array([4, 1, 0, 3, 2]), 3), cut(np.array([0, 4, 2, 1, 3]), 3))
    assert (again.found, again.most) == (1, 4)
    assert again.expected == pytest.approx(1.6)
