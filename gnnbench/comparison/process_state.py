"""State of this process that belongs to no row: compared and restored after each row's turn.

A part that leaves torch's anomaly detection on would make the epochs of every other row longer. A
part that changes the current folder would have result files written elsewhere.
"""

from __future__ import annotations

import gc
import logging
import os
import random
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch


@dataclass(frozen=True, slots=True)
class ProcessSetting:
    """One setting of the process: what a sentence calls it, how to read it, and how to set it."""

    name: str
    read: Callable[[], Any]
    write: Callable[[Any], object]


def _read_folder() -> str | None:
    try:
        return os.getcwd()
    except OSError:  # it has been deleted
        return None


def _enter_folder(folder: str | None) -> None:
    if folder is not None:
        with suppress(OSError):
            os.chdir(folder)


class _Environment:
    """The variables that exist now. A library may add its own when it is first imported."""

    def __init__(self) -> None:
        self._names = tuple(os.environ)

    def read(self) -> Mapping[str, str | None]:
        return {name: os.environ.get(name) for name in self._names}

    @staticmethod
    def write(wanted: Mapping[str, str | None]) -> None:
        os.environ.update({name: value for name, value in wanted.items() if value is not None})


def _read_handlers() -> dict[int, Any]:
    return {int(number): signal.getsignal(number) for number in signal.valid_signals()}


def _set_handlers(wanted: Mapping[int, Any]) -> None:
    if threading.current_thread() is not threading.main_thread():
        return
    for number, handler in wanted.items():
        if handler is not None and signal.getsignal(number) is not handler:
            with suppress(OSError, ValueError):
                signal.signal(number, handler)


def _read_logging() -> tuple[int, int, tuple[logging.Handler, ...]]:
    return logging.root.level, logging.root.manager.disable, tuple(logging.root.handlers)


def _set_logging(wanted: tuple[int, int, tuple[logging.Handler, ...]]) -> None:
    level, disabled, handlers = wanted
    logging.root.setLevel(level)
    logging.disable(disabled)
    logging.root.handlers[:] = handlers


def _set_anomaly(wanted: tuple[bool, bool]) -> None:
    torch.autograd.set_detect_anomaly(*wanted)


SETTINGS = (
    ProcessSetting("torch's gradients", torch.is_grad_enabled, torch._C._set_grad_enabled),
    ProcessSetting(
        "torch's anomaly detection",
        lambda: (torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()),
        _set_anomaly,
    ),
    ProcessSetting("torch's default type", torch.get_default_dtype, torch.set_default_dtype),
    ProcessSetting("torch's threads", torch.get_num_threads, torch.set_num_threads),
    ProcessSetting(
        "torch's deterministic algorithms",
        torch.are_deterministic_algorithms_enabled,
        torch.use_deterministic_algorithms,
    ),
    ProcessSetting(
        "torch's precision of products",
        torch.get_float32_matmul_precision,
        torch.set_float32_matmul_precision,
    ),
    ProcessSetting(
        "torch's autocast",
        lambda: torch.is_autocast_enabled("cpu"),
        lambda wanted: torch.set_autocast_enabled("cpu", wanted),
    ),
    ProcessSetting("NumPy's floating-point errors", np.geterr, lambda wanted: np.seterr(**wanted)),
    ProcessSetting("the current folder", _read_folder, _enter_folder),
    ProcessSetting("the handlers of signals", _read_handlers, _set_handlers),
    ProcessSetting("logging", _read_logging, _set_logging),
    ProcessSetting(
        "garbage collection", gc.isenabled, lambda wanted: gc.enable() if wanted else gc.disable()
    ),
    ProcessSetting("the trace function", sys.gettrace, sys.settrace),
    ProcessSetting("the profile function", sys.getprofile, sys.setprofile),
    ProcessSetting("the recursion limit", sys.getrecursionlimit, sys.setrecursionlimit),
    ProcessSetting("the switch interval", sys.getswitchinterval, sys.setswitchinterval),
)


class ProcessState:
    """The process's settings at the time of creation, which :meth:`restore` brings back."""

    def __init__(self) -> None:
        environment = _Environment()
        self._settings = (
            *SETTINGS,
            ProcessSetting("the environment", environment.read, environment.write),
        )
        self._values = [setting.read() for setting in self._settings]

    def restore(self) -> tuple[str, ...]:
        """Restore the settings that have changed, and return their names."""
        changed = []
        for setting, value in zip(self._settings, self._values, strict=True):
            if setting.read() != value:
                setting.write(value)
                changed.append(setting.name)
        return tuple(changed)


class RandomStreams:
    """The global random generators as one row sees them: each turn continues its last one.

    They are the generators of Python, NumPy and torch for the CPU.
    """

    def __init__(self) -> None:
        self._own: tuple[Any, ...] | None = None

    @contextmanager
    def at_turn(self) -> Iterator[None]:
        """Give the row its own generator states during a turn, then restore the others'."""
        others = self._read()
        if self._own is not None:
            self._write(self._own)
        try:
            yield
        finally:
            self._own = self._read()
            self._write(others)

    @staticmethod
    def _read() -> tuple[Any, ...]:
        return random.getstate(), np.random.get_state(), torch.get_rng_state()

    @staticmethod
    def _write(states: tuple[Any, ...]) -> None:
        python, numpy, cpu = states
        random.setstate(python)
        np.random.set_state(numpy)
        torch.set_rng_state(cpu)
