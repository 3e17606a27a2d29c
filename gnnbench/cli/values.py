"""Numbers on the command line: what an option takes, and whether this machine can do it.

Every refusal is one sentence that names the option and its range, before anything is allocated.
"""

from __future__ import annotations

import itertools
import math
import os
import re
import threading
from collections.abc import Sequence

import click

from gnnbench.limits import LARGEST

#: More processes than any one machine has devices.
MOST_PROCESSES = 1024
#: Stages of mini-batch training run on threads that have a team of OpenMP's each.
TEAMS = 4
#: What a weight takes in float32: itself, its gradient, and two moments of Adam.
WEIGHT_BYTES = 16
#: What it takes as long as nothing is trained.
DRAWN_BYTES = 4
#: What Python keeps of a layer and of an epoch, at the very least; it is some 2.5 kB and 1.6 kB.
LAYER_BYTES, EPOCH_BYTES = 2_000, 1_000
#: Of what was typed, so much is repeated in a refusal.
_SHOWN = 24

_WHOLE = re.compile(r"[+-]?[0-9]{1,30}")


def shorten(text: str) -> str:
    """What was typed, in quotes, as far as one can read it."""
    return repr(text if len(text) <= _SHOWN else f"{text[:_SHOWN]}...")


def read_whole(text: str) -> int | None:
    """The whole number that a text is, None where it is none or has more than 30 digits."""
    word = text.strip()
    return int(word) if _WHOLE.fullmatch(word) else None


class WholeNumber(click.ParamType):  # type: ignore[type-arg]
    """An option's type: a whole number from ``least`` to ``most``."""

    name = "N"

    def __init__(self, least: int, most: int = LARGEST) -> None:
        self.least = least
        self.most = most

    def __repr__(self) -> str:
        return f"WholeNumber({self.least}, {self.most})"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> int:
        number = value if isinstance(value, int) else read_whole(str(value))
        if number is None or not self.least <= number <= self.most:
            self.fail(
                f"{shorten(str(value))} is not a whole number from {self.least:,} to "
                f"{self.most:,}.",
                param,
                ctx,
            )
        return number


class RealNumber(click.ParamType):  # type: ignore[type-arg]
    """An option's type: a finite number above ``above``, and up to ``most``."""

    name = "X"

    def __init__(self, above: float, most: float) -> None:
        self.above = above
        self.most = most

    def __repr__(self) -> str:
        return f"RealNumber({self.above:g}, {self.most:g})"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        try:
            number = float(str(value))
        except ValueError:
            number = math.nan
        if not self.above < number <= self.most:
            self.fail(
                f"{shorten(str(value))} is not a number above {self.above:g} and up to "
                f"{self.most:g}.",
                param,
                ctx,
            )
        return number


def read_list(
    text: str, least: int, most: int, hint: str, example: str, least_count: int = 1
) -> list[int]:
    """Whole numbers between commas, each from ``least`` to ``most``; ``BadParameter`` where not."""
    words = text.split(",")
    numbers = [read_whole(word) for word in words]
    counts = [n for n in numbers if n is not None and least <= n <= most]
    if len(counts) != len(words) or len(words) < least_count:
        more = f"{least_count} or more " if least_count > 1 else ""
        raise click.BadParameter(
            f"{shorten(text)} is not a list of {more}whole numbers from {least} to {most:,}, "
            f"such as {example}.",
            param_hint=hint,
        )
    return counts


# --------------------------------------------------------------------------- what can be done


def check_threads(_: click.Context, __: click.Parameter, value: int | None) -> int | None:
    """Refuse more threads than this machine can start, as a callback of ``--threads``.

    OpenMP, when it cannot start one, ends the process.
    """
    if value is None or value <= (os.cpu_count() or 1):
        return value
    started = count_startable(TEAMS * value)
    if started < TEAMS * value:
        raise click.BadParameter(
            f"{value} is more than can be started here; the system takes up to "
            f"{max(1, started // TEAMS)}."
        )
    return value


def count_startable(threads: int) -> int:
    """How many of so many threads can be started beside those that there are; they end at once."""
    end = threading.Event()
    started: list[threading.Thread] = []
    try:
        for _ in range(threads):
            thread = threading.Thread(target=end.wait, daemon=True)
            thread.start()
            started.append(thread)
    except RuntimeError:  # the system refuses another one
        pass
    finally:
        end.set()
        for thread in started:
            thread.join()
    return len(started)


def memory_bytes() -> int:
    """This machine's memory."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def check_widths(first: int, hidden: int, layers: int, last: int, *, dense: bool) -> None:
    """Refuse a model that cannot be held here: from ``first`` features through ``hidden`` to
    ``last`` classes.

    ``dense`` says that every layer has a weight for each input and output, as all bundled models
    have; others are taken to have one for each output. Raises ``UsageError``.
    """
    if layers == 1:
        weights = first * last if dense else last
    elif dense:
        weights = first * hidden + (layers - 2) * hidden**2 + hidden * last
    else:
        weights = (layers - 1) * hidden + last
    _check_bytes(
        weights * WEIGHT_BYTES + layers * LAYER_BYTES,
        f"a model with --layers {layers} and --hidden {hidden}",
        "give fewer or narrower layers",
    )


def check_dims(dims: Sequence[int], *, dense: bool) -> None:
    """Refuse to plan for a model of these widths whose weights cannot be drawn here; else as
    :func:`check_widths`. Raises ``UsageError``."""
    weights = sum(one * other if dense else other for one, other in itertools.pairwise(dims))
    shown = ",".join(map(str, dims[:4])) + ",..." * (len(dims) > 4)
    _check_bytes(
        weights * DRAWN_BYTES + len(dims) * LAYER_BYTES,
        f"a model with --dims {shown}",
        "give fewer or narrower layers",
    )


def check_records(epochs: int, repeats: int) -> None:
    """Refuse more epochs than this machine can keep the records of. Raises ``UsageError``."""
    _check_bytes(
        epochs * repeats * EPOCH_BYTES,
        f"what is recorded of --epochs {epochs} with --repeats {repeats}",
        "give fewer",
    )


def _check_bytes(needed: int, what: str, remedy: str) -> None:
    from gnnbench.errors import UsageError

    here = memory_bytes()
    if needed > here:
        raise UsageError(
            f"{what} takes {show_bytes(needed)} or more, and this machine has {show_bytes(here)} "
            f"of memory; {remedy}."
        )


def show_bytes(count: int) -> str:
    """A size for people, however large."""
    from gnnbench.units import format_si

    return format_si(float(count), "B") if count < 10**18 else f"{count:.0e} bytes"
