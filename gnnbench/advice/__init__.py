"""Advice on strategies: combinations of parts planned, searched and ranked, and their alternatives.

``matrix`` plans every combination of parts that fits. ``search`` plans some of them, and settings
of the best. Both use ``pricing``, which goes through programs without training. The parts
themselves say what fits, what may be ranked and which settings are worth trying.
"""

from gnnbench.advice.advise import Advice as Advice
from gnnbench.advice.advise import Answer as Answer
from gnnbench.advice.advise import advise as advise
from gnnbench.advice.cheapest import Offer as Offer
from gnnbench.advice.cheapest import find_cheapest as find_cheapest
from gnnbench.advice.matrix import Matrix as Matrix
from gnnbench.advice.matrix import make_matrix as make_matrix
from gnnbench.advice.questions import Question as Question
