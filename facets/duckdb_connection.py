"""Open DuckDB connections: without network access, extensions or output.

DuckDB shows a bar on standard output when a statement takes two seconds and Python has no main file (`python -c`, a
notebook, what a service manager embeds). Standard output is for results: JSON is read there, and MCP spoken.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import duckdb

_ALWAYS = {"autoinstall_known_extensions": "false", "autoload_known_extensions": "false"}


def connect(config: Mapping[str, str | int]) -> "duckdb.DuckDBPyConnection":
    """Return a connection to a new database in memory, with these settings beside those that all have."""
    import duckdb

    connection = duckdb.connect(config={**config, **_ALWAYS})
    # Not SET: in a notebook that makes the bar first, and fails where ipywidgets is not installed.
    connection.execute("PRAGMA disable_progress_bar")
    return connection
