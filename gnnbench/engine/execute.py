"""Takes a program step by step: executes the bodies, or goes by the sizes alone."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from gnnbench.engine.recorder import Recorder
from gnnbench.program import Collective, Free, Hold, Item, Ledger, Waits

#: What a step's operation computes, by its name.
Bodies = Mapping[str, Callable[..., None]]


def take_items(
    items: Iterable[Item], recorder: Recorder, ledger: Ledger, bodies: Bodies | None
) -> None:
    """Record the steps of an epoch, in order, and account for what memories hold.

    With ``bodies`` each step computes what it is for; without any nothing is computed.
    """
    waits, number = Waits(), 0
    for item in items:
        if isinstance(item, Hold):
            ledger.allocate(item.memory, item.tensor, item.size_bytes)
            continue
        if isinstance(item, Free):
            ledger.free(item.memory, item.tensor)
            continue
        for step in item.steps if isinstance(item, Collective) else (item,):
            recorder.round = step.round
            with recorder.span(
                step.stage,
                step.label,
                step.place,
                step.work,
                after=waits.follow(step, number),
                resources=step.resources,
                layer=step.layer,
            ):
                if bodies is not None and step.op:
                    bodies[step.op](*step.operands)
            number += 1
            for kind, size_bytes in step.moves:
                recorder.count_bytes(kind, size_bytes)
            if step.edges or step.vertices:
                recorder.count_traversed(step.edges, step.vertices)
            if step.arithmetic:
                recorder.count_work(step.place, step.arithmetic)
