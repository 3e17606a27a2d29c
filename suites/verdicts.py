"""The false and the missed verdicts of ``compare``, measured on this machine.

``python -m suites.verdicts`` compares on cora, with the defaults of ``gnnbench compare``, on the
processor alone. It compares a strategy with a copy under another name. It also compares it with one
that repeats a tenth of its work, and with one that sleeps for a tenth of its epoch. Every second
comparison runs beside a process that loads one core. The command prints how often one of the two
was called faster. It exits with 1 if more than 5 of 100 comparisons call a strategy faster than
itself. It does so, too, if more than 20 of 100 miss one that is a tenth slower. It also exits with
1 if a slower one is ever called faster.

``--comparisons N`` (100) is the number of each; ``--dataset`` and ``--batch-size`` change the
length of an epoch. Comparisons of one process share warm caches, as rows of one comparison do. The
suite takes long and depends on the machine, so it is not part of the tests.
"""

import argparse
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from statistics import median

import torch

from gnnbench import datasets, plugins
from gnnbench.check.graphs import make_platform
from gnnbench.comparison import Options, Request, compare
from gnnbench.comparison.ranking import find_difference, group_runs
from gnnbench.plugins import Registry
from gnnbench.records import Workload
from gnnbench.report.verdict import summarise

#: The largest share of comparisons of a strategy with itself that may call one faster, and the
#: least share that must detect one that is a tenth slower.
MOST_FALSE, LEAST_TRUE = 0.05, 0.80
#: A program that keeps a core busy while this process lives.
LOAD = "import os\nparent = os.getppid()\nwhile os.getppid() == parent: pass"


@dataclass(frozen=True, slots=True)
class Verdict:
    """The fastest label of one comparison, and the first row's speed over the second's.

    The label is empty if no difference is shown.
    """

    fastest: str
    ratio: float
    samples: int


@dataclass(frozen=True, slots=True)
class Trial:
    """Two strategies to compare repeatedly; ``slower`` says that the second one is slower."""

    name: str
    strategies: tuple[str, str]
    slower: bool


TRIALS = (
    Trial("itself", ("twin-a", "twin-b"), slower=False),
    Trial("a tenth of the work twice", ("twin-a", "repeating"), slower=True),
    Trial("asleep for a tenth", ("twin-a", "sleeping"), slower=True),
)


def make_request(arguments: argparse.Namespace) -> Request:
    """Return the default request of ``gnnbench compare``, on the processor alone."""
    dataset = datasets.load(arguments.dataset)
    platform = make_platform(0)
    return Request(
        strategies=(),
        dataset=dataset,
        workload=Workload(
            model="gcn",
            dims=(dataset.num_features, 256, dataset.num_classes),
            epochs=10,
            batch_size=arguments.batch_size,
            fanouts=(25, 10),
            seed=0,
            threads=arguments.threads,
        ),
        platform=replace(platform, host=replace(platform.host, virtual=False)),
        check=False,
    )


def judge(request: Request, registry: Registry, trial: Trial) -> Verdict:
    """Compare once, and read the answer as printed."""
    comparison = compare(replace(request, strategies=trial.strategies), registry)
    (group,) = group_runs(comparison)
    first, second = group.rows
    difference = find_difference(first, second)
    epoch = first.metric("epoch_time")
    if difference is None or epoch is None:
        raise RuntimeError(f"no times: {[run.reason for run in comparison.runs]}")
    answer = summarise((group,))[0]
    said = [row.label for row in group.rows if f"{row.label} is fastest" in answer]
    return Verdict(said[0] if said else "", difference.ratio, len(epoch.samples))


@contextmanager
def loaded(wanted: bool) -> Iterator[None]:
    """Keep a core busy by another process within the body, if wanted."""
    if not wanted:
        yield
        return
    process = subprocess.Popen([sys.executable, "-c", LOAD])
    try:
        yield
    finally:
        process.kill()
        process.wait()


def repeat(request: Request, registry: Registry, trial: Trial, count: int) -> list[Verdict]:
    """Run the comparisons, every second one beside another process."""
    verdicts = []
    for number in range(count):
        with loaded(number % 2 == 1):
            options = find_pause(request, registry) if "sleeping" in trial.strategies else {}
            verdicts.append(judge(replace(request, options=options), registry, trial))
        if sys.stderr.isatty():
            print(f"\r{trial.name}: {number + 1} of {count}", end="", file=sys.stderr)
    return verdicts


def find_pause(request: Request, registry: Registry) -> Options:
    """Return a tenth of the plain epoch's current time, as the sleeping sampler's option."""
    comparison = compare(replace(request, strategies=("twin-a",)), registry)
    epoch_s = comparison.runs[0].metrics["epoch_time"].value
    return {"sampler": {"sleep_s": f"{0.1 * epoch_s:.6f}"}}


def hold(trial: Trial, verdicts: Sequence[Verdict]) -> bool:
    """Print the verdicts, quiet and loaded; return whether their rates are within the limits."""
    right = trial.strategies[0]
    said = sum(bool(v.fastest) if not trial.slower else v.fastest == right for v in verdicts)
    wrong = sum(v.fastest == trial.strategies[1] for v in verdicts if trial.slower)
    share = said / len(verdicts)
    holds = share >= LEAST_TRUE and not wrong if trial.slower else share <= MOST_FALSE
    limit = f"at least {LEAST_TRUE:.0%}" if trial.slower else f"at most {MOST_FALSE:.0%}"
    for name, own in (("quiet", verdicts[::2]), ("loaded", verdicts[1::2])):
        if own:
            told = sum(bool(verdict.fastest) for verdict in own)
            ratios, samples = [v.ratio for v in own], median(v.samples for v in own)
            print(
                f"  {name:7} {told:4} of {len(own):<4} called faster   median ratio "
                f"{median(ratios):.3f}, {min(ratios):.3f} to {max(ratios):.3f}   "
                f"{samples:.0f} epochs each"
            )
    print(f"  together {share:.0%}, {limit}: {'held' if holds else 'MISSED'}")
    return holds


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--comparisons", type=int, default=100, metavar="N")
    parser.add_argument("--dataset", default="cora")
    parser.add_argument("--batch-size", type=int, default=1024)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    arguments = parser.parse_args(words)
    registry = plugins.load(("suites.slowed",))
    torch.set_num_threads(arguments.threads)
    request = make_request(arguments)
    held = []
    for trial in TRIALS:
        print(f"{' beside '.join(trial.strategies)} ({trial.name})", flush=True)
        held.append(hold(trial, repeat(request, registry, trial, arguments.comparisons)))
    return 0 if all(held) else 1


if __name__ == "__main__":
    sys.exit(main())
