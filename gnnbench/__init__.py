"""gnnbench: which GNN training system strategy wins on this graph, model and machine, and why.

``gnnbench.advise``, ``gnnbench.compare`` and ``gnnbench.plan`` correspond to the commands of their
names. ``gnnbench.datasets`` makes data sets from graphs of PyG, DGL and NetworkX and from arrays.
All of them are imported on first use, so that ``import gnnbench`` is instant.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

__version__ = "0.1.0"

if TYPE_CHECKING:
    from gnnbench import datasets, plugins
    from gnnbench import machines as platforms
    from gnnbench.api import AdviceResult, ComparisonResult, PlanResult, advise, compare, plan

__all__ = [
    "AdviceResult",
    "ComparisonResult",
    "PlanResult",
    "__version__",
    "advise",
    "compare",
    "datasets",
    "plan",
    "platforms",
    "plugins",
]

#: Names of ``gnnbench.api`` that the package exports.
_OFFERED = ("AdviceResult", "ComparisonResult", "PlanResult", "advise", "compare", "plan")
#: Modules by the names that users import. ``platforms`` has the platforms of ``--platform``, and
#: packages of plugins import ``conformance`` in their tests.
_MODULES = {
    "conformance": "check",
    "datasets": "datasets",
    "platforms": "machines",
    "plugins": "plugins",
}


def __getattr__(name: str) -> object:
    if name in _OFFERED:
        return getattr(importlib.import_module("gnnbench.api"), name)
    if name in _MODULES:
        return importlib.import_module(f"gnnbench.{_MODULES[name]}")
    raise AttributeError(f"module 'gnnbench' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
