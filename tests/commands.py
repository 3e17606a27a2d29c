"""Readers of a command's output, and a way to run Python in a subprocess."""

import json
import subprocess
import sys
from typing import Any

from click.testing import Result


def read_document(result: Result) -> Any:
    """Return the JSON that a command wrote to standard output; it must have succeeded."""
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def one_sentence(result: Result, status: int = 2) -> str:
    """Return the error of a command that failed with ``status`` and printed nothing else."""
    assert result.exit_code == status, result.output
    assert result.stdout == ""
    (line,) = result.stderr.splitlines()
    assert line.startswith("gnnbench: error: ")
    assert line.endswith((".", "?"))
    assert "unexpected" not in line or status == 3
    return line


def run_python(*words: object, **how: Any) -> subprocess.CompletedProcess[str]:
    """Run Python in a subprocess and keep its output."""
    command = [sys.executable, *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, **how)


def read_runs(result: Result) -> Any:
    """Return the runs of the document that a command wrote to standard output."""
    return read_document(result)["runs"]
