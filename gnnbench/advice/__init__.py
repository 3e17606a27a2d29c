"""Which strategy to use: combinations of parts planned, searched and ranked, and what would change
the answer.

``matrix`` plans every combination of parts that fits. ``search`` plans a part of them, and settings
of the best. Both ask ``pricing``, which goes through programs without training. Nothing here knows
what a part does: what fits, what may be ranked and which settings are worth trying, parts say.
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
