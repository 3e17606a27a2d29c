"""Memory that two ranks have; here the second is this process again."""

import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from types import SimpleNamespace
from unittest.mock import Mock

import numpy as np
import pytest
import torch

from gnnbench.check.graphs import make_platform
from gnnbench.run import shared_memory
from gnnbench.run.collectives import Processes
from gnnbench.run.shared_memory import (
    ENTRIES,
    SMALLEST,
    Gathered,
    Mailbox,
    MemoryProcesses,
    Piece,
    make_processes,
)


def other_end(box):
    return Mailbox(Piece.open(os.getpid(), box.file))


@pytest.mark.parametrize("size_bytes", [0, 1, SMALLEST, 3 * SMALLEST])
def test_a_piece_is_read_elsewhere_and_has_room_for_what_was_asked_for(size_bytes):
    piece = Piece.make(size_bytes)
    assert size_bytes <= piece.payload_bytes < max(2 * size_bytes, 2 * SMALLEST)
    values = (torch.arange(max(1, size_bytes)) % 251).to(torch.uint8)
    piece.view(len(values), torch.uint8).copy_(values)
    piece.wanted = True
    other = Piece.open(os.getpid(), piece.file)
    assert other.wanted
    assert torch.equal(other.view(len(values), torch.uint8), values)
    other.wanted = False
    assert not piece.wanted


def test_messages_come_in_the_order_in_which_they_were_sent():
    """A full mailbox takes a message when one has been read; another one than is waited for is an
    error."""
    box = Mailbox.make()
    there = other_end(box)
    assert there.take(0) is None
    assert all(box.post(tag, 11, 2**62 + tag) for tag in range(ENTRIES))
    assert not box.post(ENTRIES, 1, 1)
    assert there.take(0) == (11, 2**62)
    assert box.post(ENTRIES, 12, 5)
    assert all(there.take(tag) == (11, 2**62 + tag) for tag in range(1, ENTRIES))
    with pytest.raises(ValueError, match=f"message {ENTRIES} has come where 4 is waited for"):
        there.take(4)


def test_memory_is_used_again_when_it_has_been_read():
    ranks = SimpleNamespace(_own=[])
    small = MemoryProcesses._take(ranks, 10)
    large = MemoryProcesses._take(ranks, 2 * SMALLEST)
    assert small is not large
    assert MemoryProcesses._take(ranks, 10) is small  # the smallest that is enough
    small.wanted = True
    assert MemoryProcesses._take(ranks, 10) is large
    large.wanted = True
    assert MemoryProcesses._take(ranks, 10) not in (small, large)
    small.wanted = False
    assert MemoryProcesses._take(ranks, 20) is small


def test_a_part_of_what_several_send_is_there_when_all_is():
    waited = []
    parts = [
        SimpleNamespace(wait=lambda: waited.append(0)),
        SimpleNamespace(wait=lambda: waited.append(1)),
    ]
    whole = Gathered(parts, torch.arange(5.0))
    second = whole.part(2, 5)
    assert waited == []
    assert second.wait().tolist() == [2.0, 3.0, 4.0]
    assert waited == [0, 1]
    assert whole.part(0, 2).wait().tolist() == [0.0, 1.0]
    assert waited == [0, 1]


def test_only_devices_made_of_cores_share_memory_and_only_where_writes_are_seen_in_order(
    monkeypatch,
):
    described = make_platform(2)
    assert make_processes(described) is Processes
    pinned = SimpleNamespace(accelerators=[SimpleNamespace(pinned=(0,))])
    monkeypatch.setattr(shared_memory.platform, "machine", lambda: "x86_64")
    assert make_processes(pinned).func is MemoryProcesses
    monkeypatch.setattr(shared_memory.platform, "machine", lambda: "aarch64")
    assert make_processes(pinned) is Processes


def make_ranks(size):
    """Ranks of this process, which have their mailboxes for sums and nothing else."""
    boxes = [[Mailbox.make() for _ in range(size)] for _ in range(size)]
    ranks = []
    for number in range(size):
        rank = object.__new__(MemoryProcesses)
        rank.__dict__.update(
            rank=number, size=size, _patience_s=60.0, _ids=[os.getpid()] * size, _own=[],
            _others={}, _collectives=0, peers=Mock(waiting=nullcontext),
            _outgoing_sums=boxes[number],
            _incoming_sums=[other_end(each[number]) for each in boxes],
        )  # fmt: skip
        ranks.append(rank)
    return ranks


@pytest.mark.parametrize("count", [0, 2, 7, 3000])
def test_every_rank_has_the_same_sums_of_what_all_have(count):
    """Of fewer values than ranks some add up nothing."""
    ranks = make_ranks(3)
    random = np.random.default_rng(count)
    values = [torch.from_numpy(random.integers(0, 1000, count) / 8.0) for _ in ranks]
    with ThreadPoolExecutor(3) as pool:
        for _ in range(2):  # memory of the first is used again
            found = list(pool.map(lambda rank: rank._add_up(values[rank.rank]), ranks))
    assert all(torch.equal(each, values[0] + values[1] + values[2]) for each in found)
