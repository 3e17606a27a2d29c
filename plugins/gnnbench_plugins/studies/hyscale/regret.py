"""What Algorithm 1 loses to the best split where the machine is not the one it was planned for.

The performance model makes the first split, and guards the moves. A clock that shares its equations
and its rates would be an oracle; here rounds take what another machine takes: one whose stages are
slower than described by a factor, or whose FPGAs take HP-GNN's cycles on the very mini-batches, and
whose rounds vary as mini-batches do. Everything is modelled, and nothing is trained.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from statistics import fmean
from typing import Annotated

import numpy as np

from gnnbench import datasets
from gnnbench.constants import Bound, Constant
from gnnbench.models import build
from gnnbench.parts import Setting
from gnnbench.platforms import load_platform
from gnnbench.records import BatchProfile, Cell, StageTimes, Table, TableRow, Unit, Workload
from gnnbench_plugins.hpgnn.boards import load_board
from gnnbench_plugins.hpgnn.cycles import make_machine, run_iteration, seconds_of
from gnnbench_plugins.hpgnn.resources import Design
from gnnbench_plugins.hpgnn.sampler import HpgnnSampler
from gnnbench_plugins.hyscale.performance import (
    Prediction,
    Split,
    divide_threads,
    plan_split,
    predict,
)
from gnnbench_plugins.hyscale.placement import HyScalePlacement, HyScaleSession
from gnnbench_plugins.studies.hyscale.tables import FPGAS

GRAPH = "sbm:vertices=100000,edges=1000000,classes=8,features=128"
DIMS: Bound[tuple[int, ...]] = (128, 128, 8)
FANOUTS: Bound[tuple[int, ...]] = (10, 10)
TOTAL: Bound[int] = 1024
SIZES = (16, 64, 128, 256, 512, TOTAL)
#: HyScale-GNN's Table IV, a quarter on each die.
DESIGN = Design(n=2, m=512)
ROUNDS: Bound[int] = 80
LAST: Bound[int] = 40
#: The standard deviation of a stage's time from round to round, of its mean: mini-batches differ.
SPREAD: Annotated[float, Constant("", "assumed", "spread of mini-batches' sizes")] = 0.03
SHARES: Bound[int] = 64
RULES: Mapping[str, HyScalePlacement] = {
    "static, as planned": HyScalePlacement(drm=False),
    "Algorithm 1, guarded": HyScalePlacement(),
    "Algorithm 1, plain": HyScalePlacement(guard="none"),
    "proportional, guarded": HyScalePlacement(rule="proportional"),
    "proportional, plain": HyScalePlacement(rule="proportional", guard="none"),
}


@dataclass(frozen=True, slots=True)
class Clock:
    """What rounds take: how many times as long as described each stage is, whether FPGAs train by
    the equations or by cycles, and what each stage takes besides."""

    label: str
    sample: float = 1.0
    load: float = 1.0
    transfer: float = 1.0
    train_cpu: float = 1.0
    train_accelerator: float = 1.0
    cycles: bool = False
    fixed_s: float = 0.0


CLOCKS = (
    Clock("as described"),
    Clock("FPGAs by cycles", cycles=True),
    Clock("CPU trainer 2 times as slow", train_cpu=2.0),
    Clock("CPU trainer 2 times as fast", train_cpu=0.5),
    Clock("sampling 4 times as slow", sample=4.0),
    Clock("loading 4 times as slow", load=4.0),
    Clock("links 2 times as slow", transfer=2.0),
    Clock("FPGAs 2 times as slow", train_accelerator=2.0),
    Clock("CPU trainer 2 times as slow, sampling 4 times", train_cpu=2.0, sample=4.0),
    Clock("every stage 500 us longer", fixed_s=5e-4),
)


@cache
def make_setting() -> tuple[Setting, tuple[BatchProfile, ...], tuple[float, ...]]:
    """The run, sampled sizes, and the seconds that a board's cycles take for each size."""
    platform = load_platform(FPGAS)
    workload = Workload("gcn", DIMS, 1, TOTAL, FANOUTS, 0, threads=1)
    setting = Setting(datasets.load(GRAPH), platform, workload, build(workload).shapes)
    sampler = HpgnnSampler()
    sampler.begin(setting)
    seeds = setting.dataset.train_ids
    machine = make_machine(load_board("u250"), DESIGN)
    profiles, seconds = [], []
    for size in SIZES:
        blocks = sampler.sample(seeds[:size], 0, 1)
        unit = Unit(0, blocks)
        profiles.append(BatchProfile(size, unit.vertices, unit.edges))
        _, cycles = run_iteration(blocks, setting.layers, machine, DESIGN.m)
        seconds.append(seconds_of(cycles, machine))
    return setting, tuple(profiles), tuple(seconds)


