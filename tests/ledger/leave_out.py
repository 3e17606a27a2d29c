"""Every source of the ledger left out in turn, with the constants that were fitted on it found anew
from the other sources."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

from pydantic import TypeAdapter

import gnnbench
import gnnbench_plugins
from gnnbench.host.toml import read_toml
from gnnbench.jobs.sized import price_plan
from gnnbench.machines.costs.library import DEVICES, Entry, Library, _base_of, read_devices
from gnnbench.machines.tables import replace_fields
from gnnbench.parts import Kernel, MiniBatchSampler
from gnnbench.price.held_out import find_group_factors
from gnnbench_plugins.studies import list_constants
from gnnbench_plugins.studies.validation import prediction
from gnnbench_plugins.studies.validation.leave_out import LeftOutSource
from gnnbench_plugins.studies.validation.ledger import make_entries
from gnnbench_plugins.studies.validation.published import PublishedCell, PublishedSource
from tests.ledger import load

#: Values of a constant that are tried, from one end of its plausible range to the other.
TRIED = 7
#: A prediction that moves by less than this share does not depend on a constant.
STILL = 0.01


ENTRY = TypeAdapter(Entry)


@dataclass(frozen=True)
class Fitted:
    """A constant of a library or of a kind of device that was fitted, with its plausible range."""

    path: Path
    name: str
    value: float
    plausible: tuple[float, float]
    fitted_on: tuple[str, ...]

    @property
    def label(self) -> str:
        return self.name if self.path == DEVICES else f"{self.path.parent.name}.{self.name}"

    def grid(self) -> list[float]:
        """Return the values that are tried."""
        low, high = self.plausible
        steps = [number / (TRIED - 1) for number in range(TRIED)]
        if low <= 0:
            return [low + step * (high - low) for step in steps]
        return [low * (high / low) ** step for step in steps]

    def may_move(self, cell: PublishedCell) -> bool:
        """Whether a cell is of the library whose constant it is."""
        return self.path == DEVICES or cell.stack.kernel.startswith(self.path.parent.name)


def list_fitted() -> list[Fitted]:
    """Return the fitted constants that have a plausible range."""
    roots = {each.__name__: Path(each.__path__[0]).parent for each in (gnnbench, gnnbench_plugins)}
    found = []
    for number in list_constants():
        path = Path(number.place)
        if not number.fitted_on or path.name not in ("library.toml", DEVICES.name):
            continue
        path = roots[path.parts[0]] / path
        table: object = read_toml(path)
        for key in number.name.split("."):
            assert isinstance(table, Mapping)
            table = table[key]
        entry = ENTRY.validate_python(table)
        base = _base_of(number.name)
        low, high = (replace_value(entry, end).to_si(base) for end in entry.plausible)
        found.append(
            Fitted(path, number.name, entry.to_si(base), (low, high), tuple(number.fitted_on))
        )
    return found


def replace_value(entry: Entry, value: float) -> Entry:
    return replace(entry, value=value)


@contextmanager
def overridden(values: Mapping[Fitted, float]) -> Iterator[None]:
    """Price with other values of some constants."""
    devices, before = read_devices(), dict(read_devices())
    classes: list[tuple[type, Library]] = []
    for constant, value in values.items():
        if constant.path == DEVICES:
            kind, name = constant.name.split(".")
            devices[kind] = replace_fields(devices[kind], **{name: value})
            continue
        for cls in (*_list_subclasses(Kernel), *_list_subclasses(MiniBatchSampler)):
            library = vars(cls).get("library")
            if not isinstance(library, Library) or constant.path.parent.name not in _family(cls):
                continue
            if getattr(library, constant.name) == constant.value:
                classes.append((cls, library))
                cls.library = replace(library, **{constant.name: value})
    _forget()
    try:
        yield
    finally:
        devices.update(before)
        for cls, library in reversed(classes):
            cls.library = library
        _forget()


def _family(cls: type) -> str:
    """Return what tells the library of a class: its module, or its bases'."""
    return " ".join([each.__module__ for each in cls.__mro__] + [cls.__name__.lower()])


def _list_subclasses(cls: type) -> Iterator[type]:
    for each in cls.__subclasses__():
        yield each
        yield from _list_subclasses(each)


def _forget() -> None:
    price_plan.cache_clear()


def find_moving(constant: Fitted, cells: Sequence[PublishedCell]) -> list[PublishedCell]:
    """Return the cells whose predictions depend on a constant, against those of the baseline.

    The last cell of each group stands for the group, since each takes long."""
    asked = list({cell.group: cell for cell in cells if constant.may_move(cell)}.values())
    here = load()
    low, high = constant.plausible
    far = high if high / constant.value >= 1.2 else low
    with overridden({constant: far}):
        there = {cell.id: prediction.predict(cell) for cell in asked}
    return [cell for cell in asked if abs(there[cell.id] / here[cell.id] - 1) > STILL]


def fit(constant: Fitted, moving: Sequence[PublishedCell], others: Mapping[Fitted, float]) -> float:
    """Return the value with the least median factor over the groups of the cells; without any, the
    middle of the plausible range."""
    grid = constant.grid()
    if not moving:
        return grid[len(grid) // 2]

    def miss(value: float) -> float:
        with overridden({**others, constant: value}):
            entries = make_entries({cell.id: prediction.predict(cell) for cell in moving})
        return median(find_group_factors(entries).values())

    return min(grid, key=miss)


def leave_out(
    source: PublishedSource,
    sources: Sequence[PublishedSource],
    tell: Callable[[str], None] = lambda _: None,
) -> LeftOutSource:
    """Return the factors of a source's groups by constants found without it."""
    ids = {cell.id for cell in source.cell}
    constants = [each for each in list_fitted() if ids.intersection(each.fitted_on)]
    known = {where for each in list_fitted() for where in each.fitted_on}
    rest = [cell for each in sources if each.source != source.source for cell in each.cell]
    values: dict[Fitted, float] = {}
    told = []
    for constant in constants:
        moving = find_moving(constant, rest)
        values[constant] = fit(constant, moving, values)
        where = f"on {len(moving)} other groups" if moving else "the middle, as no other moves"
        told.append(f"{constant.label} {values[constant]:.3g} for {constant.value:.3g} ({where})")
        tell(f"{source.source}: {told[-1]}")
    beyond = {
        cell
        for number in list_constants()
        for cell in number.fitted_on
        if cell in ids and cell not in known
    }
    unfit = {cell.id for cell in source.cell if cell.reading.chosen or cell.id in beyond}
    if unfit:
        told.append(
            f"{len(unfit)} measurements are left out, as what was fitted on them, or read in view "
            f"of them, is in no other source"
        )
    kept = [cell for cell in source.cell if cell.id not in unfit]
    with overridden(values):
        predicted = {cell.id: prediction.predict(cell) for cell in kept}
    return LeftOutSource(
        source.source, "; ".join(told), find_group_factors(make_entries(predicted))
    )


def describe(found: LeftOutSource) -> str:
    """Return a source's finding as a line."""
    factors = list(found.factors.values())
    middle = f"{median(factors):.2f}x of {len(factors)} groups" if factors else "no group"
    return json.dumps({found.source: middle}, ensure_ascii=False)
