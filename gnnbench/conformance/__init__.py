"""The promises that every strategy makes, as checks that anyone can run on theirs.

``gnnbench plugins check NAME`` runs them; so does a plugin's own test suite, through ``CHECKS`` and
``run_check``. A check never passes silently over something: where it does not apply, its outcome
says so and why.
"""

from __future__ import annotations

import traceback

from gnnbench.conformance.checks import (
    check_bytes_add_up,
    check_capacity,
    check_described,
    check_deterministic,
    check_every_vertex_once,
    check_legal_timeline,
    check_options_documented,
    check_same_maths,
)
from gnnbench.conformance.faults import (
    find_coverage_fault,
    find_split_fault,
    find_timeline_fault,
    find_traffic_fault,
    find_unit_fault,
)
from gnnbench.conformance.outcome import Check, CheckOutcome, NonConforming, NotApplicable
from gnnbench.errors import MissingDependency
from gnnbench.plugins import Registry

__all__ = [
    "CHECKS",
    "Check",
    "CheckOutcome",
    "NonConforming",
    "NotApplicable",
    "check_bytes_add_up",
    "check_capacity",
    "check_described",
    "check_deterministic",
    "check_every_vertex_once",
    "check_legal_timeline",
    "check_options_documented",
    "check_same_maths",
    "check_strategy",
    "find_coverage_fault",
    "find_split_fault",
    "find_timeline_fault",
    "find_traffic_fault",
    "find_unit_fault",
    "run_check",
]

CHECKS: tuple[Check, ...] = (
    Check("described", check_described, "a reader of the table can tell what each name means"),
    Check("options-documented", check_options_documented, "what can be set can be looked up"),
    Check("every-vertex-once", check_every_vertex_once, "no strategy wins by doing less work"),
    Check("same-maths", check_same_maths, "every strategy trains the same model"),
    Check("bytes-add-up", check_bytes_add_up, "traffic that is saved was really not needed"),
    Check("legal-timeline", check_legal_timeline, "no device does two things at once"),
    Check("deterministic", check_deterministic, "a result can be had again"),
    Check("capacity", check_capacity, "what does not fit is refused, not wished away"),
)


def run_check(check: Check, registry: Registry, strategy: str) -> CheckOutcome:
    """Run one check on one strategy; whatever it raises becomes a failure with a reason.

    Raises ``PluginError`` for a strategy that is not in the registry.
    """
    registry.strategy(strategy)
    try:
        established = check.function(registry, strategy)
    except NonConforming as broken:
        return CheckOutcome(check.name, "failed", str(broken), check.why)
    except (NotApplicable, MissingDependency) as nothing:
        return CheckOutcome(check.name, "not-applicable", str(nothing), check.why)
    except Exception as error:
        frame = traceback.extract_tb(error.__traceback__)[-1]
        reason = f"raised {type(error).__name__}: {error} ({frame.filename}, line {frame.lineno})"
        return CheckOutcome(check.name, "failed", reason, check.why)
    return CheckOutcome(check.name, "passed", established, check.why)


def check_strategy(registry: Registry, name: str) -> tuple[CheckOutcome, ...]:
    """The outcomes of all checks on the strategy ``name``, in the order of ``CHECKS``."""
    return tuple(run_check(check, registry, name) for check in CHECKS)
