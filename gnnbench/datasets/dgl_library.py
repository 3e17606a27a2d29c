"""Importing DGL on a torch that its GraphBolt was not built for.

``import dgl`` imports ``dgl.graphbolt``, whose compiled library exists for a few torch versions
only (2.1.0: up to torch 2.2) and which needs ``torchdata.datapipes``, gone since torchdata 0.10.
Nothing here uses GraphBolt: where it cannot load, a module that says so stands in for it, and the
rest of DGL is the real thing.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from functools import cache
from pathlib import Path
from types import ModuleType

from gnnbench.errors import MissingDependencyError

GRAPHBOLT = "dgl.graphbolt"


class AbsentGraphBolt(ModuleType):
    """Stands in for ``dgl.graphbolt``; reading anything from it raises ``ImportError``."""

    def __getattr__(self, name: str) -> object:
        if name.startswith("__"):
            raise AttributeError(name)
        import torch

        raise ImportError(
            f"dgl.graphbolt.{name} is not available: this DGL has no GraphBolt library that loads "
            f"with torch {torch.__version__}; install a DGL built for it to use GraphBolt."
        )


def graphbolt_loads(package: Path) -> bool:
    """Return whether the GraphBolt of the DGL in ``package`` loads here; DGL is not imported."""
    import torch

    version = torch.__version__.split("+")[0]
    libraries = sorted((package / "graphbolt").glob(f"*graphbolt_pytorch_{version}.*"))
    if not libraries:
        return False
    try:
        importlib.import_module("torchdata.datapipes.iter")
        torch.classes.load_library(str(libraries[0]))
    except (ImportError, OSError):
        return False
    return True


def find_dgl() -> Path:
    """Return the path of ``dgl`` without importing it. Raises ``MissingDependencyError``."""
    found = importlib.util.find_spec("dgl")
    if found is None or found.origin is None:
        raise MissingDependencyError(
            "DGL is not installed here; install it with: pip install dgl==2.1.0"
        )
    return Path(found.origin)


@cache
def load_dgl() -> ModuleType:
    """Import ``dgl`` with torch as its backend. Raises ``MissingDependencyError``."""
    if "dgl" in sys.modules:
        return sys.modules["dgl"]
    origin = find_dgl()
    # Chosen here, because DGL otherwise writes its choice to a file in the home directory.
    os.environ["DGLBACKEND"] = "pytorch"
    if not graphbolt_loads(origin.parent):
        sys.modules[GRAPHBOLT] = AbsentGraphBolt(GRAPHBOLT)
    try:
        return importlib.import_module("dgl")
    except (ImportError, OSError) as error:
        raise MissingDependencyError(
            f"DGL is installed but does not import here ({error}); install what it misses, or "
            f"another version of it."
        ) from error
