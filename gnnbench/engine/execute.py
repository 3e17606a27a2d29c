"""Takes a program step by step: executes the bodies, or goes by the sizes alone."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from gnnbench.engine.recorder import Recorder
from gnnbench.program import Free, Hold, Item, Ledger, Waits

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
        elif isinstance(item, Free):
            ledger.free(item.memory, item.tensor)
        else:
            recorder.round = item.round
            with recorder.span(
                item.stage,
                item.label,
                item.place,
                item.work,
                after=waits.follow(item, number),
                resources=item.resources,
                layer=item.layer,
            ):
                if bodies is not None and item.op:
                    bodies[item.op](*item.operands)
            number += 1
            for kind, size_bytes in item.moves:
                recorder.count_bytes(kind, size_bytes)
            if item.edges or item.vertices:
                recorder.count_traversed(item.edges, item.vertices)
            if item.arithmetic:
                recorder.count_work(item.place, item.arithmetic)
