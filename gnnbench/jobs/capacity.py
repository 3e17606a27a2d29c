"""Whether this machine can do the work of a job, checked before anything is allocated.

Every refusal is one sentence with the numbers that are too large.
"""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Sequence

from gnnbench.errors import UsageError
from gnnbench.host.cores import memory_bytes
from gnnbench.units import format_si

#: Stages of mini-batch training run on this many threads, each with a team of OpenMP threads.
TEAMS = 4
#: The bytes of a weight in float32: itself, its gradient, and two moments of Adam.
WEIGHT_BYTES = 16
#: The bytes of a weight as long as nothing is trained.
DRAWN_BYTES = 4
#: The least bytes that Python keeps of a layer and of an epoch; they are some 2.5 kB and 1.6 kB.
LAYER_BYTES, EPOCH_BYTES = 2_000, 1_000


def check_threads(threads: int | None) -> None:
    """Refuse more threads than this machine can start. Raises ``UsageError``.

    If OpenMP cannot start a thread, it ends the process.
    """
    if threads is None or threads <= (os.cpu_count() or 1):
        return
    started = count_startable(TEAMS * threads)
    if started < TEAMS * threads:
        raise UsageError(
            f"threads is {threads}, which is more than can be started here; the system takes up to "
            f"{max(1, started // TEAMS)}."
        )


def count_startable(threads: int) -> int:
    """Return how many of ``threads`` more threads can be started; they end at once."""
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


def check_widths(first: int, hidden: int, layers: int, last: int, *, dense: bool) -> None:
    """Refuse a model that cannot be held here.

    It goes from ``first`` features through ``hidden`` to ``last`` classes. ``dense`` layers have a
    weight for each input and output, as in all bundled models. Other layers are taken to have one
    for each output. Raises ``UsageError``.
    """
    if layers == 1:
        weights = first * last if dense else last
    elif dense:
        weights = first * hidden + (layers - 2) * hidden**2 + hidden * last
    else:
        weights = (layers - 1) * hidden + last
    _check_bytes(
        weights * WEIGHT_BYTES + layers * LAYER_BYTES,
        f"a model with layers {layers} and hidden {hidden}",
        "give fewer or narrower layers",
    )


def check_dims(dims: Sequence[int], *, dense: bool) -> None:
    """Refuse to plan for a model with these widths if its weights cannot be drawn here.

    ``dense`` is as in :func:`check_widths`. Raises ``UsageError``.
    """
    weights = sum(one * other if dense else other for one, other in itertools.pairwise(dims))
    shown = ",".join(map(str, dims[:4])) + ",..." * (len(dims) > 4)
    _check_bytes(
        weights * DRAWN_BYTES + len(dims) * LAYER_BYTES,
        f"a model with dims {shown}",
        "give fewer or narrower layers",
    )


def check_records(epochs: int, repeats: int) -> None:
    """Refuse more epochs than this machine can keep the records of. Raises ``UsageError``."""
    _check_bytes(
        epochs * repeats * EPOCH_BYTES,
        f"what is recorded of epochs {epochs} with repeats {repeats}",
        "give fewer",
    )


def _check_bytes(needed: int, what: str, remedy: str) -> None:
    here = memory_bytes()
    if needed > here:
        raise UsageError(
            f"{what} takes {show_bytes(needed)} or more, and this machine has {show_bytes(here)} "
            f"of memory; {remedy}."
        )


def show_bytes(count: int) -> str:
    """Return a size as text, however large it is."""
    return format_si(float(count), "B") if count < 10**18 else f"{count:.0e} bytes"
