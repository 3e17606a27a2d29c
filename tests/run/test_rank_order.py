"""When a rank waits for what others send: by hand-made programs, with a group that only notes."""

import dataclasses
from types import SimpleNamespace
from typing import NamedTuple

import pytest
import torch

from gnnbench.check.graphs import make_platform
from gnnbench.machines.ranks import assign_ranks
from gnnbench.price.wall_clock import WallClock
from gnnbench.program import Access, Buffer, Collective, Counts, Hold, Ledger, Place, Step
from gnnbench.program.reader import take_items
from gnnbench.program.recorder import Recorder
from gnnbench.records import CopyWork
from gnnbench.run import refuse_processes
from gnnbench.run.ranks import Rank, Transfer
from tests.run.ranks import Case


class Group:
    """A group of three, of which this is rank 0: what it is asked for is noted in ``said``."""

    rank, size, device, blocking = 0, 3, torch.device("cpu"), False

    def __init__(self):
        self.said = []

    def send(self, tensor, rank, tag):
        self.said.append(f"send {tensor.tolist()} to {rank} as {tag}")

    def receive(self, elements, dtype, rank, tag):
        self.said.append(f"receive {elements} from {rank} as {tag}")
        return SimpleNamespace(wait=lambda: torch.full((elements,), float(tag), dtype=dtype))

    def all_to_all(self, sent, send_counts, receive_counts):
        self.said.append(f"all-to-all {sent.tolist()} {send_counts} {receive_counts}")
        return SimpleNamespace(part=lambda a, b: self.receive(b - a, sent.dtype, "all", a))

    def sum(self, values):
        return values

    def finish(self):
        self.said.append("finish")


@pytest.fixture
def group():
    return Group()


class Compute(NamedTuple):
    name: str = ""


class Move(NamedTuple):
    name: str = ""


def step(operation, *, device, source=None, elements=2, moves=(), **buffers):
    work, place = CopyWork(bytes=8 * elements), Place("a link", (), device, source)
    access = Access(**{which: tuple(used) for which, used in buffers.items()})
    counts = Counts(moves)
    return Step(operation, "transfer", "a step", place, work, counts=counts, access=access)


def read(group, items, gives=2):
    """Take items as rank 0 of three, which has device 0; what it did, in order."""
    recorder = Recorder(WallClock())
    rank = Rank(group, recorder, torch.float64, (0, 1, 2))
    bodies = {
        Compute: lambda operation: group.said.append(f"compute {operation.name}"),
        Move: Transfer(
            lambda operation: torch.zeros(gives, dtype=torch.float64),
            lambda part, operation: group.said.append(f"place {operation.name}"),
        ),
    }
    equipped = rank.equip(bodies)
    rank.start_epoch()
    take_items(rank.take(items), recorder, Ledger({}), equipped, rank.arrive)
    rank.finish()
    return group.said, recorder


def test_what_arrives_is_put_in_place_when_it_is_needed_and_not_before(group):
    first, second = Buffer("first"), Buffer("second")
    said, _ = read(
        group,
        [
            step(Move("a"), device=0, source=1, writes=[first]),
            step(Compute("meanwhile"), device=0),
            step(Compute("elsewhere"), device=2, reads=[first]),
            step(Move("b"), device=0, source=2, writes=[second]),
            step(Compute("then"), device=0, reads=[first]),
            step(Compute("for all"), device=None),
        ],
    )
    assert said == [
        "receive 2 from 1 as 0",
        "compute meanwhile",
        "receive 2 from 2 as 3",
        "place a",
        "compute then",
        "compute for all",
        "place b",  # nothing waits for it but the end
        "finish",
    ]


