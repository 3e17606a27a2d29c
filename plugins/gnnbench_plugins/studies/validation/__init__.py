"""The ledger of measurements made by others, each beside this project's prediction.

``cells/`` has the measurements, a file a source, which ``published`` reads. ``prediction`` takes
the parts that stand for each system, ``sizes`` the graphs and mini-batches of which nothing but
sizes is known, and ``mini_batches`` counts what stand-ins of full size have. ``groups`` joins cells
that are not independent, ``leave_out`` keeps what each source is predicted with if it is left out
of every fit, and ``ledger`` makes the tables. ``constants`` lists every constant that predictions
rest on.
"""

from __future__ import annotations

from gnnbench.hookspecs import hookimpl
from gnnbench.reproduce.studies import Reproduction
from gnnbench_plugins.studies.validation.constants import Constants
from gnnbench_plugins.studies.validation.ledger import Validation


@hookimpl
def gnnbench_reproduction() -> list[type[Reproduction]]:
    return [Validation, Constants]
