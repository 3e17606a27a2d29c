"""Builds the compiled kernels; everything else about the package stands in pyproject.toml.

Each ``cython_ext/NAME.pyx`` becomes ``gnnbench.kernels._NAME``. The extensions are optional:
without Cython or a compiler the package installs all the same and runs its NumPy twins.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from setuptools import Extension, setup


def extensions() -> list[Extension]:
    """Return the compiled kernels, or none without Cython."""
    try:
        from Cython.Build import cythonize
    except ImportError:
        print("Cython is missing: gnnbench is built without compiled kernels", file=sys.stderr)
        return []
    # No -march=native: a wheel runs on any processor of its architecture. Apple's compiler has no
    # OpenMP; the loops are then serial.
    openmp = [] if sys.platform in ("darwin", "win32") else ["-fopenmp"]
    # Without the debug information that Python's own flags ask for, compiling takes two thirds of
    # the time. What CFLAGS says of either stands.
    own = os.environ.get("CFLAGS", "").split()
    wanted = [flag for flag in ("-O3", "-g0") if not any(word.startswith(flag[:2]) for word in own)]
    optimise = ["/O2"] if sys.platform == "win32" else wanted
    built = cythonize(
        [
            Extension(
                f"gnnbench.kernels._{source.stem}",
                [source.as_posix()],
                include_dirs=["cython_ext"],
                depends=[header.as_posix() for header in sorted(Path("cython_ext").glob("*.h"))],
                extra_compile_args=[*optimise, *openmp],
                extra_link_args=openmp,
            )
            for source in sorted(Path("cython_ext").glob("*.pyx"))
        ]
    )
    for extension in built:
        extension.optional = True  # cythonize drops it when given to the constructor
    return built


setup(ext_modules=extensions(), options={"build_ext": {"parallel": os.cpu_count() or 1}})
