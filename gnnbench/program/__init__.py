"""An epoch as data: steps over buffers, in an order in which one process can take them.

A lowering makes the steps out of a bundle's parts; readers take them one by one. One executes
their bodies, another goes by their sizes alone, and both price and schedule them alike. Nobody says
what a step waits for: :class:`Waits` finds it in what steps read and write.
"""

from gnnbench.program.ledger import Held, Ledger
from gnnbench.program.step import (
    Buffer,
    Collective,
    Drop,
    Free,
    Hold,
    Item,
    Section,
    Step,
    Take,
)
from gnnbench.program.waits import Waits

__all__ = [
    "Buffer",
    "Collective",
    "Drop",
    "Free",
    "Held",
    "Hold",
    "Item",
    "Ledger",
    "Section",
    "Step",
    "Take",
    "Waits",
]
