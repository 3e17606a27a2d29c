"""The error of modelled times, by kind of path, estimated from held-out measurements of the ledger.

A path is the kind of machine, the library, the kind of work, and the size of an epoch. The ledger's
epochs of the same kind of path give its band. With fewer than ``FEWEST_GROUPS`` independent
groups the kind has no basis, and all epochs on the same kind of machine give the band. If these are
too few as well, there is none. If epochs of the kernel and mode were measured on the platform
itself, these give the error (:mod:`gnnbench.price.calibration`).

Errors are logarithms of predicted over measured. One part of an error is shared by all measurements
of the same source, machine, graph, model and kernel; the rest is an entry's own. Half the mean
square of the differences of two such entries estimates the variance of an error's own part. If only
the kernels differ, it has the kernel's part as well. Rows of one comparison share a machine, a
graph and a model, so that only those two parts can put them in the wrong order.

``model_error.toml`` has the findings of the ledger of ``gnnbench reproduce validation``;
``python -m tests.ledger --write`` writes it, and a test checks it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import combinations
from pathlib import Path
from statistics import NormalDist, fmean
from typing import cast

import numpy as np

from gnnbench.constants import Bound
from gnnbench.host.toml import read_toml
from gnnbench.machines.machine import Platform
from gnnbench.price.held_out import find_group_factors, list_held_out, log_error
from gnnbench.records import (
    EpochWork,
    LedgerEntry,
    MachineKind,
    Mode,
    OwnError,
    PathKind,
    RunResult,
    SizeClass,
    WorkKind,
)

FILE = Path(__file__).with_name("model_error.toml")
#: The share of the held-out groups that are predicted within the factor.
COVERAGE: Bound[float] = 0.8
#: This many standard deviations to either side hold that share of a normal distribution.
DEVIATIONS = NormalDist().inv_cdf((1.0 + COVERAGE) / 2.0)
#: With fewer held-out groups of a kind of path, the error has no basis. With fewer pairs of
#: entries, the shared parts are those of all kinds.
FEWEST_GROUPS: Bound[int] = 8
FEWEST_PAIRS: Bound[int] = 8
#: Epochs that aggregate over more edges are large.
LARGE_EDGES: Bound[float] = 100e6


@dataclass(frozen=True, slots=True)
class ModelError:
    """The error of the model: ``COVERAGE`` of ``groups`` held-out groups are within ``factor``.

    ``own`` is the standard deviation of the own part of an error's logarithm, ``kernel`` that of
    the kernel's part.
    """

    groups: int
    factor: float
    own: float
    kernel: float

    @property
    def total(self) -> float:
        """The standard deviation of the whole error, for a normal distribution with ``factor``."""
        return math.log(self.factor) / DEVIATIONS


# --------------------------------------------------------------------------- kinds of paths


def find_kind(platform: Platform, devices: Iterable[str]) -> MachineKind:
    """Return the kind of machine that these devices of a platform are together.

    A described accelerator that is no GPU counts as an FPGA, and a CPU beside the host as a node.
    Devices made of one machine's cores count as its CPU.
    """
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


def find_path(
    kind: MachineKind | None,
    kernel: str,
    mode: Mode | None,
    edges: float,
    own: OwnError | None = None,
) -> PathKind | None:
    """Return the kind of path of an epoch over ``edges``, summed over layers.

    Return None if the kind of machine is unknown. A ``mode`` of None is a part of an epoch. ``own``
    is the error by epochs measured on the platform.
    """
    if kind is None:
        return None
    work: WorkKind = "part"
    if mode is not None:
        work = "full graph" if mode == "full-graph" else "sampled"
    size: SizeClass = "large" if edges > LARGE_EDGES else "small"
    return PathKind(kind, kernel.partition("-")[0], work, size, own)


def find_work_path(work: EpochWork, kernel: str, mode: Mode) -> PathKind | None:
    """Return the kind of path of a run's work; None on an unknown machine."""
    return find_path(work.kind, kernel, mode, work.edges, work.own_error)


