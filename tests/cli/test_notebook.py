"""The notebook in ``docs/`` runs from its first cell to its last and shows what it says."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

nbformat = pytest.importorskip("nbformat", reason="notebooks are run on Python 3.11 and later")
nbclient = pytest.importorskip("nbclient", reason="notebooks are run on Python 3.11 and later")
pytest.importorskip("ipykernel", reason="notebooks are run on Python 3.11 and later")

NOTEBOOK = Path(__file__).resolve().parents[2] / "docs" / "first_comparison.ipynb"


def run_notebook(cells, folder):
    """The cells after they have run, in a kernel of their own."""
    made = nbformat.v4.new_notebook(cells=cells)
    client = nbclient.NotebookClient(
        made, timeout=300, kernel_name="python3", resources={"metadata": {"path": str(folder)}}
    )
    client.execute()
    return made.cells


def text_of(cell, kind):
    return "".join(
        "".join(output["data"].get(kind, ""))
        for output in cell.outputs
        if output.output_type == "execute_result"
    )


def test_it_runs_and_shows_who_wins(tmp_path):
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    nbformat.validate(notebook)
    assert all(not cell.get("outputs") for cell in notebook.cells)
    cells = [cell for cell in run_notebook(notebook.cells, tmp_path) if cell.cell_type == "code"]
    assert "fastest" in text_of(cells[0], "text/html")
    assert "equal to reference" in text_of(cells[0], "text/html")
    frame = text_of(cells[1], "text/plain")
    assert "hyscale" in frame
    assert "modelled" in frame
    assert "hongtu·vanilla" in text_of(cells[2], "text/plain")
    assert "epyc7543x4-4xa100" in text_of(cells[3], "text/plain")
    assert "made up at random" in text_of(cells[4], "text/plain")
    saved = json.loads((tmp_path / "mine.json").read_text())
    assert saved["dataset"]["name"] == "mine"


def test_a_cell_that_fails_would_be_seen(tmp_path):
    failing = nbformat.v4.new_code_cell("raise LookupError('there is no hongto')")
    with pytest.raises(nbclient.exceptions.CellExecutionError, match="there is no hongto"):
        run_notebook([failing], tmp_path)
