"""The notebooks of the examples run from top to bottom, and are stored as they are before they run."""

from __future__ import annotations

import ast
import inspect
import os
from pathlib import Path
from typing import Any

import pytest
from documents import ROOT
from patience import patient

nbformat: Any = pytest.importorskip("nbformat", reason="nbformat is not installed (extra dev)")
nbclient: Any = pytest.importorskip("nbclient", reason="nbclient is not installed (extra dev)")

FOLDER = ROOT / "examples/notebooks"
NOTEBOOKS = {"attach": None, "train": "trl", "evaluate": "inspect_ai"}
"""What each needs beside envport."""


def read(name: str) -> Any:
    return nbformat.read(FOLDER / f"{name}.ipynb", as_version=4)


def test_all_are_run_and_told_of():
    assert {path.stem for path in FOLDER.glob("*.ipynb")} == set(NOTEBOOKS)
    page = (FOLDER / "README.md").read_text()
    assert all(f"({name}.ipynb)" in page for name in NOTEBOOKS)


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_it_is_stored_without_outputs(name: str):
    notebook = read(name)
    nbformat.validate(notebook)
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert cells
    assert all(cell.outputs == [] and cell.execution_count is None and not cell.metadata for cell in cells)
    assert set(notebook.metadata) == {"kernelspec", "language_info"}


async def test_the_cells_of_a_notebook_run(monkeypatch: pytest.MonkeyPatch):
    """Without a kernel, which takes seconds to start."""
    monkeypatch.chdir(FOLDER)
    names: dict[str, Any] = {}
    for cell in read("attach").cells:
        if cell.cell_type == "code":
            code = compile(cell.source, "attach.ipynb", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
            running = eval(code, names)
            if inspect.iscoroutine(running):
                await running
    assert names["gateway"].returncode == 0


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", NOTEBOOKS)
def test_it_runs_from_top_to_bottom(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    needed = NOTEBOOKS[name]
    if needed is not None:
        pytest.importorskip(needed)
    for variable in [it for it in os.environ if it.startswith("ENVPORT_")]:
        monkeypatch.delenv(variable)
    # What Jupyter keeps for a user is not of the tests.
    for variable in ("JUPYTER_RUNTIME_DIR", "JUPYTER_CONFIG_DIR", "IPYTHONDIR"):
        monkeypatch.setenv(variable, str(tmp_path))
    before = (FOLDER / f"{name}.ipynb").read_bytes()
    notebook = read(name)
    client = nbclient.NotebookClient(
        notebook, timeout=patient(300), kernel_name="python3", resources={"metadata": {"path": str(FOLDER)}}
    )
    # A cell that raises ends it: each notebook asserts its own result.
    client.execute()
    assert all(cell.execution_count for cell in notebook.cells if cell.cell_type == "code")
    assert (FOLDER / f"{name}.ipynb").read_bytes() == before
