"""Preparation of comparisons and plans: names become data sets, machines and strategies.

The command line, Python's functions and sweeps all begin here, so that the same words mean the same
run everywhere. Heavy imports wait until a name has to be looked up.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import chain
from numbers import Real
from typing import TYPE_CHECKING, Any, TypeVar

from gnnbench.errors import GnnbenchError, UsageError
from gnnbench.host.cores import count_cores
from gnnbench.jobs.capacity import check_dims, check_records, check_threads, check_widths
from gnnbench.jobs.limits import COUNT, MODEL_NAMES, RULES
from gnnbench.units import parse_bytes

if TYPE_CHECKING:
    from gnnbench.comparison import Request
    from gnnbench.datasets import ScalingChoice
    from gnnbench.machines.machine import Platform
    from gnnbench.parts import LayerClass, Placement
    from gnnbench.plugins import Registry
    from gnnbench.records import Dataset, Graph, Mode, PartKind, Workload

    #: A strategy's name, and the parts that replace its own.
    ChosenStrategy = tuple[str, tuple[tuple[PartKind, str], ...]]

# Spelt out, not imported: `gnnbench --help` does without NumPy and torch. Tests hold them equal.
PART_NAMES = ("sampler", "placement", "communication", "memory", "kernel")
T = TypeVar("T")
#: The number of characters of a refused value that a message repeats.
_SHOWN = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """The request that comparisons, plans and advice share; an invalid value is refused.

    ``dataset`` and ``platform`` are names, files or objects; None is the usual one. ``swaps`` are
    parts that replace others, ``options`` are texts by kind of part and option. ``fanouts`` None
    leaves them to the model, ``threads`` to the machine, and ``mode`` to the strategies. Each field
    takes the values in ``gnnbench.jobs.limits.RULES``. Raises ``UsageError``.
    """

    dataset: str | Dataset | None = None
    platform: str | Platform | None = None
    model: str = "gcn"
    layers: int = 2
    hidden: int = 256
    epochs: int = 10
    batch_size: int = 1024
    fanouts: tuple[int, ...] | None = None
    swaps: tuple[tuple[PartKind, str], ...] = ()
    options: Mapping[PartKind, Mapping[str, str]] = field(default_factory=dict)
    mode: Mode | None = None
    seed: int = 0
    threads: int | None = None

    def __post_init__(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            if each.name in RULES and not (value is None and each.default is None):
                object.__setattr__(self, each.name, read_field(each.name, value))
        depth = self.count_layers()
        if self.fanouts is not None and len(self.fanouts) != depth:
            raise UsageError(
                f"fanouts are {list(self.fanouts)} for {depth} layers; give one number for each, "
                f"from the seeds outwards (0 is every neighbour)."
            )
        check_threads(self.threads)
        check_records(self.epochs, getattr(self, "repeats", 1))
        self.check_size(1, 1)  # a feature and a class are the fewest

    def count_layers(self) -> int:
        """Return the number of the model's layers."""
        return self.layers

    def list_widths(self, features: int, classes: int) -> tuple[int, ...]:
        """Return the widths f^0 .. f^L on a data set."""
        return (features, *[self.hidden] * (self.layers - 1), classes)

    def check_size(self, features: int, classes: int) -> None:
        """Refuse a model that this machine cannot hold. Raises ``UsageError``."""
        dense = self.model in MODEL_NAMES
        check_widths(features, self.hidden, self.layers, classes, dense=dense)


def read_field(name: str, value: object) -> Any:
    """Convert a value to the type of field ``name``. Raises ``UsageError``, one sentence."""
    try:
        return RULES[name].read(value)
    except ValueError:
        raise UsageError(f"{name} is {show_value(value)}; give {RULES[name]}.") from None


def show_value(value: object) -> str:
    """Return a value as text for messages, shortened if it is long."""
    try:
        text = " ".join(repr(value).split())
    except Exception:  # raised by a foreign object
        text = f"a {type(value).__name__}"
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


