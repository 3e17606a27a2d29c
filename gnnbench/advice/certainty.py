"""How wrong a modelled epoch may be, from what others measured: the validation ledger's errors."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from gnnbench.platforms.machine import Platform
from gnnbench.records import MachineKind
from gnnbench.toml import read_toml

#: Written by ``python -m suites.advice --write-factors``.
FACTORS = Path(__file__).with_name("error_factors.toml")
#: The error of so large a share of the measurements of a kind is within its factor.
SHARE = 0.8


@cache
def read_factors() -> dict[str, float]:
    """By kind of machine, the factor within which ``SHARE`` of its measurements are predicted."""
    factors = read_toml(FACTORS)["factors"]
    if not isinstance(factors, dict):
        raise TypeError(f"{FACTORS} has no table of factors")
    return {str(kind): float(factor) for kind, factor in factors.items()}


def find_error_factor(kind: MachineKind) -> float | None:
    """The factor within which ``SHARE`` of the measurements of a kind are predicted; None of one
    for which there is none."""
    return read_factors().get(kind)


def find_machine_kind(platform: Platform, names: tuple[str, ...]) -> MachineKind | None:
    """Which kind of measurements devices of these names are judged by; None where no kind is."""
    devices = [platform.device(name) for name in names]
    accelerators = [device for device in devices if device not in platform.hosts]
    if any(device.kind == "sparse" for device in accelerators):
        return None
    if any(device.kind == "fpga" for device in accelerators):
        return "fpga"
    if len({platform.host_of(device).name for device in devices}) > 1:
        return "multi-node"
    if len(accelerators) > 1:
        return "multi-gpu"
    return "gpu" if accelerators else "cpu"
