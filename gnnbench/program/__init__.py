"""An epoch as data: steps over buffers, in an order in which one process can execute them.

A lowering makes the steps from a bundle's parts, and readers process them one by one. One reader
executes the steps' bodies, another uses only their sizes. Both price and schedule them alike.
Dependencies are not stated: :class:`Waits` derives them from what steps read and write.
"""

from gnnbench.program.ledger import Held as Held
from gnnbench.program.ledger import Ledger as Ledger
from gnnbench.program.step import NOTHING as NOTHING
from gnnbench.program.step import Access as Access
from gnnbench.program.step import Account as Account
from gnnbench.program.step import Buffer as Buffer
from gnnbench.program.step import Collective as Collective
from gnnbench.program.step import Counts as Counts
from gnnbench.program.step import Drop as Drop
from gnnbench.program.step import Free as Free
from gnnbench.program.step import Hold as Hold
from gnnbench.program.step import Item as Item
from gnnbench.program.step import Place as Place
from gnnbench.program.step import Section as Section
from gnnbench.program.step import Sizes as Sizes
from gnnbench.program.step import Step as Step
from gnnbench.program.step import Take as Take
from gnnbench.program.step import Times as Times
from gnnbench.program.waits import Waits as Waits