def test_what_arrives_is_put_in_place_in_the_order_of_the_program(group):
    """So that sums are taken in one order."""
    first, second = Buffer("first"), Buffer("second")
    said, _ = read(
        group,
        [
            step(Move("a"), device=0, source=1, adds=[first]),
            step(Move("b"), device=0, source=2, adds=[second]),
            step(Compute("of b"), device=0, reads=[second]),
        ],
    )
    assert said[2:5] == ["place a", "place b", "compute of b"]


def test_a_step_waits_for_an_arrival_through_steps_of_other_ranks(group):
    """A push to another rank waits for one to this rank; a later reader needs both."""
    turn, over = Buffer("turn"), Buffer("round is over")
    said, _ = read(
        group,
        [
            step(Move("a"), device=0, source=1, writes=[turn]),
            step(Move("elsewhere"), device=2, source=1, reads=[turn], adds=[over]),
            step(Move("leaves"), device=1, source=0, reads=[over]),
        ],
    )
    assert said == ["receive 2 from 1 as 0", "place a", "send [0.0, 0.0] to 1 as 2", "finish"]


def test_a_collective_is_one_all_to_all_and_stays_under_way(group):
    kept = Buffer("kept")
    said, _ = read(
        group,
        [
            Collective(
                (
                    step(Move("own"), device=0, source=0),
                    step(Move("to 2"), device=2, source=0),
                    step(Move("from 1"), device=0, source=1, elements=3, writes=[kept]),
                    step(Move("others"), device=1, source=2),
                )
            ),
            step(Compute("meanwhile"), device=0),
            step(Compute("then"), device=0, reads=[kept]),
        ],
    )
    assert said == [
        "place own",
        "all-to-all [0.0, 0.0] [0, 0, 2] [0, 3, 0]",
        "receive 3 from all as 0",
        "compute meanwhile",
        "place from 1",
        "compute then",
        "finish",
    ]


def test_an_epoch_that_ends_before_its_time_leaves_no_message_behind(group):
    rank = Rank(group, Recorder(WallClock()), torch.float64, (0, 1, 2))
    moved = Transfer(lambda move: torch.zeros(2), lambda part, move: group.said.append("place"))
    bodies = rank.equip({Move: moved})
    rank.start_epoch()
    items = [step(Move("a"), device=0, source=1), Hold("nowhere", "rows", 1)]
    with pytest.raises(KeyError):
        take_items(rank.take(items), Recorder(WallClock()), Ledger({}), bodies, rank.arrive)
    rank.abandon()
    rank.finish()
    assert group.said == ["receive 2 from 1 as 0", "finish", "finish"]


def test_bytes_are_those_of_the_tensors_that_are_sent(group):
    moves = (("device_to_device", 16),)
    items = [
        step(Move("to 1"), device=1, source=0, moves=moves),
        step(Move("from 1"), device=0, source=1, moves=moves),
        step(Move("others"), device=1, source=2, moves=moves),
    ]
    _, recorder = read(group, items)
    assert recorder.end_epoch(0.0, [0.0], 1).bytes["device_to_device"] == 16


def test_a_message_of_another_size_than_the_program_says_is_not_sent(group):
    with pytest.raises(ValueError, match=r"would send 3 elements to rank 2 where .* says 2"):
        read(group, [step(Move("x"), device=2, source=0)], gives=3)


def test_a_host_that_trains_is_with_the_first_of_its_accelerators():
    platform = make_platform(3)
    assert assign_ranks((*platform.accelerators, platform.host), platform) == (0, 1, 2, 0)
    assert assign_ranks(platform.accelerators[1:], platform) == (0, 1)
    assert assign_ranks((platform.host,), platform) == (0,)


def test_other_numbers_of_processes_than_devices_are_refused(group):
    group.refuses = lambda ranks: None if ranks == 3 else f"{ranks} devices"
    bundle, setting = Case("hyscale", "small", "gcn").find(3)
    assert refuse_processes(bundle, setting, group) is None
    fewer = dataclasses.replace(setting, platform=make_platform(2))
    assert refuse_processes(bundle, fewer, group) == "2 devices"
