"""An epoch as data: steps over buffers, in an order in which one process can execute them.

A lowering makes the steps from a bundle's parts, and readers process them one by one. One reader
executes the steps' bodies, another uses only their sizes. Both price and schedule them alike.
Dependencies are not stated: :class:`Waits` derives them from what steps read and write.
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
