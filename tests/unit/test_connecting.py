"""DuckDB connections of ours print nothing, also where DuckDB takes Python for a console."""

import subprocess
import sys

SHOWN = """
from facetline.facets import duckdb_connection as connecting
from facetline.facets.view import database
ASKED = "SELECT current_setting('enable_progress_bar')"
plain, view = connecting.connect({"threads": 1}), database.open_private(None, ())
for each in (plain, plain.cursor(), view, view.cursor()):
    print(each.execute(ASKED).fetchone()[0])
"""


def test_no_connection_shows_a_bar():
    """In a Python without a main file, where DuckDB draws a bar on standard output, ours and their cursors do not."""
    done = subprocess.run([sys.executable, "-c", SHOWN], capture_output=True, text=True, timeout=60, check=True)

    assert done.stdout.split() == ["False"] * 4
