"""What the SPU's lead over its rivals rests on, and what would have to be otherwise.

The steps of every machine on every stand-in are kept, so that another bandwidth, clock, number of
rows or energy is a matter of going through them again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Annotated

import numpy as np

from gnnbench.constants import Bound, Constant
from gnnbench.records import Contradiction, IntArray
from gnnbench.sensitivity import Assumption, Quantity, find_contradictions
from gnnbench_plugins.mixgcn.machines import (
    ADD_J,
    DRAM_J_PER_BYTE,
    FLOAT_BYTES,
    SRAM_J_PER_BYTE,
    Machine,
    Steps,
)

#: A ratio outside of its range is explained however little it is off.
ANY: Bound[float] = 1e-3
#: What aggregates on the CPU.
CPU_BYTES_PER_S: Annotated[
    float, Constant("B/s", "quoted", "two Intel Xeon Platinum 8462Y+: 16 channels of DDR5-4800")
] = 614.4e9


@dataclass(frozen=True, slots=True)
class Epoch:
    """All aggregations of an epoch on one machine, at the size of the whole graph, which is so many
    times the stand-in, and where they are known the steps of each, and how often it is made."""

    seconds: float
    bytes: float
    energy_j: float
    occupancy: float
    adds: float
    whole: int = 1
    machine: Machine | None = None
    passes: tuple[tuple[Steps, int], ...] = ()


@dataclass(frozen=True)
class Scene:
    """A graph's epochs by machine, some of what they rest on multiplied by a factor: ``clocks`` and
    ``rows``, which are loaded, by machine; ``memory``, the bandwidth of all accelerators; the
    joules of a byte and of an addition; the CPU's memory and power; how many ``epochs`` are
    counted."""

    epochs_by_machine: Mapping[str, Epoch]
    clocks: Mapping[str, float] = field(default_factory=dict)
    rows: Mapping[str, float] = field(default_factory=dict)
    memory: float = 1.0
    dram: float = 1.0
    sram: float = 1.0
    add: float = 1.0
    cpu_memory: float = 1.0
    cpu_power: float = 1.0
    epochs: float = 1.0

    def seconds(self, name: str) -> float:
        epoch = self.epochs_by_machine[name]
        if epoch.machine is None:
            return epoch.seconds / self.cpu_memory
        clock, rows = self.clocks.get(name, 1.0), self.rows.get(name, 1.0)
        if clock == rows == self.memory == 1.0:
            return epoch.seconds
        machine = replace(
            epoch.machine,
            clock_hz=round(epoch.machine.clock_hz * clock),
            bandwidth_bytes_per_s=round(epoch.machine.bandwidth_bytes_per_s * self.memory),
        )
        return sum(
            times * machine.simulate(scale_rows(steps, rows)).seconds
            for steps, times in epoch.passes
        )

    def energy_j(self, name: str) -> float:
        epoch = self.epochs_by_machine[name]
        if epoch.machine is None:
            return self.epochs * self.cpu_power * epoch.energy_j
        buffered = FLOAT_BYTES * epoch.adds + epoch.bytes
        return self.epochs * (
            self.add * ADD_J * epoch.adds
            + self.sram * SRAM_J_PER_BYTE * buffered
            + self.dram * DRAM_J_PER_BYTE * epoch.bytes
        )


def scale_rows(steps: Steps, factor: float) -> Steps:
    """Steps that load so many times the rows."""
    features: IntArray = np.rint(steps.loads["features"] * factor).astype(np.int64)
    return replace(steps, loads={**steps.loads, "features": features})


# --------------------------------------------------------------------------- assumptions


def _scale_clock(name: str, scene: Scene, factor: float) -> Scene:
    return replace(scene, clocks={name: factor})


def _scale_rows(name: str, scene: Scene, factor: float) -> Scene:
    return replace(scene, rows={name: factor})


def assume_speed(scene: Scene, rival: str) -> tuple[Assumption[Scene], ...]:
    """What a ratio of times rests on."""
    if scene.epochs_by_machine[rival].machine is None:
        return (
            Assumption(
                "the CPU's memory", CPU_BYTES_PER_S, "B/s",
                "datasheet, a row for every edge",
                lambda scene, factor: replace(scene, cpu_memory=factor),
            ),
            *_assume_machine(scene, "SPU"),
        )  # fmt: skip
    return (*_assume_machine(scene, rival), *_assume_machine(scene, "SPU"))


def _assume_machine(scene: Scene, name: str) -> Iterator[Assumption[Scene]]:
    epoch = scene.epochs_by_machine[name]
    if epoch.machine is None:
        return
    clock, rows = float(epoch.machine.clock_hz), _count_row_bytes(epoch)
    yield Assumption(f"{name}'s clock", clock, "Hz", "section 4.4.1", partial(_scale_clock, name))
    yield Assumption(
        f"the rows that {name} loads", rows, "B", "counted on the stand-in",
        partial(_scale_rows, name),
    )  # fmt: skip


def _count_row_bytes(epoch: Epoch) -> float:
    """Bytes of rows, at the size of the whole graph."""
    found = sum(times * float(steps.loads["features"].sum()) for steps, times in epoch.passes)
    return found * epoch.whole


BANDWIDTH = Assumption[Scene](
    "the HBM's bandwidth",
    1024e9,
    "B/s",
    "section 4.1",
    lambda scene, factor: replace(scene, memory=factor),
)
ENERGIES = (
    Assumption[Scene](
        "the epochs that joules are of", 1.0, "", "not said in the paper",
        lambda scene, factor: replace(scene, epochs=factor),
    ),
    Assumption[Scene](
        "energy of a byte of DRAM", DRAM_J_PER_BYTE, "J", "Horowitz 2014",
        lambda scene, factor: replace(scene, dram=factor),
    ),
    Assumption[Scene](
        "energy of a byte of SRAM", SRAM_J_PER_BYTE, "J", "Horowitz 2014",
        lambda scene, factor: replace(scene, sram=factor),
    ),
)  # fmt: skip
CPU_ENERGIES = (
    ENERGIES[0],
    Assumption[Scene](
        "the CPU's power", 600.0, "W", "two TDPs",
        lambda scene, factor: replace(scene, cpu_power=factor),
    ),
)  # fmt: skip

# --------------------------------------------------------------------------- sentences


def ask_speed(title: str, rival: str, quoted: float | None) -> Quantity[Scene]:
    """The SPU's speed over a machine's."""
    return Quantity(
        f"SPU over {rival} on {title}",
        lambda scene: scene.seconds(rival) / scene.seconds("SPU"),
        quoted,
        "x",
    )


def ask_energy(title: str, name: str, quoted: float) -> Quantity[Scene]:
    """Joules of a machine."""
    return Quantity(f"{name} on {title}", lambda scene: scene.energy_j(name), quoted, "J")


def explain_speeds(
    title: str, epochs: Mapping[str, Epoch], ranges: Mapping[str, tuple[float, float]]
) -> tuple[Contradiction, ...]:
    """Of each machine over which the SPU's speed is outside the paper's range."""
    scene = Scene(epochs)
    told: list[Contradiction] = []
    others = [ask_speed(title, name, None) for name in ranges]
    for rival, ends in ranges.items():
        ratio = scene.seconds(rival) / scene.seconds("SPU")
        if not ends[0] <= ratio <= ends[1]:
            quoted = min(ends, key=lambda end: abs(end - ratio))
            assumptions = [*assume_speed(scene, rival), BANDWIDTH]
            held = [other for other in others if rival not in other.label]
            asked = [ask_speed(title, rival, quoted)]
            told += find_contradictions(scene, asked, assumptions, held, tolerance=ANY)
    return tuple(told)


def explain_energies(
    title: str, epochs: Mapping[str, Epoch], names: Sequence[str], joules: Sequence[float]
) -> tuple[Contradiction, ...]:
    """Of each machine whose joules are far from the paper's."""
    scene = Scene(epochs)
    quantities = [
        ask_energy(title, name, quoted) for name, quoted in zip(names, joules, strict=True)
    ]
    told: list[Contradiction] = []
    for name, quantity in zip(names, quantities, strict=True):
        assumptions = CPU_ENERGIES if epochs[name].machine is None else ENERGIES
        told += find_contradictions(scene, [quantity], assumptions, quantities)
    return tuple(told)
