"""What a rank makes of its environment and its devices, before it meets the others."""

import socket
from types import SimpleNamespace

import psutil
import pytest
import torch
from torch import distributed as group

from gnnbench.check.graphs import make_platform
from gnnbench.errors import UsageError
from gnnbench.host.rank import Place, read_place
from gnnbench.machines.nodes import NETWORK_BYTES_PER_S, Node, join_nodes
from gnnbench.machines.ranks import assign_ranks
from gnnbench.machines.workers import divide_machine
from gnnbench.run import network
from gnnbench.run.collectives import HOST, Processes
from gnnbench.run.joining import bind_device, choose_backend

GPUS = 4


@pytest.fixture
def gpus(monkeypatch, tmp_path):
    """A node with four CUDA devices, and the device that a process was bound to."""
    bound = []
    properties = SimpleNamespace(
        name="stub", multi_processor_count=10, total_memory=2**30, L2_cache_size=2**20
    )
    monkeypatch.setattr(group, "is_nccl_available", lambda: True)
    for name, stub in {
        "is_available": lambda: True,
        "device_count": lambda: GPUS,
        "get_device_properties": lambda _: properties,
        "set_device": bound.append,
    }.items():
        monkeypatch.setattr(torch.cuda, name, stub)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return bound


def make_place(rank, size, local_size):
    return Place(rank, size, rank % local_size, local_size, rank // local_size, "10.0.0.1", 29500)


def test_sixteen_ranks_on_four_nodes_have_a_gpu_each(gpus):
    """A rank is bound by its local rank, and a device of the platform is one of its own node."""
    places = [make_place(rank, 16, GPUS) for rank in range(16)]
    assert choose_backend([bind_device(place) for place in places]) == "cpu:gloo,cuda:nccl"
    assert gpus == [0, 1, 2, 3] * 4
    nodes = [Node(f"host{n}", divide_machine(GPUS), 2.5e9 if n else None) for n in range(4)]
    platform = join_nodes(nodes)
    assert [each.name for each in platform.accelerators] == [f"gpu{n}" for n in range(16)]
    assert [each.torch_device for each in platform.accelerators] == ["cuda:0", "cuda:1", "cuda:2",
                                                                     "cuda:3"] * 4  # fmt: skip
    assert assign_ranks(platform.accelerators, platform) == tuple(range(16))
    assert not platform.virtual
    assert all(f"host{n}: " in platform.description for n in range(4))
    for number, device in enumerate(platform.accelerators):
        assert platform.host_link(device) == platform.link("host", device.name)
        for other in platform.accelerators[:number]:
            link = platform.link(device.name, other.name)
            ends = sorted({int(name.removeprefix("gpu")) // GPUS for name in link.ends})
            cards = tuple(f"card{node}" for node in ends) if len(ends) > 1 else ()
            assert (link.via, link.shared) == (cards, bool(cards))
            assert {f"{link.name}.bandwidth", f"{link.name}.latency"} <= platform.sources.keys()
    for ends, speed, said in (
        (("gpu3", "gpu4"), NETWORK_BYTES_PER_S, "10 Gb/s"),  # the card of one node is not stated
        (("gpu4", "gpu15"), 2.5e9, "the operating systems: the slower card of the two nodes"),
    ):
        link = platform.link(*ends)
        assert link.bandwidth_bytes_per_s == speed
        assert platform.sources[f"{link.name}.bandwidth"] == said
    assert platform.sources["gpu15.memory"] == platform.sources["gpu0.memory"] == "CUDA"
    assert platform.mark("gpu15.memory").kind == "measured"


def test_ranks_without_a_gpu_each_share_the_processors(gpus):
    """Ranks of one job take one backend, so that one rank without a device decides for all."""
    assert not bind_device(make_place(4, 10, 5))
    assert gpus == []
    assert choose_backend([True, False]) == "gloo"
    platform = join_nodes([Node("a", divide_machine(5)), Node("b", divide_machine(5))])
    assert [each.name for each in platform.accelerators] == [f"worker{n}" for n in range(10)]
    assert {each.torch_device for each in platform.accelerators} == {"cpu"}
    assert platform.link("worker4", "worker5").shared


def test_the_devices_of_a_row_choose_the_way_of_its_messages():
    processes = object.__new__(Processes)
    on_cpus = make_platform(2).accelerators
    on_gpu = [SimpleNamespace(torch_device="cuda:1")]
    for nccl, trainers, device in (
        (True, on_gpu, torch.device("cuda")),
        (True, on_cpus, HOST),
        (False, on_gpu, HOST),
    ):
        processes._nccl = nccl
        processes.serve(trainers)
        assert processes.device == device


def set_environment(monkeypatch, text):
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK"):
        monkeypatch.delenv(name, raising=False)
    for word in text.split():
        monkeypatch.setenv(*word.split("="))


@pytest.mark.parametrize(
    ("environment", "place"),
    [
        ("", None),
        (
            "RANK=5 WORLD_SIZE=8 LOCAL_RANK=1 LOCAL_WORLD_SIZE=4 GROUP_RANK=1 MASTER_ADDR=n0 "
            "MASTER_PORT=7",
            Place(5, 8, 1, 4, 1, "n0", 7),
        ),
        (
            "RANK=1 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=7",
            Place(1, 2, 1, 2, 0, "127.0.0.1", 7),
        ),
        ("RANK=1 WORLD_SIZE=2 MASTER_ADDR=n0 MASTER_PORT=7", Place(1, 2, 0, 1, 1, "n0", 7)),
    ],
)
def test_the_place_of_a_rank(monkeypatch, environment, place):
    set_environment(monkeypatch, environment)
    assert read_place() == place


@pytest.mark.parametrize(
    ("environment", "says"),
    [
        ("RANK=2 WORLD_SIZE=2", "RANK is '2', not a whole number from 0 to 1; start the ranks by"),
        ("RANK=0 WORLD_SIZE=x", "WORLD_SIZE is 'x', not a whole number from 1"),
        ("RANK=0 WORLD_SIZE=2 LOCAL_WORLD_SIZE=3", "LOCAL_WORLD_SIZE is '3', not a whole"),
        ("RANK=0 WORLD_SIZE=4 LOCAL_RANK=2 LOCAL_WORLD_SIZE=2", "LOCAL_RANK is '2', not a whole"),
    ],
)
def test_a_wrong_place_is_refused(monkeypatch, environment, says):
    set_environment(monkeypatch, environment)
    with pytest.raises(UsageError) as refused:
        read_place()
    assert str(refused.value).startswith(says)


@pytest.fixture
def choose(monkeypatch):
    monkeypatch.setattr(psutil, "net_if_addrs", lambda: {"lo": [], "eth0": [], "eth1": []})

    def choose_interfaces(gloo, nccl):
        monkeypatch.setenv(network.GLOO, gloo)
        monkeypatch.setenv(network.NCCL, nccl)
        return network.read_chosen_interface()

    return choose_interfaces


@pytest.mark.parametrize(
    ("gloo", "nccl", "found"),
    [
        ("", "", None),
        ("eth1", "", "eth1"),
        ("", "eth", "eth0"),
        ("", "=eth1", "eth1"),
        ("", "^eth0", None),
    ],
)
def test_the_interface_that_the_user_chose(choose, gloo, nccl, found):
    assert choose(gloo, nccl) == found


@pytest.mark.parametrize(
    ("gloo", "nccl", "says"),
    [
        ("eth", "", "GLOO_SOCKET_IFNAME is 'eth', and this machine has no network interface 'eth'"),
        ("", "=eth", "NCCL_SOCKET_IFNAME is '=eth', and this machine has no network interface"),
        ("eth0", "ib", "NCCL_SOCKET_IFNAME is 'ib', and this machine has no network interface"),
    ],
)
def test_a_chosen_interface_must_be_there(choose, gloo, nccl, says):
    with pytest.raises(UsageError) as refused:
        choose(gloo, nccl)
    assert str(refused.value).startswith(says)


def test_the_way_to_this_machine_is_its_loopback():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        address = network.find_own_address("127.0.0.1", port)
    assert address == "127.0.0.1"
    name = network.find_interface(address)
    assert name is not None
    assert network.find_address(name) == address
    assert network.find_interface("192.0.2.1") is None
