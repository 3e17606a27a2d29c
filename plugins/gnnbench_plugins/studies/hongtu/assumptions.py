"""The rates behind the predictions of HongTu's epochs, each scaled towards the paper's numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial

from gnnbench.machines.machine import Device, Link
from gnnbench.records import Contradiction
from gnnbench.reproduce.sensitivity import Assumption, Quantity, find_contradictions, scale_field
from gnnbench_plugins.studies.hongtu.quoted import GCN_CPU, LARGE, TABLE_7, TABLE_9
from gnnbench_plugins.studies.hongtu.server import (
    HOST_STAGE,
    Case,
    Server,
    add_at,
    added_rate,
    change_links,
    fitted_server,
    scale_sockets,
)


def _scale_links(server: Server, factor: float) -> Server:
    def change(link: Link) -> Link:
        return replace(link, bandwidth_bytes_per_s=factor * link.bandwidth_bytes_per_s)

    return replace(server, platform=change_links(server.platform, change))


def _pick_slower(server: Server, factor: float) -> Server:
    def change(link: Link) -> Link:
        return replace(link, picked_bytes_per_s=factor * link.bandwidth_bytes_per_s)

    return replace(server, platform=change_links(server.platform, change))


def _scale_sockets(server: Server, factor: float) -> Server:
    return replace(server, platform=scale_sockets(server.platform, factor))


def _scale_additions(server: Server, factor: float) -> Server:
    return replace(server, platform=add_at(server.platform, factor * added_rate(server)))


def _scale_gpus(change: Callable[[Device, float], Device], server: Server, factor: float) -> Server:
    gpus = tuple(change(device, factor) for device in server.platform.accelerators)
    return replace(server, platform=replace(server.platform, accelerators=gpus))


def list_assumptions(server: Server) -> tuple[Assumption[Server], ...]:
    """Return the rates of the platform, and the traffic counted of GAT's edges."""
    platform = server.platform
    gpu, link = platform.accelerators[0], server.link_bytes_per_s
    sources = platform.sources
    return (
        Assumption("host links", link, "B/s", "measured elsewhere", _scale_links),
        Assumption(
            "the rate of rows picked over host links", link, "B/s",
            "assumed as fast as blocks, and never faster", _pick_slower,
        ),
        Assumption(
            "a GPU's share of the link between sockets",
            platform.host.memory.socket_bandwidth_bytes_per_s, "B/s",
            sources.get("host.socket_bandwidth", "assumed").partition(":")[0], _scale_sockets,
        ),
        Assumption(
            "the host's additions", added_rate(server), "B/s", "fitted, section 7.4",
            _scale_additions,
        ),
        Assumption(
            "the GPUs' memory", gpu.hardware.memory_bandwidth_bytes_per_s, "B/s", "datasheet",
            partial(_scale_gpus, scale_field("hardware.memory_bandwidth_bytes_per_s")),
        ),
        Assumption(
            "the traffic of GAT's edges", server.edge_traffic, "", "counted from Equation 3",
            scale_field("edge_traffic"),
        ),
    )  # fmt: skip


def time_case(case: Case, quoted: float | None) -> Quantity[Server]:
    """Return the seconds of an epoch as a quantity."""
    return Quantity(str(case), lambda server: server.epoch_s(case), quoted, "s")


def share_case(case: Case, what: str, quoted: float, *stages: str) -> Quantity[Server]:
    """Return the percentage of an epoch that goes to some stages, as a quantity."""
    return Quantity(
        f"{what} of {case}", lambda server: server.share_percent(case, *stages), quoted, "%"
    )


def list_headlines() -> tuple[Quantity[Server], ...]:
    """List the numbers that every scaled rate is compared with.

    They are epochs of 2-layer GCN with and without deduplication, and the CPU's share of one.
    """
    times = [time_case(Case(graph), TABLE_7[2, graph.label][1]) for graph in LARGE[:2]]
    plain = TABLE_9["HongTu w/o CD"][2] / 100
    return (
        *times,
        time_case(Case(LARGE[2], method="baseline"), plain),
        share_case(Case(LARGE[1]), "the CPU's share", GCN_CPU, HOST_STAGE),
    )


def explain(quantities: Iterable[Quantity[Server]]) -> tuple[Contradiction, ...]:
    """Find the assumption that would bring each quantity that is far off to the paper's."""
    model = fitted_server()
    return find_contradictions(model, tuple(quantities), list_assumptions(model), list_headlines())