@dataclass(frozen=True, slots=True, kw_only=True)
class Job(Training):
    """A comparison, as it was asked for.

    ``learning_rate`` None leaves it to the model, ``checked_updates`` None means the usual number.
    ``demanded`` names options of mini-batches that were asked for, and that some row has to train
    by.
    """

    strategies: Sequence[ChosenStrategy]
    learning_rate: float | None = None
    scaling: ScalingChoice = "auto"
    repeats: int = 1
    same_seed: bool = False
    target_accuracy: float | None = None
    check: bool = True
    checked_updates: int | None = None
    plain: bool = True
    demanded: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        Training.__post_init__(self)
        if self.checked_updates is not None and not self.check:
            raise UsageError(
                f"checked_updates is {self.checked_updates:,}, and nothing is checked; leave it "
                f"out, or check runs."
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanJob(Training):
    """A plan, as it was asked for.

    It has either a ``dataset``, or the ``sizes`` of a graph to draw, vertices and edges. ``widths``
    are f^0 .. f^L, by default ``layers`` of ``hidden`` between the data set's own widths.
    """

    strategy: str
    sizes: tuple[str | int, str | int] | None = None
    widths: tuple[int, ...] | None = None

    def count_layers(self) -> int:
        """Return the number of the model's layers."""
        return len(self.widths) - 1 if self.widths else self.layers

    def list_widths(self, features: int, classes: int) -> tuple[int, ...]:
        """Return the widths f^0 .. f^L on a data set."""
        return self.widths or Training.list_widths(self, features, classes)

    def check_size(self, features: int, classes: int) -> None:
        """Refuse a model that this machine cannot hold. Raises ``UsageError``."""
        if self.widths:
            check_dims(self.widths, dense=self.model in MODEL_NAMES)
        else:
            Training.check_size(self, features, classes)


@dataclass(frozen=True, slots=True, kw_only=True)
class AdviceJob(Training):
    """The request of ``advise`` and ``matrix``.

    The parts of ``strategies`` are combined; all strategies if none is named. ``mode`` is the only
    mode to answer for, None for both. ``device_memory`` replaces the memory of every accelerator:
    bytes, or text such as ``"24GB"``. ``swaps`` are parts that every combination has, ``options``
    are settings that are not searched.
    """

    strategies: tuple[str, ...] = ()
    epochs: int = 1
    device_memory: int | float | str | None = None

    @property
    def device_bytes(self) -> int | None:
        """The bytes of ``device_memory``."""
        return read_size(self.device_memory)


def read_size(given: int | float | str | None) -> int | None:
    """Convert a number or text such as ``"24GB"`` to bytes.

    Raises ``UsageError`` for anything that is no size above 0."""
    if given is None:
        return None
    try:
        whole = int(given) if isinstance(given, float) and given.is_integer() else given
        size = parse_bytes(whole) if isinstance(whole, str) else COUNT.read(whole)
    except ValueError:
        size = 0
    if size <= 0:
        raise UsageError(f"{show_value(given)} is not a size above 0, such as 24GB.")
    return size


def make_request(job: Job, registry: Registry, ranks: int | None = None) -> Request:
    """Make the request of a job, with its data and machine, and set torch's threads.

    As one of several ranks, of which ``ranks`` are on this machine, a process has its share of the
    cores. Raises ``UsageError`` for names that are unknown or values that are contradictory.
    """
    for name, own_swaps in job.strategies:
        registry.strategy(name)
        for kind, part in own_swaps:
            registry.part(kind, part)
    model = registry.model(job.model)

    import torch

    from gnnbench.comparison import CHECKED_UPDATES, Request, Variant
    from gnnbench.datasets import scale_features

    threads = job.threads or max(1, count_cores() // (ranks or 1))
    torch.set_num_threads(threads)
    own = registry.strategy(job.strategies[0][0]).platform
    machine = load_machine(job.platform, ranks, find_placements(registry, job.strategies), own)
    data = scale_features(load_dataset(job.dataset, job.seed), job.scaling)
    data = note_unused_weights(data, model)
    return Request(
        strategies=tuple(Variant(*each) if each[1] else each[0] for each in job.strategies),
        dataset=data,
        workload=make_workload(job, data, model, threads),
        platform=machine,
        swaps=job.swaps,
        options=job.options,
        repeats=job.repeats,
        target_accuracy=job.target_accuracy,
        check=job.check,
        plain=job.plain,
        same_seed=job.same_seed,
        checked_updates=job.checked_updates or CHECKED_UPDATES,
        modes=() if job.mode is None else (job.mode,),
        demanded=job.demanded,
    )


def make_workload(
    job: Training, data: Dataset | None, model: LayerClass, threads: int = 0
) -> Workload:
    """Make the workload on ``data``, or on a graph to be drawn if that is None.

    The model's learning rate and all cores are the defaults. Raises ``UsageError`` for a model that
    this machine cannot hold.
    """
    from gnnbench.records import Workload

    features, classes = (1, 1) if data is None else (data.num_features, data.num_classes)
    job.check_size(features, classes)
    return Workload(
        model=job.model,
        dims=job.list_widths(features, classes),
        epochs=job.epochs,
        batch_size=job.batch_size,
        fanouts=job.fanouts or usual_fanouts(job.count_layers()),
        seed=job.seed,
        learning_rate=getattr(job, "learning_rate", None) or model.learning_rate,
        threads=threads or job.threads or count_cores(),
        edge_weights=data is not None and uses_weights(data.graph, model),
    )


def uses_weights(graph: Graph, model: LayerClass) -> bool:
    """Whether training a model on a graph multiplies by edge weights.

    The graph has weights, and the model's layers take them (``Layer.takes_weights``)."""
    return graph.weights is not None and getattr(model, "takes_weights", False)


def note_unused_weights(dataset: Dataset, model: LayerClass) -> Dataset:
    """Return the data set, with a note if it has edge weights that the model does not take."""
    if dataset.graph.weights is None or uses_weights(dataset.graph, model):
        return dataset
    note = f"edge weights were not used: {model.title} takes none"
    return replace(dataset, notes=(*dataset.notes, note))


def usual_fanouts(layers: int) -> tuple[int, ...]:
    """Return the default fan-outs: 25, 10, 10, ... from the seeds outwards."""
    return (25, *[10] * (layers - 1))


# --------------------------------------------------------------------------- words


def parse_strategies(text: str) -> tuple[ChosenStrategy, ...]:
    """Parse ``"hyscale,hongtu:kernel=dgl"`` as names with their swaps, each once."""
    chosen: list[ChosenStrategy] = []
    for word in text.split(","):
        name, *swaps = (part.strip() for part in word.split(":"))
        if not name:
            raise UsageError(f"{text!r} has an empty name; write it as A,B.")
        each = (name, parse_swaps(swaps))
        if each in chosen:
            raise UsageError(
                f"{word.strip()!r} is named twice; name it once, and ask for repeats to run it "
                f"again."
            )
        chosen.append(each)
    return tuple(chosen)


def list_names(
    strategies: Sequence[ChosenStrategy], model: str, swaps: Sequence[tuple[PartKind, str]] = ()
) -> list[tuple[str, str]]:
    """Return the names that a job uses, each behind its kind, as ``Listing.check`` takes them."""
    names: list[tuple[str, str]] = []
    for strategy, own_swaps in strategies:
        names += [("strategy", strategy), *own_swaps]
    return [*names, ("model", model), *swaps]


def parse_swaps(texts: Sequence[str]) -> tuple[tuple[PartKind, str], ...]:
    """Parse ``communication=hongtu`` as a kind of part and a part's name."""
    swaps = []
    for text in texts:
        kind, equals, name = text.partition("=")
        if not equals or not name.strip():
            raise UsageError(f"{text!r} is not PART=NAME, such as communication=hongtu.")
        swaps.append((find_kind(kind), name.strip()))
    return tuple(swaps)


def parse_settings(texts: Sequence[str]) -> dict[PartKind, dict[str, str]]:
    """Parse ``memory.device_bytes=2GB`` as texts by kind of part and option."""
    options: dict[PartKind, dict[str, str]] = {}
    for text in texts:
        target, equals, value = text.partition("=")
        kind, dot, option = target.partition(".")
        if not equals or not dot or not option.strip():
            raise UsageError(f"{text!r} is not PART.option=value, such as memory.device_bytes=2GB.")
        of_part = options.setdefault(find_kind(kind), {})
        if option.strip() in of_part:
            raise UsageError(f"{target} is set twice; keep one.")
        of_part[option.strip()] = value.strip()
    return options


def find_kind(text: str) -> PartKind:
    """Return the kind of part that a word names."""
    for kind in PART_NAMES:
        if text.strip() == kind:
            return kind  # type: ignore[return-value]
    raise UsageError(f"there is no part {text!r}; the parts are {', '.join(PART_NAMES)}.")


def read_swaps(swap: Mapping[str, str] | None) -> tuple[tuple[PartKind, str], ...]:
    """Read ``{"kernel": "native"}`` as kinds of parts and parts' names. Raises ``UsageError``."""
    pairs = _read_pairs("swap", swap, "kernel", "native")
    return tuple((find_kind(kind), name) for kind, name in pairs)


def _read_pairs(
    name: str, given: Mapping[str, T] | None, key: str, value: T
) -> tuple[tuple[str, T], ...]:
    """Return the items of a mapping from texts to values of the type of ``value``, an example.

    Raises ``UsageError`` for anything else.
    """
    kinds = (str,) if name == "swap" else (str, Real)
    if given is None:
        return ()
    if not isinstance(given, Mapping) or not all(
        isinstance(one, str) and isinstance(other, kinds) for one, other in given.items()
    ):
        raise UsageError(
            f"{name} is {show_value(given)}; give a dict, such as {{{key!r}: {value!r}}}."
        )
    return tuple(given.items())


def read_options(
    options: Mapping[str, str | int | float | bool] | None,
) -> dict[PartKind, dict[str, str]]:
    """Read ``{"placement.drm": False}`` as texts by part and option. Raises ``UsageError``."""
    read: dict[PartKind, dict[str, str]] = {}
    for target, value in _read_pairs("options", options, "placement.drm", False):
        kind, dot, option = target.partition(".")
        if not dot or not option:
            raise UsageError(f"option {target!r} is not PART.option, such as placement.drm.")
        text = str(value).lower() if isinstance(value, bool) else str(value)
        read.setdefault(find_kind(kind), {})[option] = text
    return read


# --------------------------------------------------------------------------- data and machines


def load_dataset(spec: str | Dataset | None, seed: int) -> Dataset:
    """Return the data set of a name or file, or the object itself; None is the usual one."""
    from gnnbench import datasets
    from gnnbench.records import Dataset

    if isinstance(spec, Dataset):
        return spec
    return datasets.default_dataset(seed) if spec is None else datasets.load(spec, seed=seed)


def find_placements(registry: Registry, chosen: Sequence[ChosenStrategy]) -> tuple[Placement, ...]:
    """Return the placements of the named strategies, with their swaps, in every mode."""
    from gnnbench.parts import Placement

    names = (
        dict(swaps).get("placement", parts.placement)
        for strategy, swaps in chosen
        for parts in registry.strategy(strategy).bundles.values()
    )
    made: list[Placement] = []
    for name in dict.fromkeys(names):
        try:
            part = registry.part("placement", name)()
        except (GnnbenchError, KeyboardInterrupt):
            raise
        except BaseException:
            continue  # its own row makes it again, and then says why it fails
        if isinstance(part, Placement):
            made.append(part)
    return tuple(made)


def load_machine(
    spec: str | Platform | None,
    ranks: int | None = None,
    placements: Sequence[Placement] = (),
    own: str = "",
) -> Platform:
    """Return the platform asked for, or the default.

    For a job of several ranks, of which ``ranks`` are on this machine, the default is the machine
    divided among them, and so is ``local``. In a single process the default is this machine if it
    has a CUDA device. Otherwise it is the first strategy's ``own`` machine, the usual one, or
    another bundled one. The first of them is taken on which all ``placements`` find a device to
    train on."""
    from gnnbench.machines import describe
    from gnnbench.machines.machine import Platform

    if ranks is not None and spec in (None, describe.LOCAL):
        from gnnbench.machines.workers import divide_machine

        return divide_machine(ranks)
    if isinstance(spec, Platform):
        return spec
    if spec is not None:
        return describe.load_platform(spec)
    usual = describe.default_platform()
    bundled = (entry.name for entry in describe.list_platforms() if entry.name != describe.LOCAL)
    named = [own] if own and usual.virtual else []
    candidates = chain(
        map(describe.load_platform, named), (usual,), map(describe.load_platform, bundled)
    )
    return next((p for p in candidates if all(can_train(each, p) for each in placements)), usual)


def can_train(placement: Placement, platform: Platform) -> bool:
    """Whether the platform has a device that the placement trains on."""
    try:
        return bool(placement.trainers(platform))
    except UsageError:
        return False
    except KeyboardInterrupt:
        raise
    except BaseException:
        # Its own run asks it again, and reports the exception as that run's failure.
        return True
