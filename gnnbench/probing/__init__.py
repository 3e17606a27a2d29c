"""The rates of each installed library on this machine, measured on the parts.

The measured methods are a kernel's ``Adjacency`` and ``linear``, and a sampler's ``sample``.
"""

from __future__ import annotations

from gnnbench.probing.libraries import Probed, Unmeasured, probe_libraries

__all__ = ["Probed", "Unmeasured", "probe_libraries"]
