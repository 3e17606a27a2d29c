"""The error factor of modelled times, estimated from the ledger's untouched predictions.

Errors are logarithms of predicted over measured. One part of an error is shared by all measurements
of the same source, machine, graph, model and kernel; the rest is an entry's own. Half the mean
square of the differences of two such entries estimates the variance of an error's own part. If only
the kernels differ, it has the kernel's part as well. Rows of one comparison share a machine, a
graph and a model, so that only those two parts can put them in the wrong order.

``model_error.toml`` has the findings of the ledger of ``gnnbench reproduce validation``;
``python -m tests.ledger --write`` writes it, and a test checks it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import combinations
from pathlib import Path
from statistics import NormalDist, fmean
from typing import get_args

import numpy as np

from gnnbench.constants import Bound
from gnnbench.host.toml import read_toml
from gnnbench.machines.machine import Platform
from gnnbench.records import LedgerEntry, MachineKind

FILE = Path(__file__).with_name("model_error.toml")
#: The share of the measurements that are predicted within the factor.
COVERAGE: Bound[float] = 0.8
#: This many standard deviations to either side hold that share of a normal distribution.
DEVIATIONS = NormalDist().inv_cdf((1.0 + COVERAGE) / 2.0)
#: With fewer untouched entries of a kind, the entries of all kinds stand in. With fewer pairs of
#: entries, the shared parts are not estimated.
FEWEST_ENTRIES: Bound[int] = 8
FEWEST_PAIRS: Bound[int] = 8


@dataclass(frozen=True, slots=True)
class ModelError:
    """The error of the model: ``COVERAGE`` of ``entries`` measurements are within ``factor``.

    ``own`` is the standard deviation of the own part of an error's logarithm, ``kernel`` that of
    the kernel's part."""

    entries: int
    factor: float
    own: float
    kernel: float

    @property
    def total(self) -> float:
        """The standard deviation of the whole error, for a normal distribution with ``factor``."""
        return math.log(self.factor) / DEVIATIONS


def find_kind(platform: Platform, devices: Iterable[str]) -> MachineKind:
    """Return the kind of machine that these devices of a platform are together.

    A described accelerator that is no GPU counts as an FPGA, and a CPU beside the host as a node.
    Devices made of one machine's cores count as its CPU."""
    hosts = {host.name for host in platform.hosts}
    used = [device for device in platform.devices if device.name in set(devices)]
    beside = [device for device in used if device.name not in hosts]
    if any(device.kind not in ("cpu", "gpu") for device in beside):
        return "fpga"
    if len({platform.host_of(device).name for device in used}) > 1:
        return "multi-node"
    if any(device.kind == "cpu" and not device.pinned for device in beside):
        return "multi-node"
    if all(device.kind == "cpu" for device in beside):
        return "cpu"
    return "gpu" if len(beside) == 1 else "multi-gpu"


# --------------------------------------------------------------------------- estimated


def log_error(entry: LedgerEntry) -> float:
    """Return ln of the predicted time over the measured one; rates are inverted."""
    error = math.log(entry.predicted / entry.measured)
    return -error if entry.unit.endswith("/s") else error


def estimate_errors(entries: Sequence[LedgerEntry]) -> dict[str, ModelError]:
    """Estimate errors by kind of machine, and for ``all``, from entries nothing was fitted on."""
    untouched = [entry for entry in entries if not entry.fitted_on]
    pooled = _estimate(untouched, 0.0, 0.0)
    errors = {"all": pooled}
    for kind in get_args(MachineKind):
        chosen = [entry for entry in untouched if entry.kind == kind]
        if len(chosen) >= FEWEST_ENTRIES:
            errors[kind] = _estimate(chosen, pooled.own, pooled.kernel)
    return errors


def _estimate(entries: Sequence[LedgerEntry], own: float, kernel: float) -> ModelError:
    """Estimate the error; ``own`` and ``kernel`` are defaults for too few pairs."""
    errors = [abs(log_error(entry)) for entry in entries]
    factor = math.exp(float(np.quantile(errors, COVERAGE, method="higher")))
    alike = _pair_variance(entries, lambda one, other: one.kernel == other.kernel)
    unlike = _pair_variance(entries, lambda one, other: one.kernel != other.kernel)
    if alike is not None:
        own = math.sqrt(alike)
    if unlike is not None:
        kernel = math.sqrt(max(0.0, unlike - own * own))
    return ModelError(len(entries), factor, own, kernel)


def _pair_variance(
    entries: Sequence[LedgerEntry], wanted: Callable[[LedgerEntry, LedgerEntry], bool]
) -> float | None:
    """Return half the mean square of the difference of two errors, over the wanted pairs.

    Pairs share source, machine, graph and model. Return None if there are too few."""
    halves = [
        (log_error(one) - log_error(other)) ** 2 / 2.0
        for one, other in combinations(entries, 2)
        if _share(one) == _share(other) and wanted(one, other)
    ]
    return fmean(halves) if len(halves) >= FEWEST_PAIRS else None


def _share(entry: LedgerEntry) -> tuple[str, ...]:
    return (entry.kind, entry.source, entry.machine, entry.graph, entry.model)


# --------------------------------------------------------------------------- kept


def write_errors(errors: Mapping[str, ModelError], path: Path = FILE) -> None:
    """Write errors with four digits each, which rounding of a machine does not change."""
    heading = "# Rewritten by python -m tests.ledger --write; see model_error.py."
    tables = [
        f"[{kind}]\nentries = {error.entries}\nfactor = {error.factor:.4g}\n"
        f"own = {error.own:.4g}\nkernel = {error.kernel:.4g}"
        for kind, error in errors.items()
    ]
    path.write_text("\n\n".join([heading, *tables]) + "\n", encoding="utf-8")


def read_errors(path: Path = FILE) -> dict[str, ModelError]:
    """Read the errors that were written."""
    errors = {}
    for kind, table in read_toml(path).items():
        if isinstance(table, dict):
            own, kernel = float(table["own"]), float(table["kernel"])
            errors[kind] = ModelError(int(table["entries"]), float(table["factor"]), own, kernel)
    return errors


_read_kept = cache(read_errors)


def error_of(kind: MachineKind) -> ModelError:
    """Return the error for a kind of machine, or for all kinds if too few were measured."""
    errors = _read_kept()
    return errors.get(kind, errors["all"])


def describe_error(kind: MachineKind) -> str:
    """Describe an error as ``"x/÷ 1.4, within which 4 in 5 of 49 untouched measurements ..."``."""
    error, known = error_of(kind), kind in _read_kept()
    of = f"on {kind}" if known else f"of all kinds (too few are on {kind})"
    counted = f"{describe_share()} of {error.entries} untouched measurements {of} are predicted"
    return f"{format_factor(error.factor)}, within which {counted}"


def describe_share() -> str:
    """Return ``COVERAGE`` in words."""
    whole = round(1.0 / (1.0 - COVERAGE))
    return f"{whole - 1} in {whole}"


def format_factor(factor: float) -> str:
    """Format a factor as ``"x/÷ 1.4"``."""
    return f"x/÷ {factor:.1f}" if factor < 10 else f"x/÷ {factor:.0f}"