def find_run_path(run: RunResult) -> PathKind | None:
    """Return the kind of path of a run; None without parts, work or a known machine."""
    if run.work is None or run.parts is None:
        return None
    return find_work_path(run.work, run.parts.kernel, run.mode)


def widen(path: PathKind) -> PathKind:
    """Return the kind of all epochs on the same kind of machine."""
    return PathKind(path.machine, "any", "any", "any")


def describe_path(path: PathKind) -> str:
    """Describe a kind of path: ``"gpu, dgl, sampled, up to 100 M edges per epoch"``."""
    if path == widen(path):
        return f"{path.machine}, all epochs"
    size = "over" if path.size == "large" else "up to"
    edges = f"{size} {LARGE_EDGES / 1e6:.0f} M edges per epoch"
    return f"{path.machine}, {path.library}, {path.work}, {edges}"


# --------------------------------------------------------------------------- estimated


def estimate_errors(entries: Sequence[LedgerEntry]) -> dict[PathKind, ModelError]:
    """Estimate errors by kind of path, from held-out epochs.

    All epochs on a kind of machine are a kind as well. A kind with fewer than ``FEWEST_GROUPS``
    groups is among them, with its number of groups.
    """
    held_out = list_held_out(entries)
    own, kernel = _find_parts(held_out, 0.0, 0.0)
    errors = {}
    epochs = [entry for entry in held_out if entry.path.work != "part"]
    paths = {path for entry in epochs for path in (entry.path, widen(entry.path))}
    for path in sorted(paths, key=str):
        chosen = [entry for entry in epochs if path in (entry.path, widen(entry.path))]
        factors = list(find_group_factors(chosen).values())
        factor = float(np.quantile(factors, COVERAGE, method="higher"))
        errors[path] = ModelError(len(factors), factor, *_find_parts(chosen, own, kernel))
    return errors


def _find_parts(entries: Sequence[LedgerEntry], own: float, kernel: float) -> tuple[float, float]:
    """Return the own and the kernel's part; ``own`` and ``kernel`` are those for too few pairs."""
    alike = _pair_variance(entries, lambda one, other: one.subject.kernel == other.subject.kernel)
    unlike = _pair_variance(entries, lambda one, other: one.subject.kernel != other.subject.kernel)
    if alike is not None:
        own = math.sqrt(alike)
    if unlike is not None:
        kernel = math.sqrt(max(0.0, unlike - own * own))
    return own, kernel


def _pair_variance(
    entries: Sequence[LedgerEntry], wanted: Callable[[LedgerEntry, LedgerEntry], bool]
) -> float | None:
    """Return half the mean square of the difference of two errors, over the wanted pairs.

    Pairs share source, machine, graph and model. Return None if there are too few.
    """
    halves = [
        (log_error(one) - log_error(other)) ** 2 / 2.0
        for one, other in combinations(entries, 2)
        if _share(one) == _share(other) and wanted(one, other)
    ]
    return fmean(halves) if len(halves) >= FEWEST_PAIRS else None


def _share(entry: LedgerEntry) -> tuple[str, ...]:
    return (entry.kind, entry.source, entry.machine, entry.subject.graph, entry.subject.model)


# --------------------------------------------------------------------------- kept


def write_errors(errors: Mapping[PathKind, ModelError], path: Path = FILE) -> None:
    """Write errors with four digits each, which rounding of a machine does not change."""
    tables = ["# Rewritten by python -m tests.ledger --write; see model_error.py."]
    for kind, error in errors.items():
        names = {"machine": kind.machine, "library": kind.library, "work": kind.work}
        lines = [
            f"{key} = {json.dumps(text)}" for key, text in (*names.items(), ("size", kind.size))
        ]
        lines += [f"groups = {error.groups}", f"factor = {error.factor:.4g}"]
        lines += [f"own = {error.own:.4g}", f"kernel = {error.kernel:.4g}"]
        tables.append("\n".join(["[[path]]", *lines]))
    path.write_text("\n\n".join(tables) + "\n", encoding="utf-8")


