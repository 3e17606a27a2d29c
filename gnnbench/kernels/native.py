"""The compiled kernels that exist, the vector instructions they use, and their thread count.

``GNNBENCH_PURE=1`` in the environment selects the NumPy twins. ``GNNBENCH_SIMD`` set to
``baseline``, ``avx2`` or ``avx512`` keeps the kernels from using anything newer.
"""

from __future__ import annotations

import importlib
import os
import warnings
from functools import cache
from types import ModuleType

from gnnbench.host.cores import count_cores

#: The modules that ``cython_ext/NAME.pyx`` build to, ``gnnbench.kernels._NAME``.
TOPICS = (
    "sampling",
    "rows",
    "aggregation",
    "layout",
    "sets",
    "movement",
    "streams",
    "fpga",
    "spmm",
    "products",
    "faults",
)
#: Vector instruction sets; each includes all the ones before it.
SIMD_SETS = ("baseline", "avx2", "avx512")


@cache
def load(topic: str) -> ModuleType | None:
    """Return the compiled kernels of a topic; None if not built or if ``GNNBENCH_PURE`` is set.

    Kernels that are built but cannot be loaded also give None, with a warning.
    """
    if os.environ.get("GNNBENCH_PURE", "") not in ("", "0"):
        return None
    name = f"gnnbench.kernels._{topic}"
    try:
        return importlib.import_module(name)
    except ImportError as error:
        if not (isinstance(error, ModuleNotFoundError) and error.name == name):
            warnings.warn(
                f"the compiled kernels of {topic} cannot be loaded ({error}), and their slow twins "
                f"run instead; build them again, or set GNNBENCH_PURE=1.",
                RuntimeWarning,
                stacklevel=2,
            )
        return None


def compiled() -> bool:
    """Return whether the compiled kernels of every topic are in use (not the NumPy twins)."""
    return all(load(topic) is not None for topic in TOPICS)


def resolve_threads(threads: int) -> int:
    """Return ``threads``, or this process's number of cores for 0; ``ValueError`` below 0."""
    if threads < 0:
        raise ValueError(f"threads is {threads}; it must be 0 (every core) or more.")
    if threads:
        return threads
    return count_cores()


def limit_simd(newest: int) -> int:
    """Return the newest instruction set, or an older one if ``GNNBENCH_SIMD`` asks for it.

    0 is the baseline of the architecture, 1 AVX2 and 2 AVX-512. ``ValueError`` for other names.
    """
    wanted = os.environ.get("GNNBENCH_SIMD", "")
    if not wanted:
        return newest
    if wanted not in SIMD_SETS:
        raise ValueError(f"GNNBENCH_SIMD is {wanted!r}; it must be one of {', '.join(SIMD_SETS)}.")
    return min(newest, SIMD_SETS.index(wanted))
