"""The notebook in ``docs/`` runs from its first cell to its last and shows what it says."""

import json
from pathlib import Path

import pandas as pd
import pytest

from gnnbench.api import ComparisonResult
from tests.report.example_comparison import every_status

nbformat = pytest.importorskip("nbformat", reason="notebooks are run on Python 3.11 and later")
shells = pytest.importorskip("IPython.core.interactiveshell", reason="IPython is not installed")

NOTEBOOK = Path(__file__).resolve().parents[2] / "docs" / "first_comparison.ipynb"


def test_it_runs_and_shows_who_wins(tmp_path, monkeypatch):
    """The cells run in this process, where everything is imported already."""
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    nbformat.validate(notebook)
    assert all(not cell.get("outputs") for cell in notebook.cells)
    monkeypatch.chdir(tmp_path)
    shell = shells.InteractiveShell()
    shown = []
    with pd.option_context("display.max_columns", 20, "display.width", 200):
        for cell in notebook.cells:
            if cell.cell_type == "code":
                ran = shell.run_cell(cell.source)
                ran.raise_error()
                kinds, _ = shell.display_formatter.format(ran.result)
                shown.append((kinds.get("text/html", ""), kinds["text/plain"]))
    assert "<table" in shown[0][0]
    # Its modelled rows are closer together than the model's own error.
    assert "no difference is shown" in shown[0][0]
    assert "equal to reference" in shown[0][0]
    assert "hyscale" in shown[1][1]
    assert "modelled" in shown[1][1]
    assert "hongtu·vanilla" in shown[2][1]
    assert "epyc7543x4-4xa100" in shown[3][1]
    assert "made up at random" in shown[4][1]
    saved = json.loads((tmp_path / "mine.json").read_text())
    assert saved["dataset"]["name"] == "mine"


def test_a_result_is_shown_once_in_jupyter(monkeypatch):
    """rich would display what is printed into a string, if it found itself in Jupyter."""
    shown = []
    monkeypatch.setattr("rich.console._is_jupyter", lambda: True)
    monkeypatch.setattr("rich.jupyter.display", lambda *given: shown.append(given))
    found = ComparisonResult(every_status())
    assert "hongtu is fastest" in str(found)
    assert shown == []
