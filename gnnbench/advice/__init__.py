"""Advice on strategies: combinations of parts planned, searched and ranked, and their alternatives.

``matrix`` plans every combination of parts that fits. ``search`` plans some of them, and settings
of the best. Both use ``pricing``, which goes through programs without training. The parts
themselves say what fits, what may be ranked and which settings are worth trying.
"""

from gnnbench.advice.advise import Advice, Answer, advise
from gnnbench.advice.cheapest import Offer, find_cheapest
from gnnbench.advice.matrix import Matrix, make_matrix
from gnnbench.advice.questions import Question

__all__ = [
    "Advice",
    "Answer",
    "Matrix",
    "Offer",
    "Question",
    "advise",
    "find_cheapest",
    "make_matrix",
]
