"""The numbers of platforms that a study's predictions rest on, each to be scaled alone.

Studies keep their platforms in records of their own. How a change gets there is the study's to say:
``apply`` is given its record and a change of a platform, and gives the record with that change.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeAlias, TypeVar

from gnnbench.machines.machine import Device, Platform, RateCurve
from gnnbench.machines.tables import replace_fields
from gnnbench.reproduce.sensitivity import Assumption, scale_field

M = TypeVar("M")
Change: TypeAlias = Callable[[Platform], Platform]
Apply: TypeAlias = Callable[[M, Change], M]
#: A platform with one of its numbers multiplied by a factor.
Scaling: TypeAlias = Callable[[Platform, float], Platform]


def scale_curve(curve: RateCurve | None, factor: float) -> RateCurve | None:
    """Return a device's curve with all its rates multiplied, where it has one."""
    return None if curve is None else curve.map_rates(lambda rate: factor * rate)


def scale_loading(device: Device, factor: float) -> Device:
    """Scale Equation 7 of a host."""
    return replace_fields(device, gather=scale_curve(device.rates.gather, factor))


def scale_trainer(device: Device, factor: float) -> Device:
    """Scale Equations 11 and 12 of a CPU trainer."""
    return replace_fields(
        device,
        aggregate=scale_curve(device.rates.aggregate, factor),
        update=scale_curve(device.rates.update, factor),
    )


def scale_links(platform: Platform, factor: float) -> Platform:
    """Multiply the bandwidth of all links by a factor."""
    links = tuple(
        replace(link, bandwidth_bytes_per_s=factor * link.bandwidth_bytes_per_s)
        for link in platform.links
    )
    return replace(platform, links=links)


def _of_host(change: Callable[[Device, float], Device]) -> Scaling:
    return lambda platform, factor: replace(platform, host=change(platform.host, factor))


def _of_accelerators(kind: str, change: Callable[[Device, float], Device]) -> Scaling:
    def scale(platform: Platform, factor: float) -> Platform:
        devices = (
            change(each, factor) if each.kind == kind else each for each in platform.accelerators
        )
        return replace(platform, accelerators=tuple(devices))

    return scale


def _within(apply: Apply[M], scale: Scaling) -> Callable[[M, float], M]:
    return lambda model, factor: apply(model, lambda platform: scale(platform, factor))


def host_assumptions(
    platform: Platform, apply: Apply[M], trainer: str = "the CPU trainer"
) -> tuple[Assumption[M], ...]:
    """List loading, sampling and training of a host, called ``trainer``, as assumptions."""
    host, sources = platform.host, platform.sources
    sampling: Callable[[Device, float], Device] = scale_field("rates.sampled_edges_per_s")
    return (
        Assumption(
            "the rate at which the host loads rows", host.gather_bytes_per_s(1), "B/s",
            sources["host.gather"], _within(apply, _of_host(scale_loading)),
        ),
        Assumption(
            "the rate at which a core samples", host.rates.sampled_edges_per_s, "edges/s",
            sources["host.sampling"], _within(apply, _of_host(sampling)),
        ),
        Assumption(
            f"{trainer}'s aggregation and update", host.aggregate_bytes_per_s(1), "B/s",
            sources["host.aggregate"], _within(apply, _of_host(scale_trainer)),
        ),
    )  # fmt: skip


def accelerator_assumptions(
    platform: Platform, kind: str, apply: Apply[M]
) -> tuple[Assumption[M], ...]:
    """List memory, arithmetic and links of the accelerators of a kind, ``"gpu"`` or ``"fpga"``."""
    device = next(each for each in platform.accelerators if each.kind == kind)
    sources, group, name = platform.sources, device.name.rstrip("0123456789"), kind.upper()

    def scale(field: str) -> Callable[[M, float], M]:
        return _within(apply, _of_accelerators(kind, scale_field(field)))

    return (
        Assumption(
            f"the {name}'s memory bandwidth", device.hardware.memory_bandwidth_bytes_per_s, "B/s",
            sources[f"{group}.memory_bandwidth"], scale("hardware.memory_bandwidth_bytes_per_s"),
        ),
        Assumption(
            f"the {name}'s arithmetic rate", device.hardware.flops_per_s, "FLOP/s",
            sources[f"{group}.flops"], scale("hardware.flops_per_s"),
        ),
        Assumption(
            f"the {name}'s PCIe link", platform.host_link(device).bandwidth_bytes_per_s, "B/s",
            sources[f"host-{group}.bandwidth"], _within(apply, scale_links),
        ),
    )  # fmt: skip
