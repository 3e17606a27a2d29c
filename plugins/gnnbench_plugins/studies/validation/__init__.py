"""The ledger of measurements made by others, each beside this project's prediction.

``cells/`` has the measurements, a file a source, which ``published`` reads. ``prediction`` makes
the plan of each, and ``mini_batches`` has the sizes of mini-batches in stand-ins of full size.
``groups`` joins cells that are not independent. ``leave_out`` has the errors of each source if it
is left out of every fit. ``ledger`` makes the tables. ``constants`` lists every constant that
predictions rest on.
"""

from __future__ import annotations

from gnnbench.hookspecs import hookimpl
from gnnbench.reproduce.studies import Reproduction
from gnnbench_plugins.studies.validation.constants import Constants
from gnnbench_plugins.studies.validation.ledger import Validation


@hookimpl
def gnnbench_reproduction() -> list[type[Reproduction]]:
    return [Validation, Constants]
