"""Finds plugins, checks what they offer, and puts five parts together.

Plugins come from the entry points of group ``gnnbench`` and from ``--plugin``. One that is broken
and merely installed is reported in ``Registry.problems`` and skipped; one that was asked for by
name must work, so there it is an error. What is offered is then chosen by name alone: the order in
which plugins load decides nothing.
"""

from gnnbench.plugins.assembling import assemble, with_swap
from gnnbench.plugins.loading import load
from gnnbench.plugins.options import describe_option, list_choices, parse_option
from gnnbench.plugins.registry import Origin, Registry
from gnnbench.plugins.sources import GROUP, find_file

__all__ = [
    "GROUP",
    "Origin",
    "Registry",
    "assemble",
    "describe_option",
    "find_file",
    "list_choices",
    "load",
    "parse_option",
    "with_swap",
]
