"""Finished items of a job, kept on disk until the job is done, so that a stopped one can go on.

An item that was under way when the command was stopped is not kept. Code that makes an item wraps
it in :func:`once`, which needs no keeper: without one nothing is kept.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import pickle
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from gnnbench.host.files import publish, user_state

T = TypeVar("T")

#: The number of stopped jobs whose parts stay.
KEPT_JOBS = 16
_ENDING = ".part"


class Keeper:
    """The parts of one job, a file each in a folder that appears with the first."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        #: Whether the job has come to its end, so that nothing needs to be kept.
        self.done = True

    @property
    def count(self) -> int:
        """The number of parts that are kept."""
        return sum(1 for _ in self._folder.glob(f"*{_ENDING}"))

    def read(self, names: tuple[str, ...]) -> Any:
        """Return the part of these names; None if it is not kept, or damaged."""
        with contextlib.suppress(Exception):
            return pickle.loads(self._find(names).read_bytes())
        return None

    def write(self, names: tuple[str, ...], part: object) -> None:
        """Keep a part, if it can be kept."""
        # A plugin's objects may raise any error, and a full disk is no reason to stop the job.
        with contextlib.suppress(Exception):
            content = pickle.dumps(part)
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            with publish(self._find(names)) as stream:
                stream.write(content)

    def clear(self) -> None:
        """Remove all parts."""
        shutil.rmtree(self._folder, ignore_errors=True)

    def _find(self, names: tuple[str, ...]) -> Path:
        digest = hashlib.sha256("\0".join(names).encode("utf-8", "surrogatepass")).hexdigest()
        return self._folder / f"{digest[:32]}{_ENDING}"


class _Here:
    """The keeper, unless a part is being made."""

    keeper: Keeper | None = None


def find_folder(key: str) -> Path:
    """Return the folder of the job with this key. Raises ``RuntimeError`` without a home."""
    return user_state() / "stopped" / hashlib.sha256(os.fsencode(key)).hexdigest()[:32]


@contextmanager
def keeping(folder: Path, *, again: bool) -> Iterator[Keeper]:
    """Keep the parts of a job that is done in the block, and use kept ones ``again``.

    They are removed after the block if the job came to its end, and stay after an exception.
    """
    keeper, before = Keeper(folder), _Here.keeper
    if not again:
        keeper.clear()
        with contextlib.suppress(OSError):
            others = sorted(folder.parent.iterdir(), key=os.path.getmtime, reverse=True)
            for old in others[KEPT_JOBS - 1 :]:
                shutil.rmtree(old, ignore_errors=True)
    _Here.keeper = keeper
    try:
        yield keeper
        if keeper.done:
            keeper.clear()
    finally:
        _Here.keeper = before


def recall(*names: str) -> Any:
    """Return a part that was kept before; None if there is none."""
    keeper = _Here.keeper
    return None if keeper is None else keeper.read(names)


def keep(part: object, *names: str) -> None:
    """Keep a finished item, which is not None."""
    if _Here.keeper is not None:
        _Here.keeper.write(names, part)


def once(make: Callable[[], T], *names: str) -> T:
    """Return the part that was kept by these names, or make and keep it.

    Nothing that is made inside is kept for itself.
    """
    found: T | None = recall(*names)
    if found is not None:
        return found
    keeper, _Here.keeper = _Here.keeper, None
    try:
        part = make()
    finally:
        _Here.keeper = keeper
    keep(part, *names)
    return part


def stop() -> None:
    """Note that the job has not come to its end, although its command ends without an error."""
    if _Here.keeper is not None:
        _Here.keeper.done = False
