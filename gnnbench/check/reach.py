"""The checks of leftovers: choices of options, and methods that nothing has called.

A part's own method that no check calls was not checked, whatever the other checks say.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator

from gnnbench.check import graphs
from gnnbench.check.checks import require_equal
from gnnbench.check.outcome import NonConformingError, NotApplicableError, NotReachedError
from gnnbench.check.recording import list_overridden
from gnnbench.check.subject import Place, Subject, World
from gnnbench.errors import IncompatiblePartsError
from gnnbench.machines.machine import Platform
from gnnbench.parts import Part, list_choices, option_fields
from gnnbench.records import Mode, PartKind, RunResult


def check_every_choice(subject: Subject) -> str:
    """Train once with each choice that an option offers, and check that the model is the same.

    If a mode is tried beside a slow host, that place is used, so that accelerators do the work.
    """
    held, refused = [], []
    places = {place[0]: place for place in subject.places() if place[1] is not subject.dataset}
    for place in places.values():
        for kind, option, text in _list_choices(subject, place[0]):
            case = f"{place[0]} with {kind}.{option}={text}"
            try:
                run = _train_with(subject, place, kind, option, text)
            except IncompatiblePartsError as refusal:
                refused.append(f"{case}: {refusal}")
                continue
            if run.status == "out-of-memory":
                refused.append(f"{case}: {run.reason}")
            elif run.other_maths:
                _require_finite(run, case)
                held.append(case)
            else:
                require_equal(run, case)
                held.append(case)
    if not held:
        raise NotApplicableError(
            refused[0] if refused else "no option is a choice of several values"
        )
    return f"{len(held)} choices train, {len(refused)} are refused here: {', '.join(held)}"


def _require_finite(run: RunResult, case: str) -> None:
    if run.status != "done":
        raise NonConformingError(f"{case}: the run ended with {run.status}: {run.reason}")


def _list_choices(subject: Subject, mode: Mode) -> Iterator[tuple[PartKind, str, str]]:
    """Yield each option of a mode's parts that is a choice, with each value but the default."""
    for kind, part in subject.part_classes():
        if subject.bundles[mode].named(kind) != part.name:
            continue
        for option, declared in option_fields(part).items():
            if option in subject.options.get(kind, {}):
                continue
            for value in list_choices(part, option):
                if value != declared.default:
                    yield kind, option, str(value)


def _train_with(
    subject: Subject, place: Place, kind: PartKind, option: str, text: str
) -> RunResult:
    options = {other: dict(values) for other, values in subject.options.items()}
    options.setdefault(kind, {})[option] = text
    world = subject.begin(place, options)
    return subject.train(world.mode, world.setting, check=True, options=options)


# --------------------------------------------------------------------------- what was called


def check_reached(subject: Subject, others: Callable[[Subject], None]) -> str:
    """Check that every method of a part's own was called, and that every trainer has trained.

    ``others`` runs the checks that have not run on the subject yet. Methods still missing are
    looked for on other machines, with sparse features, and on the host of this machine alone.
    """
    others(subject)
    idle = _find_idle(subject)
    for scenario in _make_scenarios(subject):
        if not _list_missing(subject):
            break
        scenario()
    missing = _list_missing(subject)
    called = f"nothing called {', '.join(missing)}" if missing else ""
    if missing or idle:
        raise NotReachedError(
            f"{'; '.join(filter(None, (called, *idle)))}: what does not run is not checked; leave "
            f"it out, or set the options with which it has a use"
        )
    count = sum(len(_list_hooks(subject, part)) for _, part in subject.part_classes())
    return f"all {count} methods that its parts bring were called, and every trainer trained"


def _list_missing(subject: Subject) -> list[str]:
    """Return the parts' own methods that were not called."""
    return [
        f"{name}() of {kind} {part.name!r}"
        for kind, part in subject.part_classes()
        for name in _list_hooks(subject, part)
        if (kind, part.name, name) not in subject.reached.methods
    ]


def _list_hooks(subject: Subject, part: type[Part]) -> tuple[str, ...]:
    """Return the methods of a part's own, and of the sessions that it has opened."""
    opened = subject.reached.opened.get((part.kind, part.name), set())
    return (*list_overridden(part), *sorted(opened))


def _find_idle(subject: Subject) -> list[str]:
    """Return the trainers that computed nothing in any world, mode by mode."""
    idle: dict[Mode, dict[str, bool]] = {}
    for _, world in subject.worlds():
        run = world.run()
        busy = {
            entry.span.place
            for entry in run.timeline
            if entry.span.stage in ("aggregate", "update", "recompute")
        }
        for device in world.bundle.placement.trainers(world.setting.platform):
            of_mode = idle.setdefault(world.mode, {})
            of_mode[device.name] = of_mode.get(device.name, True) and device.name not in busy
    return [
        f"{mode}: of its trainers {', '.join(names)} computed nothing"
        for mode, trainers in idle.items()
        if (names := [name for name, rests in trainers.items() if rests])
    ]


def _make_scenarios(subject: Subject) -> Iterator[Callable[[], None]]:
    """Yield more runs, in places that may call methods not called yet."""
    platforms: list[Platform] = [*graphs.make_platforms(), *graphs.make_platforms(slow_host=True)]
    platforms.append(graphs.make_this_host())
    for mode in subject.modes:
        for dataset in (graphs.make_sparse_dataset(), graphs.make_wide_dataset()):
            for platform in platforms:
                place = (mode, dataset, platform)
                yield functools.partial(_try, subject, place)


def _try(subject: Subject, place: Place) -> None:
    """Train in a place, unless it is refused there."""
    try:
        world: World = subject.begin(place)
    except IncompatiblePartsError:
        return
    world.run()
