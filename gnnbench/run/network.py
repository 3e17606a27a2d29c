"""The network interface through which this node reaches the other nodes of a job.

Gloo and NCCL listen on the interface of the machine's name unless a variable names another one. On
many machines that is the loopback. So the interface is taken from the route to another node.
"""

from __future__ import annotations

import os
import socket

import psutil

from gnnbench.errors import UsageError

#: The variables by which a user chooses the interface.
GLOO, NCCL = "GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"


def find_own_address(address: str, port: int) -> str:
    """Return this machine's address on the route to another one.

    Raises ``OSError`` without a route.
    """
    family, kind, protocol, _, where = socket.getaddrinfo(address, port, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, kind, protocol) as probe:
        probe.connect(where)
        return str(probe.getsockname()[0])


def find_interface(address: str) -> str | None:
    """Return the interface that has an address of this machine."""
    for name, addresses in psutil.net_if_addrs().items():
        if any(each.address.partition("%")[0] == address for each in addresses):
            return str(name)
    return None


def find_address(interface: str) -> str | None:
    """Return the first address of an interface, an IPv4 address if it has one."""
    kinds = {each.family: each.address for each in psutil.net_if_addrs().get(interface, [])}
    found = kinds.get(socket.AF_INET) or kinds.get(socket.AF_INET6)
    return None if found is None else str(found).partition("%")[0]


def read_chosen_interface() -> str | None:
    """Return the interface that the user has chosen for gloo, or else for NCCL; None without one.

    Raises ``UsageError`` if this machine does not have an interface that a variable names.
    """
    known = sorted(psutil.net_if_addrs())
    chosen = []
    for variable in (GLOO, NCCL):
        wanted = os.environ.get(variable, "")
        for name in wanted.split(",") if wanted and not wanted.startswith("^") else ():
            # NCCL takes a name for the beginning of several names, unless it follows "=".
            whole = variable == GLOO or name.startswith("=")
            plain = name.lstrip("=") if variable == NCCL else name
            found = [
                each for each in known if each == plain or (not whole and each.startswith(plain))
            ]
            if not found:
                raise UsageError(
                    f"{variable} is {wanted!r}, and this machine has no network interface "
                    f"{plain!r}; set it to one of {', '.join(known)}, or leave it unset."
                )
            chosen.append(found[0])
    return chosen[0] if chosen else None


def use_interface(name: str) -> None:
    """Have gloo and NCCL use an interface, unless the user has chosen another one."""
    os.environ.setdefault(GLOO, name)
    os.environ.setdefault(NCCL, f"={name}")


def link_bytes_per_s(interface: str) -> float | None:
    """Return the speed of an interface as the operating system states it, one way, bytes/s."""
    found = psutil.net_if_stats().get(interface)
    return found.speed * 1e6 / 8 if found is not None and found.speed > 0 else None
