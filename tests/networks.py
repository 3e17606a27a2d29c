"""Networks of nodes on this machine: each node is a network namespace, joined by a bridge."""

import contextlib
import ctypes
import os
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pytest

CLONE_NEWUTS, CLONE_NEWNET = 0x04000000, 0x40000000
#: The network of the nodes: 10.77.0.1 is the first one's address.
NETWORK = "10.77.0"


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


@dataclass(frozen=True)
class Network:
    """Nodes by the names of their namespaces, and the namespace of the bridge."""

    nodes: Sequence[str]
    bridge: str

    def enter(self, rank: int, size: int) -> None:
        """Move this process to the node of a rank, with torchrun's variables.

        The first node knows itself by its loopback, as Debian maps a host's name."""
        local_size = size // len(self.nodes)
        node = rank // local_size
        library = ctypes.CDLL(None, use_errno=True)
        with open(f"/run/netns/{self.nodes[node]}") as namespace:
            assert library.setns(namespace.fileno(), CLONE_NEWNET) == 0
        assert library.unshare(CLONE_NEWUTS) == 0
        name = f"node{node}".encode()
        assert library.sethostname(name, len(name)) == 0
        os.environ.update(
            RANK=str(rank),
            WORLD_SIZE=str(size),
            LOCAL_RANK=str(rank % local_size),
            LOCAL_WORLD_SIZE=str(local_size),
            GROUP_RANK=str(node),
            MASTER_ADDR=f"{NETWORK}.1" if node else "127.0.0.1",
        )

    def cut(self, node: int) -> None:
        """Cut a node off from all others."""
        ip("-n", self.bridge, "link", "set", f"port{node}", "down")


@contextlib.contextmanager
def make_network(count: int) -> Iterator[Network]:
    """Make a network of nodes, and remove it in the end."""
    name = f"gnnbench{os.getpid()}"
    network = Network([f"{name}n{number}" for number in range(count)], f"{name}bridge")
    try:
        for each in (*network.nodes, network.bridge):
            ip("netns", "add", each)
            ip("-n", each, "link", "set", "lo", "up")
        ip("-n", network.bridge, "link", "add", "bridge", "type", "bridge")
        ip("-n", network.bridge, "link", "set", "bridge", "up")
        for number, node in enumerate(network.nodes):
            port = f"port{number}"
            ip(*f"-n {node} link add lan type veth peer name {port} netns {network.bridge}".split())
            ip(*f"-n {node} addr add {NETWORK}.{number + 1}/24 dev lan".split())
            ip(*f"-n {network.bridge} link set {port} master bridge up".split())
            ip(*f"-n {node} link set lan up".split())
        yield network
    finally:
        for each in (*network.nodes, network.bridge):
            with contextlib.suppress(subprocess.CalledProcessError, FileNotFoundError):
                ip("netns", "del", each)


def need_networks() -> None:
    """Skip a test where this process may not make namespaces."""
    try:
        with make_network(1):
            pass
    except (subprocess.CalledProcessError, FileNotFoundError) as error:
        pytest.skip(f"network namespaces cannot be made here: {error}")
