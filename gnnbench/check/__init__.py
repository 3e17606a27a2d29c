"""The promises that every strategy and every part makes, as checks that plugin authors can run.

``gnnbench plugins check NAME`` runs them; so does a plugin's own test suite, through ``CHECKS`` and
``run_check``. A check never passes without checking anything: if it does not apply, or did not
reach its subject, its outcome says so and why.
"""

from __future__ import annotations

from gnnbench.check.checks import (
    check_capacity,
    check_dataset_untouched,
    check_described,
    check_deterministic,
    check_every_vertex_once,
    check_legal_timeline,
    check_options_documented,
    check_same_maths,
)
from gnnbench.check.clock import check_clock
from gnnbench.check.costs import check_costs
from gnnbench.check.faults import find_split_fault as find_split_fault
from gnnbench.check.faults import find_timeline_fault as find_timeline_fault
from gnnbench.check.faults import find_traffic_fault as find_traffic_fault
from gnnbench.check.faults import find_unit_fault as find_unit_fault
from gnnbench.check.kernels import check_kernel_maths
from gnnbench.check.law import check_sampling_law
from gnnbench.check.outcome import Check as Check
from gnnbench.check.outcome import CheckOutcome as CheckOutcome
from gnnbench.check.outcome import NonConformingError as NonConformingError
from gnnbench.check.outcome import NotApplicableError as NotApplicableError
from gnnbench.check.outcome import NotReachedError as NotReachedError
from gnnbench.check.outcome import judge
from gnnbench.check.reach import check_every_choice, check_reached
from gnnbench.check.recording import Reached
from gnnbench.check.subject import Subject, find_subject
from gnnbench.check.traffic import check_bytes_add_up
from gnnbench.comparison import Options
from gnnbench.host.progress import doing
from gnnbench.host.resume import once, recall
from gnnbench.plugins import Registry
from gnnbench.records import Dataset


def _check_reached(subject: Subject) -> str:
    return check_reached(subject, _run_others)


def _run_others(subject: Subject) -> None:
    """Run the checks that have not run on a subject, for the methods that they call."""
    for check in CHECKS:
        if check.function is not _check_reached and check.name not in subject.ran:
            _run(check, subject)


CHECKS: tuple[Check, ...] = (
    Check("described", check_described, "a reader of the table can tell what each name means"),
    Check("options-documented", check_options_documented, "what can be set can be looked up"),
    Check("every-vertex-once", check_every_vertex_once, "no strategy wins by doing less work"),
    Check("sampling-law", check_sampling_law, "rows of one sampling distribution draw from it"),
    Check("clock", check_clock, "what an epoch takes is in its time"),
    Check("same-maths", check_same_maths, "every strategy trains the same model"),
    Check("kernel-maths", check_kernel_maths, "sums are right at every width and for every caller"),
    Check("every-choice", check_every_choice, "what can be set trains the same model"),
    Check("costs", check_costs, "no time or byte is wished away"),
    Check("bytes-add-up", check_bytes_add_up, "traffic that is saved was really not needed"),
    Check("legal-timeline", check_legal_timeline, "no device does two things at once"),
    Check("deterministic", check_deterministic, "a result can be had again"),
    Check("capacity", check_capacity, "what does not fit is refused, not wished away"),
    Check("dataset-untouched", check_dataset_untouched, "every row trains on the same data"),
    Check("reached", _check_reached, "what was not run was not checked"),
)


def run_check(
    check: Check,
    registry: Registry,
    name: str,
    *,
    options: Options | None = None,
    dataset: Dataset | None = None,
) -> CheckOutcome:
    """Run one check on a strategy, or on a part such as ``kernel=native``.

    A part is put into a strategy that takes it. An exception of the plugin becomes a failure with a
    reason. ``options`` are set on the parts; ``dataset`` is tried besides the small ones.

    Raises ``PluginError`` for a name that is not in the registry and ``UsageError`` for unfit
    options.
    """
    return judge(check, find_subject(registry, name, options, dataset))


def check_strategy(
    registry: Registry,
    name: str,
    *,
    options: Options | None = None,
    dataset: Dataset | None = None,
) -> tuple[CheckOutcome, ...]:
    """Return the outcomes of all checks on a strategy or a part, in the order of ``CHECKS``."""
    subject = find_subject(registry, name, options, dataset)
    outcomes = []
    with doing(f"checking {name}", len(CHECKS)) as checking:
        for check in CHECKS:
            with doing(check.name):
                outcomes.append(_run_or_recall(check, subject))
            checking.advance()
    return tuple(outcomes)


def _run_or_recall(check: Check, subject: Subject) -> CheckOutcome:
    """Run a check that was not run before the command was stopped; later ones need its records."""
    reached = subject.reached
    kept: tuple[CheckOutcome, set[str], Reached] | None = recall(check.name)
    if kept is not None:
        outcome, ran, before = kept
        subject.ran |= ran
        reached.add(before)
        return outcome
    counts = len(reached.priced), len(reached.predictions)
    return once(lambda: (_run(check, subject), subject.ran, reached.since(*counts)), check.name)[0]


def _run(check: Check, subject: Subject) -> CheckOutcome:
    outcome = judge(check, subject)
    subject.ran.add(check.name)
    return outcome
