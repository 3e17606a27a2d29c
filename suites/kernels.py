"""The compiled kernels and their main peers, one at a time, for asv to follow over commits.

``suites/compare_kernels.py`` runs the same contestants in turns; use it to compare them.
"""

from typing import ClassVar

import torch

from gnnbench.errors import MissingDependencyError
from gnnbench.records import Graph
from suites.contestants import Scope, all_kernels
from suites.graphs import load_graph
from suites.race import OURS

GRAPH = "rmat:vertices=65536,edges=950000,features=1"


class _Kernel:
    """One case of a kernel on one thread; ``params`` are its contestants."""

    kernel: ClassVar[str]
    case: ClassVar[str]
    params: ClassVar[list[list[str]]]
    param_names: ClassVar[list[str]] = ["contestant"]
    timeout = 600
    #: The least and the most samples of a round, and the seconds that they may take together. With
    #: ten samples, noise that lasts for a few of them hides a kernel that is a tenth slower.
    repeat = (10, 40, 6.0)

    def setup_cache(self) -> Graph:
        return load_graph(GRAPH)

    def setup(self, graph: Graph, contestant: str) -> None:
        torch.set_num_threads(1)
        scope = Scope([("rmat-65k", graph)])
        case = next(case for case in all_kernels()[self.kernel](scope) if case.name == self.case)
        try:
            self.contestant = case.makers[contestant]()
        except MissingDependencyError as error:
            # asv shows this combination as not available.
            raise NotImplementedError(str(error)) from error
        self.turn = 0
        self.contestant.call(self.turn)

    def time_call(self, graph: Graph, contestant: str) -> None:
        self.turn += 1
        self.contestant.call(self.turn)


class Sampling(_Kernel):
    kernel, case = "sampling", "fan-outs 25,10"
    params: ClassVar = [[OURS, "dgl", "torch-sparse"]]


class Aggregation(_Kernel):
    kernel, case = "aggregation", "width 128"
    params: ClassVar = [[OURS, "dgl", "torch csr"]]


class Backward(_Kernel):
    kernel, case = "backward", "width 128"
    params: ClassVar = [[OURS, "dgl"]]


class Gather(_Kernel):
    kernel, case = "gather", "float32 width 128"
    params: ClassVar = [[OURS, "torch index_select"]]


class MaskedAggregation(_Kernel):
    kernel, case = "masked", "width 128, half of elements"
    params: ClassVar = [[OURS, "whole sum"]]


class Ordering(_Kernel):
    kernel, case = "ordering", "reverse Cuthill-McKee"
    params: ClassVar = [[OURS, "scipy"]]


class SharedIds(_Kernel):
    kernel, case = "sets", "shared ids"
    params: ClassVar = [[OURS, "numpy product"]]


class Movement(_Kernel):
    kernel, case = "movement", "add width 128"
    params: ClassVar = [[OURS, "torch index_select"]]


class Update(_Kernel):
    kernel, case = "update", "256 to 256"
    params: ClassVar = [[OURS, "torch addmm"]]
