"""The assumptions behind the SPU's lead over its rivals, each scaled towards the paper's speed-ups.

The steps of every machine on every stand-in are kept, and simulated again with another bandwidth,
clock or number of rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Annotated

import numpy as np

from gnnbench.constants import Bound, Constant
from gnnbench.records import Contradiction, IntArray
from gnnbench.reproduce.sensitivity import Assumption, Quantity, find_contradictions
from gnnbench_plugins.mixgcn.machines import Machine, Steps

#: A ratio outside of its range is explained however little it is off.
ANY: Bound[float] = 1e-3
#: What aggregates on the CPU.
CPU_BYTES_PER_S: Annotated[
    float, Constant("B/s", "quoted", "two Intel Xeon Platinum 8462Y+: 16 channels of DDR5-4800")
] = 614.4e9


@dataclass(frozen=True, slots=True)
class Epoch:
    """All aggregations of an epoch on one machine, at the size of the whole graph.

    The graph has ``whole`` times the stand-in's size. ``passes`` are the steps of each aggregation
    with its number of repetitions, and empty for a CPU.
    """

    seconds: float
    bytes: float
    energy_j: float
    occupancy: float
    whole: int = 1
    machine: Machine | None = None
    passes: tuple[tuple[Steps, int], ...] = ()


@dataclass(frozen=True)
class Scene:
    """A graph's epochs by machine, and factors of the numbers behind them.

    The factors are the ``clocks`` and the loaded ``rows`` by machine, the ``memory`` bandwidth of
    all accelerators, and the CPU's bandwidth.
    """

    epochs_by_machine: Mapping[str, Epoch]
    clocks: Mapping[str, float] = field(default_factory=dict)
    rows: Mapping[str, float] = field(default_factory=dict)
    memory: float = 1.0
    cpu_memory: float = 1.0

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


def scale_rows(steps: Steps, factor: float) -> Steps:
    """Return the steps with the loaded rows multiplied."""
    features: IntArray = np.rint(steps.loads["features"] * factor).astype(np.int64)
    return replace(steps, loads={**steps.loads, "features": features})


# --------------------------------------------------------------------------- assumptions


def _scale_clock(name: str, scene: Scene, factor: float) -> Scene:
    return replace(scene, clocks={name: factor})


def _scale_rows(name: str, scene: Scene, factor: float) -> Scene:
    return replace(scene, rows={name: factor})


def assume_speed(scene: Scene, rival: str) -> tuple[Assumption[Scene], ...]:
    """Return the assumptions behind a ratio of times."""
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
    """Return the bytes of rows, at the size of the whole graph."""
    found = sum(times * float(steps.loads["features"].sum()) for steps, times in epoch.passes)
    return found * epoch.whole


BANDWIDTH = Assumption[Scene](
    "the HBM's bandwidth",
    1024e9,
    "B/s",
    "section 4.1",
    lambda scene, factor: replace(scene, memory=factor),
)  # --------------------------------------------------------------------------- sentences


def ask_speed(title: str, rival: str, quoted: float | None) -> Quantity[Scene]:
    """Ask for the SPU's speed over a machine's."""
    return Quantity(
        f"SPU over {rival} on {title}",
        lambda scene: scene.seconds(rival) / scene.seconds("SPU"),
        quoted,
        "x",
    )


def explain_speeds(
    title: str, epochs: Mapping[str, Epoch], ranges: Mapping[str, tuple[float, float]]
) -> tuple[Contradiction, ...]:
    """Explain each speed-up of the SPU that is outside the paper's range."""
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
