"""Plugins made of a program's own classes and strategies, without a module of hooks."""

from __future__ import annotations

from collections.abc import Sequence

from gnnbench.errors import PluginError
from gnnbench.hookspecs import hookimpl
from gnnbench.models import Layer
from gnnbench.parts import Part
from gnnbench.records import Strategy


class Offers:
    """A plugin that offers given classes of parts and layers, and strategies."""

    def __init__(self, offered: Sequence[object]) -> None:
        self._strategies = [each for each in offered if isinstance(each, Strategy)]
        classes = [each for each in offered if isinstance(each, type)]
        self._parts = [each for each in classes if issubclass(each, Part)]
        self._layers = [each for each in classes if issubclass(each, Layer)]

    @hookimpl
    def gnnbench_parts(self) -> list[type[Part]]:
        return self._parts

    @hookimpl
    def gnnbench_model(self) -> list[type[Layer]]:
        return self._layers

    @hookimpl
    def gnnbench_strategy(self) -> list[Strategy]:
        return self._strategies


def find_plugins(objects: Sequence[object]) -> list[object]:
    """Return objects with hooks unchanged, and one plugin of all classes and strategies.

    Raises ``PluginError`` for a class that is neither a part nor a layer.
    """
    offered: list[object] = []
    plugins: list[object] = []
    for each in objects:
        if isinstance(each, Strategy) or (
            isinstance(each, type) and issubclass(each, (Part, Layer))
        ):
            offered.append(each)
        elif isinstance(each, type):
            raise PluginError(
                f"class {each.__name__!r} is neither a part nor a layer; derive it from one of "
                f"gnnbench.parts or gnnbench.models, or give an instance that has hooks."
            )
        else:
            plugins.append(each)
    return [*plugins, Offers(offered)] if offered else plugins


def name_object(plugin: object) -> str:
    """Return the name of a plugin object in sentences: a module's name, or its class's."""
    return str(getattr(plugin, "__name__", type(plugin).__name__))
