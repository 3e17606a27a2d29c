"""A record of which own methods of a part were called, kept by subclasses of the part."""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import cast

from gnnbench.machines.machine import Device
from gnnbench.parts import Kernel, Part, SeedSession, Session
from gnnbench.plugins import Registry
from gnnbench.records import PART_KINDS, KernelWork, PartKind, Parts


@dataclass(frozen=True, slots=True)
class Priced:
    """A piece of work that a kernel gave a duration to."""

    kernel: str
    work: KernelWork
    device: Device
    seconds: float


@dataclass(slots=True)
class Reached:
    """The called methods (kind, part's name, method), kernels' prices, placements' predictions.

    ``opened`` has the own methods of the sessions that a part (kind, name) has opened.
    """

    methods: set[tuple[PartKind, str, str]] = field(default_factory=set)
    opened: dict[tuple[PartKind, str], set[str]] = field(default_factory=dict)
    priced: list[Priced] = field(default_factory=list)
    predictions: list[Mapping[str, float]] = field(default_factory=list)

    def since(self, priced: int, predictions: int) -> Reached:
        """Return a copy without the first ``priced`` prices and ``predictions`` predictions."""
        later = self.priced[priced:], self.predictions[predictions:]
        return Reached(set(self.methods), {**self.opened}, *later)

    def add(self, other: Reached) -> None:
        """Add what is recorded elsewhere."""
        self.methods.update(other.methods)
        for part, hooks in other.opened.items():
            self.opened.setdefault(part, set()).update(hooks)
        self.priced += other.priced
        self.predictions += other.predictions


def list_overridden(part: type[object]) -> tuple[str, ...]:
    """Return the hooks that a part, or a session, overrides.

    Hooks are methods and properties of a base class in ``gnnbench.parts``. The class, or a plugin's
    class that it derives from, replaces them.
    """
    hooks = {
        name
        for base in part.__mro__
        if _is_base(base.__module__)
        for name in vars(base)
        if not name.startswith("_")
    }
    return tuple(sorted(name for name in hooks if _find_own(part, name) is not None))


def _find_own(part: type[object], name: str) -> Callable[..., object] | None:
    """Return a method, or a property's getter, unless it belongs to ``gnnbench.parts``."""
    found = inspect.getattr_static(part, name)
    method = found.fget if isinstance(found, property) else found
    if not isinstance(method, types.FunctionType) or _is_base(method.__module__):
        return None
    return method


def _is_base(module: str) -> bool:
    """Return whether a module belongs to ``gnnbench.parts``."""
    return module.startswith("gnnbench.parts")


def record(registry: Registry, bundles: Iterable[Parts], reached: Reached) -> Registry:
    """Return the registry with the bundles' parts replaced by subclasses that record calls."""
    parts = dict(registry.parts)
    for bundle in bundles:
        for kind in PART_KINDS:
            key = (kind, bundle.named(kind))
            if parts[key] is registry.part(*key):
                parts[key] = _make_recording(parts[key], reached)
    return replace(registry, parts=parts)


def _make_recording(part: type[Part], reached: Reached) -> type[Part]:
    replaced: dict[str, object] = {
        "__module__": part.__module__,
        "__qualname__": part.__qualname__,
        "__doc__": part.__doc__,
    }
    for name in list_overridden(part):
        note = functools.partial(reached.methods.add, (part.kind, part.name, name))
        own = _noting(cast("Callable[..., object]", _find_own(part, name)), note)
        is_property = isinstance(inspect.getattr_static(part, name), property)
        replaced[name] = property(own) if is_property else own
    if issubclass(part, Kernel):
        priced = replaced.get("seconds", part.seconds)
        replaced["seconds"] = _keeping_prices(cast("Callable[..., float]", priced), reached)
    if hasattr(part, "open"):
        opens = replaced.get("open", part.open)
        replaced["open"] = _watching(cast("Callable[..., Session]", opens), reached)
    made = types.new_class(part.__name__, (part,), exec_body=lambda names: names.update(replaced))
    return cast("type[Part]", made)


def _noting(method: Callable[..., object], note: Callable[[], None]) -> Callable[..., object]:
    @functools.wraps(method)
    def call(*args: object, **named: object) -> object:
        note()
        return method(*args, **named)

    return call


def _keeping_prices(method: Callable[..., float], reached: Reached) -> Callable[..., float]:
    @functools.wraps(method)
    def seconds(kernel: Part, work: KernelWork, device: Device) -> float:
        took_s = method(kernel, work, device)
        reached.priced.append(Priced(kernel.name, work, device, took_s))
        return took_s

    return seconds


def _watching(method: Callable[..., Session], reached: Reached) -> Callable[..., Session]:
    """Wrap a method that opens a session, so that the session's methods record their calls."""

    @functools.wraps(method)
    def open(part: Part, *args: object, **named: object) -> Session:
        session = method(part, *args, **named)
        hooks = list_overridden(type(session))
        reached.opened.setdefault((part.kind, part.name), set()).update(hooks)
        for name in hooks:
            note = functools.partial(reached.methods.add, (part.kind, part.name, name))
            setattr(session, name, _noting(getattr(session, name), note))
        if isinstance(session, SeedSession):
            keep = _keeping_predictions(session.predicted_epochs, reached)
            session.predicted_epochs = keep  # type: ignore[method-assign]
        return session

    return open


def _keeping_predictions(
    method: Callable[[], Mapping[str, float]], reached: Reached
) -> Callable[[], Mapping[str, float]]:
    @functools.wraps(method)
    def predicted_epochs() -> Mapping[str, float]:
        predicted = method()
        reached.predictions.append(predicted)
        return predicted

    return predicted_epochs
