"""Runs the command line in this process, and finds the comparison made by hand."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from gnnbench.cli import main


@pytest.fixture
def run() -> Callable[..., Result]:
    def run_command(*words: str | Path) -> Result:
        return CliRunner().invoke(main, [str(word) for word in words])

    return run_command
