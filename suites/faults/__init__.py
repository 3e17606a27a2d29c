"""A plugin of parts with one fault each, which ``compare`` and the checks must find.

Each differs from the plain part by one fault, which its ``summary`` states. ``FAULTS`` lists them
all, with the rows that host them and the checks that find them. Faults that the checks find have a
strategy of the same name, with plain parts otherwise. ``python -m suites.faults`` measures how
often ``compare`` finds the faults that it must find. The tests try each fault once.
"""

from gnnbench.hookspecs import hookimpl
from gnnbench.parts import Part
from gnnbench.records import Strategy
from suites.faults import kernels, late, others, samplers
from suites.faults.fault import Fault, offer

#: Faults by name.
FAULTS: dict[str, Fault] = {
    fault.part.name: fault
    for fault in (
        *(*kernels.IN_COMPARE, *samplers.IN_COMPARE, *samplers.OF_CHUNKS, *others.IN_COMPARE),
        *(*kernels.IN_CHECKS, *samplers.IN_CHECKS, *others.IN_CHECKS),
        *(*late.IN_COMPARE, *late.IN_CHECKS),
    )
}
#: Correct parts that faults are made of, and one that an option makes wrong.
BESIDE: tuple[type[Part], ...] = (
    samplers.DrawingSampler,
    others.Rounding,
    others.LosingRounding,
)


@hookimpl
def gnnbench_parts() -> list[type[Part]]:
    return [*(fault.part for fault in FAULTS.values()), *BESIDE]


@hookimpl
def gnnbench_strategy() -> list[Strategy]:
    chunks = {fault.part for fault in samplers.OF_CHUNKS}
    parts = [fault.part for fault in FAULTS.values() if fault.checks and fault.part not in chunks]
    return [offer(part) for part in (*parts, *BESIDE)]
