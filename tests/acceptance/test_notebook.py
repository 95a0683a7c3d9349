"""A notebook as people write it runs in a real Jupyter kernel: the local runtime, blocking and awaited."""

import asyncio
import shutil
from pathlib import Path

import documented
import nbformat
import pytest
from nbclient import NotebookClient

PAGE = "docs/notebooks.md"
CELL_S = 90


def run(folder: Path, *cells: str) -> nbformat.NotebookNode:
    """Run cells in a fresh kernel and return the notebook with its outputs."""
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    client = NotebookClient(
        notebook, timeout=CELL_S, kernel_name="python3", resources={"metadata": {"path": str(folder)}}
    )
    asyncio.run(client.async_execute())
    return notebook


def printed(notebook: nbformat.NotebookNode) -> str:
    """Return what the cells printed, on either stream."""
    return "".join(each.text for cell in notebook.cells for each in cell.outputs if each.output_type == "stream")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the examples' configuration, as a notebook is opened in."""
    documented.files(tmp_path)
    documented.project(tmp_path)
    shutil.rmtree(tmp_path / ".facetline", ignore_errors=True)
    return tmp_path


@pytest.mark.timeout(300)
def test_the_pages_cells_run_in_a_kernel(folder: Path):
    """Every cell of the page on notebooks runs as it stands, in one kernel, with no error and no warning."""
    cells = [block.text for block in documented.blocks(PAGE, "python")]
    assert len(cells) >= 3

    assert "Warning" not in printed(run(folder, *cells))


@pytest.mark.timeout(300)
def test_long_statements_need_no_widgets(folder: Path):
    """DuckDB's bar, which wants ipywidgets, stays off: a search of seconds prints nothing and fails at nothing."""
    notebook = run(
        folder,
        "import importlib.util\nassert importlib.util.find_spec('ipywidgets') is None",
        "from facetline.facets import duckdb_connection\n"
        "many = 'SELECT count(*) FROM range(20000) a, range(8000) b WHERE (a.range * b.range) % 7 = 3'\n"
        "rows = duckdb_connection.connect({}).sql(many).fetchall()",
        "print(rows[0][0] > 0)",
    )

    assert printed(notebook) == "True\n"
