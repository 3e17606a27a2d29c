"""Libraries of peers that need more than an import."""

from typing import Any

import torch

from gnnbench.errors import MissingDependencyError
from suites.race import find_package


def load_torch_sparse(*topics: str) -> Any:
    """Return ``torch.ops.torch_sparse`` with the routines of ``topics``.

    Only these routines are timed. They load without torch-scatter, which its Python part needs.
    """
    folder = find_package("torch_sparse", install="--no-build-isolation torch-sparse")
    for topic in topics:
        found = sorted(folder.glob(f"_{topic}_cpu.*"))
        try:
            torch.ops.load_library(str(found[0]))  # type: ignore[no-untyped-call]
        except (IndexError, OSError) as error:
            raise MissingDependencyError(
                f"torch-sparse has no {topic} that loads with torch {torch.__version__}"
            ) from error
    return torch.ops.torch_sparse