def take(clock: Clock, split: Split) -> Prediction:
    """An iteration under a split, on a clock."""
    setting, profiles, cycles_s = make_setting()
    devices, host = setting.platform.accelerators, setting.platform.host
    said = predict(setting, profiles, devices, split)
    trained_s = said.train_accelerator_s
    if clock.cycles:
        each = (TOTAL - split.cpu_seeds) / len(devices)
        trained_s = float(np.interp(each, (0, *SIZES), (0.0, *cycles_s)))
    taken = replace(
        said,
        sample_s=clock.sample * said.sample_s + clock.fixed_s,
        load_s=clock.load * said.load_s + clock.fixed_s,
        transfer_s=clock.transfer * said.transfer_s + clock.fixed_s,
        train_cpu_s=clock.train_cpu * said.train_cpu_s + clock.fixed_s,
        train_accelerator_s=clock.train_accelerator * trained_s + clock.fixed_s,
    )
    threads = split.threads
    stages = (
        (taken.sample_s, threads.sample),
        (taken.load_s, threads.load),
        (taken.train_cpu_s, threads.train),
    )
    return replace(taken, busy_s=sum(each * used / host.cores for each, used in stages))


def best_static(clock: Clock) -> float:
    """The shortest iteration of all splits into ``SHARES`` shares and eighths of the threads."""
    setting, _, _ = make_setting()
    shares = [round(TOTAL * part / SHARES) for part in range(SHARES + 1)]
    ways = divide_threads(setting.platform.host.cores)
    return min(take(clock, Split(seeds, way)).execution_s for seeds in shares for way in ways)


def settle(clock: Clock, placement: HyScalePlacement) -> float:
    """The mean of the last ``LAST`` of ``ROUNDS`` iterations under a rule. The rule sees stages
    that vary from round to round; what it chose is priced by their means."""
    setting, profiles, _ = make_setting()
    random = np.random.default_rng(0)
    session = HyScaleSession(placement, setting, profiles, 2)
    seconds = []
    for _ in range(ROUNDS):
        session.split(TOTAL)
        assigned = session.history[-1]
        taken = take(clock, Split(assigned.cpu_seeds, assigned.threads))
        seconds.append(taken.execution_s)
        sample, load, transfer, cpu, accelerator = np.exp(SPREAD * random.standard_normal(5))
        session.observe(
            StageTimes(
                sample_cpu=float(sample) * taken.sample_s,
                load=float(load) * taken.load_s,
                transfer=float(transfer) * taken.transfer_s,
                train_cpu=float(cpu) * taken.train_cpu_s,
                train_accelerator=float(accelerator) * taken.train_accelerator_s,
            )
        )
    return fmean(seconds[-LAST:])


def find_regrets(clock: Clock) -> tuple[float, tuple[float, ...]]:
    """The best static split's iteration, and by how many percent of it each rule's is longer."""
    best_s = best_static(clock)
    return best_s, tuple(
        100 * (settle(clock, placement) / best_s - 1) for placement in RULES.values()
    )


def tabulate_regrets(name: str, clocks: Sequence[Clock] = CLOCKS) -> Table:
    """A clock a row."""
    setting, profiles, _ = make_setting()
    planned = plan_split(setting, profiles, setting.platform.accelerators, cpu_trainer=True)
    rows = []
    for clock in clocks:
        best_s, regrets = find_regrets(clock)
        rows.append(TableRow(clock.label, (Cell(best_s, "s"), *(Cell(r, "%") for r in regrets))))
    largest = [max(row.cells[1 + at].value or 0.0 for row in rows) for at in range(len(RULES))]
    rows.append(TableRow("at most", (Cell(), *(Cell(each, "%") for each in largest))))
    return Table(
        name=f"{name}-regret",
        title="Dynamic resource management on machines that are not those of its planner: how much "
        "longer an iteration is than under the best static split",
        columns=("best static split", *RULES),
        rows=tuple(rows),
        notes=(
            f"GCN {'-'.join(map(str, DIMS))}, {TOTAL:,} seeds, fan-outs "
            f"{', '.join(map(str, FANOUTS))}, {GRAPH}; the plan is {planned.cpu_seeds} seeds on "
            f"the CPU; every rule starts from it",
            f"the mean of the last {LAST} of {ROUNDS} rounds, whose stages vary by "
            f"{100 * SPREAD:g} %; the best static split is the best of {SHARES + 1} shares and "
            f"every division of threads in eighths, by exhaustion, on the very clock",
            "guarded: the performance model, which knows the described machine alone, may halve a "
            "move; plain: every move of the rule is made, as Algorithm 1 is printed",
            f"by cycles: each die holds n = {DESIGN.n}, m = {DESIGN.m}, and HP-GNN's cycle model "
            f"runs the sampled mini-batches of {len(SIZES)} sizes",
            "no figure of the paper",
        ),
    )
