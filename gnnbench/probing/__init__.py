"""What each library installed here reaches on this machine, measured on the parts themselves: a
kernel's ``Adjacency`` and ``linear``, a sampler's ``sample``."""

from __future__ import annotations

from gnnbench.probing.kernels import KernelRates
from gnnbench.probing.libraries import ProbedLibraries, Unmeasured, probe_libraries
from gnnbench.probing.samplers import SamplerRates

__all__ = ["KernelRates", "ProbedLibraries", "SamplerRates", "Unmeasured", "probe_libraries"]