def read_errors(path: Path = FILE) -> dict[PathKind, ModelError]:
    """Read the errors that were written."""
    tables = read_toml(path).get("path", ())
    errors = {}
    for table in tables if isinstance(tables, list) else ():
        kind = PathKind(
            cast("MachineKind", table["machine"]),
            table["library"],
            cast("WorkKind", table["work"]),
            cast("SizeClass", table["size"]),
        )
        own, kernel = float(table["own"]), float(table["kernel"])
        errors[kind] = ModelError(int(table["groups"]), float(table["factor"]), own, kernel)
    return errors


_read_kept = cache(read_errors)


def find_basis(path: PathKind) -> PathKind | None:
    """Return the kind whose measurements give the error of a path.

    It is the path's kind, or else all epochs on its kind of machine. Return None if both have too
    few held-out groups.
    """
    kept = _read_kept()
    kinds = (path, widen(path))
    return next((k for k in kinds if k in kept and kept[k].groups >= FEWEST_GROUPS), None)


def error_of(path: PathKind) -> ModelError | None:
    """Return the error of a kind of path by its basis; None without one.

    Nothing is known of the parts of an error by epochs measured on the platform, so all of it
    counts as own.
    """
    if path.own is not None:
        groups, factor = path.own
        spread = math.log(factor) / DEVIATIONS
        return ModelError(groups, factor, spread, 0.0) if groups >= FEWEST_GROUPS else None
    basis = find_basis(path)
    return None if basis is None else _read_kept()[basis]


def describe_errors(paths: Iterable[PathKind]) -> str:
    """Describe the errors of kinds of paths, each once, and name those without a basis.

    Every screen that prints the error of a modelled time prints this text.
    """
    paths = list(paths)
    kept = _read_kept()
    bases = {path: find_basis(path) for path in paths if path.own is None}
    own = [describe_own_error(path, path.own) for path in paths if path.own is not None]
    told = [*dict.fromkeys(own)]
    told += [
        f"{100 * COVERAGE:.0f} % of {kept[basis].groups} held-out groups of measurements "
        f"({describe_path(basis)}) are within {kept[basis].factor:.2g}x of their prediction"
        for basis in dict.fromkeys(basis for basis in bases.values() if basis is not None)
    ]
    counts = {path: kept[path].groups if path in kept else 0 for path in bases}
    for lead, missing in (
        (
            f"a kind with fewer than {FEWEST_GROUPS} groups has the error of all epochs on its "
            "type of machine",
            [p for p, b in bases.items() if b not in (p, None)],
        ),
        (
            f"no basis for kinds with fewer than {FEWEST_GROUPS} held-out groups",
            [path for path, basis in bases.items() if basis is None],
        ),
    ):
        if missing:
            listed = ", ".join(f"({describe_path(p)}) has {counts[p]}" for p in missing)
            told.append(f"{lead}: {listed}")
    return "; ".join(told)


def describe_own_error(path: PathKind, own: OwnError) -> str:
    """Describe the error by epochs measured on the platform, or why it has no basis."""
    kind = f"({path.library}, {path.work})"
    if own.groups < FEWEST_GROUPS:
        return (
            f"no basis: {FEWEST_GROUPS} groups of epochs measured on the platform are needed, and "
            f"there are {own.groups} {kind}"
        )
    return (
        f"{100 * COVERAGE:.0f} % of {own.groups} groups of epochs measured on the platform {kind} "
        f"lie within {own.factor:.2g}x, each predicted by the others"
    )


def cite_errors(paths: Sequence[PathKind]) -> str:
    """Describe the errors of kinds of paths, with the commands that estimate them."""
    commands = [
        f"gnnbench {'platforms calibrate' if path.own else 'reproduce validation'}"
        for path in paths
    ]
    return f"{describe_errors(paths)} (see {', '.join(dict.fromkeys(commands))})"


def format_factor(factor: float) -> str:
    """Format a factor as ``"x/÷ 1.4"``."""
    return f"x/÷ {factor:.1f}" if factor < 10 else f"x/÷ {factor:.0f}"
