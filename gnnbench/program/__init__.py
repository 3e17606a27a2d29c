"""An epoch as data: steps over buffers, in an order in which one process can execute them.

A lowering makes the steps from a bundle's parts, and readers process them one by one. One reader
executes the steps' bodies, another uses only their sizes. Both price and schedule them alike.
Dependencies are not stated: :class:`Waits` derives them from what steps read and write.
"""

from gnnbench.program.ledger import Held, Ledger
from gnnbench.program.step import (
    NOTHING,
    Access,
    Account,
    Buffer,
    Collective,
    Counts,
    Drop,
    Free,
    Hold,
    Item,
    Place,
    Section,
    Sizes,
    Step,
    Take,
    Times,
)
from gnnbench.program.waits import Waits

__all__ = [
    "NOTHING",
    "Access",
    "Account",
    "Buffer",
    "Collective",
    "Counts",
    "Drop",
    "Free",
    "Held",
    "Hold",
    "Item",
    "Ledger",
    "Place",
    "Section",
    "Sizes",
    "Step",
    "Take",
    "Times",
    "Waits",
]
