"""Finds plugins, checks what they offer, and puts five parts together.

Plugins come from the entry points of group ``gnnbench`` and from ``--plugin``. One that is broken
and merely installed is reported in ``Registry.problems`` and skipped; one that was asked for by
name must work, so there it is an error. What is offered is then chosen by name alone: the order in
which plugins load decides nothing.
"""

from gnnbench.plugins.assembling import assemble, with_swap
from gnnbench.plugins.loading import load
from gnnbench.plugins.registry import Origin, Registry
from gnnbench.plugins.sources import GROUP, find_file

__all__ = [
    "GROUP",
    "Origin",
    "Registry",
    "assemble",
    "find_file",
    "load",
    "with_swap",
]
