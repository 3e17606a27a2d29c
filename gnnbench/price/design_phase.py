"""A design phase: a few rounds of mini-batch training before a run, to predict its time.

HyScale-GNN's section V takes T_samp from such rounds, and the rest from "platform metadata". Rounds
of the run's kernels on its graph say more than a probe on synthetic blocks. They give loading,
aggregation and update at their widths, and the time of a round besides all stages. The rounds draw
their own mini-batches with another seed, train their own model, and are discarded.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from gnnbench.constants import Bound
from gnnbench.machines.machine import Device, EdgeRates, LibraryRates, Platform, RateCurve
from gnnbench.machines.tables import replace_fields
from gnnbench.parts import Setting
from gnnbench.records import (
    AggregateWork,
    CopyWork,
    EpochTrace,
    LossWork,
    RowsWork,
    SampleWork,
    Span,
    UpdateWork,
)

#: Passes over this many rounds, of which the first warms up. The median of the others counts, since
#: other load on the machine affects some of them more than others.
DESIGN_ROUNDS: Bound[int] = 2
DESIGN_EPOCHS: Bound[int] = 8


@dataclass(slots=True)
class _Rate:
    """The amount done and the seconds it took, by the width of rows."""

    done: dict[int, tuple[float, float]] = field(default_factory=dict)

    def add(self, width: int, amount: float, seconds: float) -> None:
        before, taken_s = self.done.get(width, (0.0, 0.0))
        self.done[width] = before + amount, taken_s + seconds

    def at(self, width: int) -> float:
        amount, seconds = self.done[width]
        return amount / seconds


@dataclass(slots=True)
class DesignPhase:
    """The results of a few rounds with some number of threads.

    Rates are bytes/s of Equations 7 and 11, the latter forward and backward, and FLOP/s of Equation
    12, each by width. ``sample_s`` and ``fixed_s`` are seconds of one round. ``fixed_s`` is
    everything outside the equations, which a round of fewer vertices takes as well. ``vertices``
    and ``edges`` are |V^l| and |E^l| of a round on average.
    """

    gather: _Rate
    aggregate: _Rate
    aggregate_backward: _Rate
    update: _Rate
    sample_s: float
    fixed_s: float
    vertices: tuple[int, ...]
    edges: tuple[int, ...]


#: Trains a setting without prefetching, and returns its epochs.
Train = Callable[[Setting], Sequence[EpochTrace]]


def run_design_phase(
    setting: Setting, threads: int, train_epochs: Train, epochs: int
) -> DesignPhase:
    """Train ``DESIGN_ROUNDS`` rounds on the host alone, without prefetching, ``epochs`` times.

    Vertices are drawn from the training set, and ``threads`` threads are used. The first epoch
    warms up, and the median of the others by the wall clock counts. Seeds and mini-batches differ
    from the run's.
    """
    workload, data, host = setting.workload, setting.dataset, setting.platform.host
    seed = workload.seed + 1
    drawn = np.random.default_rng(seed).permutation(data.train_ids)
    chosen = drawn[: DESIGN_ROUNDS * workload.batch_size]
    mask = np.zeros_like(data.train_mask)
    mask[chosen] = True
    alone = Platform("design phase", "", replace(host, cores=threads), (), ())
    few = replace(
        setting,
        dataset=replace(data, train_mask=mask),
        workload=replace(workload, seed=seed, epochs=epochs, threads=threads),
        platform=alone,
    )
    by_time = sorted(train_epochs(few)[1:], key=lambda epoch: epoch.wall_s)
    counted = by_time[(len(by_time) - 1) // 2]
    rounds = len(chosen) / workload.batch_size
    return summarise_rounds(few, counted.spans, counted.wall_s, rounds)


def summarise_rounds(
    setting: Setting, spans: Sequence[Span], wall_s: float, rounds: float
) -> DesignPhase:
    """Return the rates in ``rounds`` whole rounds, each counted as in its equation."""
    item, layers = setting.workload.itemsize, setting.layers
    gather, aggregate, backward, update = (_Rate() for _ in range(4))
    vertices, edges = [0.0] * (len(layers) + 1), [0.0] * len(layers)
    sample_s = 0.0
    modelled_s = 0.0
    for span in spans:
        match span.work:
            case SampleWork():
                sample_s += span.seconds
            case RowsWork() as work:
                gather.add(work.features, work.bytes, span.seconds)
                vertices[0] += work.rows
            case AggregateWork() as work:
                if work.macs:
                    # These seconds include the product, which takes none besides.
                    update.add(layers[span.layer].narrow_side, math.inf, 1.0)
                rate = backward if work.backward else aggregate
                rate.add(work.features, work.edges * work.features * item, span.seconds)
                if not work.backward:
                    edges[span.layer] += work.edges
                    vertices[span.layer + 1] += work.rows
            case LossWork() | CopyWork():
                continue
            case UpdateWork() as work:
                layer = layers[span.layer]
                if not layer.macs_per_row:
                    continue
                update.add(layer.narrow_side, 2.0 * work.rows * layer.macs_per_row, span.seconds)
        modelled_s += span.seconds
    return DesignPhase(
        gather,
        aggregate,
        backward,
        update,
        sample_s / rounds,
        max(0.0, wall_s - modelled_s) / math.ceil(rounds),
        tuple(round(count / rounds) for count in vertices),
        tuple(round(count / rounds) for count in edges),
    )


def with_rates(host: Device, together: DesignPhase, alone: DesignPhase) -> Device:
    """Return the host with the design phase's rates, with every core and with one.

    Library rates are dropped except for sampling, since the new rates are of the same kernels on
    the same graph.
    """

    def curve(all_cores: _Rate, one_core: _Rate) -> RateCurve | None:
        widths = tuple(sorted(all_cores.done))
        if not widths:
            return None
        return RateCurve(widths, tuple(map(all_cores.at, widths)), tuple(map(one_core.at, widths)))

    return replace_fields(
        host,
        gather=curve(together.gather, alone.gather),
        aggregate=curve(together.aggregate, alone.aggregate),
        aggregate_backward=curve(together.aggregate_backward, alone.aggregate_backward),
        update=curve(together.update, alone.update),
        libraries={
            name: LibraryRates(
                edges=EdgeRates(
                    sampled_edges_per_s=rates.edges.sampled_edges_per_s,
                    sampling_call_s=rates.edges.sampling_call_s,
                )
            )
            for name, rates in host.libraries.items()
        },
    )


def with_design_phase(setting: Setting, train_epochs: Train, *, alone: bool) -> Setting:
    """Return the setting with the host's rates and a round's fixed cost from a design phase.

    With ``alone`` rates of one core are measured too, for stages that share the cores.
    """
    platform, cores = setting.platform, setting.platform.host.cores
    threads = min(cores, setting.workload.threads or cores)
    together = run_design_phase(setting, threads, train_epochs, DESIGN_EPOCHS)
    one = together
    if alone and threads > 1:
        one = run_design_phase(setting, 1, train_epochs, DESIGN_EPOCHS)
    host = with_rates(platform.host, together, one)
    # The fixed cost of a round includes that of steps. The rates are of whole stages.
    designed = replace(platform, host=host, round_s=together.fixed_s, step_s=0.0, calibration={})
    return replace(setting, platform=designed)
